"""The settings of a run of scores as typed records. configs/scores/scores.yaml describes each setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankgrad.common.checks import integer, number, unknown

AUTO = "auto"
GIVEN = "given"  # kind of a model that the caller of `fit_scores` gives
KINDS = ("mlp", "linear")


@dataclass(frozen=True)
class Model:
    """`model`: a network [row, width] -> [row].

    Attributes:
        kind: one of `KINDS`.
        hidden: number of units of each hidden layer; not used by a linear model.
        dropout: fraction of the units of a hidden layer that are set to 0 in training.
        batch_norm: normalise each hidden layer over the batch.
    """

    kind: str = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    dropout: float = 0.0
    batch_norm: bool = False

    def __post_init__(self) -> None:
        if self.kind not in (*KINDS, GIVEN):
            raise ValueError(unknown("model.kind", self.kind, KINDS))
        for units in self.hidden:
            integer(units, "model.hidden lists the units of each layer", low=1)
        number(self.dropout, "model.dropout is a fraction of units", low=0, high=1)


@dataclass(frozen=True)
class Batches:
    """`sampler`: the batches.

    Attributes:
        batch_size: number of rows in a batch, if all rows are one list.
        positives_per_batch: number of relevant rows in it; None: in proportion to their fraction of all rows, at
            least one in 64.
        queries_per_batch: number of queries in a batch, if rows have queries.
    """

    batch_size: int = 512
    positives_per_batch: int | None = None
    queries_per_batch: int = 32

    def __post_init__(self) -> None:
        integer(self.batch_size, "sampler.batch_size is a number of rows", low=2)
        integer(self.queries_per_batch, "sampler.queries_per_batch is a number of queries", low=1)
        if self.positives_per_batch is not None:
            what = "sampler.positives_per_batch is a number of relevant rows, below sampler.batch_size"
            integer(self.positives_per_batch, what, low=1, high=self.batch_size - 1)


@dataclass(frozen=True)
class Data:
    """`data`: a file, and the held-out rows.

    Attributes:
        name: kind of data.
        root: the file; None: the caller of `fit_scores` gives the rows.
        load: arguments of `table.load_table`.
        validation: fraction of the training rows or queries that choose the epoch.
        encoding: arguments of `Encoding.fitted`.
    """

    name: str
    root: str | None
    load: Mapping[str, Any]
    validation: float
    encoding: Mapping[str, Any]


@dataclass(frozen=True)
class ScoreEvaluation:
    """`evaluation`: the evaluated rows, and the metrics.

    Attributes:
        split: "test"; or "val", the rows that `fold` holds out.
        select: metric that chooses the epoch; "auto": the default; None: the last epoch is kept.
        patience: steps without a better epoch after which the training ends; "auto": a share of all steps, unless the
            number of epochs is given; None: it never ends early.
        bootstrap: number of resamples for the intervals.
        every: number of epochs between two evaluations during training; 0: no evaluations.
    """

    split: str
    select: str | None
    patience: int | str | None
    bootstrap: int
    every: int

    def __post_init__(self) -> None:
        if self.patience not in (None, AUTO):
            integer(self.patience, "evaluation.patience is a number of steps, null or auto", low=1)
        integer(self.bootstrap, "evaluation.bootstrap is a number of resamples", low=0)
        integer(self.every, "evaluation.every is a number of epochs", low=0)


@dataclass(frozen=True)
class ScoreSettings:
    """The settings of a run that `scores.task` uses.

    Attributes:
        seed: seed of weights, batches and held-out rows.
        fold: "1/3" holds out the first of three parts of the training rows; None: no part is held out.
        lean: keep only the numbers.
        data: see `Data`.
        model: see `Model`.
        loss: `_target_` and its arguments, or the name "auto".
        sampler: see `Batches`.
        optimizer: see `training.module.TrainedModule`.
        evaluation: see `ScoreEvaluation`.
        extended: numbers of epochs at which the run ended before it was extended.
        trainer: arguments of `lightning.Trainer`.
    """

    seed: int
    fold: str | None
    lean: bool
    data: Data
    model: Model
    loss: Mapping[str, Any]
    sampler: Batches
    optimizer: Mapping[str, Any]
    evaluation: ScoreEvaluation
    extended: tuple[int, ...]
    trainer: Mapping[str, Any]


__all__ = ["Batches", "Data", "Model", "ScoreEvaluation", "ScoreSettings"]
