"""The task of retrieval: train a model with batches of classes, and evaluate it by the protocol of its data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from .._version import __version__
from ..config import ConfigError, default_loss, make, named, packages, plain, rate, section
from ..datasets.folds import held_out
from ..datasets.noise import with_wrong_labels
from ..datasets.protocols import Trial, over_draws, trials
from ..datasets.rows import Listed, Rows, numbered
from ..datasets.sampler_settings import as_settings, named_as_settings
from ..datasets.samplers import ClassBatches, class_batches
from ..datasets.transforms import Vectors
from ..defaults import LOSSES
from ..distributed import on_first
from ..evaluation import Report, evaluate
from ..evaluation.measures import MAIN
from ..files import write_text
from ..losses import RetrievalLoss, SumLoss
from ..losses.called import CalledLoss
from ..losses.checked import ClassLoss
from ..memory import CrossBatchMemory, memory_buffers
from ..models import (
    TAKES,
    EmbeddingHead,
    EmbeddingModel,
    build_model,
    extract_features,
    head_only,
    load_weights,
    save_weights,
    taking,
)
from ..models.record import read_record
from ..models.state_dicts import read_plain, write_plain
from ..report import read_run, write_report
from ..runs.embeddings import save_embeddings
from ..runs.folder import Run
from ..runs.history import CHOSEN_BY
from ..tables import aligned
from . import runner
from .callbacks import Forecast
from .data import TrainingData
from .early import check_retrieval
from .inference import embed, in_order
from .module import RetrievalModule
from .tensorboard import Board

UNITS = {"in_channels": "channel", "width": "number"}  # units of `Rows.asks`
DISTRACTED = "distractors/"  # prefix of metrics for a gallery with distractors, which are rows without a class
PAIRS = 5e9  # query-item pairs: comparing more takes a minute or longer on one core


@dataclass(frozen=True)
class EvaluatedEmbeddings:
    """A report, and the embeddings that were evaluated."""

    report: Report
    embeddings: Tensor


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


class RetrievalTask:
    """See `runner.Task`.

    Args:
        config: settings of the run; `derived` is filled in.
        quiet: show no progress bars.
        say: function that prints a text: rows and classes by split, then batches, loss and learning rate.
        given: objects in place of settings.
    """

    def __init__(
        self, config: DictConfig, quiet: bool, say: runner.Say = runner.silent, given: Given | None = None
    ) -> None:
        self.config, self.quiet, self.say = config, quiet, say
        self.bars = bool(config.trainer.enable_progress_bar) and not quiet
        check_retrieval(config)  # before any file is read
        self.table = load_table(config, None if given is None else given.table, say)
        self.test = self.table.select(config.evaluation.split)
        self.held_out = _to_choose_on(config, self.table)
        self.run: Run | None = None
        self.best = -1.0  # best R@1 so far
        self.train_table = self.table.select("train")
        # classes numbered 0 .. C - 1 over the training set, as classifiers need them
        self.labels = torch.unique(self.train_table.label, return_inverse=True)[1]
        self.model, loss = build(config, self.table, given)
        self.transform = make(config.data.eval_transform, slot="transform", trust=packages(config.get("trust")))
        self.data, self.learner = self._to_train()
        targets = _targets(config, self.train_table)
        if config.evaluation.levels:
            _by_levels(self.test, "evaluation.levels")
        if targets is not None:
            _check_targets(loss, targets)
        optimizer = {**plain(config.optimizer), "extended": plain(config.extended)}
        sub_batch = config.train.sub_batch
        with named_as_settings():
            even = self.data.sampler.even
        self.module = RetrievalModule(self.learner, loss, optimizer, sub_batch, even, targets)
        say(self._chosen())
        # needed to build the model from a state, see `unfinished`
        if self.learner is self.model and isinstance(self.model, EmbeddingModel):
            self.module.kept["model"] = self.model.config
            self.module.kept["pixels"] = [list(self.model.pixel_mean), list(self.model.pixel_std)]
        self.memories: Sequence[str] = memory_buffers(self.module)
        self.board = Board(self.test, config.seed) if "tensorboard" in (config.loggers or ()) else None

    def _to_train(self) -> tuple[TrainingData, nn.Module]:
        """The batches, and the module to train: the model, or with frozen=true a new head on its features."""
        config, table = self.config, _relabelled(self.train_table, self.labels)
        if not config.frozen:
            transform = make(config.data.train_transform, slot="transform", trust=packages(config.get("trust")))
            workers = config.data.workers
            return TrainingData(table, self.labels, transform, config.sampler, config.seed, workers), self.model
        if config.init is None and not (config.model.get("pretrained") or config.model.get("weights")):
            raise ConfigError(
                "frozen=true trains a head on the features of a trained network. Name this network with init=RUN, or "
                "with model=timm and either model.pretrained=true or model.weights=FILE"
            )
        if config.model.head == "none":
            raise ConfigError("frozen=true trains a head, but model.head=none has no head; give model.head=linear")
        if config.evaluation.every:
            raise ConfigError("evaluation.every needs a whole model, but frozen=true trains only a head")
        assert isinstance(self.model, EmbeddingModel)  # `fit` refuses frozen=true
        head = head_only(self.model.feature_size, config.model.embedding_size, config.model.head)
        # the rows are replaced by their features in `begin`
        return TrainingData(table, self.labels, Vectors(), config.sampler, config.seed), head

    def _chosen(self) -> str:
        """A line each for batches, loss and learning rate, with the reason for each value."""
        config, sampler = self.config, self.data.sampler
        each = "all" if sampler.samples_per_class == "all" else sampler.samples_per_class
        lines = [f"batches of {sampler.classes_per_batch} classes x {each} {self.table.takes}"]
        lines += [as_settings(note) for note in sampler.notes]
        batches, warmup = len(sampler) * config.trainer.max_epochs, config.memory.warmup if config.memory else 0
        if config.memory and warmup + 1 >= batches > 0:  # used from the batch after the first that is stored
            lines.append(
                f"the memory is never used: it is filled after memory.warmup={warmup} batches, and the training has "
                f"{batches}. Lower memory.warmup"
            )
        takes, lr, by_default = self.table.takes, config.optimizer.lr, rate(config)
        kind = takes if takes in LOSSES else "images" if self.table.captions is None else "texts"
        for_what = f" for {kind}" if takes in LOSSES or kind == "texts" else ""  # a module may take any inputs
        by_kind = f", the default{for_what}; loss=NAME chooses another"
        lines.append(f"loss {_loss_name(config)}{by_kind if plain(config.loss) == default_loss(kind) else ''}")
        why = f"for {by_default.of}, with {config.optimizer.name}"
        why = why if lr == by_default.lr else f"as given; the default is {by_default.lr:g} {why}"
        others = [f"; {group['lr']:g} for the {group['name']}" for group in self.module.learned() if group["lr"] != lr]
        lines.append(f"optimizer.lr {lr:g}, {why}{''.join(others)}")
        return "\n".join(lines)

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the whole table."""
        return self.table.fingerprint()

    def callbacks(self) -> list[Callback]:
        """Callbacks for the forecast of the training time, and for TensorBoard's pictures if it is used."""
        callbacks: list[Callback] = [] if self.quiet else [Forecast(quicker(self.config))]
        return callbacks if self.board is None else [*callbacks, self.board]

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate the untrained model. With frozen=true also compute the features."""
        self.run = run
        if not fresh and on_first(run.best.exists):
            self.best = on_first(lambda: float(read_record(run.best)["config"]["value"]))
        if (fresh or not on_first(run.before.exists)) and self._looks_before():
            _, evaluated = self._evaluated(trainer, self.model)
            on_first(lambda: write_text(run.before, evaluated.report.to_json()))
            self._draw(trainer, evaluated)
        if self.config.frozen:
            features = on_first(lambda: self._features(run.features, fresh))
            self.data.dataset = Listed(features, self.labels)

    def _looks_before(self) -> bool:
        """Whether the untrained model is evaluated. On large data this may take as long as the training.

        It is never evaluated on a sample of the queries, because the result could not be compared with the final one.
        """
        wanted, rows = self.config.evaluation.before, len(self.test)
        if self.config.lean or wanted != "auto":
            return bool(wanted) and not self.config.lean
        if rows**2 > PAIRS:
            self.say(
                f"the untrained model is not evaluated, because this would compare {rows:,} x {rows:,} "
                f"{self.test.takes}; to evaluate it, add evaluation.before=true"
            )
        return rows**2 <= PAIRS

    def _features(self, cache: Path, anew: bool) -> Tensor:
        """Features of the training rows. They are computed once and saved in the run's folder."""
        if cache.exists() and not anew:
            features: Tensor = read_plain(cache)
            return features
        table, size, workers = self.train_table, self.config.evaluation.batch_size, self.config.data.workers
        batches = in_order(table.dataset(), table.batches(self.transform), size, workers)
        assert isinstance(self.model, EmbeddingModel)
        features, _, _ = extract_features(self.model, batches, progress=self.bars)
        write_plain(cache, features)
        return features

    def _evaluated(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedEmbeddings]:
        config = self.config

        def evaluated(table: Rows, **changes: Any) -> tuple[Report, Tensor]:
            return evaluate_model(
                model,
                table,
                self.transform,
                {**plain(config.evaluation), **changes},
                workers=config.data.workers,
                seed=config.seed,
                progress=self.bars,
                device=trainer.strategy.root_device,
            )

        report, embeddings = evaluated(self.test)
        if self.held_out is not None:  # only R@1 is needed to choose the best evaluation
            chosen, _ = evaluated(self.held_out, ks=[1], bootstrap=0, clusters="none", levels=False)
            report = replace(report, values={**report.values, CHOSEN_BY["val"]: chosen.values["R@1"]})
        return report.values, EvaluatedEmbeddings(report, embeddings)

    def _keep_best(self, trainer: L.Trainer, values: Mapping[str, float]) -> None:
        """Write the weights if this evaluation is better than all earlier ones."""
        where = self.config.evaluation.keep_best
        if where is None or self.run is None or values[CHOSEN_BY[where]] <= self.best:
            return
        self.best = values[CHOSEN_BY[where]]
        if trainer.is_global_zero:
            save_weights(self.run.best, self.model, {"steps": trainer.global_step, "value": self.best})

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedEmbeddings]:
        """Evaluate by the protocol of the data. TensorBoard shows what is retrieved."""
        values, evaluated = self._evaluated(trainer, model)
        after = not trainer.training  # during training, `EvaluateEvery` logs the values
        if not after:
            self._keep_best(trainer, values)
        self._draw(trainer, evaluated, values=after)
        if self.board is not None and after:
            self.board.finished(trainer, self.module.kept["kept"], evaluated.report)
        return values, evaluated

    def _draw(self, trainer: L.Trainer, evaluated: EvaluatedEmbeddings, values: bool = True) -> None:
        if self.board is not None:
            self.board.evaluated(trainer, evaluated.report, evaluated.embeddings, values=values)

    def trained(self) -> nn.Module:
        """The whole model, also if only its head was trained."""
        if not self.config.frozen:
            return self.model
        assert isinstance(self.model, EmbeddingModel) and isinstance(self.learner, EmbeddingHead)
        return self.model.with_head(self.learner)

    def write(self, run: Run, result: EvaluatedEmbeddings, facts: dict[str, Any]) -> str:
        """Write weights, embeddings, facts and page, and return the report. A lean run keeps only the numbers."""
        if self.config.lean:
            write_text(run.facts, json.dumps(facts, indent=1))
            run.state.unlink(missing_ok=True)
            return result.report.to_json()
        save_weights(
            run.weights, self.trained(), {"data": plain(runner.lasting(self.config).data), "version": __version__}
        )
        save_embeddings(run.embeddings, result.embeddings, self.test)
        write_text(run.facts, json.dumps(facts, indent=1))
        write_report(
            run.page, [read_run(run, after=result.report, table=self.test, trust=packages(self.config.get("trust")))]
        )
        return result.report.to_json()


