"""The task of scores: train a network that scores the rows of a table, and keep the weights of the best epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import lightning as L
import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.utils.data import Dataset

from rankgrad.batches.epochs import EpochBatches
from rankgrad.common.checks import spelled
from rankgrad.evaluation import Bootstrap
from rankgrad.scores.baselines import begin_at_the_best_constant
from rankgrad.scores.batches import QueryBatches, StratifiedBatches
from rankgrad.scores.evaluation import ScoreReport, evaluate_scores, values_of
from rankgrad.scores.rows import has_order

from ...datasets.fingerprint import of_texts, of_values
from ...datasets.folds import read_fold
from ...files import write_text
from ...files.defaults import FEWEST_STEPS_OF_ROWS, MOST_STEPS_OF_ROWS, PASSES, PATIENCE, epochs_for
from ...report.content import loss_name, loss_told
from ...report.writing import write_report
from ...runs.folder import Run
from ...runs.run_warnings import below_before, remarks_of
from ...settings import ConfigError, default_loss, make, packages, plain, typed
from ...settings.spelling import as_keys
from ...training import runner
from ...training.callbacks import KeepBest
from ...training.data import EpochData
from ...training.module import TrainedModule, check_optimizer
from .model import Encoding, build_model, save_ranker, score_rows
from .page import read
from .saved import save_scores
from .settings import AUTO, GIVEN, Batches, ScoreSettings
from .table import ScoreTable, load_table, marks_of

Batch = tuple[Tensor, Tensor, Tensor | None]


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

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of a batch. The loss and the standard deviation of the scores are logged."""
        inputs, relevance, query = batch
        scores = self.model(inputs)
        loss: Tensor = self.loss.from_lists(scores, relevance, query)  # type: ignore[operator]
        self.note(loss, {"spread of scores": scores.detach().std()})
        return loss


def list_data(inputs: Tensor, relevance: Tensor, query: Tensor | None, settings: Batches, seed: int) -> EpochData:
    """Training batches: whole queries if rows have queries, else stratified by relevance.

    Args:
        inputs: [row, width] encoded rows.
        relevance: [row] bool or grades.
        query: [row] long; None: all rows are one list.
        settings: settings of the batches.
        seed: seed of their order.
    """
    sampler: EpochBatches
    if query is None:
        sampler = StratifiedBatches(relevance > 0, settings.batch_size, settings.positives_per_batch, seed)
    else:
        sampler = QueryBatches(query, settings.queries_per_batch, seed)

    def batch(rows: list[int]) -> Batch:
        place = torch.tensor(rows)
        return inputs[place], relevance[place], None if query is None else query[place]

    return EpochData(cast(Dataset[int], range(len(inputs))), sampler, batch)


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
    trust: Sequence[str] = ()

    memories = ()
    off_counts = ""  # no table of rows has published counts

    def __post_init__(self) -> None:
        self.epochs, self.patience = self._length()
        self.keep_best = self._best_epoch()

    @property
    def settled(self) -> Mapping[str, Any]:
        """Loss, metric, patience and number of epochs."""
        chosen = {"evaluation.select": self.settings.evaluation.select, "evaluation.patience": self.patience}
        return {"loss": self.settings.loss, **chosen, "trainer.max_epochs": self.epochs}

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
        of = "queries" if by_query else "one list"
        why = f", the default for {of}; loss=NAME takes another" if by_default else ""
        lines = [f"{batches}; {len(sampler)} an epoch", f"loss {loss_told(self.settings.loss)}{why}"]
        return "\n".join([*lines, runner.budget(self.settings.trainer, len(sampler), self.epochs)])

    def fingerprint(self) -> dict[str, Any]:
        """Fingerprint of the whole table."""
        return {
            "rows": len(self.table),
            **of_texts("columns", self.table.features),
            **of_values("features", torch.from_numpy(marks_of(self.table.features).view(np.int64))),
            **of_values("relevance", self.table.relevance),
            **of_values("query", self.table.query),
        }

    def callbacks(self) -> list[Callback]:
        """A callback that keeps the best epoch."""
        return [] if self.keep_best is None else [self.keep_best]

    def begin(self, run: Run, trainer: L.Trainer, fresh: bool) -> None:
        """Evaluate the untrained model, to compare with it. Its metrics have no intervals."""
        if self.settings.lean or not (fresh or not run.before.exists()):
            return
        scores = score_rows(self.module.model, self.encoding.encode(self.parts.test), trainer.strategy.root_device)
        write_text(run.before, evaluate_scores(scores, self.parts.test, intervals=0).to_json())

    def evaluate(self, trainer: L.Trainer, model: nn.Module) -> tuple[Mapping[str, float], Evaluated]:
        """Metrics of the test rows. They have intervals only after training."""
        test, settings = self.parts.test, self.settings
        scores = score_rows(model, self.encoding.encode(test), trainer.strategy.root_device)
        bootstrap = 0 if trainer.training else settings.evaluation.bootstrap
        report = evaluate_scores(scores, test, intervals=Bootstrap(resamples=bootstrap, seed=settings.seed))
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
        save_ranker(run.weights, self.module.model, self.encoding, self.settings.model)
        seen = [part for part in (self.parts.train, self.parts.chosen_on) if part is not None]
        trained = np.concatenate([marks_of(self.encoding.encode(part)) for part in seen])
        save_scores(run.scores, scores, self.parts.test, trained)
        write_report(run.page, [read(run, report, trust=self.trust)])
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
            drawn = train.held_out(settings.data.validation, settings.seed, "validation")
        train, chosen_on = train.subset(~drawn), train.subset(drawn)
    return RunRows(train, chosen_on, test)


