"""Settings of a run -> its rows, model and loss; and a check of the settings before the rows are read."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rankgrad.batches.memory import CrossBatchMemory, Memory, RowMemory
from rankgrad.batches.sampler_settings import check_settings, named_as_settings
from rankgrad.batches.samplers import ClassBatches
from rankgrad.common.checks import spelled
from rankgrad.evaluation import evaluate
from rankgrad.losses import RetrievalLoss, SumLoss
from rankgrad.losses.called import CalledLoss
from rankgrad.losses.checked import ClassLoss

from ...datasets.base import Table
from ...datasets.folds import with_fold, with_val, with_wrong_labels
from ...datasets.rows import Rows
from ...models import TAKES, EmbeddingModel, build_model, load_weights, taking
from ...models.build import GIVEN, READ, check_options
from ...models.timm import weights_file
from ...runs.folder import Run
from ...settings import ConfigError, make, named, section
from ...settings.resolvers import own_size, resized_for
from ...settings.spelling import as_keys
from ...training import runner
from ...training.module import check_optimizer
from .settings import BEST, RetrievalSettings, asked

ENOUGH = 8  # held-out classes on which the share of the trained weights is chosen without being asked


@dataclass(frozen=True)
class Given:
    """Objects that the caller of `fit` gives, in place of settings.

    Attributes:
        model: the model to train.
        embedding_size: dimension of its embeddings.
        table: the rows; None: the data that the settings name.
        loss: the loss; None: the loss that the settings name.
    """

    model: nn.Module
    embedding_size: int
    table: Rows | None = None
    loss: nn.Module | None = None


@dataclass(frozen=True, eq=False)
class RetrievalRows:
    """The rows of a run.

    Attributes:
        table: all rows.
        train: rows for training.
        labels: [training row] their classes, numbered 0 .. C - 1 as classifiers need them.
        test: rows for the final evaluation.
        held_out: rows that choose the best evaluation, or the share of the trained weights; None: nothing is chosen on
            them.
    """

    table: Rows
    train: Rows
    labels: Tensor
    test: Rows
    held_out: Rows | None

    @classmethod
    def of(cls, table: Rows, settings: RetrievalSettings) -> RetrievalRows:
        """The rows of a table by their split.

        Raises:
            ConfigError: the settings need rows that the table does not have.
        """
        asked = settings.evaluation.split
        if asked not in table.splits and table.splits == ("train",):
            # two classes are needed on either side
            divided = "To hold out whole classes: data.load.test_fraction=0.5. " * (len(torch.unique(table.label)) > 3)
            raise ConfigError(
                f"{table.name} has no {table.takes} of split {asked!r}; it has train. {divided}To train on all "
                f"{table.takes}, and evaluate on them too: evaluation.split=train"
            )
        train, test = table.select("train"), table.select(asked)
        if settings.evaluation.levels:
            by_levels(test, "evaluation.levels")
        labels = torch.unique(train.label, return_inverse=True)[1]
        return cls(table, train, labels, test, to_choose_on(settings, table))


# ------------------------------------------------------------------------------------------------------------ checks


def check(settings: RetrievalSettings) -> None:
    """Raise if the sampler, optimiser, model, loss, transforms or evaluation of a run would refuse its settings.

    Each is made, or used on four made-up items: the settings are judged by the code that will use them, so there is
    no second list of rules. The model is made without memory, and weights are not loaded.

    Raises:
        TypeError, ValueError: the setting that is refused.
        FileNotFoundError: the file of weights does not exist.
    """
    with named_as_settings():
        check_settings(**settings.sampler)
    check_optimizer(settings.optimizer)
    if settings.init is None:
        _check_model(settings.model, settings.optimizer["only"])
    for name in ("train_transform", "eval_transform"):
        make(getattr(settings.data, name), slot="transform", trust=settings.trust, where=f"data.{name}")
    kind = named(settings.loss, slot="loss", trust=settings.trust, where="loss")
    # losses of others may need facts about the data
    if isinstance(kind, type) and issubclass(kind, RetrievalLoss) and kind.__module__.startswith("rankgrad.losses"):
        make(settings.loss, slot="loss", trust=settings.trust, where="loss")
    given = settings.evaluation
    clusters: Any = "none" if given.clusters == "auto" else given.clusters  # k-means itself needs no trial
    bootstrap = min(given.bootstrap, 1) if isinstance(given.bootstrap, int) else given.bootstrap
    four, labels = torch.eye(2).repeat(2, 1), torch.tensor([0, 1, 0, 1])
    with section("evaluation"):
        evaluate(four, labels, metrics=asked(given.ks, given.extra, clusters), intervals=bootstrap)


def _check_model(given: Mapping[str, Any], trained: Sequence[str] | None) -> None:
    options, weights = dict(given), given.get("weights")
    if weights is not None:
        weights_file(Path(weights))
    options |= {name: without for name, without in (("pretrained", False), ("weights", None)) if name in options}
    kind = options.pop("kind")
    with section("model"), torch.device("meta"):
        if kind in READ:
            check_options(kind, options)
        elif kind != GIVEN:  # the caller of `fit` has made it
            train_only(build_model(kind, **TAKES.get(kind, ("", {}))[1], **options), trained)


# -------------------------------------------------------------------------------------------------------------- rows


def read_table(settings: RetrievalSettings) -> Rows:
    """The rows that the settings name."""
    elsewhere = {"shorter_side": "data.resize", **{name: f"data.{name}" for name in ("root", "cache", "cache_dir")}}
    with spelled(as_keys("data.load", elsewhere)):
        table: Rows = make(settings.data.load, slot="data", trust=settings.trust)
    return table


def load_table(settings: RetrievalSettings, given: Rows | None = None, say: runner.Say = runner.silent) -> Rows:
    """The rows of a run, or those that were given.

    With fold=, only the training classes are returned, and some of them are held out. With label_noise=, some of the
    training labels are wrong.

    Args:
        settings: of the run.
        given: rows in place of those that the settings name.
        say: called with a text about rows and classes by split. If the split fails, the text is about the rows as read.
    """
    table = read_table(settings) if given is None else given
    try:
        for name in ("fold", "held_out", "label_noise"):
            if table.several is not None and (value := getattr(settings, name)):
                each = f"each {table.noun} of {table.name} has several"
                raise ConfigError(f"{name}={value} needs one class per {table.noun}, but {each}")
        table = with_fold(table, settings.fold) if settings.held_out is None else with_val(table, settings.held_out)
        table = with_wrong_labels(table, settings.label_noise, settings.seed)
    finally:
        say(table.summary())
    return table


def sizes_before(settings: RetrievalSettings) -> list[int | None]:
    """The sizes of images at which the network before training is measured; None: the data are no photographs."""
    use, asked = settings.evaluation.size, settings.evaluation.untouched
    own = own_size({"init": settings.init, "model": settings.model}) if settings.data.resize is not None else None
    if own is None or own == use:
        return [use]
    return [own] if asked == "own" else [use] if asked == "same" else [use, own]


def at_size(settings: RetrievalSettings, table: Rows, size: int | None) -> tuple[Rows, Any]:
    """The rows and their transform for images of a size. Files are read anew if they were made smaller before."""
    given = dict(settings.data.eval_transform)
    if size != settings.evaluation.size and size is not None:
        given |= {"size": size, "resize": resized_for(size, vars(settings.data))}
        side = getattr(table, "shorter_side", None)
        if (
            isinstance(table, Table)
            and side is not None
            and isinstance(given["resize"], int)
            and side < given["resize"]
        ):
            table = replace(table, shorter_side=given["resize"], pixels=None)
    return table, make(given, slot="transform", trust=settings.trust)


def to_choose_on(settings: RetrievalSettings, table: Rows) -> Rows | None:
    """The held-out classes, if they choose the best evaluation or the share of the trained weights."""
    if settings.evaluation.keep_best == "val":
        asked = "evaluation.keep_best=val"
    elif chooses_share(settings, table):
        asked = "optimizer.average=best"
    else:
        return None
    if "val" not in table.splits or settings.evaluation.split == "val":
        raise ConfigError(
            f"{asked} needs held-out classes, a split val beside the test: held_out=0.1 evaluation.split=test"
        )
    return table.select("val")


def chooses_share(settings: RetrievalSettings, table: Rows) -> bool:
    """Whether the share of the trained weights is chosen on held-out classes: asked for, or a pretrained network is
    trained and there are enough of these classes.
    """
    share = settings.optimizer["average"]
    if share is not None or not settings.pretrained or settings.frozen:
        return bool(share == BEST)
    if settings.evaluation.split == "val" or "val" not in table.splits or table.several is not None:
        return False
    return len(torch.unique(table.select("val").label)) >= ENOUGH


def relabelled(table: Rows, labels: Tensor) -> Rows:
    """The table with classes numbered from 0. Their names stay. Rows with several classes are not changed."""
    if table.several is not None:
        return table
    there = torch.unique(table.label).tolist()
    return replace(table, label=labels, class_names=tuple(table.class_names[i] for i in there))


def model_of(settings: RetrievalSettings, table: Rows) -> EmbeddingModel:
    """The model that the settings describe, for these rows."""
    options = dict(settings.model)
    kind = options.pop("kind")
    name, takes, asks = f"model={kind}", TAKES[kind][0] if kind in TAKES else table.takes, table.asks
    if settings.init is not None:
        source = Path(settings.init)
        model, _ = load_weights(Run(source).weights if source.is_dir() else source)
        name, takes, asks = str(source), model.inputs.takes, model.inputs.asks
        model.train()
    if takes != table.takes:
        other = " or ".join(f"model={kind}" for kind in taking(table.takes))
        raise ConfigError(f"{name} takes {takes}, but {settings.data.name} has {table.takes}; use {other}")
    for what, count in table.asks.items():
        if asks[what] != count:
            raise ConfigError(f"{name} has {what}={asks[what]}, but {settings.data.name} has {what}={count}")
    if settings.init is None:
        model = build_model(kind, **table.asks, **options)
    check_pixels(settings, model)
    return model


def train_only(model: nn.Module, patterns: Sequence[str] | None) -> str:
    """Freeze all weights of a model whose names match none of these shell patterns.

    Returns:
        One line that says how much is trained; "" without patterns.

    Raises:
        ConfigError: a pattern matches no weight.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> train_only(model, ["1.*"])
    'optimizer.only: 2 of 4 weights are trained, 4 of 13 numbers'
    """
    if patterns is None:
        return ""
    weights = dict(model.named_parameters())
    chosen: set[str] = set()
    for pattern in patterns or [""]:
        found = fnmatch.filter(weights, str(pattern))
        if not found:
            some = ", ".join([*weights][:: max(len(weights) // 6, 1)])
            raise ConfigError(
                f"optimizer.only is a list of patterns of names of weights, such as [head.*]; {pattern!r} matches none "
                f"of the {len(weights)} weights. Some names: {some}"
            )
        chosen.update(found)
    for name, weight in weights.items():
        weight.requires_grad_(name in chosen)
    numbers, of = (sum(weights[name].numel() for name in names) for names in (chosen, weights))
    return f"optimizer.only: {len(chosen)} of {len(weights)} weights are trained, {numbers:,} of {of:,} numbers"


def check_pixels(settings: RetrievalSettings, model: EmbeddingModel) -> None:
    """Raise if the weights were trained with another pixel normalisation than the data has."""
    given = [settings.data.eval_transform.get(name) for name in ("mean", "std")]
    if (not any(model.pixel_mean) and set(model.pixel_std) <= {1.0}) or None in given:
        return  # no weights, or weights that need no normalisation
    wanted = [list(model.pixel_mean), list(model.pixel_std)]
    if not torch.allclose(torch.tensor(wanted), torch.tensor(given), atol=1e-3):
        mean, std = (str([round(value, 4) for value in values]).replace(" ", "") for values in wanted)
        raise ConfigError(
            f"these weights expect pixels with mean {mean} and standard deviation {std}; "
            f'add "data.train_transform.mean={mean}" "data.train_transform.std={std}"'
        )


def loss_of(
    settings: RetrievalSettings, rows: RetrievalRows, batches: ClassBatches, given: nn.Module | None = None
) -> nn.Module:
    """The loss, with a memory if the settings ask for one. Without a memory, it gets the facts of all batches.

    Args:
        settings: of the run, with what follows from the data.
        rows: its rows.
        batches: its batches.
        given: a loss in place of the one that the settings name.
    """
    kind, promise = named(settings.loss, slot="loss", trust=settings.trust), dict[str, Any]()
    if settings.memory or targets_of(settings, rows.train) is not None:
        pass  # the loss sees other lists than those of the batches
    elif isinstance(kind, type) and issubclass(kind, RetrievalLoss):
        taken = inspect.signature(kind).parameters.values()  # a loss of a user may take its own settings only
        if any(each.name == "positives" or each.kind is each.VAR_KEYWORD for each in taken):
            promise["positives"] = batches.positives
    loss: nn.Module = given or make(settings.loss, slot="loss", trust=settings.trust, **promise)
    return _remembering(settings, loss, len(rows.train), batches.batch_size) if settings.memory else loss


def _remembering(settings: RetrievalSettings, loss: nn.Module, rows: int, of_batch: int) -> nn.Module:
    """The loss with a memory, whose length the settings give in batches or images."""
    options = dict(settings.memory)
    kind = named(options, slot="memory", trust=settings.trust)
    del options["_target_"]
    with section("memory"):
        if kind is RowMemory and isinstance(loss, SumLoss):  # a memory of its own for each part
            parts = {name: RowMemory(part, **options) for name, part in loss.losses.items()}
            return SumLoss(parts, loss.weights)
        if kind is RowMemory:
            return RowMemory(loss, **options)
        batches, size = options.pop("batches"), options.pop("size")
        if (batches is None) == (size is None):
            raise ConfigError(f"give either memory.batches or memory.size; got batches={batches}, size={size}")
        size = rows if size == "auto" else size if batches is None else batches * of_batch
        return CrossBatchMemory(loss, size, **options)


def targets_of(settings: RetrievalSettings, table: Rows) -> Tensor | None:
    """The target of each training row for the loss; None: its class."""
    return by_levels(table, "hierarchy") if settings.hierarchy else table.several


def by_levels(table: Rows, setting: str) -> Tensor:
    """Super-label and class of each row, [row, 2].

    Raises:
        ConfigError: a row has no super-label, or several classes.
    """
    if table.super_label is None or table.several is not None:
        why = "have several classes" if table.several is not None else "have no super-labels"
        raise ConfigError(f"{setting}=true needs a class and a super-label for each row; rows of {table.name} {why}")
    return torch.stack([table.super_label, table.label], dim=1)


def check_targets(loss: nn.Module, targets: Tensor) -> None:
    """Raise if a loss, or a part of a sum, takes only one class per row."""
    inner = loss.loss if isinstance(loss, Memory) else loss
    for part in inner.losses.values() if isinstance(inner, SumLoss) else [inner]:
        levels = isinstance(part, ClassLoss) and part.hierarchies and targets.dtype != torch.bool
        if not (isinstance(part, (RetrievalLoss, CalledLoss)) or levels):
            why = "have several classes" if targets.dtype == torch.bool else "are a hierarchy (hierarchy=true)"
            raise ConfigError(
                f"{type(part).__name__} takes one class per row, but these rows {why}; loss=h_ap takes all"
            )
