"""LambdaRank: each pair is weighted by the change of a metric if its two items swapped ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ..common.checks import list_length, one_of
from ..metrics import Gain
from ..ranks.kernels.host import on_host, zeros_like
from ..ranks.kernels.sorting import sort_rows
from ..ranks.lists import Lists
from ..ranks.relaxations import Softplus, Step
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss
from .graded import check_gain

if TYPE_CHECKING:
    from typing_extensions import Unpack

Measure = Literal["ndcg", "map", "mrr", "precision"]
# Number of score differences in memory at once: on a CPU what its caches hold, elsewhere few and large steps.
CHUNK = 2**17
CHUNK_ELSEWHERE = 2**22


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
        self.measure, self.tau, self.gain = measure, tau, gain
        self.k = None if k is None else list_length(k, "k is a list length")
        self._step = Softplus(tau)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Weighted sum over the pairs of each list; a list counts if it has a relevant item."""
        if relevant.dtype != torch.bool and self.measure != "ndcg":
            relevant = relevant.to(scores.dtype) > 0
        places = _Places.of(scores.detach(), relevant, valid, self.positives)
        swaps = SWAPS[self.measure](places, self.k, self.gain)
        values: PerQuery = _PairCosts.apply(scores, places, swaps, self._step)
        return values, places.lists.count > 0


