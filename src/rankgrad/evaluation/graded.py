"""Exact metrics of retrieval with graded relevance: queries, a corpus, and a grade for each (query, document) pair.

In `evaluate` relevance follows from labels. Here it is a grade per (query, document) pair, as in the judgement files
of retrieval campaigns ("qrels").
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import SUMMABLE, Numbers, integer, one_of
from ..common.checks import tensor as as_tensor
from ..ranks import exact_ranks
from ..ranks.normalize import unit_rows
from ..ranks.types import TiedRanks
from ..search.scores import Scorer, check_embeddings
from .measures import ceilings, listed, needs_irrelevant, note_of_ceilings, reading
from .report import Report
from .statistics import BOOTSTRAP, Bootstrap, intervals_of_means

Array = npt.NDArray[Any]
METRICS = ("NDCG@10", "NDCG", "H-AP", "AP", "MRR@10", "R@1", "R@10", "Recall@10")
PAIRS = 2**22  # number of (query, document) pairs that are ranked together


def evaluate_graded(
    embeddings: Numbers,
    ref_embeddings: Numbers,
    relevance: Sequence[Mapping[int, float]],
    *,
    metrics: Sequence[str] = METRICS,
    similarity: str = "cosine",
    intervals: Bootstrap | int = BOOTSTRAP,
) -> Report:
    """Rank the corpus for every query and compute exact metrics from the ranks and the grades of relevance.

    NDCG (its gains are the grades; ties as in scikit-learn), NDCG-exp2 (2^grade - 1) and H-AP use the grades. For all
    other metrics a document is relevant if its grade is above 0. Queries without a relevant document are left out of
    the means and listed in `Report.without_relevant`. Queries without an irrelevant document are also left out of the
    means of ROC AUC and fall-out, whose value is 0 for them. Such a metric is absent if no query has both kinds.

    Args:
        embeddings: [query, dim] floats. float64 stays; other dtypes are computed in float32.
        ref_embeddings: [document, dim] floats, the corpus.
        relevance: for each query a mapping, row of the corpus -> grade >= 0; all other documents have 0.
        metrics: names: NDCG, NDCG@k, NDCG-exp2@k, H-AP, and those of `evaluation.Report`.
        similarity: "cosine", "inner product" or "euclidean".
        intervals: how intervals are drawn, or a number of resamples; 0: no intervals.

    Raises:
        ValueError: a value is NaN, shapes do not fit, a grade is negative or of a row that does not exist, no grade is
            positive, or a metric is unknown.
        TypeError: relevance is no list of mappings.

    >>> queries, corpus = torch.eye(2), torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> report = evaluate_graded(queries, corpus, [{0: 1, 1: 3}, {2: 1}], metrics=["NDCG", "R@1"], intervals=0)
    >>> round(report.values["NDCG"], 3), report.values["R@1"]
    (0.898, 1.0)
    """
    sides = _sides(embeddings, ref_embeddings, similarity)
    drawing = replace(Bootstrap.of(intervals), by="query")
    count, items = map(len, sides)
    where, amounts = _pairs(relevance, count, items)
    metrics = listed(metrics, "metrics")
    need_graded(metrics)  # raise on a misspelt name before the work

    scorer = Scorer(*sides, "euclidean" if similarity == "euclidean" else "inner product")
    per_query = {name: np.zeros(count) for name in metrics}
    irrelevant = np.zeros(count, dtype=bool)
    for rows in torch.split(torch.arange(count, device=scorer.device), max(1, PAIRS // items)):
        ranks = GradedRanks(scorer(rows), _dense(where, amounts, rows, items))
        for name in metrics:
            per_query[name][rows.cpu().numpy()] = ranks.metric(name).double().cpu().numpy()
        irrelevant[rows.cpu().numpy()] = (ranks.irrelevant > 0).cpu().numpy()

    counted = np.zeros(count, dtype=bool)
    counted[where[0][amounts > 0].numpy()] = True
    if not counted.any():
        raise ValueError(f"none of the {count} queries has a relevant document; at least one is needed")
    values, bounds = means_of(per_query, counted, irrelevant, drawing)
    without = np.flatnonzero(~counted)
    notes = [f"{len(without)} queries have no relevant document and are left out of all means."] if len(without) else []
    notes += of_relevant_alone(metrics, counted, irrelevant, "documents")
    notes += highest_means(metrics, np.bincount(where[0][amounts > 0].numpy(), minlength=count)[counted])
    kinds = len({*amounts.tolist(), 0.0})
    return Report(
        values=values,
        intervals=bounds,
        per_query=per_query,
        without_relevant=without,
        per_class=(),
        per_super_label=(),
        levels=(),
        counts={"queries": count, "counted": int(counted.sum()), "gallery": items, "classes": kinds},
        settings={
            "protocol": "graded",
            "similarity": similarity,
            "precision": str(scorer.dtype).removeprefix("torch."),
            **drawing.settings(),
        },
        notes=tuple(notes),
    )


def _sides(embeddings: Numbers, ref_embeddings: Numbers, similarity: str) -> tuple[Tensor, Tensor]:
    """Queries and corpus on the same device and in the same precision; rows of length 1 for cosines."""
    sides = []
    for name, side in (("embeddings", embeddings), ("ref_embeddings", ref_embeddings)):
        sides.append(as_tensor(side, name).detach())
        check_embeddings(name, sides[-1])
    one_of(similarity, "similarity", ("cosine", "inner product", "euclidean"))
    dtype = torch.promote_types(torch.promote_types(sides[0].dtype, sides[1].dtype), torch.float32)
    sides = [side.to(sides[0].device, dtype) for side in sides]
    mine, theirs = map(unit_rows, sides) if similarity == "cosine" else sides
    return mine, theirs


def _pairs(relevance: Sequence[Mapping[int, float]], count: int, items: int) -> tuple[Tensor, Tensor]:
    """([2, pair] query and document, [pair] grade), checked."""
    sequence = isinstance(relevance, Iterable) and not isinstance(relevance, (str, Mapping))
    rows = list(relevance) if sequence else []
    if not sequence or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(
            "relevance must be a list with one mapping per query, row of the corpus -> grade, such as [{0: 1, 4: 2}, "
            f"{{3: 1}}]; got {relevance!r:.100}"
        )
    if len(rows) != count:
        raise ValueError(f"relevance must have one mapping per query, {count}; got {len(rows)}")
    where = [(query, _row(item, query, items)) for query, row in enumerate(rows) for item in row]
    amounts = [_grade(grade, query, item) for query, row in enumerate(rows) for item, grade in row.items()]
    pairs = torch.tensor(where, dtype=torch.long, device="cpu").reshape(-1, 2).T
    return pairs, torch.tensor(amounts, dtype=torch.float64, device="cpu")


def _row(item: object, query: int, items: int) -> int:
    row = integer(item, f"a key of the relevance of query {query} is a row of the corpus")
    if not 0 <= row < items:
        raise ValueError(f"the relevance of query {query} has row {row}, but the corpus has rows 0 .. {items - 1}")
    return row


def _grade(grade: Any, query: int, item: object) -> float:
    try:
        value = math.nan if isinstance(grade, str) else float(grade)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= SUMMABLE:
        raise ValueError(
            f"grades must be numbers in 0 .. {SUMMABLE:g}; that of query {query} and row {item} is {grade!r}"
        )
    return value


def _dense(where: Tensor, values: Tensor, rows: Tensor, items: int) -> Tensor:
    """[row, document] float64, the gains of some consecutive queries; 0 if not given."""
    inside = (where[0] >= int(rows[0])) & (where[0] <= int(rows[-1]))
    query, document, gain = (column[inside].to(rows.device) for column in (*where, values))
    dense = torch.zeros(len(rows), items, dtype=torch.float64, device=rows.device)
    dense[query - rows[0], document] = gain
    return dense


class GradedRanks:
    """The ranks of the documents of some queries, with gains and binary. Each is computed at its first use.

    Args:
        keys: [query, document] higher is closer.
        gains: [query, document].
        valid: [query, document] bool, False for padding; None: all documents are valid.
    """

    def __init__(self, keys: Tensor, gains: Tensor, valid: Tensor | None = None) -> None:
        self.keys, self.gains, self.valid = keys, gains, valid

    @cached_property
    def graded(self) -> TiedRanks:
        """Ranks with gains: the positives of a document are the documents of at least its gain."""
        return self._under_ties(self.gains)

    @cached_property
    def ranks(self) -> TiedRanks:
        """Ranks with binary relevance."""
        return self._under_ties(self.gains > 0)

    @cached_property
    def irrelevant(self) -> Tensor:
        """[query] number of documents that are not relevant."""
        return ((self.gains <= 0) if self.valid is None else (self.gains <= 0) & self.valid).sum(1)

    def metric(self, name: str) -> Tensor:
        """[query] the values of a metric.

        Raises:
            ValueError: there is no metric of this name.
        """
        return reading(name, graded=True)(self)

    def _under_ties(self, relevance: Tensor) -> TiedRanks:
        """Ranks of the documents of positive relevance, under three rules for ties."""
        wide = self.keys.double()  # gains are converted to the dtype of the scores
        pessimistic, optimistic, index = (
            exact_ranks(wide, relevance, self.valid, ties=t) for t in ("pessimistic", "optimistic", "index")
        )
        return TiedRanks(pessimistic=pessimistic, optimistic=optimistic, index=index)


def means_of(
    per_query: Mapping[str, Array], relevant: Array, irrelevant: Array, how: Bootstrap
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """(metric -> its mean, metric -> interval) over the queries that have a value; a metric without one is absent.

    Args:
        per_query: metric -> [query].
        relevant: [query] bool, whether it has a relevant item.
        irrelevant: [query] bool, whether it has an irrelevant item.
        how: the intervals.
    """
    values: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for compares, counted in ((False, relevant), (True, relevant & irrelevant)):
        columns = {name: column[counted] for name, column in per_query.items() if needs_irrelevant(name) == compares}
        if columns and counted.any():
            values |= {name: float(column.mean()) for name, column in columns.items()}
            if how.resamples:
                every = np.arange(counted.sum())
                intervals |= intervals_of_means(columns, every, np.ones(len(every)), how)
    named = [name for name in per_query if name in values]
    return {name: values[name] for name in named}, {name: intervals[name] for name in named if name in intervals}


def of_relevant_alone(names: Sequence[str], relevant: Array, irrelevant: Array, items: str) -> list[str]:
    """The note on queries that have relevant items only; none if there is no such query.

    Args:
        names: the metrics that were asked for.
        relevant: [query] bool, whether it has a relevant item.
        irrelevant: [query] bool, whether it has an irrelevant item.
        items: what the items are called.
    """
    alone = int((relevant & ~irrelevant).sum())
    if not alone:
        return []
    note = (
        f"Queries with only relevant {items}: {alone}. Each counts 100 % in AP and MRR, and with equal grades in NDCG, "
        "whatever its scores."
    )
    left = [name for name in names if needs_irrelevant(name)]
    return [f"{note} They are left out of {', '.join(left)}." if left else note]


def highest_means(names: Sequence[str], relevant: Array) -> list[str]:
    """The note on means of P@k that cannot reach 1.

    Args:
        names: the metrics that were asked for.
        relevant: [query] number of relevant items, of the queries that count.
    """
    return note_of_ceilings({name: f"{100 * most.mean():.1f} %" for name, most in ceilings(names, relevant).items()})


def need_graded(names: Sequence[str]) -> None:
    """Raise unless these are metrics of graded lists.

    Raises:
        ValueError: a name is unknown; the message contains it.
    """
    for name in names:
        reading(name, graded=True)
