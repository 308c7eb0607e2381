"""The results that a page computes from the embeddings of its runs, on the same queries: similarities of pairs,
precision and recall, confusions, a map, and which queries are shown.

All results are exact for the given queries: each is compared with every item of the gallery. For large sets, a page
uses a sample of the queries and says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankgrad import metrics, search
from rankgrad.common.progress import steps
from rankgrad.evaluation import Report
from rankgrad.ranks.relevance import own_columns, relevance_of

from ....report.html.text import enumeration
from .reading import Content, Space

BINS = 100  # of similarities, from -1 to 1
LEVELS = 100  # recall levels of the precision-recall curve
BLOCK = 256  # queries compared at once
POINTS = 60  # values of K of the R@K curve
# Largest number of queries on a page for each reason. A query may have several reasons.
SHOWN = {"random": 24, "worst": 24, "best": 12, "failures": 24, "disagree": 16}


def sample(count: int, most: int, seed: int = 0) -> Tensor:
    """[n] long, ascending: all of `count` rows, or a random sample of `most` of them.

    >>> sample(3, 5), sample(100, 3)
    (tensor([0, 1, 2]), tensor([19, 44, 93]))
    """
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort()[0]


class Similarities(NamedTuple):
    """Histograms of the cosines of pairs.

    Attributes:
        positive: [BINS] long, number of pairs of a query and a relevant item in each bin of [-1, 1].
        negative: [BINS] long, number of pairs of a query and an irrelevant item.
        best: [row] cosine of each query's nearest relevant item; -inf if it has none.
    """

    positive: Tensor
    negative: Tensor
    best: Tensor

    @property
    def shares(self) -> list[Tensor]:
        """[BINS] fraction of the positive pairs in each bin, [BINS] of the negative pairs; 0 without pairs."""
        return [counts / max(1, int(counts.sum())) for counts in (self.positive, self.negative)]


def similarities(space: Space, rows: Tensor) -> Similarities:
    """Count the cosines between queries and all items. A query and its own copy are not a pair.

    Args:
        space: embeddings.
        rows: [row] long, the queries.

    >>> space = Space(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]), ("a", "b", "c"), ("one", "two"))
    >>> found = similarities(space, torch.arange(3))
    >>> found.positive.nonzero().flatten(), int(found.positive.sum()), int(found.negative.sum()), found.best
    (tensor([99]), 2, 4, tensor([1., 1., -inf]))
    """
    count = len(space.items)
    own = own_columns(None, None, len(space), count, same=space.gallery is None)
    relevance = relevance_of(space.truth, space.items.truth, len(space), count, own)
    total, positive = torch.zeros(BINS, dtype=torch.long), torch.zeros(BINS, dtype=torch.long)
    best = space.embeddings.new_full((len(rows),), -torch.inf)
    with steps(len(rows), "comparing", "query") as advance:
        for start in range(0, len(rows), BLOCK):
            part = rows[start : start + BLOCK]
            block = (space.embeddings[part] @ space.items.embeddings.T).clamp_(-1, 1)
            row, item = relevance.pairs(part)
            values = block[row, item]
            best[start : start + len(part)].scatter_reduce_(0, row, values, "amax")
            # irrelevant pairs: count all, then subtract the relevant ones and the queries' own copies
            total += _binned(block.flatten()) - _binned(block[relevance.absent(part)])
            positive += _binned(values)
            advance(len(part))
    return Similarities(positive, total - positive, best)


def _binned(values: Tensor) -> Tensor:
    return torch.histc(values, BINS, -1, 1).long() if len(values) else torch.zeros(BINS, dtype=torch.long)


class RankingSummary(NamedTuple):
    """Statistics of the ranks of the relevant items of some queries.

    Attributes:
        ap: [row] AP of the whole ranking, NaN for a query without a relevant item.
        first: [row] rank of the first relevant item, NaN without one.
        precision: [LEVELS] mean precision at recall 0.5 %, 1.5 %, ..., 99.5 %.
    """

    ap: Tensor
    first: Tensor
    precision: Tensor


def ranked(space: Space, rows: Tensor) -> RankingSummary:
    """Rank the gallery for some queries.

    Precision at recall r is the precision of the shortest list that holds ceil(r P) of a query's P relevant items,
    without interpolation. So the area under the mean curve is the mean AP. Ties count as in AP.

    Args:
        space: embeddings.
        rows: [row] long, distinct queries.

    >>> points = torch.tensor([[1.0, 0], [0.8, 0.6], [0, 1]])
    >>> space = Space(points, torch.tensor([0, 1, 0]), ("a", "b", "c"), ("x", "y"))
    >>> found = ranked(space, torch.arange(3))
    >>> found.ap, found.first, float(found.precision.mean())
    (tensor([0.5000,    nan, 0.5000], dtype=torch.float64), tensor([2., nan, 2.], dtype=torch.float64), 0.5)
    """
    place = torch.full((len(space),), -1)
    place[rows] = torch.arange(len(rows))
    ap = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    first, total = ap.clone(), torch.zeros(LEVELS, dtype=torch.float64)
    against = () if space.gallery is None else (space.gallery.embeddings, space.gallery.truth)
    recall = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    for block in search.rank_blocks(space.embeddings, space.truth, *against, rows=rows, progress=True):
        ranks, here = block.ranks.pessimistic, place[block.rows]
        ap[here] = metrics.average_precision(ranks)
        first[here] = 1 / metrics.reciprocal_rank(block.ranks.index)
        # [query, slot] precision where the 1st, 2nd, ... relevant item is found
        order = torch.argsort(ranks.rank, stable=True)
        order = order[torch.argsort(ranks.query[order], stable=True)]
        relevant = ranks.num_relevant
        slot = torch.arange(len(order)) - torch.repeat_interleave(relevant.cumsum(0) - relevant, relevant)
        table = torch.zeros(ranks.num_queries, int(relevant.max()), dtype=torch.float64)
        table[ranks.query[order], slot] = ((1 + ranks.above_pos) / ranks.rank)[order]
        wanted = (recall * relevant.unsqueeze(1) - 1e-9).ceil().long() - 1
        total += table.gather(1, wanted).sum(0)
    return RankingSummary(ap, first, total / ap.isfinite().sum())


def nearest(space: Space, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(scores [row, k], items [row, k] long) of the k nearest items of each query, without itself; fewer if fewer."""
    items = space.items.embeddings
    own = torch.arange(len(items)) if space.gallery is None else None
    k = min(k, len(items) - (own is not None))
    return search.topk(space.embeddings, items, k, ids=own, ref_ids=own, rows=rows, progress=True)