def quicker(config: DictConfig) -> list[str]:
    """Settings that would make a run shorter and that it does not have yet."""
    hints = []
    if config.data.get("size", 0) > 64:
        hints += ["recipe=quick (1000 steps at 64 pixels)", f"data.size=64 instead of {config.data.size}"]
    trained = config.init is not None or config.model.get("pretrained") or config.model.get("weights")
    if trained and not config.frozen:
        hints.append("frozen=true (computes the features once, then trains only a new head)")
    if config.trainer.max_epochs > 5:
        hints.append(f"trainer.max_epochs=5 instead of {config.trainer.max_epochs}")
    return hints


def _to_choose_on(config: DictConfig, table: Rows) -> Rows | None:
    """The held-out classes, if they choose the best evaluation."""
    where = config.evaluation.keep_best
    if where != "val":
        return None
    if "val" not in table.splits:
        raise ConfigError(
            f"evaluation.keep_best=val needs held-out classes, but {table.name} has no split val. To hold out classes: "
            "data.load._target_=rankgrad.datasets.folds.load_with_val, see docs/reproducing.md"
        )
    return table.select("val")


def read_table(config: DictConfig) -> Rows:
    """The rows that the settings name."""
    table: Rows = make(config.data.load, slot="data", trust=packages(config.get("trust")))
    return table


