"""Statistics of embeddings for a page: similarities of pairs, precision and recall, confusions, a map.

All results are exact for the given queries: each is compared with every item of the gallery. For large sets, a page
uses a sample of the queries and says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rankgrad import metrics, search
from rankgrad.common.progress import steps
from rankgrad.evaluation import Report
from rankgrad.ranks.relevance import own_columns, relevance_of

from .space import Space

BINS = 100  # of similarities, from -1 to 1
LEVELS = 100  # recall levels of the precision-recall curve
BLOCK = 256  # queries compared at once
POINTS = 60  # values of K of the R@K curve

Array = npt.NDArray[np.float64]


def sample(count: int, most: int, seed: int = 0) -> Tensor:
    """[n] long, ascending: all of `count` rows, or a random sample of `most` of them.

    >>> sample(3, 5), sample(100, 3)
    (tensor([0, 1, 2]), tensor([19, 44, 93]))
    """
    if count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort()[0]


@dataclass(frozen=True, eq=False)
class Similarities:
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
    def shares(self) -> tuple[Tensor, Tensor]:
        """([BINS] fraction of the positive pairs in each bin, [BINS] of the negative pairs); 0 without pairs."""
        positive, negative = (counts / max(1, int(counts.sum())) for counts in (self.positive, self.negative))
        return positive, negative

    def below(self, threshold: float) -> tuple[float, float]:
        """(fraction of the positive pairs, of the negative pairs) below a cosine, interpolated within its bin."""
        bins, part = divmod(BINS * (min(max(threshold, -1.0), 1.0) + 1) / 2, 1)
        positive, negative = (
            float(share[: int(bins)].sum() + part * share[int(bins) : int(bins) + 1].sum()) for share in self.shares
        )
        return positive, negative


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
    items, _, _ = space.gallery
    count = len(items)
    own = own_columns(None, None, len(space.queries), count, same=space.leave_one_out)
    relevance = relevance_of(*space.truth, len(space.queries), count, own)
    total, positive = torch.zeros(BINS, dtype=torch.long), torch.zeros(BINS, dtype=torch.long)
    best = space.queries.new_full((len(rows),), -torch.inf)
    scores = space.queries.new_empty(min(BLOCK, max(1, len(rows))), count)
    with steps(len(rows), "comparing", "query") as advance:
        for start in range(0, len(rows), BLOCK):
            part = rows[start : start + BLOCK]
            block = torch.mm(space.queries[part], items.T, out=scores[: len(part)]).clamp_(-1, 1)
            row, item = relevance.pairs(part)
            values = block[row, item]
            best[start : start + len(part)].scatter_reduce_(0, row, values, "amax")
            # irrelevant pairs: count all, then subtract the relevant ones and the queries' own copies
            itself = block[relevance.absent(part)]
            total += _binned(block.flatten()) - _binned(itself)
            positive += _binned(values)
            advance(len(part))
    return Similarities(positive, total - positive, best)


def _binned(values: Tensor) -> Tensor:
    return torch.histc(values, BINS, -1, 1).long() if len(values) else torch.zeros(BINS, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class RankingSummary:
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
    place = torch.full((len(space.queries),), -1)
    place[rows] = torch.arange(len(rows))
    ap = torch.full((len(rows),), torch.nan, dtype=torch.float64)
    first, total = ap.clone(), torch.zeros(LEVELS, dtype=torch.float64)
    items, _, _ = space.gallery
    labels, item_labels = space.truth
    against = () if space.leave_one_out else (items, item_labels)
    recall = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    counted = 0
    for block in search.rank_blocks(space.queries, labels, *against, rows=rows, progress=True):
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
    """(scores [row, k], items [row, k] long) of the k nearest items of each query, without itself; fewer if fewer."""
    items, _, _ = space.gallery
    if not space.leave_one_out:
        return search.topk(space.queries, items, min(k, len(items)), rows=rows, progress=True)
    everyone = torch.arange(len(items))
    return search.topk(items, items, min(k, len(items) - 1), ids=everyone, ref_ids=everyone, rows=rows, progress=True)


def recall_curve(report: Report) -> list[tuple[int, float]]:
    """(K, R@K) for K from 1 to the size of the gallery; empty if the report has no MRR per query.

    The rank of the first relevant item of a query is 1 / MRR.

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
    """Two confused classes: queries of one class whose nearest item has the other class.

    Attributes:
        first: name of a class.
        second: name of the other class.
        forward: number of queries of the first class whose nearest item has the second.
        backward: number of queries of the second class whose nearest item has the first.
        example: (query, item) rows of the most similar of these pairs.
    """

    first: str
    second: str
    forward: int
    backward: int
    example: tuple[int, int]

    @property
    def count(self) -> int:
        """Number of queries in both directions."""
        return self.forward + self.backward


def confusions(space: Space, rows: Tensor, scores: Tensor, items: Tensor) -> list[Confusion]:
    """Pairs of confused classes, sorted by the number of queries (largest first), then by name.

    Args:
        space: labels and names.
        rows: [row] long, queries.
        scores: [row] cosine of each query's nearest item.
        items: [row] long, each query's nearest item.
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


def flatten(space: Space, rows: Tensor, method: str = "pca", seed: int = 0) -> tuple[Tensor, float]:
    """A map of embeddings in two dimensions.

    Args:
        space: embeddings; PCA takes its axes from all queries.
        rows: [row] long, the queries to place.
        method: "pca": the two directions of largest variance; "tsne": neighbours stay neighbours, distances have no
            meaning (needs scikit-learn, seconds for a thousand points).
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

        points = space.queries[rows].numpy()
        placed = TSNE(2, init="pca", perplexity=min(30.0, (len(rows) - 1) / 3), random_state=seed).fit_transform(points)
        return torch.from_numpy(np.asarray(placed, dtype=np.float32)), math.nan
    middle = space.queries.mean(0)
    centred = space.queries - middle
    values, axes = torch.linalg.eigh((centred.T @ centred).double() / len(centred))
    two = axes[:, -2:].flip(1)
    # the sign of an axis is arbitrary: choose the one with a positive largest entry, so that results are repeatable
    two = two * two.gather(0, two.abs().argmax(0, keepdim=True)).sign()
    placed = (space.queries[rows] - middle) @ two.to(middle.dtype) + 0.0  # no -0.0
    if placed.shape[1] < 2:
        placed = torch.cat([placed, torch.zeros_like(placed)], dim=1)
    total = float(values.clamp(min=0).sum())
    return placed, float(values[-2:].clamp(min=0).sum()) / total if total > 0 else math.nan
