"""The results that a page computes from the embeddings of its runs, on the same queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ....report.html.text import enumeration
from . import numbers
from .reading import Content
from .space import Space

# Largest number of queries on a page for each reason. A query may have several reasons.
SHOWN = {"random": 24, "worst": 24, "best": 12, "failures": 24, "disagree": 16}


@dataclass(frozen=True, eq=False)
class Answers:
    """The results of one run for the sampled queries.

    Attributes:
        kind: number of the run on the page.
        run: the run.
        space: its embeddings.
        matched: [query] long, rows of all common queries in `space`.
        rows: [query] long, rows of the sampled queries in `space`.
        similarities: of all pairs of a query and an item.
        ranked: ranks of the relevant items.
        scores: [query, k] of the nearest items.
        items: [query, k] long, the nearest items.
        confusions: confused pairs of classes.
    """

    kind: int
    run: Content
    space: Space
    matched: Tensor
    rows: Tensor
    similarities: numbers.Similarities
    ranked: numbers.RankingSummary
    scores: Tensor
    items: Tensor
    confusions: tuple[numbers.Confusion, ...]

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
        queries: number of common queries.
        asked: number of sampled queries.
        runs: the runs that have embeddings and a common query.
        shown: reason -> indices of the sampled queries to show.
        notes: queries that could not be matched.
    """

    queries: int
    asked: int
    runs: tuple[Answers, ...]
    shown: dict[str, list[int]]
    notes: tuple[str, ...]


def compare(runs: Sequence[Content], queries: int, k: int, seed: int = 0) -> SideBySide:
    """Match and sample the queries, and compute the results of each run.

    Args:
        runs: the runs.
        queries: largest number of queries.
        k: items per query.
        seed: seed of the sample and of the random queries that are shown.
    """
    spaces = {kind: run.space for kind, run in enumerate(runs) if run.space is not None}
    matched, notes = match(spaces, [run.name for run in runs])
    count = max(map(len, matched.values()), default=0)
    sampled = numbers.sample(count, queries, seed)
    measured = []
    for kind, rows in matched.items():
        space = spaces[kind]
        if len(rows) and len(space.gallery[0]) > space.leave_one_out:
            some = rows[sampled]
            scores, items = numbers.nearest(space, some, k)
            confused = tuple(numbers.confusions(space, some, scores[:, 0], items[:, 0]))
            found = numbers.similarities(space, some), numbers.ranked(space, some)
            measured.append(Answers(kind, runs[kind], space, rows, some, *found, scores, items, confused))
    shown = {}
    if measured:
        ap, margin = torch.stack([run.ranked.ap for run in measured]), torch.stack([run.margin for run in measured])
        shown = choose(ap, margin, {r: most for r, most in SHOWN.items() if r != "disagree" or len(measured) > 1}, seed)
    return SideBySide(count, len(sampled), tuple(measured), shown, tuple(notes))


def match(spaces: Mapping[int, Space], names: Sequence[str]) -> tuple[dict[int, Tensor], list[str]]:
    r"""The queries that all runs with embeddings have in common, by name and class.

    Args:
        spaces: number of a run -> its embeddings.
        names: of all runs.

    Returns:
        (number of a run -> [query] long, its rows of the common queries, in the order of the first run; notes on
        queries that could not be matched).

    >>> def space(names, labels):
    ...     return Space(torch.eye(len(names)), torch.tensor(labels), tuple(names), ("one", "two"))
    >>> rows, notes = match({0: space("abcd", [0, 0, 1, 1]), 1: space("dcbx", [1, 0, 0, 0])}, "AB")
    >>> rows
    {0: tensor([1, 3]), 1: tensor([2, 0])}
    >>> print(*notes, sep="\n")
    2 of 4 queries of A are not in B: a, c
    2 of 4 queries of B are not in A: c, x
    """
    if len(spaces) < 2:
        return {kind: torch.arange(len(space.queries)) for kind, space in spaces.items()}, []
    places: dict[int, dict[tuple[str, str], int]] = {}
    notes = []
    for kind, space in spaces.items():
        keys, times = zip(space.names, space.classes_of(space.labels), strict=True), Counter(space.names)
        places[kind] = {key: row for row, key in enumerate(keys) if times[key[0]] == 1}
        if repeated := [name for name, count in times.items() if count > 1]:
            which = f"belong to several {space.noun} and are not matched: {enumeration(repeated)}"
            notes.append(f"{len(repeated)} names of {names[kind]} {which}")
    common = [key for key in next(iter(places.values())) if all(key in known for known in places.values())]
    for kind, known in places.items():
        others = [other for other, place in places.items() if known.keys() - place.keys()]
        if lacking := [key[0] for key in known if any(key not in places[other] for other in others)]:
            which = f"{enumeration([names[other] for other in others])}: {enumeration(lacking)}"
            notes.append(f"{len(lacking):,} of {len(known):,} queries of {names[kind]} are not in {which}")
    if not common:
        first = next(iter(spaces))
        why = "No query is in all runs, so the runs are not shown side by side. The examples are queries of"
        return {first: torch.arange(len(spaces[first].queries))}, [*notes, f"{why} {names[first]} only."]
    same = {kind: [known[key] for key in common] for kind, known in places.items()}
    return {kind: torch.tensor(rows, dtype=torch.long) for kind, rows in same.items()}, notes


def choose(ap: Tensor, margin: Tensor, counts: Mapping[str, int], seed: int = 0) -> dict[str, list[int]]:
    """Queries to show, by reason: random, worst, best, failures, and where several runs disagree.

    Args:
        ap: [run, query] AP, NaN for a query without a relevant item, which is never chosen. For several runs, the mean
            over the runs is used.
        margin: [run, query] score of the nearest item minus that of the nearest relevant one, if the nearest is wrong;
            else NaN. Of the queries whose nearest item is wrong in every run, those with the largest margin are the
            failures.
        counts: reason -> largest number of queries, for "random", "worst", "best", "failures", "disagree" (largest
            range of AP).
        seed: of the random queries.

    Returns:
        Reason -> queries, in the order of `counts`. No query is both worst and best, and a random query has no other
        reason. Equal queries are in the order of their rows.

    >>> nan = float("nan")
    >>> ap, margin = torch.tensor([[0.1, 0.9, nan, 0.5]]), torch.tensor([[0.3, nan, nan, 0.4]])
    >>> choose(ap, margin, {"worst": 1, "failures": 2})
    {'worst': [0], 'failures': [3, 0]}
    """
    mean, wide = ap.double().nanmean(0), margin.nanmean(0)
    known = ~mean.isnan()
    spread = ap.nan_to_num(-1).amax(0) - ap.nan_to_num(2).amin(0)

    def first(reason: str, by: Tensor, among: Tensor) -> list[int]:
        rows = among.nonzero().flatten()
        order: list[int] = rows[by[rows].argsort(stable=True)].tolist()
        return order[: counts.get(reason, 0)]

    chosen = {"worst": first("worst", mean, known)}
    middling = known.clone()
    middling[chosen["worst"]] = False
    chosen["best"] = first("best", -mean, middling)
    chosen["failures"] = first("failures", -wide, known & ~margin.isnan().any(0))
    chosen["disagree"] = first("disagree", -spread, known & (spread > 0))
    others = known.clone()
    others[sum(chosen.values(), [])] = False
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    chosen["random"] = order[others[order]].tolist()[: counts.get("random", 0)]
    return {reason: chosen[reason] for reason in counts}