def load_table(config: DictConfig, given: Rows | None = None, say: runner.Say = runner.silent) -> Rows:
    """The rows of a configuration, or those that were given.

    With fold=, only the training classes are returned, and some of them are held out. With label_noise=, some of the
    training labels are wrong.

    Args:
        config: settings of a run.
        given: rows in place of those that the settings name.
        say: called with a text about rows and classes by split. If the split fails, the text is about the rows as read.
    """
    table = read_table(config) if given is None else given
    try:
        table = _divided(config, table)
    finally:
        say(table.summary())
    return table


def _divided(config: DictConfig, table: Rows) -> Rows:
    asked = [f"{name}={config[name]}" for name in ("fold", "label_noise") if config[name]]
    if table.several is not None and asked:
        raise ConfigError(
            f"{asked[0]} needs one class per {table.noun}, but each {table.noun} of {table.name} has several"
        )
    return with_wrong_labels(held_out(table, config.fold), config.label_noise, config.seed)


def _relabelled(table: Rows, labels: Tensor) -> Rows:
    """The table with classes numbered from 0. Their names stay. Rows with several classes are not changed."""
    if table.several is not None:
        return table
    there = torch.unique(table.label).tolist()
    return replace(table, label=labels, class_names=tuple(table.class_names[i] for i in there))


