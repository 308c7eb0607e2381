"""The results that a page computes from the embeddings of its runs, on the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from . import numbers
from .gallery import choose
from .matching import Matching, match
from .numbers import Confusion, RankingSummary, Similarities
from .retrieved import RetrievalRun, Space

# Largest number of queries on a page for each reason. A query may have several reasons.
SHOWN = {"random": 24, "worst": 24, "best": 12, "failures": 24, "disagree": 16}


@dataclass(frozen=True, eq=False)
class Answers:
    """The results of one run for the sampled queries.

    Attributes:
        space: its embeddings.
        rows: [query] long, rows of the sampled queries in `space`.
        similarities: of all pairs of a query and an item.
        ranked: ranks of the relevant items.
        scores: [query, k] of the nearest items.
        items: [query, k] long, the nearest items.
        confusions: confused pairs of classes.
    """

    space: Space
    rows: Tensor
    similarities: Similarities
    ranked: RankingSummary
    scores: Tensor
    items: Tensor
    confusions: tuple[Confusion, ...]

    @cached_property
    def correct(self) -> Tensor:
        """[query, k] bool, whether the item is relevant."""
        return self.space.relevant(self.rows, self.items)

    @cached_property
    def margin(self) -> Tensor:
        """[query] score of a wrong nearest item minus that of the nearest relevant item; else NaN."""
        known = ~self.correct[:, 0] & self.similarities.best.isfinite()
        return torch.where(known, self.scores[:, 0] - self.similarities.best, torch.nan)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """The runs on the same queries.

    Attributes:
        matching: all common queries.
        sampled: [query] long, indices of the sampled queries in the matching.
        runs: one entry per run; None for a run without embeddings or without a common query.
        shown: reason -> indices in `sampled` of the queries to show.
    """

    matching: Matching
    sampled: Tensor
    runs: tuple[Answers | None, ...]
    shown: dict[str, list[int]]


def compare(runs: Sequence[RetrievalRun], queries: int, k: int, seed: int = 0) -> SideBySide:
    """Match and sample the queries, and compute the results of each run.

    Args:
        runs: the runs.
        queries: largest number of queries.
        k: items per query.
        seed: seed of the sample and of the random queries that are shown.
    """
    matching = match(runs)
    sampled = numbers.sample(len(matching), queries, seed)
    measured_runs = tuple(
        _measure(run, run.space, rows[sampled], k) if run.space is not None and len(rows) else None
        for run, rows in zip(runs, matching.rows, strict=True)
    )
    known = [run for run in measured_runs if run is not None]
    counts = {reason: count for reason, count in SHOWN.items() if reason != "disagree" or len(known) > 1}
    shown = choose([run.ranked.ap.tolist() for run in known], [run.margin.tolist() for run in known], counts, seed)
    return SideBySide(matching, sampled, measured_runs, shown)


def _measure(run: RetrievalRun, space: Space, rows: Tensor, k: int) -> Answers | None:
    if len(space.gallery[0]) < 1 + space.leave_one_out:
        return None
    alpha, beta = run.thresholds or (0.0, 0.0)  # without thresholds, the counts are not shown
    scores, items = numbers.nearest(space, rows, k)
    return Answers(
        space=space,
        rows=rows,
        similarities=numbers.similarities(space, rows, alpha, beta),
        ranked=numbers.ranked(space, rows),
        scores=scores,
        items=items,
        confusions=tuple(numbers.confusions(space, rows, scores[:, 0], items[:, 0])),
    )