def recall_curve(report: Report) -> list[tuple[float, float]]:
    """(K, R@K) for K from 1 to the size of the gallery; empty if the report has no MRR per query.

    The rank of the first relevant item of a query is 1 / MRR.

    >>> from rankgrad.evaluation import evaluate
    >>> recall_curve(evaluate(torch.tensor([[1.0, 0], [0.8, 0.6], [0, 1]]), [0, 1, 0], intervals=0))
    [(1, 0.0), (2, 1.0)]
    """
    reciprocal = report.per_query.get("MRR", np.zeros(0))
    if not len(reciprocal):
        return []
    first = np.rint(1 / reciprocal[reciprocal > 0])
    miss = report.settings.get("without_relevant") == "zero"
    counted = len(reciprocal) - (0 if miss else len(report.without_relevant))
    items = report.counts["gallery"] - (report.settings.get("protocol") == "leave-one-out")
    lengths = np.unique(np.rint(np.geomspace(1, max(items, 1), POINTS)).astype(int))
    return [(int(k), float((first <= k).sum() / max(counted, 1))) for k in lengths]


class Confusion(NamedTuple):
    """Two confused classes: queries of one class whose nearest item has the other class.

    Attributes:
        classes: their names, sorted.
        queries: number of queries, of both classes.
        example: (query, item) rows of the most similar of these pairs.
    """

    classes: tuple[str, str]
    queries: int
    example: tuple[int, int]


