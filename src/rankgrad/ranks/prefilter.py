"""Long lists without the irrelevant items below every relevant item: these have no effect."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from .exact import by_slot
from .kernels.counting import CELLS_FROM
from .kernels.host import on_host, zeros_like
from .lists import Lists
from .types import Scores

# Lists are shortened if at most this fraction of the items is left, because to find and move them has a cost.
WORTH_IT = 0.05
# The same limit with padding: the shortened lists differ in length.
ROOM = 0.25
# Number of items per list in the sample that decides whether to look at all items.
SAMPLE = 256


@dataclass(frozen=True)
class Shortened:
    """Shortened lists, and the original positions of their items.

    Attributes:
        scores: [query, place] scores of the kept items, in the order of their columns; -inf as padding.
        lists: relevance of `scores`. `item` is a place. `length` is that of the whole lists, because lambda refers to
            it.
        at: [kept] long, ascending positions query x items + column in the whole matrix.
        to: [kept] long, positions query x places + place in the shortened matrix; None: 0, 1, 2, ...
        items: number of columns of the whole matrix.
    """

    scores: Scores
    lists: Lists
    at: Tensor
    to: Tensor | None
    items: int

    def spread(self, values: Tensor, first: Scores) -> Tensor:
        """[query, item] the values at the original positions, 0 elsewhere; only the first columns, those of `first`."""
        values, at = values.reshape(-1), self.at
        if self.to is not None:
            values = values.index_select(0, self.to)
        if first.shape[1] < self.items:
            row, column = at // self.items, at % self.items
            # for another column, 0 is added to an entry of the same row
            inside = column < first.shape[1]
            at, values = row * first.shape[1] + column * inside, values * inside
        out = zeros_like(first)
        return out.view(-1).index_add_(0, at, values).view(first.shape) if out.numel() else out


def shortened(scores: Scores, lists: Lists, margin: float) -> Shortened | None:
    """Drop every irrelevant item below all relevant items of its list. Return None if too many items would be left.

    The ranks stay exact, also if the scores of relevant items are then raised. A dropped item is below all relevant
    items before and after that. So it changes no rank of a relevant item, and its own rank does not change. The items
    to drop are found with the same floating-point operations that rank the items.

    Args:
        scores: [query, item] float.
        lists: which items are relevant and valid.
        margin: see `exact.Order`.
    """
    queries, items = scores.shape
    if lists.width == 0:
        return None
    lowest = by_slot(lists, margin - scores[lists.query, lists.item], -torch.inf).amax(1)
    lowest = -lowest.unsqueeze(1)
    if on_host(scores):
        some = scores[:, :: max(items // SAMPLE, 1)] >= lowest
        if np.count_nonzero(some.numpy()) > 1.5 * WORTH_IT * some.numel():
            return None
    kept = scores >= lowest
    if not lists.complete:
        kept &= lists.rest
        kept[lists.query, lists.item] = True
    if on_host(kept):
        at = torch.from_numpy(np.flatnonzero(kept.numpy()))
    else:
        at = kept.view(-1).nonzero().squeeze(1)
    ends = torch.searchsorted(at, torch.arange(1, queries + 1, device=at.device) * items)
    count = ends.diff(prepend=ends.new_zeros(1))
    left, width = len(at), int(count.max())
    if scores.numel() >= CELLS_FROM:  # matrices of this size are counted faster than slightly smaller ones
        width = max(width, math.ceil(CELLS_FROM / queries))
    if left > WORTH_IT * scores.numel() or queries * width > ROOM * scores.numel():
        return None
    start = count.cumsum(0) - count
    # all relevant items are kept, and the kept positions are ascending
    item = torch.searchsorted(at, lists.query * items + lists.item) - start[lists.query]
    chosen = scores.reshape(-1).index_select(0, at)
    rest = torch.arange(width, device=at.device) < count.unsqueeze(1)
    rest[lists.query, item] = False
    to = None
    if left < queries * width:
        behind = torch.arange(queries, device=at.device) * width - start
        to = torch.repeat_interleave(behind, count, output_size=left) + torch.arange(left, device=at.device)
        chosen = chosen.new_full((queries * width,), -torch.inf).index_copy_(0, to, chosen)
    fewer = replace(lists, item=item, rest=rest, complete=to is None)
    return Shortened(chosen.view(queries, width), fewer, at, to, items)
