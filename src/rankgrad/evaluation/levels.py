"""Every metric of every query, at each level of the labels; computed from ranks, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import metrics
from ..batches.distributed import gather_objects, on_all, world
from ..search import Candidates, RankBlock, rank_blocks
from ..search.scores import Similarity
from .arrays import Array, to_numpy
from .measures import OF_LEVELS, AskedMetrics
from .pair_scores import PairScores
from .problem import Problem

SAME = 1e-5  # relative to a row's largest entry: embeddings of the same image in two batches differ by less


@dataclass(frozen=True)
class GalleryRanking:
    """How the gallery is ranked, and the metrics to compute.

    Attributes:
        asked: the metrics.
        candidates: items that are not ranked for a query.
        similarity: the scores.
        block: queries ranked at once; None chooses by a memory budget.
        progress: whether to print progress.
        shared: whether several processes share the work.
    """

    asked: AskedMetrics
    candidates: Candidates
    similarity: Similarity
    block: int | None
    progress: bool
    shared: bool


@dataclass(frozen=True)
class RankedLevel:
    """The metrics at one level of the labels.

    Attributes:
        per_query: metric -> [query].
        counted: [query] bool, whether the query has a relevant item.
        relevant: [query] number of relevant items.
        all_relevant: [query] bool, whether every item is relevant. Such a query has no ROC AUC and no fall-out.
        of_pairs: metrics of all (query, item) pairs together, which are not means over the queries.
        copies: rows of the queries whose nearest relevant item has the same embedding.
    """

    per_query: dict[str, Array]
    counted: Array
    relevant: Array
    all_relevant: Array
    of_pairs: dict[str, float]
    copies: Array


def ranked_levels(problem: Problem, ranking: GalleryRanking) -> list[RankedLevel]:
    """Every metric at every level of the labels, coarsest first. Metrics of all pairs only at the finest level."""
    finest = _ranked(problem, -1, ranking)
    if not finest.counted.any():
        raise ValueError(
            f"none of the {len(problem.queries)} queries has a relevant item in the gallery; at least one is needed. "
            "Check that labels and ref_labels use the same numbers, and that a class has two members."
        )
    without_rates = replace(ranking, asked=replace(ranking.asked, rates={}))
    return [*(_ranked(problem, level, without_rates) for level in range(len(problem.levels) - 1)), finest]


def _ranked(problem: Problem, level: int, ranking: GalleryRanking) -> RankedLevel:
    """Every metric of every query, at one level of the labels."""
    own_share = partial(_ranked_share, problem, level, ranking)
    shares = gather_objects(on_all(own_share)) if ranking.shared else [own_share()]
    ranked = _MeasuredQueries.joined([queries for queries, _ in shares])

    def of_all(values: Array) -> Array:
        """[query] the values, and 0 for the queries without a relevant item."""
        column = np.zeros(len(problem.queries), dtype=values.dtype)
        column[ranked.rows] = values
        return column

    # sort, so that the order of the blocks does not change the last bit of a sum
    order = np.argsort(ranked.rows)
    pairs = ranked.hardest[order]
    pairs = pairs[pairs[:, 1] > -np.inf]
    of_pairs = {}
    if len(pairs):
        first = torch.tensor([True, False], device="cpu").expand(len(pairs), 2)
        of_pairs["AUC_hardest"] = float(metrics.auc_hardest(torch.from_numpy(pairs), first))
    for at, name in enumerate(ranking.asked.rates):
        fnmr = PairScores.joined([matches[at] for _, matches in shares]).fnmr()
        if fnmr is not None:
            of_pairs[name] = fnmr
    return RankedLevel(
        per_query={name: of_all(values) for name, values in zip(ranking.asked.readings, ranked.metrics.T, strict=True)},
        counted=of_all(np.ones(len(ranked.rows), dtype=bool)),
        relevant=of_all(ranked.relevant),
        all_relevant=of_all(ranked.all_relevant),
        of_pairs=of_pairs,
        copies=ranked.rows[order][ranked.copies[order]],
    )


def graded_metrics(levels: Sequence[RankedLevel]) -> dict[str, Array]:
    r"""H-AP and H-NDCG of every query, where an item of l shared levels of L has the gain l / L.

    The gain is a sum over the levels: 1 / L for each shared level. So the numerators of both metrics are sums over the
    levels, too. With n_l items relevant at level l, and D(n) = sum_{i <= n} 1 / log2(1 + i),
        H-AP = sum_l n_l AP_l / sum_l n_l,  H-NDCG = sum_l D(n_l) NDCG_l / sum_l D(n_l).

    Args:
        levels: the metrics at each level, coarsest first.
    """
    sizes = np.stack([level.relevant for level in levels])
    ideal = np.concatenate([[0.0], (1 / np.log2(2.0 + np.arange(sizes.max(initial=0)))).cumsum()])[sizes]
    graded = {}
    for (name, of), shares in zip(OF_LEVELS.items(), (sizes, ideal), strict=True):
        if of not in levels[0].per_query:
            continue
        values = np.stack([level.per_query[of] for level in levels])
        total = shares.sum(0)
        graded[name] = (shares * values).sum(0) / np.where(total > 0, total, 1)
    return graded


class _MeasuredQueries(NamedTuple):
    """Queries with a relevant item, in the order in which they were ranked.

    Attributes:
        rows: [row] number of the query.
        hardest: [row, 2] lowest score of a relevant item, and highest score of an irrelevant one.
        copies: [row] bool, whether the nearest relevant item has the query's embedding.
        relevant: [row] number of relevant items.
        all_relevant: [row] bool, whether every item is relevant.
        metrics: [row, metric] float64.
    """

    rows: Array
    hardest: Array
    copies: Array
    relevant: Array
    all_relevant: Array
    metrics: Array

    @classmethod
    def none(cls, metrics: int) -> _MeasuredQueries:
        """No queries, for a process without a block."""
        numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
        return cls(numbers, np.zeros((0, 2)), flags, numbers, flags, np.zeros((0, metrics)))

    @classmethod
    def joined(cls, parts: Sequence[_MeasuredQueries]) -> _MeasuredQueries:
        """The queries of all parts."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


