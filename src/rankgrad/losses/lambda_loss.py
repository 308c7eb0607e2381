"""LambdaRank: each pair is weighted by the change of a metric if its two items swapped ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ..common.checks import list_length, number, one_of
from ..metrics import Gain
from ..ranks.kernels.host import on_host, zeros_like
from ..ranks.kernels.sorting import sort_rows
from ..ranks.lists import Lists
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss
from .graded import check_gain

if TYPE_CHECKING:
    from typing_extensions import Unpack

Measure = Literal["ndcg", "map", "mrr", "precision"]
# Number of score differences in memory at once: on a CPU what its caches hold, elsewhere few and large steps.
CHUNK = 2**16
CHUNK_ELSEWHERE = 2**22
# A list whose relevant items are within this many temperatures of its best item has exponentials far from overflow.
WIDEST = 60.0


class LambdaLoss(RetrievalLoss):
    r"""Logistic cost of the pairs of a list, each weighted by the change of a metric if its two items swapped ranks.

        L = sum_{(i, j): g_i > g_j} |Delta M_ij| log2(1 + exp((s_j - s_i) / tau))

    Delta M_ij comes from the current ranking (of tied items the one of lower index ranks first, so
    with ties the value depends on the order of the rows). It is a constant of
    the gradient, so the gradient is LambdaRank's (Burges, Ragno and Le, NIPS 2006; Burges, MSR-TR-2010-82). Wang et al.
    (CIKM 2018, "The LambdaLoss framework for ranking metric optimization") give the loss with this gradient. M is

    * "ndcg": NDCG@k. |Delta| = |G_i - G_j| |d(r_i) - d(r_j)| / (DCG@k of the ideal order), with d(r) = 1 / log2(1 + r)
      for r <= k and 0 beyond, and G the gains. A pair has a weight if one of its items is among the best k, so items
      can rise from below rank k.
    * "map": AP; "mrr": 1 / rank of the best relevant item; "precision": P@k, the fraction of relevant items among the
      best k. These use binary relevance: gains > 0 are relevant.

    The loss is an upper bound: it is at least 1 - M, and for P@k at least (best possible P@k of the list) - P@k. The
    reason: the step is at least 1 for each pair in the wrong order, and the changes of these pairs add up to at least
    the bound. For MRR one pair is enough: the best relevant item and the first item of the list. For NDCG and AP this
    is not proved; a test checks all orders of lists of up to 5 and 6 items.

    Args:
        measure: M.
        k: list length of NDCG@k and P@k; None: the whole list, for "ndcg" only.
        tau: temperature in score units, > 0. 1 is for logits; use about 0.05 for cosines.
        gain: gain of NDCG: "exp2" 2^g - 1, or "linear" g.
        common: see `RetrievalLoss`. A list counts if it has a relevant item.

    Time is O(relevant x all) per list.

    >>> scores, hits = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([True, False, False])
    >>> LambdaLoss("mrr").from_lists(scores, hits)  # 1/2 log2(1 + e) + 1/6 log2(1 + 1/e)
    tensor(1.0226)
    """

    optimises: ClassVar[str] = "NDCG@k, AP, MRR or P@k, by what swaps of two items change"
    source: ClassVar[str] = (
        "Burges, [MSR-TR-2010-82](https://www.microsoft.com/en-us/research/publication/"
        "from-ranknet-to-lambdarank-to-lambdamart-an-overview/) (LambdaRank); Wang et al., CIKM 2018"
    )
    differences_only: ClassVar[bool] = True
    separate: bool = True
    takes: ClassVar[tuple[str, ...]] = ("weights",)

    def __init__(
        self,
        measure: Measure = "ndcg",
        k: int | None = None,
        tau: float = 1.0,
        gain: Gain = "exp2",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        one_of(measure, "measure", (*SWAPS,))
        if (k is None and measure == "precision") or (k is not None and measure in ("map", "mrr")):
            raise ValueError(f"k is for 'ndcg' and 'precision' only; 'precision' needs it; got k={k!r} for {measure!r}")
        check_gain(gain)
        self.measure, self.gain = measure, gain
        self.tau = number(tau, "tau is a temperature in score units", low=1e-30)
        self.k = None if k is None else list_length(k, "k is a list length")
        self._step = _softplus

    def per_query(
        self, scores: Scores, relevant: Tensor, valid: Mask | None, weights: Tensor | None = None
    ) -> tuple[PerQuery, Tensor]:
        """Weighted sum over the pairs of each list; a list counts if it has a relevant item."""
        if relevant.dtype != torch.bool and self.measure != "ndcg":
            relevant = relevant.to(scores.dtype) > 0
        ranking = _Ranking.of(scores.detach(), relevant, valid, self.positives, self.k)
        swaps = SWAPS[self.measure](ranking, self.k, self.gain)
        values: PerQuery = _PairCosts.apply(scores, ranking, swaps, self.tau, self._step, weights)
        return values, ranking.lists.count > 0


def _softplus(differences: Tensor, out: Tensor) -> Tensor:
    return torch.ops.aten.softplus.out(differences, out=out)  # type: ignore[no-any-return]


def _exponentials(ranking: _Ranking, tau: float) -> tuple[Tensor, Tensor] | None:
    """[query, place] exp(s / tau), and [pair, 1] 1 / exp(s / tau) of the relevant items.

    s is measured from the lowest relevant item of a list: then a product exp((s_j - s_i) / tau) is 0 only if it is too
    small for its precision. So there is one exponential for each item instead of two for each pair. None if a list is
    so wide that they would overflow, or if the host would have to wait for the scores to know it.
    """
    scores = ranking.scores
    if not on_host(scores) or len(ranking.row) == 0:
        return None
    own = scores[ranking.row, ranking.place]
    lowest = torch.full_like(scores[:, 0], torch.inf).scatter_reduce_(0, ranking.row, own, "amin")
    if not float((scores[:, 0] - lowest).max()) < WIDEST * tau:
        return None
    over = lowest[ranking.row].sub_(own).div_(tau).exp_()
    return (ranking.rivals - lowest.unsqueeze(1)).div_(tau).exp_(), over.unsqueeze(1)


class _PairCosts(torch.autograd.Function):
    """[query] weighted costs of the pairs of each list.

    The weights are constants of the gradient. So the forward pass also computes the gradient, a part of the pairs at a
    time, and keeps one score matrix, whatever the number of pairs is. All parts use the same three buffers, because to
    allocate new ones takes more time than the arithmetic.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Scores,
        ranking: _Ranking,
        swaps: Swaps,
        tau: float,
        step: InPlace,
        factors: Tensor | None,
    ) -> PerQuery:
        own = ranking.scores[ranking.row, ranking.place]
        factor = None if factors is None else factors[ranking.row, ranking.order[ranking.row, ranking.place]]
        cost, pull = torch.empty_like(own), torch.empty_like(own)
        gradient = zeros_like(scores) if ctx.needs_input_grad[0] else None
        exponentials = _exponentials(ranking, tau) if step is _softplus else None
        for part in _parts(ranking):
            weight = swaps(part)
            if factor is not None:
                weight.mul_(factor[part.pairs].unsqueeze(1))
            spare = part.room("spare")
            if exponentials is None:
                differences = part.rows(ranking.rivals, "differences").sub_(own[part.pairs].unsqueeze(1)).div_(tau)
                torch.linalg.vecdot(weight, step(differences, spare), out=cost[part.pairs])
                slope = differences.sigmoid_()
            else:
                theirs, over = exponentials
                ratio = part.rows(theirs, "differences").mul_(over[part.pairs])
                torch.linalg.vecdot(weight, torch.log1p(ratio, out=spare), out=cost[part.pairs])
                slope = ratio.div_(torch.add(ratio, 1, out=spare))
            if gradient is not None:
                slope.mul_(weight)
                gradient[:, : part.wide].index_add_(0, part.row, slope)
                torch.sum(slope, 1, out=pull[part.pairs])
        values = scores.new_zeros(len(scores)).index_add_(0, ranking.row, cost).div_(math.log(2))
        if gradient is not None:
            gradient[ranking.row, ranking.place] -= pull  # each pair of row and place is there once
        ctx.save_for_backward(gradient, ranking.order)
        ctx.factor = 1 / (tau * math.log(2))
        return values

    @staticmethod
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor | None, ...]:
        gradient, order = ctx.saved_tensors
        if gradient is None:
            return (None,) * 6
        factor, of_items = (upstream * ctx.factor).unsqueeze(1), torch.empty_like(gradient)
        rows = max((CHUNK if on_host(gradient) else CHUNK_ELSEWHERE) // max(gradient.shape[1], 1), 1)
        for into, to, values, each in zip(*(x.split(rows) for x in (of_items, order, gradient, factor)), strict=True):
            into.scatter_(1, to, values * each)
        return of_items, *(None,) * 5


@dataclass(frozen=True)
class _Part:
    """Some relevant items, and how many places they are compared with.

    Attributes:
        pairs: which of the relevant items of the ranking.
        row, place: those of the ranking.
        wide: number of places.
        buffers: memory for values [pair, place], by name.
    """

    pairs: slice
    row: Tensor
    place: Tensor
    wide: int
    buffers: dict[str, Tensor]

    def room(self, name: str) -> Tensor:
        """[pair, place] a buffer; the next part uses the same memory."""
        return self.buffers[name][: len(self.row) * self.wide].view(-1, self.wide)

    def rows(self, matrix: Tensor, name: str) -> Tensor:
        """[pair, place] rows of a matrix [query, place], in a buffer."""
        return torch.index_select(matrix[:, : self.wide], 0, self.row, out=self.room(name))


def _parts(ranking: _Ranking) -> Iterator[_Part]:
    scores = ranking.scores
    many, wide, start = CHUNK if on_host(scores) else CHUNK_ELSEWHERE, scores.shape[1], 0
    buffers = {name: scores.new_empty(max(many, wide)) for name in ("differences", "weight", "spare")}
    for pairs, width in ((ranking.high, wide), (len(ranking.row), ranking.deep)):
        at_once = max(many // max(width, 1), 1)
        while start < pairs:
            part = slice(start, min(start + at_once, pairs))
            yield _Part(part, ranking.row[part], ranking.place[part], width, buffers)
            start = part.stop


@dataclass(frozen=True)
class _Ranking:
    """A batch of lists in the order of the current ranking: column r holds the item of rank r + 1.

    Attributes:
        lists: the relevant items; `item` is their column.
        row, place: [pair] row and column of the relevant items, in the order in which they are computed.
        high, deep: a swap of one of the first `high` pairs with any item changes the measure. The others are below rank
            k, and only their swaps with the first `deep` items do.
        order: [query, place] the items, best first; those that do not exist come last.
        scores: [query, place], -inf where there is no item.
        rivals: [query, place] the scores, -inf where an item has no pair with a relevant one: where there is none, and,
            without gains, at the relevant items themselves. The step is 0 there.
        rank: [place] 1, 2, ...
    """

    lists: Lists
    row: Tensor
    place: Tensor
    high: int
    deep: int
    order: Tensor
    scores: Scores
    rivals: Scores
    rank: Tensor

    @classmethod
    def of(cls, scores: Scores, relevant: Tensor, valid: Mask | None, positives: int | None, k: int | None) -> _Ranking:
        down = -scores if valid is None else (-scores).masked_fill_(~valid, torch.inf)
        down, order = sort_rows(down)
        exists = None if valid is None else valid.gather(1, order)
        lists = Lists.of(scores, relevant.gather(1, order), exists, positives)
        row, place, deep = lists.query, lists.item, scores.shape[1]
        high = len(row)
        if k is not None and k < deep and on_host(scores):  # elsewhere the host would wait for the number of items
            first = (place >= k).to(torch.uint8).argsort(stable=True)
            row, place, high, deep = row[first], place[first], int((place < k).sum()), k
        rank = torch.arange(1, scores.shape[1] + 1, dtype=scores.dtype, device=scores.device)
        down = down.neg_()
        rivals = down if lists.graded else down.masked_fill(~lists.rest, -torch.inf)
        return cls(lists, row, place, high, deep, order, down, rivals, rank)


# -> [pair, place] |Delta M| of a swap of relevant items with the item of each place, 0 if that is as relevant
Swaps = Callable[[_Part], Tensor]
InPlace = Callable[[Tensor, Tensor], Tensor]  # differences, buffer -> their step, in the buffer


def _relative_gains(lists: Lists, kind: Gain) -> Tensor:
    """[pair] the gains of the relevant items, divided by a common factor of their list, which falls out of NDCG."""
    if kind == "linear" or len(lists.gain) == 0:
        return lists.gain
    exact = lists.gain.double()
    most = lists.rectangle(exact, 0.0).amax(1)[lists.query]
    # (2^g - 1) / 2^most: 2^128 would be infinite in float32, and the difference of two powers loses a small g
    return (torch.exp2(exact - most) * -torch.expm1(-exact * math.log(2))).to(lists.gain.dtype)


def _ndcg(ranking: _Ranking, k: int | None, gain: Gain) -> Swaps:
    lists, gains = ranking.lists, _relative_gains(ranking.lists, gain)
    discount = 1 / torch.log2(1 + ranking.rank)
    if k is not None:
        discount[k:] = 0
    ideal = lists.rectangle(gains, 0.0).sort(1, descending=True).values @ discount[: lists.width]
    worth = torch.zeros_like(ranking.scores)
    worth[lists.query, lists.item] = gains / torch.where(ideal > 0, ideal, 1)[lists.query]
    own = worth[ranking.row, ranking.place].unsqueeze(1)
    if not lists.graded:  # all rivals are worth nothing
        here = own * discount[ranking.place].unsqueeze(1)
        return lambda part: (
            torch.mul(own[part.pairs], discount[: part.wide], out=part.room("weight")).sub_(here[part.pairs]).abs_()
        )

    def swaps(part: _Part) -> Tensor:
        theirs, lost = part.rows(worth, "weight"), part.room("spare")
        torch.sub(discount[part.place].unsqueeze(1), discount[: part.wide], out=lost)
        return torch.sub(own[part.pairs], theirs, out=theirs).clamp_(min=0).mul_(lost.abs_())

    return swaps


def _map(ranking: _Ranking, k: int | None, gain: Gain) -> Swaps:
    # A relevant item at rank r and an irrelevant one at rank c: with x = precision - sum of 1 / rank of the hits so
    # far, AP changes by (x_c + 1 / c) - (x_r + 1 / r) if c < r, and by x_r - x_c if c > r. Both fall along the list, so
    # the larger difference is the right one.
    lists, inverse = ranking.lists, 1 / ranking.rank
    hit = torch.zeros_like(ranking.scores)
    hit[lists.query, lists.item] = 1
    count = lists.count.unsqueeze(1).clamp(min=1)
    below = (hit.cumsum(1) * inverse - (hit * inverse).cumsum(1)) / count
    above = below + inverse / count
    own_below, own_above = (side[ranking.row, ranking.place].unsqueeze(1) for side in (below, above))

    def swaps(part: _Part) -> Tensor:
        up, down = part.rows(above, "weight").sub_(own_above[part.pairs]), part.rows(below, "spare")
        torch.sub(own_below[part.pairs], down, out=down)
        return torch.maximum(up, down, out=up).clamp_(min=0)

    return swaps


def _mrr(ranking: _Ranking, k: int | None, gain: Gain) -> Swaps:
    lists, inverse = ranking.lists, 1 / ranking.rank
    hits = lists.rectangle(inverse[lists.item], 0.0)
    first, second = torch.nn.functional.pad(hits, (0, 2))[:, :2].unsqueeze(2).unbind(1)
    up = (inverse - first).clamp(min=0)  # any relevant item moves above the best one
    down = (first - inverse.maximum(second)).clamp(min=0)  # the best one moves down
    return _two_kinds(up, up + down, lambda part: inverse[part.place] == first[part.row, 0])


def _precision(ranking: _Ranking, k: int | None, gain: Gain) -> Swaps:
    assert k is not None
    listed = (ranking.rank <= k).to(ranking.rank.dtype).expand_as(ranking.scores) / k
    return _two_kinds(listed, 1 / k - listed, lambda part: part.place < k)


def _two_kinds(others: Tensor, special: Tensor, is_special: Callable[[_Part], Tensor]) -> Swaps:
    """The swaps of a measure whose weights [query, place] are of two kinds of relevant items."""
    both, queries = torch.cat([others, special]), len(others)
    return lambda part: replace(part, row=part.row + queries * is_special(part)).rows(both, "weight")


SWAPS: dict[str, Callable[[_Ranking, int | None, Gain], Swaps]] = {
    "ndcg": _ndcg,
    "map": _map,
    "mrr": _mrr,
    "precision": _precision,
}
