"""Exact ranks, without gradient: the relevant items are sorted, the others only searched in them."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..kernels.counting import count_below
from ..types import Mask, Ranks, Scores
from .lists import Lists, computed

Ties = Literal["pessimistic", "optimistic", "index"]


def exact_ranks(
    scores: Scores, relevant: Tensor, valid: Mask | None = None, *, ties: Ties = "pessimistic", margin: float = 0.0
) -> Ranks:
    r"""Exact ranks without gradient, O(n log p) per query: the relevant items are sorted, the others only searched.

    Counts are float64: beyond 2^24 items float32 could not hold them.

    Args:
        scores: [query, item] float.
        relevant: [query, item] bool, or float gains >= 0.
        valid: [query, item] bool; False removes an item.
        ties: "pessimistic": an item level with me is above me (H(0) = 1, ROADMAP eq. 3; equals scikit-learn's AP);
            "optimistic": it is not; "index": a permutation, of level items the lower index is above.
        margin: RaMBO eq. 14: irrelevant scores + margin / 2, relevant ones - margin / 2.

    >>> exact_ranks(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, False, True]])).rank
    tensor([2., 3.], dtype=torch.float64)
    >>> exact_ranks(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, False, True]]), ties="index").rank
    tensor([1., 3.], dtype=torch.float64)
    """
    if ties not in ("pessimistic", "optimistic", "index"):
        raise ValueError(f"ties must be 'pessimistic', 'optimistic' or 'index'; got {ties!r}")
    with torch.no_grad():
        lists = Lists.of(scores, relevant, valid)
        return Order(computed(scores), lists, margin, ties).ranks(lists)


class Order:
    """Where the relevant items stand in their lists, and for every item how many relevant ones stand above it.

    Scores are negated, so that "better" is "smaller" and torch.searchsorted counts the items that are better.

    Attributes:
        scores: [query, item] as given.
        own: [query, slot] negated scores of the relevant items, +inf where absent.
        place: [query, slot] relevant items above this one (0 = best).
        rivals: [query, slot] irrelevant items above this one.
        overtaken: [query, item] integers, relevant items above an irrelevant item (meaningless elsewhere).
    """

    def __init__(self, scores: Scores, lists: Lists, margin: float, ties: Ties) -> None:
        self.lists, self.ties = lists, ties
        self.scores = scores
        self.items = lists.rectangle(lists.item, -1)
        # only differences count: half the margin up and half down is the whole margin down for the few
        self.place_relevant(lists.rectangle(margin - scores[lists.query, lists.item], torch.inf))

    def place_relevant(self, own: Tensor) -> None:
        """(Re)compute all places for these negated scores of the relevant items."""
        self.own = own
        ordered, by_place = own.sort(dim=1, stable=True)  # slots run by index, so ties keep the lower index first
        if self.ties == "index":
            places = torch.arange(own.shape[1], device=own.device).expand_as(own).contiguous()
            self.place = torch.empty_like(by_place).scatter_(1, by_place, places)
        elif self.ties == "pessimistic":
            self.place = torch.searchsorted(ordered, own, right=True) - 1
        else:
            self.place = torch.searchsorted(ordered, own)
        self.overtaken, row, item = count_below(ordered, self.scores, right=self.ties == "optimistic")
        # whatever is not an irrelevant item goes below everything, where nothing looks
        if self.lists.complete:
            self.overtaken[self.lists.query, self.lists.item] = own.shape[1]
        else:
            self.overtaken.masked_fill_(~self.lists.rest, own.shape[1])
        order = self.place
        if self.ties != "index":  # then places are shared by level items, and the order of sorting is needed
            places = torch.arange(own.shape[1], device=own.device).expand_as(own).contiguous()
            order = torch.empty_like(by_place).scatter_(1, by_place, places)
        elif len(row):
            self._lower_index_first(row, item, ordered, by_place)
        self.rivals = self._rivals_above(own.shape[1]).gather(1, order)

    def _rivals_above(self, width: int) -> Tensor:
        """[query, place] irrelevant items with at most so many relevant ones above them."""
        queries = len(self.overtaken)
        histogram = torch.empty(queries, width + 1, dtype=torch.long, device=self.overtaken.device)
        rows = max(2**24 // max(self.overtaken.shape[1], 1), 1)  # bounds the int64 temporary
        for start in range(0, queries, rows):
            count = self.overtaken[start : start + rows]
            if len(count) > 1:
                count = count + torch.arange(len(count), device=count.device).unsqueeze(1) * (width + 1)
            flat = torch.bincount(count.reshape(-1), minlength=len(self.overtaken[start : start + rows]) * (width + 1))
            histogram[start : start + rows] = flat.view(-1, width + 1)
        return histogram.cumsum(1)[:, :width]

    def _lower_index_first(self, row: Tensor, item: Tensor, ordered: Tensor, by_place: Tensor) -> None:
        """Of an irrelevant item level with relevant ones, those of lower index are above it too."""
        irrelevant = self.lists.rest[row, item]
        row, item = row[irrelevant], item[irrelevant]
        # Relevant items of one score run by index, so (first place of the score, index) sorts them: search that key.
        n = self.overtaken.shape[1]
        key = torch.searchsorted(ordered, ordered) * (n + 1) + self.items.gather(1, by_place)
        key.masked_fill_(ordered == torch.inf, torch.iinfo(torch.int64).max)
        query = self.overtaken[row, item].long() * (n + 1) + item
        for r in torch.unique(row).tolist():  # level scores are rare; rows are ragged
            mine = row == r
            found = torch.searchsorted(key[r].contiguous(), query[mine])
            self.overtaken[r, item[mine]] = found.to(self.overtaken.dtype)

    def ranks(self, lists: Lists) -> Ranks:
        """The record; relevant items of lower gain move from above_pos to above_neg."""
        place, rivals = (t[lists.query, lists.slot].double() for t in (self.place, self.rivals))
        above_gain: Tensor | None = None
        if lists.graded:
            higher, above_gain = self._among_relevant(lists)
            rivals, place = rivals + (place - higher), higher
        return lists.ranks(place, rivals, above_gain)

    def _among_relevant(self, lists: Lists) -> tuple[Tensor, Tensor]:
        """[pair] relevant items above of at least my gain, and the sum of min(gain) over those above."""
        # Negated scores, or places where ties go by index: a smaller one is above.
        score = self.place.double() if self.ties == "index" else self.own
        gain = lists.rectangle(lists.gain, 0.0)
        higher, shared = (torch.empty_like(lists.gain, dtype=torch.float64) for _ in range(2))
        chunk = max(2**20 // max(lists.width, 1), 1)
        for start in range(0, len(lists.query), chunk):
            part = slice(start, start + chunk)
            q, slot = lists.query[part], lists.slot[part].unsqueeze(1)
            mine = score[q].gather(1, slot)
            above = score[q] < mine if self.ties == "optimistic" else score[q] <= mine
            above.scatter_(1, slot, False)
            my_gain = lists.gain[part].unsqueeze(1)
            higher[part] = (above & (gain[q] >= my_gain)).sum(1).double()
            shared[part] = (above * torch.minimum(gain[q], my_gain)).sum(1)
        return higher, shared
