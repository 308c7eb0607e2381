"""What a page shows of embeddings: similarities of pairs, precision and recall, confusions, a map.

All of it is exact for the queries that are asked: each is compared with every item of the gallery. Large sets are asked
by a sample of queries, which the page names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import metrics, search
from ..evaluation import Report
from ..relevance import own_columns, relevance_of
from .retrieved import Space

BINS = 100  # of similarities, from -1 to 1
LEVELS = 100  # of recall
BLOCK = 256  # queries compared at once
POINTS = 60  # list lengths of the R@K curve

Array = npt.NDArray[np.float64]


def sample(count: int, most: int, seed: int = 0) -> Tensor:
    """[n] long, ascending: all of `count` rows, or `most` of them drawn by `seed`.

    >>> sample(3, 5), sample(100, 3)
    (tensor([0, 1, 2]), tensor([19, 44, 93]))
    """
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort()[0]


@dataclass(frozen=True, eq=False)
class Similarities:
    """Cosines of pairs, counted.

    Attributes:
        positive: [BINS] long, pairs of a query and a relevant item in each bin of [-1, 1].
        negative: [BINS] long, the same of irrelevant items.
        below_alpha: positive pairs under alpha.
        above_beta: negative pairs over beta.
        best: [row] cosine of each query's nearest relevant item; -inf if it has none.
    """

    positive: Tensor
    negative: Tensor
    below_alpha: int
    above_beta: int
    best: Tensor

    @property
    def shares(self) -> tuple[Tensor, Tensor]:
        """[BINS] share of the positive pairs in each bin, and of the negative ones; 0 where there is no pair."""
        positive, negative = (counts / max(1, int(counts.sum())) for counts in (self.positive, self.negative))
        return positive, negative


def similarities(space: Space, rows: Tensor, alpha: float, beta: float) -> Similarities:
    """Count the cosines between queries and all items; a query's own copy is no pair.

    Args:
        space: embeddings.
        rows: [row] long, the queries.
        alpha: threshold of positive pairs.
        beta: threshold of negative pairs.

    >>> space = Space(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]), ("a", "b", "c"), ("one", "two"))
    >>> found = similarities(space, torch.arange(3), 0.9, 0.6)
    >>> found.positive.nonzero().flatten(), int(found.positive.sum()), int(found.negative.sum()), found.best
    (tensor([99]), 2, 4, tensor([1., 1., -inf]))
    """
    items, _, _ = space.gallery
    count = len(items)
    own = own_columns(None, None, len(space.queries), count, same=space.leave_one_out)
    relevance = relevance_of(*space.truth, len(space.queries), count, own)
    total, positive = torch.zeros(BINS, dtype=torch.long), torch.zeros(BINS, dtype=torch.long)
    best = space.queries.new_full((len(rows),), -torch.inf)
    above, below = 0, 0
    scores = space.queries.new_empty(min(BLOCK, max(1, len(rows))), count)
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        block = torch.mm(space.queries[part], items.T, out=scores[: len(part)]).clamp_(-1, 1)
        row, item = relevance.pairs(part)
        values = block[row, item]
        best[start : start + len(part)].scatter_reduce_(0, row, values, "amax")
        # what is neither relevant nor the query itself is irrelevant: count everything, take the others off
        itself = block[relevance.absent(part)]
        total += _binned(block.flatten()) - _binned(itself)
        positive += _binned(values)
        above += _count(block > beta) - _count(itself > beta) - _count(values > beta)
        below += _count(values < alpha)
    return Similarities(positive, total - positive, below, above, best)


def _count(flags: Tensor) -> int:
    return int(torch.count_nonzero(flags))


def _binned(values: Tensor) -> Tensor:
    return torch.histc(values, BINS, -1, 1).long() if len(values) else torch.zeros(BINS, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class RankingSummary:
    """How a ranking finds the relevant items of some queries.

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

    Precision at recall r is that of the list which is just long enough to hold ceil(r P) of a query's P relevant items,
    without interpolation, so that the area under the mean curve is the mean AP. Ties are read as AP reads them.

    Args:
        space: embeddings.
        rows: [row] long, distinct queries.

    >>> points = torch.tensor([[1.0, 0], [0.8, 0.6], [0, 1]])
    >>> space = Space(points, torch.tensor([0, 1, 0]), ("a", "b", "c"), ("x", "y"))
    >>> found = ranked(space, torch.arange(3))
    >>> found.ap, found.first, float(found.precision.mean())
    (tensor([0.5000,    nan, 0.5000], dtype=torch.float64), tensor([2., nan, 2.], dtype=torch.float64), 0.5)
    """
    place = torch.full((len(space.queries),), -1)
    place[rows] = torch.arange(len(rows))
    ap = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    first, total = ap.clone(), torch.zeros(LEVELS, dtype=torch.float64)
    items, _, _ = space.gallery
    labels, item_labels = space.truth
    against = () if space.leave_one_out else (items, item_labels)
    recall = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    counted = 0
    for block in search.rank_blocks(space.queries, labels, *against, rows=rows):
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
        counted += ranks.num_queries
    return RankingSummary(ap, first, total / counted if counted else total * torch.nan)


def nearest(space: Space, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(scores [row, k], items [row, k] long): the k nearest of each query but itself; as many as there are."""
    items, _, _ = space.gallery
    if not space.leave_one_out:
        return search.topk(space.queries, items, min(k, len(items)), rows=rows)
    everyone = torch.arange(len(items))
    return search.topk(items, items, min(k, len(items) - 1), ids=everyone, ref_ids=everyone, rows=rows)


