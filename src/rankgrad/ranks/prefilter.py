"""Long lists without the irrelevant items that cannot matter: those below every relevant one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..kernels.counting import CELLS_FROM
from ..kernels.host import on_host, zeros_like
from ..types import Scores
from .exact import by_slot
from .lists import Lists

# Lists are shortened if at most this share of them is left: finding and moving what is left costs something too.
WORTH_IT = 0.05
# The same with the places that pad them: lists differ in what is left of them.
ROOM = 0.25
# Items per list that tell whether it is worth looking at all of them.
SAMPLE = 256


@dataclass(frozen=True)
class Shortened:
    """Lists of which only the items within reach are left, and where these were.

    Attributes:
        scores: [query, place] those that are left, in the order of their columns; -inf where a list has fewer.
        lists: what `scores` are; `item` counts places, `length` is that of the whole lists, which lambda is meant for.
        at: [kept] long, positions query x items + column in the whole matrix, ascending.
        to: [kept] long, positions query x places + place in the shortened one; None: 0, 1, 2, ...
        items: columns of the whole matrix.
    """

    scores: Scores
    lists: Lists
    at: Tensor
    to: Tensor | None
    items: int

    def spread(self, values: Tensor, first: Scores) -> Tensor:
        """[query, item] values where the items were, 0 elsewhere, in the columns of `first`: the first ones of all."""
        values, at = values.reshape(-1), self.at
        if self.to is not None:
            values = values.index_select(0, self.to)
        if first.shape[1] < self.items:
            row, column = at // self.items, at % self.items
            # a value of another column is added as 0 to some entry of its row
            inside = column < first.shape[1]
            at, values = row * first.shape[1] + column * inside, values * inside
        out = zeros_like(first)
        return out.view(-1).index_add_(0, at, values).view(first.shape) if out.numel() else out


def shortened(scores: Scores, lists: Lists, margin: float) -> Shortened | None:
    """Drop every irrelevant item that stands below all relevant items of its list; None where that is not worth it.

    Exact for ranks that are perturbed upwards only: such an item is above no relevant one, before or after, so it
    changes no rank and its own never changes. Which items these are is decided in the very arithmetic that ranks them.

    Args:
        scores: [query, item] float.
        lists: which of them are relevant or exist.
        margin: as `exact.Order` applies it.
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
    if scores.numel() >= CELLS_FROM:  # so much is counted faster than a little less
        width = max(width, math.ceil(CELLS_FROM / queries))
    if left > WORTH_IT * scores.numel() or queries * width > ROOM * scores.numel():
        return None
    start = count.cumsum(0) - count
    # relevant items are among the kept, which are in order
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