def confusions(space: Space, rows: Tensor, scores: Tensor, items: Tensor) -> list[Confusion]:
    """Pairs of confused classes, sorted by the number of queries (largest first), then by name.

    Args:
        space: labels and names.
        rows: [row] long, queries.
        scores: [row] cosine of each query's nearest item.
        items: [row] long, each query's nearest item.
    """
    pairs: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    wrong = ~space.relevant(rows, items)
    for score, row, item in zip(*(each[wrong].tolist() for each in (scores, rows, items)), strict=True):
        names = space.class_of(row), space.items.class_of(item)
        pairs.setdefault((min(names), max(names)), []).append((score, row, item))
    found = [Confusion(names, len(of), max(of, key=itemgetter(0))[1:]) for names, of in pairs.items()]
    return sorted(found, key=lambda pair: (-pair.queries, pair.classes))


def flatten(space: Space, rows: Tensor, method: str = "pca", seed: int = 0) -> tuple[Tensor, float]:
    """A map of embeddings in two dimensions.

    Args:
        space: embeddings; PCA takes its axes from all queries.
        rows: [row] long, the queries to place.
        method: "pca": the two directions of largest variance; "tsne": neighbours stay neighbours, distances have no
            meaning (seconds for a thousand points).
        seed: of t-SNE.

    Returns:
        ([row, 2] float, fraction of the variance that the map shows; NaN for t-SNE).

    >>> space = Space(torch.tensor([[1.0, 0], [-1, 0], [0, 0]]), torch.zeros(3).long(), ("a", "b", "c"), ("x",))
    >>> flatten(space, torch.arange(3))
    (tensor([[ 1.,  0.],
            [-1.,  0.],
            [ 0.,  0.]]), 1.0)
    """
    if method == "tsne" and len(rows) > 3:
        from sklearn.manifold import TSNE

        drawn = TSNE(2, init="pca", perplexity=min(30.0, (len(rows) - 1) / 3), random_state=seed)
        return torch.from_numpy(drawn.fit_transform(space.embeddings[rows].numpy())), math.nan
    centred = torch.nn.functional.pad(space.embeddings - space.embeddings.mean(0), (0, space.embeddings.shape[1] < 2))
    values, axes = torch.linalg.eigh((centred.T @ centred).double())
    two = axes[:, -2:].flip(1)
    # the sign of an axis is arbitrary: choose the one with a positive largest entry, so that results are repeatable
    two = two * two.gather(0, two.abs().argmax(0, keepdim=True)).sign()
    variance = values.clamp(min=0)
    share = float(variance[-2:].sum() / variance.sum()) if variance.sum() > 0 else math.nan
    return centred[rows] @ two.to(centred.dtype) + 0.0, share  # no -0.0


# ------------------------------------------------------------------------------------------------- runs side by side


@dataclass(frozen=True, eq=False)
class Answers:
    """The results of one run for the sampled queries.

    Attributes:
        kind: number of the run on the page.
        run: the run.
        space: its embeddings.
        matched: [query] long, rows of all common queries in `space`.
        rows: [query] long, rows of the sampled queries in `space`.
        k: number of items per query.
    """

    kind: int
    run: Content
    space: Space
    matched: Tensor
    rows: Tensor
    k: int

    @cached_property
    def similarities(self) -> Similarities:
        """Of all pairs of a query and an item."""
        return similarities(self.space, self.rows)

    @cached_property
    def ranked(self) -> RankingSummary:
        """Ranks of the relevant items."""
        return ranked(self.space, self.rows)

    @cached_property
    def nearest(self) -> tuple[Tensor, Tensor]:
        """Scores [query, k] and rows [query, k] long of the nearest items."""
        return nearest(self.space, self.rows, self.k)

    @cached_property
    def correct(self) -> Tensor:
        """[query, k] bool, whether the item is relevant."""
        return self.space.relevant(self.rows, self.nearest[1])

    @cached_property
    def confusions(self) -> list[Confusion]:
        """Confused pairs of classes."""
        scores, items = self.nearest
        return confusions(self.space, self.rows, scores[:, 0], items[:, 0])

    @cached_property
    def margin(self) -> Tensor:
        """[query] score of a wrong nearest item minus that of the nearest relevant item; else NaN."""
        known = ~self.correct[:, 0] & self.similarities.best.isfinite()
        return torch.where(known, self.nearest[0][:, 0] - self.similarities.best, torch.nan)


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
    notes: list[str]