def recall_curve(report: Report) -> list[tuple[int, float]]:
    """(K, R@K) from 1 to the whole gallery, of all queries that the report counts; empty if it has no ranks.

    The rank of the first relevant item is 1 / MRR of a query, which the report holds.

    >>> from rankgrad.evaluation import evaluate
    >>> recall_curve(evaluate(torch.tensor([[1.0, 0], [0.8, 0.6], [0, 1]]), [0, 1, 0], bootstrap=0, clusters="none"))
    [(1, 0.0), (2, 1.0)]
    """
    reciprocal = report.per_query.get("MRR")
    if reciprocal is None or not len(reciprocal):
        return []
    answered = reciprocal > 0
    first = np.rint(1 / reciprocal[answered])
    miss = report.settings.get("query_without_relevant") == "miss"
    counted = len(reciprocal) if miss else len(reciprocal) - len(report.uncounted)
    items = report.counts["gallery"] - (report.settings.get("protocol") == "leave-one-out")
    lengths = np.unique(np.rint(np.geomspace(1, max(items, 1), POINTS)).astype(int))
    return [(int(k), float((first <= k).sum() / max(counted, 1))) for k in lengths]


@dataclass(frozen=True)
class Confusion:
    """Two classes that are taken for one another: a query of one, with its nearest item in the other.

    Attributes:
        first: a class, by name.
        second: the other.
        forward: queries of the first whose nearest item is of the second.
        backward: queries of the second whose nearest item is of the first.
        example: (query, item) rows of the pair among them that is most alike.
    """

    first: str
    second: str
    forward: int
    backward: int
    example: tuple[int, int]

    @property
    def count(self) -> int:
        """Both directions."""
        return self.forward + self.backward


def confusions(space: Space, rows: Tensor, scores: Tensor, items: Tensor) -> list[Confusion]:
    """Pairs of classes by the number of queries whose nearest item is of the wrong one; most first, then by name.

    Args:
        space: labels and names.
        rows: [row] long, queries.
        scores: [row] cosine of each query's nearest item.
        items: [row] long, that item.
    """
    item_labels = space.gallery[1]
    asked, got = space.labels[rows], item_labels[items]
    wrong = (~space.relevant(rows, items)).nonzero().flatten().tolist()
    pairs: dict[tuple[str, str], list[int]] = {}
    for place in wrong:
        names = space.class_names[int(asked[place])], space.class_names[int(got[place])]
        pairs.setdefault((min(names), max(names)), []).append(place)
    most = []
    for (first, second), places in pairs.items():
        forward = sum(space.class_names[int(asked[place])] == first for place in places)
        alike = max(places, key=lambda place: (float(scores[place]), -place))
        example = int(rows[alike]), int(items[alike])
        most.append(Confusion(first, second, forward, len(places) - forward, example))
    return sorted(most, key=lambda pair: (-pair.count, pair.first, pair.second))


def flatten(space: Space, rows: Tensor, method: Literal["pca", "tsne"] = "pca", seed: int = 0) -> tuple[Tensor, float]:
    """A map of embeddings in two dimensions.

    Args:
        space: embeddings; PCA takes its axes from all queries.
        rows: [row] long, the queries to place.
        method: "pca": the two directions of largest variance; "tsne": neighbours stay neighbours, distances mean
            nothing (needs scikit-learn, seconds for a thousand points).
        seed: of t-SNE.

    Returns:
        ([row, 2] float, share of the variance that the map shows; NaN for t-SNE).

    >>> space = Space(torch.tensor([[1.0, 0], [-1, 0], [0, 0]]), torch.zeros(3).long(), ("a", "b", "c"), ("x",))
    >>> flatten(space, torch.arange(3))
    (tensor([[ 1.,  0.],
            [-1.,  0.],
            [ 0.,  0.]]), 1.0)
    """
    if method == "tsne" and len(rows) > 3:
        from sklearn.manifold import TSNE

        points = space.queries[rows].numpy()
        placed = TSNE(2, init="pca", perplexity=min(30.0, (len(rows) - 1) / 3), random_state=seed).fit_transform(points)
        return torch.from_numpy(np.asarray(placed, dtype=np.float32)), math.nan
    middle = space.queries.mean(0)
    centred = space.queries - middle
    values, axes = torch.linalg.eigh((centred.T @ centred).double() / len(centred))
    two = axes[:, -2:].flip(1)
    # either sign of an axis is right: take the one in which its largest entry is positive, so that runs repeat
    two = two * two.gather(0, two.abs().argmax(0, keepdim=True)).sign()
    placed = (space.queries[rows] - middle) @ two.to(middle.dtype) + 0.0  # no -0.0
    if placed.shape[1] < 2:
        placed = torch.cat([placed, torch.zeros_like(placed)], dim=1)
    total = float(values.clamp(min=0).sum())
    return placed, float(values[-2:].clamp(min=0).sum()) / total if total > 0 else math.nan


def mean_of(values: Sequence[float]) -> float:
    """Mean of those that are not NaN; NaN if all are."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
