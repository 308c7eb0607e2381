"""The settings of a run of scores, by type: configs/scores/scores.yaml says what each means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checks import integer, number, unknown

AUTO = "auto"
GIVEN = "given"  # kind of a module that was handed to `fit_scores`
KINDS = ("mlp", "linear")


@dataclass(frozen=True)
class Model:
    """`model`: a network [row, width] -> [row].

    Attributes:
        kind: of `KINDS`.
        hidden: units of each hidden layer; none for a linear model.
        dropout: share of the units of a hidden layer that are left out in training.
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
        number(self.dropout, "model.dropout is a share of units", low=0, high=1)


@dataclass(frozen=True)
class Batches:
    """`sampler`: how rows are put into batches.

    Attributes:
        batch_size: rows of a batch, where all rows are one list.
        positives_per_batch: relevant rows of it; None: their share of all rows, at least 1.
        queries_per_batch: where rows have queries.
    """

    batch_size: int = 512
    positives_per_batch: int | None = None
    queries_per_batch: int = 32

    def __post_init__(self) -> None:
        integer(self.batch_size, "sampler.batch_size counts rows, relevant ones and others", low=2)
        integer(self.queries_per_batch, "sampler.queries_per_batch counts queries", low=1)
        if self.positives_per_batch is not None:
            what = "sampler.positives_per_batch counts relevant rows, fewer than sampler.batch_size"
            integer(self.positives_per_batch, what, low=1, high=self.batch_size - 1)


@dataclass(frozen=True)
class Data:
    """`data`: a file, and what is held out.

    Attributes:
        name: kind of data.
        root: the file; None: the rows were handed to `fit_scores`.
        load: arguments of `table.load_table`.
        validation: share of the training rows or queries that the epoch is chosen on.
        encoding: arguments of `Encoding.fitted`.
    """

    name: str
    root: str | None
    load: Mapping[str, Any]
    validation: float
    encoding: Mapping[str, Any]

    def __post_init__(self) -> None:
        number(self.validation, "data.validation is a share of the training rows", low=0, high=1)


@dataclass(frozen=True)
class ScoreEvaluation:
    """`evaluation`: what is measured, and on which rows.

    Attributes:
        split: "test", or "val": the rows that `fold` holds out.
        select: metric that chooses the epoch; "auto"; None: the last epoch is kept.
        bootstrap: resamples for the intervals.
        every: epochs between two evaluations during training; 0: none.
    """

    split: str
    select: str | None
    bootstrap: int
    every: int

    def __post_init__(self) -> None:
        if self.split not in ("test", "val"):
            raise ValueError(f"evaluation.split is test, or with fold= val; got {self.split!r}")
        integer(self.bootstrap, "evaluation.bootstrap counts resamples", low=0)
        integer(self.every, "evaluation.every counts epochs", low=0)


@dataclass(frozen=True)
class ScoreSettings:
    """All that `scores.task` reads of a run's settings.

    Attributes:
        seed: of weights, batches and held-out rows.
        fold: "1/3" holds out the first of three parts of the training rows; None: none.
        lean: keep the numbers only.
        data: rows.
        model: network.
        loss: `_target_` and its arguments, or the name "auto".
        sampler: batches.
        optimizer: see `training.module.TrainedModule`.
        evaluation: what is measured.
        extended: epochs at which the run ended before it was extended.
        trainer: arguments of `lightning.Trainer`.
    """

    seed: int
    fold: str | None
    lean: bool
    data: Data
    model: Mapping[str, Any]
    loss: Mapping[str, Any]
    sampler: Batches
    optimizer: Mapping[str, Any]
    evaluation: ScoreEvaluation
    extended: tuple[int, ...]
    trainer: Mapping[str, Any]


__all__ = ["Batches", "Data", "Model", "ScoreEvaluation", "ScoreSettings"]