def _ranked_share(problem: Problem, level: int, ranking: GalleryRanking) -> tuple[_MeasuredQueries, list[PairScores]]:
    """This process's part of the queries, and the scores of pairs for each false match rate."""
    same = problem.leave_one_out
    parts = [_MeasuredQueries.none(len(ranking.asked.readings))]
    matches = [PairScores(rate, len(problem.gallery) * len(problem.queries)) for rate in ranking.asked.rates.values()]
    for block in rank_blocks(
        problem.queries,
        problem.levels[level],
        None if same else problem.gallery,
        None if same else problem.ref_levels[level],
        ranking.candidates,
        similarity=ranking.similarity,
        block=ranking.block,
        progress=ranking.progress and (not ranking.shared or world()[0] == 0),
        turn=world() if ranking.shared else (0, 1),
    ):
        columns = (
            block.rows,
            torch.stack([block.lowest_positive, block.highest_negative], dim=1).double(),
            torch.zeros_like(block.rows, dtype=torch.bool) if same else _copies(problem, block),
            block.ranks.pessimistic.num_relevant,
            block.irrelevant == 0,
            torch.stack([metric(block).double() for metric in ranking.asked.readings.values()], dim=1),
        )
        parts.append(_MeasuredQueries(*map(to_numpy, columns)))
        for match in matches:
            match.add(block)
    return _MeasuredQueries.joined(parts), matches


def _copies(problem: Problem, block: RankBlock) -> Tensor:
    """[row] bool, whether the nearest relevant item of the gallery has the query's embedding."""
    query, nearest = problem.queries[block.rows], problem.gallery[block.nearest_positive]
    return (query - nearest).abs().amax(1) <= SAME * query.abs().amax(1)
