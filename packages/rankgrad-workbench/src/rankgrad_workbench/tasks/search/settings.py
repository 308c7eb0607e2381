"""The settings of a run of search as typed records. configs/search/search.yaml describes each setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rankgrad.common.checks import flag, integer, number, one_of

from ...datasets.tabular import AUTO
from ...settings.allowed import section
from .bm25 import Words


def _numbers(settings: object, section: str, **lowest: int) -> None:
    """Raise unless these settings are whole numbers that are large enough, or None where they may be."""
    for name, low in lowest.items():
        if getattr(settings, name) is not None:
            integer(getattr(settings, name), f"{section}{name} is a number", low=low)


@dataclass(frozen=True)
class SearchData:
    """`data`: where queries, documents and judgements are.

    Attributes:
        name: kind of data.
        root: folder or file.
        load: arguments of `reading.read`.
        test_fraction: fraction of the queries that are the test, if the data has no test queries.
        validation: fraction of the training queries that choose the epoch, if the data has no validation queries.
        seed: of both divisions.
        own_documents: whether a document that is the query itself stays in its list.
    """

    name: str
    root: str
    load: Mapping[str, Any]
    test_fraction: float
    validation: float
    seed: int
    own_documents: bool

    def __post_init__(self) -> None:
        for name in ("test_fraction", "validation"):
            number(getattr(self, name), f"data.{name} is a fraction of the queries", low=0, high=0.9)
        flag(self.own_documents, "data.own_documents")
        integer(self.seed, "data.seed is the seed of the division", low=0, high=2**32 - 1)


@dataclass(frozen=True)
class Prompts:
    """`prompts`: texts that are put before each query and each document; None: those of the model, if it has any."""

    query: str | None
    document: str | None


@dataclass(frozen=True)
class SearchBatches:
    """`sampler`: queries of a batch, and the documents of each.

    Attributes:
        queries_per_batch: number of queries; all, if there are fewer.
        positives_per_query: largest number of relevant documents of a query; None: all. Each epoch draws others.
        negatives_per_query: number of irrelevant documents of a query: given ones first, then mined ones.
    """

    queries_per_batch: int
    positives_per_query: int | None
    negatives_per_query: int

    def __post_init__(self) -> None:
        _numbers(self, "sampler.", queries_per_batch=1, positives_per_query=1, negatives_per_query=0)


@dataclass(frozen=True)
class Mining:
    """`mining`: irrelevant documents that a system ranks high.

    Attributes:
        by: "bm25", "model" or "none".
        every: number of steps after which the model mines again; None: only before the training.
        first: first rank of the window.
        last: last rank of the window.
        margin: documents that score above (1 - margin) times the best relevant document are left out.
    """

    by: str
    every: int | None
    first: int
    last: int
    margin: float

    def __post_init__(self) -> None:
        one_of(self.by, "mining.by", ("bm25", "model", "none"))
        _numbers(self, "mining.", first=1, every=1)
        _numbers(self, "mining.", last=self.first)
        number(self.margin, "mining.margin is a fraction of the score of a relevant document", low=0, high=1)


@dataclass(frozen=True)
class SearchWords:
    """`bm25`: how BM25 reads and weighs words.

    Attributes:
        language: of stop words and stems, see `bm25.LANGUAGES`; "auto": that of the documents; None: none.
        k1: how much repeated words count; None: the validation queries choose.
        b: how much long documents are held back; None: likewise.
    """

    language: str | None
    k1: float | None
    b: float | None

    def __post_init__(self) -> None:
        with section("bm25"):
            language = None if self.language == AUTO else self.language
            Words(language, *(0.5 if value is None else value for value in (self.k1, self.b)))


@dataclass(frozen=True)
class SearchEvaluation:
    """`evaluation`: the evaluated queries.

    Attributes:
        split: "test"; or "val", the queries that `fold` holds out.
        select: whether the validation queries choose the epoch.
        bootstrap: number of resamples for the intervals.
        every: number of epochs between two evaluations of the test queries during training; 0: none.
        batch_size: number of texts that are embedded at a time.
        depth: number of documents in a list.
    """

    split: str
    select: bool
    bootstrap: int
    every: int
    batch_size: int
    depth: int

    def __post_init__(self) -> None:
        one_of(self.split, "evaluation.split", ("test", "val"))
        _numbers(self, "evaluation.", bootstrap=0, every=0, batch_size=1, depth=1)


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a run that `task` uses.

    Attributes:
        seed: seed of weights and batches.
        fold: "1/3" holds out the first of three parts of the training queries; None: no part is held out.
        encoders: 1: queries and documents share an encoder; 2: each has its own, equal at the start.
        widths: numbers of first columns that are an embedding, too, see `sizes`.
        sub_batch: number of texts that are embedded at a time; None: all.
        lean: keep only the numbers.
        data: see `SearchData`.
        model: arguments of `models.build_model`.
        prompts: see `Prompts`.
        loss: `_target_` and its arguments.
        sampler: see `SearchBatches`.
        mining: see `Mining`.
        bm25: see `SearchWords`.
        optimizer: see `training.module.TrainedModule`; and `average`, the share of the trained weights in the model
            that is kept (None: it follows from the number of steps).
        evaluation: see `SearchEvaluation`.
        extended: numbers of epochs at which the run ended before it was extended.
        trainer: arguments of `lightning.Trainer`.
    """

    seed: int
    fold: str | None
    encoders: int
    widths: tuple[int, ...]
    sub_batch: int | None
    lean: bool
    data: SearchData
    model: Mapping[str, Any]
    prompts: Prompts
    loss: Mapping[str, Any]
    sampler: SearchBatches
    mining: Mining
    bm25: SearchWords
    optimizer: Mapping[str, Any]
    evaluation: SearchEvaluation
    extended: tuple[int, ...]
    trainer: Mapping[str, Any]

    def __post_init__(self) -> None:
        integer(self.encoders, "encoders is 1 (shared) or 2 (one for queries, one for documents)", low=1, high=2)
        for width in self.widths:
            integer(width, "widths are numbers of columns", low=1)
        _numbers(self, "", sub_batch=1)
        if (share := self.optimizer["average"]) is not None:
            number(share, "optimizer.average is a share of the trained weights, or null", low=0, high=1)


__all__ = ["Mining", "Prompts", "SearchBatches", "SearchData", "SearchEvaluation", "SearchSettings", "SearchWords"]