def build(config: DictConfig, table: Rows, given: Given | None = None) -> tuple[nn.Module, nn.Module]:
    """Build model and loss. `derived` is filled in for losses that need the number of classes."""
    rows = table.select("train")
    config.derived.num_classes = len(torch.unique(rows.label))
    if given is not None:
        model, config.derived.embedding_size = given.model, given.embedding_size
    else:
        model = _build_model(config, table)
        config.derived.embedding_size = model.embedding_size
    if given is not None and given.loss is not None:
        return model, _remembering(config, given.loss, rows) if config.memory else given.loss
    return model, _build_loss(config, rows)


def _build_model(config: DictConfig, table: Rows) -> EmbeddingModel:
    """The model that the settings describe."""
    if config.init is not None:
        source = Path(config.init)
        model, _ = load_weights(Run(source).weights if source.is_dir() else source)
        _check_takes(config, model.inputs.takes, str(source), table)
        for name, count in table.asks.items():
            if model.inputs.asks[name] != count:
                sees = f"{model.inputs.asks[name]}-{UNITS[name]} {table.takes}"
                raise ConfigError(
                    f"the model of {source} takes {sees}, but {config.data.name} has {count} {UNITS[name]}s"
                )
        model.train()
    else:
        options = dict(plain(config.model))
        kind = options.pop("kind")
        _check_takes(config, TAKES[kind][0] if kind in TAKES else table.takes, f"model={kind}", table)
        model = build_model(kind, **table.asks, **options)
    _check_pixels(config, model)
    return model


