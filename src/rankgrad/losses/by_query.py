"""Rows with query ids -> rectangles [query, item]. A rectangle holds lists of similar length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..ranks.lists import check_relevance, refuse_transforms
from ..ranks.relevance import Labels, as_labels
from ..ranks.types import Mask

# A further rectangle must save at least this many entries, because it costs another call of the loss.
WORTH = 2**13


@dataclass(frozen=True)
class Rectangles:
    """Position of each row when the lists are stored in rectangles, one after the other in memory.

    Attributes:
        shapes: (number of lists, longest list) of each rectangle; there is at least one.
        place: [row] long, position of each row in memory; None: the rows are already in this order.
        lists: [list] long, indices of the lists in the order of the rectangles. The index of a list is the rank of its
            query id in ascending order. None: the rectangles have that order.
    """

    shapes: list[tuple[int, int]]
    place: Tensor | None
    lists: Tensor | None

    @classmethod
    def of(cls, query: Tensor, separate: bool) -> Rectangles:
        """The rectangles for these rows. Within a list, the rows keep their order.

        Together they have at most about twice as many entries as there are rows, plus about `WORTH` per rectangle.

        Args:
            query: [row] long, ids in any order.
            separate: False: one rectangle for all lists, even if most of it is padding.
        """
        if not len(query):
            return cls([(0, 0)], None, None)
        rows = torch.arange(len(query), device=query.device)
        in_order = bool((query[1:] >= query[:-1]).all())
        by_id = rows if in_order else query.argsort(stable=True)
        ids = query[by_id]
        list_of = torch.nn.functional.pad((ids[1:] != ids[:-1]).long().cumsum(0), (1, 0))  # list of each row, by id
        count = torch.bincount(list_of)
        lists = count.argsort(descending=True, stable=True)
        shapes = _shapes(count[lists], separate)
        if in_order and len(shapes) == 1 and shapes[0][0] * shapes[0][1] == len(query):
            return cls(shapes, None, None)
        widths, heights = (torch.tensor([shape[side] for shape in shapes], device="cpu") for side in (1, 0))
        width = widths.repeat_interleave(heights).to(query.device)  # width of each list's rectangle
        first = torch.empty_like(count).index_copy_(0, lists, width.cumsum(0) - width)
        place = rows + (first - (count.cumsum(0) - count))[list_of]
        return cls(shapes, torch.empty_like(place).index_copy_(0, by_id, place), lists)

    def cut(self, values: Tensor) -> list[Tensor]:
        """Values [row] as rectangles, padded with 0 or False."""
        areas = [lists * longest for lists, longest in self.shapes]
        if self.place is not None:
            values = values.new_zeros(sum(areas)).index_copy(0, self.place, values)
        return [part.view(shape) for part, shape in zip(torch.split(values, areas), self.shapes, strict=True)]

    def valid(self) -> list[Mask | None]:
        """For each rectangle, a mask that is False for padding; None: there is no padding."""
        if self.place is None:
            return [None] * len(self.shapes)
        masks = self.cut(torch.ones_like(self.place, dtype=torch.bool))
        return [None if bool(part.all()) else part for part in masks]

    def by_id(self, values: list[Tensor]) -> Tensor:
        """[list] the values of the lists by ascending query id, from the values of each rectangle."""
        joined = torch.cat(values)
        return joined if self.lists is None else torch.empty_like(joined).index_copy(0, self.lists, joined)


def _shapes(count: Tensor, separate: bool) -> list[tuple[int, int]]:
    """(number of lists, longest list) of each rectangle, from the descending lengths of the lists."""
    lengths, times = (each.tolist() for each in torch.unique_consecutive(count.cpu(), return_counts=True))
    shapes, longest, inside, left = [], lengths[0], 0, len(count)
    for length, lists in zip(lengths, times, strict=True):
        if separate and 2 * length <= longest and left * (longest - length) >= WORTH:
            shapes.append((inside, longest))
            longest, inside = length, 0
        inside, left = inside + lists, left - lists
    return [*shapes, (inside, longest)]


def checked_rows(scores: Tensor, relevance: Tensor, query: Labels | None, *, levels: bool) -> Tensor | None:
    """The query ids as a tensor. Raise unless scores, relevance and ids have one entry per row.

    Args:
        scores: [row] float.
        relevance: [row] bool or gains.
        query: [row] integers or strings; or None.
        levels: whether relevance may be integers, the numbers of shared levels.
    """
    refuse_transforms()
    if scores.dim() != 1 or not scores.is_floating_point():
        raise ValueError(f"scores must be a float tensor [row]; got {scores.dtype} {tuple(scores.shape)}")
    ids = None
    if query is not None:
        (ids,) = as_labels(query, names=("query",))
        if not isinstance(query, Tensor):
            ids = ids.to(scores.device)
        if ids.dtype == torch.bool:
            raise ValueError("query must be integers or strings, an id for each row; got bool")
    for name, each in (("relevance", relevance), ("query", ids)):
        if each is not None and each.shape != scores.shape:
            raise ValueError(f"{name} must have one entry for each of {len(scores)} scores; got {tuple(each.shape)}")
        if each is not None and each.device != scores.device:
            raise ValueError(f"{name} is on {each.device} but scores are on {scores.device}; move one of them")
    check_relevance(relevance, levels=levels, name="relevance")
    return ids