def in_fold(table: ScoreTable, fold: int, folds: int) -> npt.NDArray[np.bool_]:
    """[row] bool, whether a row is in a fold. A fold has whole queries; without queries, the same part of each grade.

    Args:
        table: the training rows.
        fold: 1 .. folds.
        folds: number of folds, >= 2.
    """
    left = np.arange(len(table))
    for earlier in range(1, fold):
        left = left[~table.subset(left).held_out(1 / (folds - earlier + 1), 0)]
    if fold < folds:  # the last fold has all rows that are left
        left = left[table.subset(left).held_out(1 / (folds - fold + 1), 0)]
    inside = np.zeros(len(table), dtype=bool)
    inside[left] = True
    return inside


def _check_order(train: ScoreTable) -> None:
    """Raise if no training query has rows of different relevance: then no order can be learned."""
    assert train.relevance is not None
    if not has_order(train.relevance if train.query is not None else train.relevance > 0, train.query):
        of = "" if train.query is None else " of a query"
        raise ConfigError(
            f"no two of the {len(train)} training rows{of} differ in relevance. Is another column the query, "
            "data.load.query=COLUMN, or none, data.load.query=null?"
        )


def _loss_of(settings: ScoreSettings, trust: Sequence[str], given: GivenScorer | None) -> nn.Module:
    """The loss of a run.

    Raises:
        ConfigError: it takes no lists.
    """
    own = None if given is None else given.loss
    loss: nn.Module = make(settings.loss, slot="loss", trust=trust, where="loss") if own is None else own
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
            f"{type(loss).__name__} takes no grades: take loss=lambda, or data.load.positive=LABEL that is relevant"
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
        quiet: not used.
        say: function that prints a text: the rows of each part, then batches and loss.
        given: objects in place of settings.
    """
    settings, trust = typed(ScoreSettings, plain(config)), packages(config.get("trust"))
    by_default = settings.loss.get("name") == AUTO
    check_optimizer(settings.optimizer)
    if settings.trainer["devices"] not in (1, "1", "auto"):
        raise ConfigError(f"task=scores trains in one process; got trainer.devices={settings.trainer['devices']}")
    if given is None and (settings.model.kind == GIVEN or settings.data.root is None):
        raise ConfigError("this run was started in Python: call fit_scores again with the model and resume=True")
    loss = None if by_default else _loss_of(settings, trust, given)
    table = load_table_of(settings) if given is None else given.table
    parts = divided(table, settings)
    train = parts.train
    _check_order(train)
    for name, part in (("train", train), ("choose", parts.chosen_on), ("test", parts.test)):
        if part is not None:
            say(f"{name:6} {part.summary()}")
    for note in table.notes:
        say(note)
    evaluate_scores(torch.zeros(len(parts.test)), parts.test, intervals=0)  # rows without a value raise here
    settings = _chosen(settings, parts)
    loss = _loss_of(settings, trust, given) if loss is None else loss
    relevance = _relevance(train, loss)
    encoding = Encoding.fitted(train, **settings.data.encoding)
    say(encoding.summary())
    inputs = encoding.encode(train)
    if given is None or given.model is None:
        model = build_model(settings.model, encoding.width)
        begin_at_the_best_constant(model, loss, relevance)
    else:
        model = given.built(inputs)
    module = ScoresModule(model, loss, {**settings.optimizer, "extended": settings.extended})
    data = list_data(inputs, relevance, train.query, settings.sampler, settings.seed)
    task = ScoresTask(settings, table, parts, encoding, data, module, trust)
    say(task.chosen(by_default))
    return task


def _chosen(settings: ScoreSettings, parts: RunRows) -> ScoreSettings:
    """The settings, in which the rows have chosen the loss and the metric that were left to them."""
    by_query, evaluation = parts.train.query is not None, settings.evaluation
    loss = default_loss("queries" if by_query else "rows") if settings.loss.get("name") == AUTO else settings.loss
    select = SELECT[by_query] if evaluation.select == AUTO else evaluation.select
    if select is not None and parts.chosen_on is not None:
        with spelled(as_keys("evaluation", {})):  # a metric that does not fit raises here, before the training
            values_of(torch.zeros(len(parts.chosen_on)), parts.chosen_on, [select])
    return replace(settings, loss=loss, evaluation=replace(evaluation, select=select))


def check_data(config: DictConfig) -> None:
    """Raise if the data cannot be read or divided as the settings say."""
    settings = typed(ScoreSettings, plain(config))
    divided(load_table_of(settings), settings)


TASK: runner.TaskType[Evaluated] = runner.TaskType("scores", _name, build)


#: Train a model of scores, evaluate it and write the run's folder. See `runner.train`.
train = partial(runner.train, TASK)


def summary(run: Run) -> str:
    """Metrics in per cent with their intervals, and the paths of the results."""
    before, facts = run.read_untrained(), run.read_facts()
    untrained = ", ".join(f"{name} {100 * value:.1f} %" for name, value in before.items())
    kept = f"; the weights are those of epoch {facts['best_epoch']}" if "best_epoch" in facts else ""
    lines = [str(ScoreReport.from_json(run.after)), *([f"before the training: {untrained}"] if before else [])]
    lines += [f"trained {facts['steps']} steps{kept}", *remarks_of(run), "", f"run:    {run.folder}"]
    lines += [f"report: {run.page}"] if run.page.exists() else []
    return "\n".join([*lines, *(f"! {warned}" for warned in below_before(run))])