def _check_takes(config: DictConfig, takes: str, model: str, table: Rows) -> None:
    """Raise if a model does not take this kind of data. `model` is its name in the message."""
    if takes != table.takes:
        other = " or ".join(f"model={kind}" for kind in taking(table.takes))
        raise ConfigError(f"{model} takes {takes}, but {config.data.name} has {table.takes}; use {other}")


def _targets(config: DictConfig, table: Rows) -> Tensor | None:
    """The target of each training row for the loss; None: its class."""
    return _by_levels(table, "train.hierarchy") if config.train.hierarchy else table.several


def _by_levels(table: Rows, setting: str) -> Tensor:
    """Super-label and class of each row, [row, 2].

    Raises:
        ConfigError: a row has no super-label, or several classes.
    """
    if table.super_label is None or table.several is not None:
        why = "have several classes" if table.several is not None else "have no super-labels"
        raise ConfigError(f"{setting}=true needs a class and a super-label for each row; rows of {table.name} {why}")
    return torch.stack([table.super_label, table.label], dim=1)


def _check_targets(loss: nn.Module, targets: Tensor) -> None:
    """Raise if a loss, or a part of a sum, takes only one class per row."""
    inner = loss.loss if isinstance(loss, CrossBatchMemory) else loss
    for part in inner.losses.values() if isinstance(inner, SumLoss) else [inner]:
        levels = isinstance(part, ClassLoss) and part.hierarchies and targets.dtype != torch.bool
        if not (isinstance(part, (RetrievalLoss, CalledLoss)) or levels):
            why = "have several classes" if targets.dtype == torch.bool else "are a hierarchy (train.hierarchy=true)"
            raise ConfigError(
                f"{type(part).__name__} takes one class per row, but these rows {why}. Use a loss of rankgrad.losses, "
                "such as loss=smooth_ap, loss=ndcg or loss=h_ap"
            )


def _batches(config: DictConfig, rows: Rows) -> ClassBatches:
    return class_batches(rows.label, rows.super_label, seed=config.seed, **config.sampler)


def _build_loss(config: DictConfig, rows: Rows) -> nn.Module:
    """Build the loss, with a memory if the settings ask for one. Without a memory, it gets the facts of all batches."""
    trust = packages(config.get("trust"))
    if config.memory:
        return _remembering(config, make(config.loss, slot="loss", trust=trust), rows)
    kind, promise = named(config.loss, slot="loss", trust=trust), dict[str, Any]()
    if isinstance(kind, type) and issubclass(kind, RetrievalLoss) and _targets(config, rows) is None:
        taken = inspect.signature(kind).parameters.values()  # a loss of a user may take its own settings only
        if any(each.name == "positives" or each.kind is each.VAR_KEYWORD for each in taken):
            promise["positives"] = _batches(config, rows).positives
    loss: nn.Module = make(config.loss, slot="loss", trust=trust, **promise)
    return loss


def _remembering(config: DictConfig, loss: nn.Module, rows: Rows) -> nn.Module:
    """The loss with a memory, whose length the settings give in batches or images."""
    options = dict(plain(config.memory))
    options.pop("_target_")
    batches, size = options.pop("batches"), options.pop("size")
    if (batches is None) == (size is None):
        raise ConfigError(f"give either memory.batches or memory.size; got batches={batches}, size={size}")
    if batches is not None:
        size = batches * _batches(config, rows).batch_size
    with section("memory"):
        return CrossBatchMemory(loss, len(rows) if size == "auto" else size, **options)


