"""Everything that a page computes from the embeddings of its runs, on the same queries."""

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

# How many queries a page shows for each reason; one may be shown for several.
SHOWN = {"random": 24, "worst": 24, "best": 12, "failures": 24, "disagree": 16}


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known of one run's answers to the sampled queries.

    Attributes:
        space: its embeddings.
        rows: [query] long, the sampled queries in it.
        similarities: of all their pairs.
        ranked: how the relevant items are found.
        scores: [query, k] of the nearest items.
        items: [query, k] long.
        confusions: pairs of classes.
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
        """[query, k] bool: is the item relevant?"""
        return self.space.relevant(self.rows, self.items)

    @cached_property
    def margin(self) -> Tensor:
        """[query] by how much the nearest item, a wrong one, beats the nearest relevant one; NaN where it is right."""
        known = ~self.correct[:, 0] & self.similarities.best.isfinite()
        return torch.where(known, self.scores[:, 0] - self.similarities.best, torch.nan)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """The runs on the same queries.

    Attributes:
        matching: all queries that they have in common.
        sampled: [query] long, places in the matching that are looked at.
        runs: one entry per run; None without embeddings, or without a query in common.
        shown: reason -> places in `sampled`.
    """

    matching: Matching
    sampled: Tensor
    runs: tuple[Answers | None, ...]
    shown: dict[str, list[int]]


def compare(runs: Sequence[RetrievalRun], queries: int, k: int, seed: int = 0) -> SideBySide:
    """Match, sample and measure.

    Args:
        runs: the runs.
        queries: how many are asked at most.
        k: items per query.
        seed: of the sample, and of the random queries that are shown.
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
    alpha, beta = run.thresholds or (0.0, 0.0)  # nothing is said of them where there are none
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
