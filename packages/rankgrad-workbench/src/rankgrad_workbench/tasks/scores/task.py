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
from ...training.callbacks import Forecast
from ...training.data import EpochData
from ...training.module import TrainedModule, check_optimizer
from ...training.selection import KeepBest
from .copies import marks_of
from .encoding import Encoding
from .lists import ScoreRows, list_data
from .model import build_model, save_ranker, score_rows
from .page import write_page
from .saved import save_scores
from .settings import AUTO, GIVEN, Model, ScoreSettings
from .table import ScoreTable, load_table

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
            raise TypeError(
                f"model must be a torch.nn.Module, or a function that returns one; got {type(model).__name__}"
            )
        score_rows(model, inputs[:2])
        if not any(weights.requires_grad for weights in model.parameters()):
            raise ValueError("the model has nothing to train: no parameter of it has requires_grad=True")
        return model


@dataclass(frozen=True)
class EvaluatedScores:
    """A report, and the scores that were evaluated."""

    report: ScoreReport
    scores: Tensor


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


class ScoresTask:
    """See `training.runner.Task`. `build` makes one from the settings of a run.

    Args:
        settings: of the run; loss and metric are chosen.
        table: all rows.
        parts: its parts.
        encoding: fitted on the training rows.
        data: the training batches.
        model: [row, width] -> [row].
        loss: a loss with `from_lists`.
        quiet: show no progress bars.
        trust: packages whose classes the settings may name.

    Attributes:
        epochs: number of epochs.
        patience: steps without a better epoch after which the training ends; None: it never ends early.
    """

    memories: Sequence[str] = ()
    off_counts = ""  # no table of rows has published counts

    def __init__(
        self,
        settings: ScoreSettings,
        table: ScoreTable,
        parts: RunRows,
        encoding: Encoding,
        data: EpochData,
        model: nn.Module,
        loss: nn.Module,
        *,
        quiet: bool = False,
        trust: Sequence[str] = (),
    ) -> None:
        self.settings, self.table, self.parts = settings, table, parts
        self.encoding, self.data, self.quiet, self.trust = encoding, data, quiet, trust
        self.module = ScoresModule(model, loss, {**settings.optimizer, "extended": settings.extended})
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
        few = [] if self.keep_best is None else _rough(self.parts.chosen_on)
        return "\n".join([*lines, *few, runner.budget(self.settings.trainer, len(sampler), self.epochs)])

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
        """Callbacks that keep the best epoch, and forecast the training time."""
        callbacks: list[Callback] = [] if self.keep_best is None else [self.keep_best]
        return callbacks if self.quiet else [*callbacks, Forecast()]

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate the untrained model, to compare with it. Its metrics have no intervals."""
        if self.settings.lean or not (fresh or not run.before.exists()):
            return
        scores = score_rows(self.module.model, self.encoding.encode(self.parts.test), trainer.strategy.root_device)
        write_text(run.before, evaluate_scores(scores, self.parts.test, bootstrap=0).to_json())

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], EvaluatedScores]:
        """Metrics of the test rows. They have intervals only after training."""
        test, settings = self.parts.test, self.settings
        scores = score_rows(model, self.encoding.encode(test), trainer.strategy.root_device)
        bootstrap = 0 if trainer.training else settings.evaluation.bootstrap
        report = evaluate_scores(scores, test, bootstrap=bootstrap, seed=settings.seed)
        return report.values, EvaluatedScores(report, scores)

    def trained(self) -> nn.Module:
        """The model with the weights of the best epoch."""
        if self.keep_best is not None:
            self.keep_best.restore(self.module.model)
        return self.module.model

    def write(self, run: Run, result: EvaluatedScores, facts: dict[str, Any]) -> str:
        """Write model, scores, facts and page, and return the report. A lean run keeps only the numbers."""
        if self.keep_best is not None:
            facts |= {"best_epoch": self.keep_best.epoch, "best_validation": self.keep_best.value}
        write_text(run.facts, json.dumps(facts, indent=1))
        if self.settings.lean:
            run.state.unlink(missing_ok=True)
            return result.report.to_json()
        save_ranker(run.weights, self.module.model, self.encoding, model_of(self.settings))
        seen = [part for part in (self.parts.train, self.parts.chosen_on) if part is not None]
        trained = np.concatenate([marks_of(self.encoding.encode(part)) for part in seen])
        save_scores(run.scores, result.scores, self.parts.test, trained)
        write_page(run, result.report, self.trust)
        return result.report.to_json()


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
        if not (table.split == split).any():
            raise ConfigError(f"{table.name} has no row of the split {split!r}")
    train, chosen_on = table.part("train"), None
    if fold is None:
        test = table.part("test")
    else:
        inside = in_fold(train, *fold)
        train, test = train.subset(~inside), train.subset(inside)
    if evaluation.select is not None:
        if fold is None and (table.split == "val").any():
            chosen_on = table.part("val")
        elif settings.data.validation:
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
    """Raise if no training query has rows of different relevance: then no order can be learned.

    Raises:
        ConfigError: if there are queries, the message has the setting that names them.
    """
    assert train.relevance is not None
    if train.query is None:
        relevant = int((train.relevance > 0).sum())
        if relevant in (0, len(train)):
            raise ConfigError(
                f"{relevant} of the {len(train)} training rows are relevant, so no order can be learned. Give relevant "
                "and irrelevant rows to train on"
            )
    elif not has_order(train.relevance, train.query):
        raise ConfigError(
            f"none of the {int(train.query.max()) + 1} training queries has rows of different relevance, so no order "
            "can be learned. If another column has the queries, give data.load.query=COLUMN. If there are no queries, "
            "give data.load.query=null"
        )


def _rough(rows: ScoreTable | None) -> list[str]:
    """A sentence if few rows or queries choose the epoch."""
    assert rows is not None and rows.relevance is not None
    hits = rows.relevance > 0
    few, what = int(hits.sum()), "relevant rows"
    if rows.query is not None:
        few, what = int((torch.bincount(rows.query[hits]) > 0).sum()), "queries with a relevant row"
    elif 2 * few > len(rows):
        few, what = len(rows) - few, "irrelevant rows"
    if few >= FEW_DRAWN:
        return []
    return [
        f"few {what} choose the epoch: {few}. Hold out more (data.validation=0.4), or keep the last epoch "
        "(evaluation.select=null)"
    ]


def _takes_lists(loss: nn.Module) -> nn.Module:
    """The loss, if it takes lists.

    Raises:
        ConfigError: it does not.
    """
    if not hasattr(loss, "from_lists"):
        raise ConfigError(
            f"{type(loss).__name__} has no method from_lists, which task=scores needs. Choose another loss"
        )
    return loss


def _relevance(grades: Tensor, loss: nn.Module, by_query: bool) -> Tensor:
    """[row] bool if the labels are 0 and 1, or if all rows are one list; else the grades.

    Raises:
        ConfigError: there are grades, but the loss takes only relevant and irrelevant.
    """
    if not by_query or bool(((grades == 0) | (grades == 1)).all()):
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
    train, by_query = parts.train, parts.train.query is not None
    _check_order(train)
    for name, part in (("train", train), ("choose", parts.chosen_on), ("test", parts.test)):
        if part is not None:
            say(f"{name:6} {part.summary()}")
    for note in table.notes:
        say(note)
    evaluate_scores(torch.zeros(len(parts.test)), parts.test, bootstrap=0)  # rows without a value raise here
    settings = _chosen(settings, parts)
    if loss is None:
        loss = _loss_of(settings, trust)
    assert train.relevance is not None
    relevance = _relevance(train.relevance, loss, by_query)
    encoding = Encoding.fitted(train, **settings.data.encoding)
    say(encoding.summary())
    rows = ScoreRows(encoding.encode(train), relevance, train.query)
    if given is None or given.model is None:
        model = build_model(model_of(settings), encoding.width)
        begin_at_the_best_constant(model, loss, relevance)
    else:
        model = given.built(rows.inputs)
    data = list_data(rows, settings.sampler, settings.seed)
    task = ScoresTask(settings, table, parts, encoding, data, model, loss, quiet=quiet, trust=trust)
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
    of_model = {name: value for name, value in settings.model.items() if name != "like"}
    return Model(**{**of_model, "hidden": tuple(of_model.get("hidden", ()))})


def _loss_of(settings: ScoreSettings, trust: Sequence[str]) -> nn.Module:
    return _takes_lists(make(settings.loss, slot="loss", trust=trust, where="loss"))


def check_data(config: DictConfig) -> None:
    """Raise if the data cannot be read or divided as the settings say."""
    settings = typed(ScoreSettings, plain(config))
    divided(load_table_of(settings), settings)


TASK: runner.TaskType[EvaluatedScores] = runner.TaskType("scores", _name, build)


#: Train a model of scores, evaluate it and write the run's folder. See `runner.train`.
train = partial(runner.train, TASK)


def summary(run: Run) -> str:
    """Metrics in per cent with their intervals, and the paths of the results."""
    report, before = ScoreReport.from_json(run.after), run.read_untrained()
    rows = [["", "before", "after", "95 % interval"]]
    for name, value in report.values.items():
        around = report.intervals.get(name)
        untrained = f"{100 * before[name]:.1f}" if name in before else "-"
        interval = f"{100 * around[0]:.1f} - {100 * around[1]:.1f}" if around else ""
        rows.append([name, untrained, f"{100 * value:.1f}", interval])
    facts = run.read_facts()
    kept = f"; the weights are those of epoch {facts['best_epoch']}" if "best_epoch" in facts else ""
    trained = f"trained {facts['steps']} steps{kept}"
    page = [f"report: {run.page}"] if run.page.exists() else []
    worse = [f"! {warned}" for warned in below_before(run)]
    return "\n".join(
        [aligned(rows), trained, *report.notes, *remarks_of(run), "", f"run:    {run.folder}", *page, *worse]
    )


__all__ = [
    "EvaluatedScores",
    "GivenScorer",
    "ScoresModule",
    "ScoresTask",
    "TASK",
    "build",
    "summary",
    "train",
]