def _check_pixels(config: DictConfig, model: EmbeddingModel) -> None:
    """Raise if the weights were trained with another pixel normalisation than the data has."""
    wanted = (tuple(model.pixel_mean), tuple(model.pixel_std))
    if wanted == ((0.0,) * len(wanted[0]), (1.0,) * len(wanted[1])):
        return  # no weights, or weights that need no normalisation
    given = tuple(OmegaConf.select(config, f"data.eval_transform.{name}") for name in ("mean", "std"))
    if None in given or all(
        torch.allclose(torch.tensor(a), torch.tensor(list(b)), atol=1e-3) for a, b in zip(wanted, given, strict=True)
    ):
        return
    mean, std = (str([round(v, 4) for v in values]).replace(" ", "") for values in wanted)
    raise ConfigError(
        f"these weights expect pixels with mean {mean} and standard deviation {std}; "
        f'add "data.train_transform.mean={mean}" "data.train_transform.std={std}"'
    )


def evaluate_model(
    model: nn.Module,
    table: Rows,
    transform: Any,
    settings: Mapping[str, Any],
    *,
    workers: int = 0,
    seed: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> tuple[Report, Tensor]:
    """Evaluate retrieval on a table by its protocol (`protocols.trials`). Several processes share the work.

    Args:
        model: inputs (images, texts or vectors) -> embeddings.
        table: test rows.
        transform: transform for evaluation.
        settings: ks, batch_size, bootstrap, clusters, extra (more metrics), levels (use super-labels, too).
        workers: number of workers of the DataLoader.
        seed: seed of bootstrap and k-means.
        progress: show a bar for everything that takes longer than two seconds.
        device: where to compute; None: where the model is.

    Returns:
        The report, and the embeddings.

    >>> from rankgrad.datasets import VectorTable
    >>> from rankgrad.datasets.transforms import Vectors
    >>> rows, names = torch.eye(2)[[0, 0, 1, 1]], ("u", "v", "x", "y")
    >>> table = VectorTable("four", torch.tensor([0, 0, 1, 1]), ("a", "b"), ("test",) * 4, names, rows)
    >>> settings = {"ks": [1], "batch_size": 4, "bootstrap": 0, "clusters": "none", "extra": []}
    >>> report, embeddings = evaluate_model(nn.Identity(), table, Vectors(), settings)
    >>> report.values["R@1"], embeddings.shape
    (1.0, torch.Size([4, 2]))
    """
    how: dict[str, Any] = {"batch_size": settings["batch_size"], "workers": workers, "progress": progress}
    embeddings = embed(model, table, transform, **how, device=device)
    reports = [
        _ranked(embeddings, table, trial, settings, seed=seed, progress=progress, device=device)
        for trial in trials(table, seed=seed)
    ]
    report = _mean_report(reports)
    distracting = table.distracting
    if distracting is None or set(table.split) != {"test"} or table.several is not None:
        return report, embeddings
    more = embed(model, distracting, transform, **how, device=device)
    values = _distracted(embeddings, more, table, settings, progress=progress, device=device)
    note = (
        f"{DISTRACTED}...: the same queries, with {len(more):,} {table.takes} without a class added to the gallery. "
        "None of them is relevant for any query."
    )
    return replace(report, values={**report.values, **values}, notes=(*report.notes, note)), embeddings


def _distracted(
    embeddings: Tensor,
    more: Tensor,
    table: Rows,
    settings: Mapping[str, Any],
    *,
    progress: bool,
    device: torch.device | str | None,
) -> dict[str, float]:
    """Metrics of the same queries, with distractors (rows without a class) in the gallery."""
    names = torch.arange(len(embeddings) + len(more))
    no_class = torch.full((len(more),), len(table.class_names))
    report = evaluate(
        embeddings,
        table.label,
        ref_embeddings=torch.cat([embeddings, more]),
        ref_labels=torch.cat([table.label, no_class]),
        ids=names[: len(embeddings)],
        ref_ids=names,
        ks=tuple(settings["ks"]),
        bootstrap=0,
        clusters="none",
        progress=progress,
        device=device,
        shared=True,
    )
    first = f"R@{settings['ks'][0]}"
    return {f"{DISTRACTED}{name}": report.values[name] for name in (first, "mAP@R", "AP")}


def _ranked(
    embeddings: Tensor,
    table: Rows,
    trial: Trial,
    settings: Mapping[str, Any],
    *,
    seed: int,
    progress: bool,
    device: torch.device | str | None,
) -> Report:
    """One evaluation: rank the gallery of a trial for its queries. Without a gallery, rank the other queries."""
    query, gallery = trial.query, trial.gallery
    truth = _by_levels(table, "evaluation.levels") if settings.get("levels") else table.truth
    against: dict[str, Any] = {}
    groups = None if table.group is None else numbered(table.group)[1]
    if gallery is not None:
        against = {"ref_embeddings": embeddings[gallery], "ref_labels": truth[gallery]}
    if groups is not None:
        against["groups"] = groups[query]
        against |= {} if gallery is None else {"ref_groups": groups[gallery]}
    return evaluate(
        embeddings[query],
        truth[query],
        **against,
        super_labels=None if table.super_label is None else table.super_label[query],
        class_names=table.class_names,
        super_names=table.super_names or None,
        ks=tuple(settings["ks"]),
        extra=tuple(settings.get("extra", ())),
        bootstrap=settings["bootstrap"],
        clusters=settings["clusters"],
        seed=seed,
        progress=progress,
        device=device,
        shared=True,
    )


def _mean_report(reports: Sequence[Report]) -> Report:
    """Join the reports of several drawn galleries. The values are means; all else is from the first report."""
    first = reports[0]
    if len(reports) == 1:
        return first
    over = over_draws([report.values for report in reports])
    spread = f"R@1 {100 * over['R@1'][0]:.1f} ± {100 * over['R@1'][1]:.1f} %" if "R@1" in over else "see values"
    note = f"values are means over {len(reports)} drawn galleries ({spread}); all else is from the first gallery."
    values = {name: mean for name, (mean, _) in over.items()}
    settings = {**first.settings, "protocol": f"one-gallery, {len(reports)} draws"}
    return replace(first, values=values, intervals={}, settings=settings, notes=(*first.notes, note))


def _name(config: DictConfig) -> str:
    """Name of a run: data and loss."""
    return f"{config.data.name}-{_loss_name(config)}"


def _loss_name(config: DictConfig) -> str:
    parts = config.loss.get("losses")
    name: str = config.loss._target_.rsplit(".", 1)[-1]
    if name == CalledLoss.__name__:  # its name without arguments: of SmoothAPLoss(tau=0.01), module.my_loss, <lambda>
        name = config.loss.name.partition("(")[0].rpartition(".")[2].strip("<>")
    return "+".join(parts) if isinstance(parts, DictConfig) else name


TASK: runner.TaskType[EvaluatedEmbeddings] = runner.TaskType("retrieval", _name, RetrievalTask)


def train(
    config: DictConfig,
    *,
    changes: Sequence[str] = (),
    quiet: bool = False,
    started: Callable[[Path], object] | None = None,
) -> Run:
    """Train a retrieval model, evaluate it before and after, and write the run's folder; see `runner.train`.

    Args:
        config: settings by `config.compose`.
        changes: settings to change in a resumed run.
        quiet: show no progress bars.
        started: called with the folder as soon as the run can be resumed.
    """
    return runner.train(TASK, config, changes=changes, quiet=quiet, started=started)


def summary(run: Run) -> str:
    """Metrics before and after training in per cent, and the paths of the results."""
    before, after = run.read_before(), Report.from_json(run.after)
    rows = [["", "before", "after", "95 % interval"]]
    hard = [name for name in after.values if name.startswith(DISTRACTED)]
    for name in (n for n in (*MAIN, *hard) if n in after.values):
        around = after.intervals.get(name)
        interval = f"{100 * around[0]:.1f} - {100 * around[1]:.1f}" if around else ""
        known = before is not None and name in before.values
        untrained = f"{100 * before.values[name]:.1f}" if before is not None and known else "-"
        rows.append([name, untrained, f"{100 * after.values[name]:.1f}", interval])
    page = [f"report: {run.page}"] if run.page.exists() else []
    return "\n".join([aligned(rows), *after.notes, "", f"run:    {run.folder}", *page])