class _PairCosts(torch.autograd.Function):
    """[query] weighted costs of the pairs of each list.

    The weights are constants of the gradient. So the forward pass also computes the gradient, a part of the pairs at a
    time, and keeps one score matrix, whatever the number of pairs is.
    """

    @staticmethod
    def forward(ctx: Any, scores: Scores, places: _Places, swaps: Swaps, step: Step) -> PerQuery:
        lists, values = places.lists, scores.new_zeros(len(scores))
        gradient = zeros_like(scores) if ctx.needs_input_grad[0] else None
        gains = places.gain.masked_fill(~places.exists, torch.inf)  # never below that of a relevant item
        many = max((CHUNK if on_host(scores) else CHUNK_ELSEWHERE) // max(scores.shape[1], 1), 1)
        for start in range(0, len(lists.query), many):
            row, item, gain = (each[start : start + many] for each in (lists.query, lists.item, lists.gain))
            no_pair = gains.index_select(0, row) >= gain.unsqueeze(1)
            differences = (scores.index_select(0, row) - scores[row, item].unsqueeze(1)).masked_fill_(no_pair, 0)
            weight = swaps(row, item).masked_fill_(no_pair, 0)
            values.index_add_(0, row, (weight * step(differences)).sum(1))
            slope = None if gradient is None else step.slope(differences)
            if gradient is not None and slope is not None:
                slope.mul_(weight)
                gradient.index_add_(0, row, slope)
                gradient[row, item] -= slope.sum(1)  # each pair of row and item is there once
        ctx.save_for_backward(gradient)
        return values

    @staticmethod
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor | None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return None if gradient is None else gradient * upstream.unsqueeze(1), None, None, None


@dataclass(frozen=True)
class _Places:
    """A batch of lists and the current ranking of all their items.

    Attributes:
        lists: the relevant items.
        gain: [query, item] gains, 0 where an item does not exist.
        exists: [query, item] bool.
        rank: [query, item] float, 1 for the best; items that do not exist come last.
    """

    lists: Lists
    gain: Tensor
    exists: Mask
    rank: Tensor

    @classmethod
    def of(cls, scores: Scores, relevant: Tensor, valid: Mask | None, positives: int | None) -> _Places:
        exists = torch.ones_like(relevant, dtype=torch.bool) if valid is None else valid
        order = sort_rows((-scores).masked_fill_(~exists, torch.inf))[1]
        places = torch.arange(1, scores.shape[1] + 1, dtype=scores.dtype, device=scores.device)
        rank = torch.empty_like(scores).scatter_(1, order, places.expand_as(scores).contiguous())
        return cls(Lists.of(scores, relevant, valid, positives), relevant.to(scores.dtype) * exists, exists, rank)

    def by_place(self, values: Tensor) -> Tensor:
        """[query, 1 + item] the values [query, item] by rank: column r holds that of rank r, column 0 holds 0."""
        padded = values.new_zeros(len(values), values.shape[1] + 1)
        return padded.scatter_(1, self.rank.long(), values)


# (row [pair], item [pair]) of relevant items -> [pair, item] |Delta M| of a swap with each item of the list
Swaps = Callable[[Tensor, Tensor], Tensor]


def _relative_gains(lists: Lists, kind: Gain) -> Tensor:
    """[pair] the gains of the relevant items, divided by a common factor of their list, which falls out of NDCG."""
    if kind == "linear" or len(lists.gain) == 0:
        return lists.gain
    exact = lists.gain.double()
    most = lists.rectangle(exact, 0.0).amax(1)[lists.query]
    # (2^g - 1) / 2^most: 2^128 would be infinite in float32, and the difference of two powers loses a small g
    return (torch.exp2(exact - most) * -torch.expm1(-exact * math.log(2))).to(lists.gain.dtype)


def _ndcg(places: _Places, k: int | None, gain: Gain) -> Swaps:
    lists, rank, own = places.lists, places.rank, _relative_gains(places.lists, gain)
    discount = 1 / torch.log2(1 + rank)
    ideal = 1 / torch.log2(1 + torch.arange(1, lists.width + 1, dtype=rank.dtype, device=rank.device))
    if k is not None:
        discount = discount * (rank <= k)
        ideal[k:] = 0
    best = (lists.rectangle(own, 0.0).sort(1, descending=True).values * ideal).sum(1)[lists.query]
    worth = torch.zeros_like(rank)
    worth[lists.query, lists.item] = own / torch.where(best > 0, best, 1)

    def swaps(row: Tensor, item: Tensor) -> Tensor:
        worse = worth[row, item].unsqueeze(1) - worth[row]
        return worse * (discount[row, item].unsqueeze(1) - discount[row]).abs()

    return swaps


def _map(places: _Places, k: int | None, gain: Gain) -> Swaps:
    hit = places.by_place(places.gain)
    place = torch.arange(hit.shape[1], dtype=hit.dtype, device=hit.device).clamp(min=1)
    hits, inverse = hit.cumsum(1), (hit / place).cumsum(1)
    precision, relevant = hits / place, places.lists.count.unsqueeze(1).clamp(min=1)

    def swaps(row: Tensor, item: Tensor) -> Tensor:
        mine, theirs = places.rank[row, item].long().unsqueeze(1), places.rank[row].long()
        high, low = torch.minimum(mine, theirs), torch.maximum(mine, theirs)
        of = [each[row] for each in (precision, inverse)]
        # precision at the higher rank with a hit there, minus that at the lower rank; each hit between them adds 1 / r
        at_high = of[0].gather(1, high) + (theirs < mine).to(hit.dtype) / high
        between = of[1].gather(1, low - 1) - of[1].gather(1, high)
        return (at_high - of[0].gather(1, low) + between.clamp(min=0)) / relevant[row]

    return swaps


def _mrr(places: _Places, k: int | None, gain: Gain) -> Swaps:
    beyond = places.rank.shape[1] + 1.0
    ranks = places.lists.rectangle(places.rank[places.lists.query, places.lists.item], beyond)
    ranks = torch.nn.functional.pad(ranks, (0, 2), value=beyond).sort(1).values
    first, second = ranks[:, :1], ranks[:, 1:2]

    def swaps(row: Tensor, item: Tensor) -> Tensor:
        mine, theirs, best = places.rank[row, item].unsqueeze(1), places.rank[row], first[row]
        up = 1 / torch.minimum(theirs, best) - 1 / best
        down = (mine == best) * (1 / best - 1 / torch.minimum(theirs, second[row]))
        return torch.where(theirs < mine, up, down)

    return swaps


def _precision(places: _Places, k: int | None, gain: Gain) -> Swaps:
    assert k is not None
    listed = (places.rank <= k).to(places.rank.dtype) / k
    return lambda row, item: (listed[row, item].unsqueeze(1) - listed[row]).abs()


SWAPS: dict[str, Callable[[_Places, int | None, Gain], Swaps]] = {
    "ndcg": _ndcg,
    "map": _map,
    "mrr": _mrr,
    "precision": _precision,
}
