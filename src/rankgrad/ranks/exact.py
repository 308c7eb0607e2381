"""Exact ranks, without gradient: only the relevant items are sorted; the others are located among them."""

from __future__ import annotations

import torch
from torch import Tensor

from .kernels.counting import Above, Counter
from .kernels.counting import Ties as Ties
from .kernels.sorting import sort_rows
from .lists import Lists, computed
from .types import Mask, PerPair, Ranks, Scores


def exact_ranks(
    scores: Scores,
    relevant: Tensor,
    valid: Mask | None = None,
    *,
    ties: Ties = "pessimistic",
    margin: float = 0.0,
    positives: int | None = None,
) -> Ranks:
    r"""Exact ranks without gradient. Time is O(n log p) per query: only the relevant items are sorted.

    Counts are float64, because float32 is not exact beyond 2^24 items.

    Args:
        scores: [query, item] float.
        relevant: [query, item] bool, or float gains >= 0.
        valid: [query, item] bool; False removes an item.
        ties: "pessimistic": a tied item counts as above (H(0) = 1, ROADMAP eq. 3; equals scikit-learn's AP).
            "optimistic": it does not. "index": of tied items the one of lower index is above (a permutation).
        margin: RaMBO eq. 14: irrelevant scores + margin / 2, relevant scores - margin / 2.
        positives: a promise that every query has exactly this many relevant valid items, see `Lists.of`.

    >>> exact_ranks(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, False, True]])).rank
    tensor([2., 3.], dtype=torch.float64)
    >>> exact_ranks(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, False, True]]), ties="index").rank
    tensor([1., 3.], dtype=torch.float64)
    """
    if ties not in ("pessimistic", "optimistic", "index"):
        raise ValueError(f"ties must be 'pessimistic', 'optimistic' or 'index'; got {ties!r}")
    with torch.no_grad():
        lists, scores = Lists.of(scores, relevant, valid, positives), computed(scores)
        order = Order.of(scores, lists, margin)
        rivals = order.back(order.rivals(Counter(scores, not_rivals(scores, lists)))[0].under(ties))
        return ranks_of(order, lists, order.among(ties), rivals, ties)


# From this number of scores on, a list of positions is faster than a mask.
POSITIONS_FROM = 2**16


class Order:
    """The sorted relevant items of every list. They give the ranks among the relevant and among the other items.

    Scores are negated: a better item has a smaller value, so torch.searchsorted counts the better items.

    Attributes:
        own: [query, slot] negated scores of the relevant items, +inf where absent.
        column: [query, slot] their columns, ascending.
        ordered: [query, place] `own`, best first; of tied items the lower column first.
        by_place: [query, place] the slot of each entry of `ordered`.
    """

    def __init__(self, own: Tensor, column: Tensor) -> None:
        self.own, self.column = own, column
        self.ordered, self.by_place = sort_rows(own)

    @classmethod
    def of(cls, scores: Scores, lists: Lists, margin: float) -> Order:
        """The order of the relevant items of these lists."""
        # only differences count: instead of half the margin up and half down, shift the relevant scores by all of it
        own = by_slot(lists, margin - scores[lists.query, lists.item], torch.inf)
        return cls(own, by_slot(lists, lists.item, -1))

    def back(self, values: Tensor) -> Tensor:
        """[query, slot] from values [query, place]."""
        return torch.empty_like(values).scatter_(1, self.by_place, values)

    def has_level(self) -> bool:
        """Whether a list has tied relevant items."""
        return bool(((self.ordered[:, 1:] == self.ordered[:, :-1]) & (self.ordered[:, 1:] < torch.inf)).any())

    def among(self, ties: Ties) -> Tensor:
        """[query, slot] long, number of relevant items above each relevant item."""
        if ties == "index":
            places = torch.arange(self.own.shape[1], device=self.own.device)
            return self.back(places.expand_as(self.own).contiguous())
        right = ties == "pessimistic"
        return self.back(torch.searchsorted(self.ordered, self.ordered, right=right) - int(right))

    def rivals(self, counter: Counter, worth: Tensor | None = None) -> tuple[Above, Tensor | None]:
        """`Counter.above` for these relevant items."""
        return counter.above(self.ordered, self.column.gather(1, self.by_place), worth)


def by_slot(lists: Lists, values: PerPair, fill: float) -> Tensor:
    """[query, slot] the values of the pairs; empty slots hold `fill`."""
    if len(values) == len(lists.sizes) * lists.width:  # no empty slots
        return values.view(len(lists.sizes), lists.width)
    return lists.rectangle(values, fill)


def by_pair(lists: Lists, values: Tensor) -> PerPair:
    """[pair] from values [query, slot]."""
    return values.flatten() if values.numel() == len(lists.query) else values[lists.query, lists.slot]


def not_rivals(scores: Scores, lists: Lists) -> Tensor:
    """The items that are not irrelevant valid items, in a form that `Counter` takes."""
    if lists.complete and scores.numel() >= POSITIONS_FROM:
        return lists.query * scores.shape[1] + lists.item
    return ~lists.rest


def ranks_of(order: Order, lists: Lists, place: Tensor, rivals: Tensor, ties: Ties) -> Ranks:
    """The `Ranks` record. Relevant items of lower gain count in above_neg, not in above_pos."""
    place, rivals = (by_pair(lists, t).double() for t in (place, rivals))
    above_gain: Tensor | None = None
    if lists.graded:
        higher, above_gain = _among_relevant(order, lists, ties)
        rivals, place = rivals + (place - higher), higher
    return lists.ranks(place, rivals, above_gain)


def _among_relevant(order: Order, lists: Lists, ties: Ties) -> tuple[Tensor, Tensor]:
    """[pair] number of relevant items above of at least the item's gain, and sum of min(gains) over all items above."""
    # negated scores, or ranks if ties go by index: a smaller value is above
    score = order.among(ties).double() if ties == "index" else order.own
    gain = lists.rectangle(lists.gain, 0.0)
    higher, shared = (torch.empty_like(lists.gain, dtype=torch.float64) for _ in range(2))
    chunk = max(2**20 // max(lists.width, 1), 1)
    for start in range(0, len(lists.query), chunk):
        part = slice(start, start + chunk)
        q, slot = lists.query[part], lists.slot[part].unsqueeze(1)
        mine = score[q].gather(1, slot)
        above = score[q] < mine if ties == "optimistic" else score[q] <= mine
        above.scatter_(1, slot, False)
        my_gain = lists.gain[part].unsqueeze(1)
        higher[part] = (above & (gain[q] >= my_gain)).sum(1).double()
        shared[part] = (above * torch.minimum(gain[q], my_gain)).sum(1)
    return higher, shared
