"""The task of scores: train a network that scores the rows of a table, and keep the weights of the best epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from torch import Tensor, nn

from rankgrad.common.checks import spelled
from rankgrad.common.text import aligned
from rankgrad.evaluation.statistics import FEW_DRAWN
from rankgrad.scores.baselines import begin_at_the_best_constant
from rankgrad.scores.batches import StratifiedBatches
from rankgrad.scores.division import held_out
from rankgrad.scores.evaluation import ScoreReport, evaluate_scores, values_of
from rankgrad.scores.rows import has_order

from ...datasets.fingerprint import of_texts, of_values
from ...datasets.folds import read_fold
from ...files import write_text
from ...files.defaults import FEWEST_STEPS_OF_ROWS, MOST_STEPS_OF_ROWS, PASSES, PATIENCE, epochs_for
from ...report.content import loss_name, loss_told
from ...runs.folder import Run
from ...runs.run_warnings import below_before, remarks_of
from ...settings import ConfigError, default_loss, make, packages, plain, typed
from ...settings.spelling import as_keys
from ...training import runner
from ...training.callbacks import KeepBest
from ...training.data import EpochData
from ...training.module import TrainedModule, check_optimizer
from .copies import marks_of
from .encoding import Encoding
from .lists import ScoreRows, list_data
from .model import build_model, save_ranker, score_rows
from .page import write_page
from .saved import save_scores
from .settings import AUTO, GIVEN, Model, ScoreSettings
from .table import ScoreTable, load_table

Evaluated = tuple[ScoreReport, Tensor]  # a report, and the scores of its rows
SELECT = {False: "AP", True: "NDCG@10"}  # has queries -> metric that chooses the epoch


@dataclass(frozen=True, eq=False)
class RunRows:
    """The rows of a run.

    Attributes:
        train: rows for training.
        chosen_on: rows that choose the best epoch; None: the last epoch is kept.
        test: rows for the final evaluation.
    """

    train: ScoreTable
    chosen_on: ScoreTable | None
    test: ScoreTable


@dataclass(frozen=True, eq=False)
class GivenScorer:
    """Objects that the caller of `fit_scores` gives, in place of settings.

    Attributes:
        model: a module [row, width] -> [row], or a function that makes such a module for a width; None: the network
            that the settings name.
        table: the rows, with a split.
        loss: a loss with `from_lists`; None: the loss that the settings name.
    """

    model: nn.Module | Callable[[int], nn.Module] | None
    table: ScoreTable
    loss: nn.Module | None = None

    def built(self, inputs: Tensor) -> nn.Module:
        """The module to train. It is tried on two rows.

        Args:
            inputs: [row, width] encoded rows.

        Raises:
            TypeError: it is not a module.
            ValueError: it has no parameters to train, or its output is not [row].
        """
        assert self.model is not None
        model = self.model if isinstance(self.model, nn.Module) else self.model(inputs.shape[1])
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, or a function that makes one; got {model!r}")
        score_rows(model, inputs[:2])
        if not any(weights.requires_grad for weights in model.parameters()):
            raise ValueError("the model has nothing to train: no parameter of it has requires_grad=True")
        return model


class ScoresModule(TrainedModule):
    """A model [row, width] -> [row] and a loss of lists.

    Args:
        model: the model to train.
        loss: a loss with `from_lists(scores, relevance, query)`.
        optimizer: settings, see `TrainedModule`.
    """

    def __init__(self, model: nn.Module, loss: nn.Module, optimizer: Mapping[str, Any]) -> None:
        super().__init__(model, optimizer)
        self.loss = loss

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor | None], batch_idx: int) -> Tensor:
        """Loss of a batch. The loss and the standard deviation of the scores are logged."""
        inputs, relevance, query = batch
        scores = self.model(inputs)
        loss: Tensor = self.loss.from_lists(scores, relevance, query)  # type: ignore[operator]
        self.note(loss, {"spread of scores": scores.detach().std()})
        return loss


@dataclass(eq=False)
class ScoresTask:
    """See `training.runner.Task`. `build` makes one from the settings of a run.

    Args:
        settings: of the run; loss and metric are chosen.
        table: all rows.
        parts: its parts.
        encoding: fitted on the training rows.
        data: the training batches.
        module: the model [row, width] -> [row], and the loss.
        quiet: show no progress bars.
        trust: packages whose classes the settings may name.

    Attributes:
        epochs: number of epochs.
        patience: steps without a better epoch after which the training ends; None: it never ends early.
    """

    settings: ScoreSettings
    table: ScoreTable
    parts: RunRows
    encoding: Encoding
    data: EpochData
    module: ScoresModule
    quiet: bool = False
    trust: Sequence[str] = ()

    memories = ()
    off_counts = ""  # no table of rows has published counts

    def __post_init__(self) -> None:
        self.epochs, self.patience = self._length()
        self.keep_best = self._best_epoch()

    @property
    def settled(self) -> Mapping[str, Any]:
        """Loss, metric, patience and number of epochs."""
        s = self.settings
        chosen = {"evaluation.select": s.evaluation.select, "evaluation.patience": self.patience}
        return {"loss": s.loss, **chosen, "trainer.max_epochs": self.epochs}

    def _length(self) -> tuple[int, int | None]:
        """Number of epochs, and steps without a better epoch after which the training ends."""
        given, patience = self.settings.trainer["max_epochs"], self.settings.evaluation.patience
        steps = runner.steps_of(self.settings.trainer, len(self.data.sampler))
        epochs = epochs_for(steps, PASSES, FEWEST_STEPS_OF_ROWS, MOST_STEPS_OF_ROWS) if given is None else given
        if patience == AUTO:
            patience = math.ceil(PATIENCE * epochs * steps) if given is None else None
        return epochs, patience  # type: ignore[return-value]

    def _best_epoch(self) -> KeepBest | None:
        """The callback that keeps the best epoch; None: no rows or no metric choose one."""
        metric, rows = self.settings.evaluation.select, self.parts.chosen_on
        if metric is None or rows is None:
            return None
        inputs = self.encoding.encode(rows)

        def measure(model: nn.Module) -> float:
            scores = score_rows(model, inputs, next(model.parameters()).device)
            return values_of(scores, rows, [metric])[metric]

        # a run that is extended goes on to the number of epochs that was given
        return KeepBest(metric, measure, None if self.settings.extended else self.patience)

    def chosen(self, by_default: bool) -> str:
        """Lines about batches, loss, choice of the epoch, and length.

        Args:
            by_default: whether the loss is the default one.
        """
        sampler, by_query = self.data.sampler, self.parts.train.query is not None
        batches = f"batches of {'at most ' if by_query else ''}{sampler.batch_size} rows"
        if isinstance(sampler, StratifiedBatches):
            batches += f", {sampler.positives} of them relevant"
        lists = "queries" if by_query else "one list"
        why = f", the default for {lists}; loss=NAME takes another" if by_default else ""
        lines = [f"{batches}; {len(sampler)} an epoch", f"loss {loss_told(self.settings.loss)}{why}"]
        if self.keep_best is not None and self.parts.chosen_on is not None:
            lines += _rough(self.parts.chosen_on)
        return "\n".join([*lines, runner.budget(self.settings.trainer, len(sampler), self.epochs)])

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the whole table."""
        table = self.table
        return {
            "rows": len(table),
            **of_texts("columns", table.features),
            **of_values("features", torch.from_numpy(marks_of(table.features).view(np.int64))),
            **of_values("relevance", table.relevance),
            **of_values("query", table.query),
        }

    def callbacks(self) -> list[Callback]:
        """A callback that keeps the best epoch."""
        return [] if self.keep_best is None else [self.keep_best]

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate the untrained model, to compare with it. Its metrics have no intervals."""
        if self.settings.lean or not (fresh or not run.before.exists()):
            return
        scores = score_rows(self.module.model, self.encoding.encode(self.parts.test), trainer.strategy.root_device)
        write_text(run.before, evaluate_scores(scores, self.parts.test, bootstrap=0).to_json())

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], Evaluated]:
        """Metrics of the test rows. They have intervals only after training."""
        test, settings = self.parts.test, self.settings
        scores = score_rows(model, self.encoding.encode(test), trainer.strategy.root_device)
        bootstrap = 0 if trainer.training else settings.evaluation.bootstrap
        report = evaluate_scores(scores, test, bootstrap=bootstrap, seed=settings.seed)
        return report.values, (report, scores)

    def trained(self) -> nn.Module:
        """The model with the weights of the best epoch."""
        if self.keep_best is not None:
            self.keep_best.restore(self.module.model)
        return self.module.model

    def write(self, run: Run, result: Evaluated, facts: dict[str, Any]) -> str:
        """Write model, scores, facts and page, and return the report. A lean run keeps only the numbers."""
        report, scores = result
        if self.keep_best is not None:
            facts |= {"best_epoch": self.keep_best.epoch, "best_validation": self.keep_best.value}
        write_text(run.facts, json.dumps(facts, indent=1))
        if self.settings.lean:
            run.state.unlink(missing_ok=True)
            return report.to_json()
        save_ranker(run.weights, self.module.model, self.encoding, model_of(self.settings))
        seen = [part for part in (self.parts.train, self.parts.chosen_on) if part is not None]
        trained = np.concatenate([marks_of(self.encoding.encode(part)) for part in seen])
        save_scores(run.scores, scores, self.parts.test, trained)
        write_page(run, report, self.trust)
        return report.to_json()


def load_table_of(settings: ScoreSettings) -> ScoreTable:
    """The rows of a run."""
    with spelled(as_keys("data.load", {"root": "data.root"})):
        return load_table(str(settings.data.root), **settings.data.load)


def divided(table: ScoreTable, settings: ScoreSettings) -> RunRows:
    """The rows for training, for the choice of the epoch, and for the final evaluation.

    Raises:
        ConfigError: the table has no label, or a part has no rows.
    """
    fold, evaluation = read_fold(settings.fold), settings.evaluation
    if table.relevance is None or table.split is None:
        raise ConfigError("training needs a label: name its column, data.load.label=COLUMN")
    if (fold is None) != (evaluation.split == "test"):
        raise ConfigError("evaluation.split=val and fold= go together: fold=1/3 holds out a third of the training rows")
    for split in ("train", "test") if fold is None else ("train",):
        if split not in table.split:
            raise ConfigError(f"{table.name} has no row of the split {split!r}")
    train, chosen_on = table.part("train"), None
    if fold is None:
        test = table.part("test")
    else:
        inside = in_fold(train, *fold)
        train, test = train.subset(~inside), train.subset(inside)
    if evaluation.select is not None and fold is None and "val" in table.split:
        chosen_on = table.part("val")
    elif evaluation.select is not None and settings.data.validation:
        with spelled(as_keys("data", {})):
            drawn = _held_out(train, settings.data.validation, settings.seed)
        train, chosen_on = train.subset(~drawn), train.subset(drawn)
    return RunRows(train, chosen_on, test)


def _held_out(table: ScoreTable, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    assert table.relevance is not None
    query = None if table.query is None else table.query.numpy()
    return held_out(table.relevance.numpy(), query, fraction, seed, name="validation")


def in_fold(table: ScoreTable, fold: int, folds: int) -> npt.NDArray[np.bool_]:
    """[row] bool, whether a row is in a fold. A fold has whole queries; without queries, the same part of each grade.

    Args:
        table: the training rows.
        fold: 1 .. folds.
        folds: number of folds, >= 2.
    """
    left = np.arange(len(table))
    for earlier in range(1, fold):
        left = left[~_held_out(table.subset(left), 1 / (folds - earlier + 1), 0)]
    if fold < folds:  # the last fold has all rows that are left
        left = left[_held_out(table.subset(left), 1 / (folds - fold + 1), 0)]
    inside = np.zeros(len(table), dtype=bool)
    inside[left] = True
    return inside


def _check_order(train: ScoreTable) -> None:
    """Raise if no training query has rows of different relevance: then no order can be learned."""
    assert train.relevance is not None
    if not has_order(train.relevance if train.query is not None else train.relevance > 0, train.query):
        raise ConfigError(
            f"of the {len(train)} training rows no two{'' if train.query is None else ' of a query'} differ in "
            "relevance, so no order can be learned. If another column has the queries, give data.load.query=COLUMN. If "
            "there are no queries, give data.load.query=null"
        )


def _rough(rows: ScoreTable) -> list[str]:
    """A sentence if few rows or queries choose the epoch."""
    assert rows.relevance is not None
    hits = rows.relevance > 0
    kinds = {"relevant rows": int(hits.sum()), "irrelevant rows": int((~hits).sum())}
    if rows.query is not None:
        kinds = {"queries with a relevant row": int((rows.query[hits].bincount() > 0).sum())}
    what = min(kinds, key=lambda kind: kinds[kind])
    advice = "Hold out more (data.validation=0.4), or keep the last epoch (evaluation.select=null)"
    return [f"few {what} choose the epoch: {kinds[what]}. {advice}"] if kinds[what] < FEW_DRAWN else []


def _takes_lists(loss: nn.Module) -> nn.Module:
    """The loss, if it takes lists.

    Raises:
        ConfigError: it does not.
    """
    if not hasattr(loss, "from_lists"):
        raise ConfigError(f"{type(loss).__name__} has no method from_lists, which task=scores needs; choose another")
    return loss


def _relevance(train: ScoreTable, loss: nn.Module) -> Tensor:
    """[row] bool if the labels are 0 and 1, or if all rows are one list; else the grades.

    Raises:
        ConfigError: there are grades, but the loss takes only relevant and irrelevant.
    """
    grades = train.relevance
    assert grades is not None
    if train.query is None or bool(((grades == 0) | (grades == 1)).all()):
        return grades > 0
    if not getattr(loss, "graded", True):
        raise ConfigError(
            f"{type(loss).__name__} takes only relevant and irrelevant, but the grades go up to "
            f"{float(grades.max()):g}. Use a loss for grades such as loss=lambda, or name the label that is relevant: "
            "data.load.positive=LABEL"
        )
    return grades


def _name(config: DictConfig) -> str:
    """Name of a run: data and loss."""
    file = Path(config.data.root or config.data.name).stem
    return file if config.loss.get("name") == AUTO else f"{file}-{loss_name(plain(config))}"


def build(
    config: DictConfig, quiet: bool = False, say: runner.Say = runner.silent, given: GivenScorer | None = None
) -> ScoresTask:
    """The task of a run: its settings are checked, then its rows are read and encoded, and its model is built.

    Args:
        config: settings of the run.
        quiet: show no progress bars.
        say: function that prints a text: the rows of each part, then batches and loss.
        given: objects in place of settings.
    """
    settings, trust = typed(ScoreSettings, plain(config)), packages(config.get("trust"))
    by_default = settings.loss.get("name") == AUTO
    loss = _checked(settings, trust, given)
    table = load_table_of(settings) if given is None else given.table
    parts = divided(table, settings)
    train = parts.train
    _check_order(train)
    for name, part in (("train", train), ("choose", parts.chosen_on), ("test", parts.test)):
        if part is not None:
            say(f"{name:6} {part.summary()}")
    for note in table.notes:
        say(note)
    evaluate_scores(torch.zeros(len(parts.test)), parts.test, bootstrap=0)  # rows without a value raise here
    settings = _chosen(settings, parts)
    loss = _loss_of(settings, trust) if loss is None else loss
    relevance = _relevance(train, loss)
    encoding = Encoding.fitted(train, **settings.data.encoding)
    say(encoding.summary())
    rows = ScoreRows(encoding.encode(train), relevance, train.query)
    if given is None or given.model is None:
        model = build_model(model_of(settings), encoding.width)
        begin_at_the_best_constant(model, loss, relevance)
    else:
        model = given.built(rows.inputs)
    module = ScoresModule(model, loss, {**settings.optimizer, "extended": settings.extended})
    data = list_data(rows, settings.sampler, settings.seed)
    task = ScoresTask(settings, table, parts, encoding, data, module, quiet, trust)
    say(task.chosen(by_default))
    return task


def _checked(settings: ScoreSettings, trust: Sequence[str], given: GivenScorer | None) -> nn.Module | None:
    """The loss, before any row is read; None: it follows from the rows.

    Raises:
        ConfigError: the settings do not fit.
    """
    check_optimizer(settings.optimizer)
    if settings.trainer["devices"] not in (1, "1", "auto"):
        raise ConfigError(f"task=scores trains in one process; got trainer.devices={settings.trainer['devices']}")
    if given is None and (model_of(settings).kind == GIVEN or settings.data.root is None):
        raise ConfigError("this run was started in Python: call fit_scores again with the model and resume=True")
    if given is not None and given.loss is not None:
        return _takes_lists(given.loss)
    return None if settings.loss.get("name") == AUTO else _loss_of(settings, trust)


def _chosen(settings: ScoreSettings, parts: RunRows) -> ScoreSettings:
    """The settings, in which the rows have chosen the loss and the metric that were left to them."""
    by_query, evaluation = parts.train.query is not None, settings.evaluation
    loss = default_loss("queries" if by_query else "rows") if settings.loss.get("name") == AUTO else settings.loss
    select = SELECT[by_query] if evaluation.select == AUTO else evaluation.select
    if select is not None and parts.chosen_on is not None:
        with spelled(as_keys("evaluation", {})):  # a metric that does not fit raises here, before the training
            values_of(torch.zeros(len(parts.chosen_on)), parts.chosen_on, [select])
    return replace(settings, loss=loss, evaluation=replace(evaluation, select=select))


def model_of(settings: ScoreSettings) -> Model:
    """The settings of the network."""
    return typed(Model, {"hidden": (), **settings.model})


def _loss_of(settings: ScoreSettings, trust: Sequence[str]) -> nn.Module:
    return _takes_lists(make(settings.loss, slot="loss", trust=trust, where="loss"))


def check_data(config: DictConfig) -> None:
    """Raise if the data cannot be read or divided as the settings say."""
    settings = typed(ScoreSettings, plain(config))
    divided(load_table_of(settings), settings)


TASK: runner.TaskType[Evaluated] = runner.TaskType("scores", _name, build)


#: Train a model of scores, evaluate it and write the run's folder. See `runner.train`.
train = partial(runner.train, TASK)


def summary(run: Run) -> str:
    """Metrics in per cent with their intervals, and the paths of the results."""
    report, before, facts = ScoreReport.from_json(run.after), run.read_untrained(), run.read_facts()
    rows = [["", "before", "after", "95 % interval"]]
    for name, value in report.values.items():
        untrained = f"{100 * before[name]:.1f}" if name in before else "-"
        interval = " - ".join(f"{100 * end:.1f}" for end in report.intervals.get(name, ()))
        rows.append([name, untrained, f"{100 * value:.1f}", interval])
    kept = f"; the weights are those of epoch {facts['best_epoch']}" if "best_epoch" in facts else ""
    trained = [aligned(rows), f"trained {facts['steps']} steps{kept}", *report.notes, *remarks_of(run)]
    page = [f"report: {run.page}"] if run.page.exists() else []
    return "\n".join([*trained, "", f"run:    {run.folder}", *page, *(f"! {each}" for each in below_before(run))])


__all__ = [
    "GivenScorer",
    "ScoresModule",
    "ScoresTask",
    "TASK",
    "build",
    "summary",
    "train",
]