def compare(runs: Sequence[Content], queries: int, k: int, seed: int = 0) -> SideBySide:
    """Match and sample the queries, and choose those to show.

    Args:
        runs: the runs.
        queries: largest number of queries.
        k: items per query.
        seed: seed of the sample and of the random queries that are shown.
    """
    spaces = {kind: run.space for kind, run in enumerate(runs) if run.space is not None}
    matched, notes = match(spaces, [run.name for run in runs])
    count = max(map(len, matched.values()), default=0)
    sampled = sample(count, queries, seed)
    measured = [
        Answers(kind, runs[kind], spaces[kind], rows, rows[sampled], k)
        for kind, rows in matched.items()
        if len(rows) and len(spaces[kind].items) > (spaces[kind].gallery is None)
    ]
    shown = {}
    if measured:
        ap, margin = torch.stack([run.ranked.ap for run in measured]), torch.stack([run.margin for run in measured])
        shown = choose(ap, margin, {r: most for r, most in SHOWN.items() if r != "disagree" or len(measured) > 1}, seed)
    return SideBySide(count, len(sampled), tuple(measured), shown, notes)


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
    2 of 4 queries of A have no other of the same name and class in each run: a, c
    2 of 4 queries of B have no other of the same name and class in each run: c, x
    """
    if len(spaces) < 2:
        return {kind: torch.arange(len(space)) for kind, space in spaces.items()}, []
    places: dict[int, dict[tuple[str, str], int]] = {}
    for kind, space in spaces.items():
        times = Counter(space.names)  # a name that several rows have is not matched
        keys = enumerate(zip(space.names, space.classes, strict=True))
        places[kind] = {key: row for row, key in keys if times[key[0]] == 1}
    first, *others = places.values()
    common = [key for key in first if all(key in known for known in others)]
    notes = []
    for kind, space in spaces.items():
        kept = {name for name, _ in common}
        if lacking := [name for name in space.names if name not in kept]:
            why = f"have no other of the same name and class in each run: {enumeration([*dict.fromkeys(lacking)])}"
            notes.append(f"{len(lacking):,} of {len(space):,} queries of {names[kind]} {why}")
    if not common:
        kind = next(iter(spaces))
        why = "No query is in all runs, so the runs are not shown side by side. The examples are queries of"
        return {kind: torch.arange(len(spaces[kind]))}, [*notes, f"{why} {names[kind]} only."]
    return {kind: torch.tensor([known[key] for key in common]) for kind, known in places.items()}, notes


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
    mean = ap.double().nanmean(0)
    known = ~mean.isnan()
    spread = ap.nan_to_num(-1).amax(0) - ap.nan_to_num(2).amin(0)
    chosen: dict[str, list[int]] = {}

    def first(reason: str, by: Tensor, among: Tensor) -> None:
        rows = among.nonzero().flatten()
        chosen[reason] = rows[by[rows].argsort(stable=True)].tolist()[: counts.get(reason, 0)]

    def without(*reasons: str) -> Tensor:
        left = known.clone()
        left[[row for reason in reasons for row in chosen[reason]]] = False
        return left

    first("worst", mean, known)
    first("best", -mean, without("worst"))
    first("failures", -margin.nanmean(0), known & ~margin.isnan().any(0))
    first("disagree", -spread, known & (spread > 0))
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    first("random", order.argsort(), without("worst", "best", "failures", "disagree"))
    return {reason: chosen[reason] for reason in counts}
