"""Scores of a batch as rectangles, and the blocks of score differences, which are computed one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .kernels.cells import Cells, Line, known
from .kernels.host import on_host
from .lists import Lists
from .relaxations import Exponential, Sigmoid, Step, SupStep
from .types import PerPair, Scores

Method = Literal["auto", "pairs", "cells"]

# Number of relevant items of a query that are compared together.
SLOTS = 16
# If the scores spread over more cells than this (about 30,000 tau), they are compared in pairs.
MOST_CELLS = 2**18
# With fewer differences than this, pairs are always faster.
WORTH_A_LOOK = 2**20


class _Costs(NamedTuple):
    """Nanoseconds, forward plus backward: per pair; and with cells per item, per cell of a row, per relevant item."""

    pair: float
    item: float
    cell: float
    relevant: float


# Measured with one thread of a server CPU with AVX-512. Only the ratios matter.
COSTS: dict[type[Step], _Costs] = {Sigmoid: _Costs(2.0, 17, 190, 50), SupStep: _Costs(3.0, 33, 260, 2500)}
COST_OF_CALL = 2e6


class Blocks:
    """Scores of a batch as rectangles, with the queries ordered by decreasing p.

    Attributes:
        peers: [query, slot] scores of the relevant items, -inf where absent.
        own: [slot, query] the same scores, but +inf where absent: then every difference is -inf.
        gain: [query, slot] gains, None if relevance is binary.
        level: [query, slot] values that decide which item is less relevant, see `Lists.order`.
        filled: number of queries with a relevant item.
    """

    def __init__(self, scores: Scores, lists: Lists, chunk: int) -> None:
        self.scores, self.lists, self.chunk = scores, lists, chunk
        # Balanced batches (the usual case) are already in order: no copy. torch 2.6 cannot compile zip and count here.
        self.order: Tensor | None = None
        if any(lists.sizes[i - 1] < lists.sizes[i] for i in range(1, len(lists.sizes))):
            self.order = lists.count.argsort(descending=True, stable=True)
        self.sizes = sorted(lists.sizes, reverse=True)
        self.filled = sum(size > 0 for size in self.sizes)
        own = scores[lists.query, lists.item]
        self.peers = self.sort(lists.rectangle(own, -torch.inf))
        self.own = self.sort(lists.rectangle(own, torch.inf)).T.contiguous()
        self.gain = self.level = self.sort(lists.rectangle(lists.gain, 0.0)) if lists.graded else None
        if lists.graded and lists.order is not lists.gain:
            self.level = self.sort(lists.rectangle(lists.order, 0.0))
        self._last: tuple[slice, Tensor] | None = None

    def sort(self, rows: Tensor) -> Tensor:
        """[sorted query, ...] from [query, ...]."""
        return rows if self.order is None else rows[self.order]

    def unsort(self, rows: Tensor) -> Tensor:
        """[query, ...] from [sorted query, ...]."""
        return rows if self.order is None else torch.empty_like(rows).index_copy_(0, self.order, rows)

    def pairs(self, rectangle: Tensor) -> PerPair:
        """[pair] from [slot, sorted query]."""
        return self.unsort(rectangle.T.contiguous())[self.lists.query, self.lists.slot].to(self.own.dtype)

    def rectangle(self, values: PerPair) -> Tensor:
        """[slot, sorted query] from [pair]; 0 where absent."""
        return self.sort(self.lists.rectangle(values, 0.0)).T.contiguous()

    def rest(self, rows: slice) -> Tensor:
        """[row, item] scores of some sorted queries, -inf at relevant and absent items.

        It is computed when it is needed, and the next call overwrites it: to allocate a second score matrix would take
        as long as the sums.
        """
        if self._last is not None and self._last[0] == rows:
            return self._last[1]
        chosen = rows if self.order is None else self.order[rows]
        if not self.lists.complete:
            rest = torch.where(self.lists.rest[chosen], self.scores[chosen], -torch.inf)
        else:  # only a few entries must change
            if self._last is None or len(self._last[1]) != rows.stop - rows.start:
                rest = self.scores[chosen].clone()
            else:
                rest = self._last[1].copy_(self.scores[chosen])
            rest.scatter_(1, self.items[rows], -torch.inf)
        self._last = rows, rest
        return rest

    @cached_property
    def items(self) -> Tensor:
        """[sorted query, slot] long, columns of the relevant items; an empty slot repeats a column."""
        items = self.sort(self.lists.rectangle(self.lists.item, -1))
        return torch.where(items < 0, items[:, :1], items)

    def gradient_rows(self, grad: Tensor, rows: slice) -> Tensor:
        """Zeros [row, item] for the gradient of some sorted queries, before `write_gradient`."""
        return grad[rows] if self.order is None else torch.zeros_like(grad[rows])

    def write_gradient(self, grad: Tensor, rows: slice, part: Tensor) -> None:
        """Copy the gradient of some sorted queries into the whole gradient [query, item]."""
        if self.order is not None:
            grad.index_copy_(0, self.order[rows], part)

    def strips(self, columns: int) -> Iterator[tuple[slice, int, list[slice]]]:
        """Parts that are compared together: rows, the width of a tile of columns, and groups of slots.

        A tile is read into the cache once per group of slots. A tile and a group have about `chunk` differences. Rows
        without relevant items in these slots are left out.
        """
        row = 0
        while row < self.filled and columns:
            width = self.sizes[row]
            together = min(-(-width // -(-width // SLOTS)), self.chunk)
            rows = slice(row, min(row + max(self.chunk // (together * columns), 1), self.filled))
            tiles = max(round(together * (rows.stop - rows.start) * columns / self.chunk), 1)
            wide = -(-columns // tiles)
            wide += -wide % 64 if tiles > 1 and wide > 64 else 0  # rows of a block begin on cache lines
            groups = [slice(slot, min(slot + together, width)) for slot in range(0, width, together)]
            yield rows, min(wide, columns), groups
            row = rows.stop

    def to_peers(self) -> Iterator[tuple[slice, slice, slice, Tensor]]:
        """Blocks (slots, rows, other slots) and their differences between relevant items; -inf of an item to itself."""
        for rows, wide, groups in self.strips(self.peers.shape[1]):
            for slots in groups:
                own, start = self.own[slots, rows].unsqueeze(2), 0
                for tile in tiles_of(self.peers[rows], wide):
                    others = slice(start, start + tile.shape[1])
                    differences = tile - own
                    differences.diagonal(slots.start - start, 0, 2).fill_(-torch.inf)
                    yield slots, rows, others, differences
                    start = others.stop

    def gains(self, slots: slice, rows: slice, others: slice) -> tuple[Tensor, Tensor] | None:
        """For a block of `to_peers`: where the other item is less relevant, and the lower gain. None if binary."""
        if self.gain is None or self.level is None:
            return None
        mine, theirs = self.gain[rows, slots].T.unsqueeze(2), self.gain[rows, others]
        my_level, their_level = self.level[rows, slots].T.unsqueeze(2), self.level[rows, others]
        return their_level < my_level, torch.minimum(theirs, mine)

    def lines(self, pos: Step, neg: Step, method: Method) -> tuple[Line | None, Line | None]:
        """Cells for the sums over the rest and over the peers; None if that sum is to be computed in pairs."""
        if method == "pairs" or self.gain is not None or not self.filled:
            return None, None
        if method == "auto":
            if self.scores.numel() * len(self.own) < WORTH_A_LOOK or self.scores.dtype != torch.float32:
                return None, None
            if not on_host(self.scores):
                return None, None
        return self._line(neg, self.scores.shape[1], method), self._line(pos, self.peers.shape[1], method)

    def product(self, step: Step, method: Method) -> Exponential | None:
        """The step if its sums over the rest are to be computed as products, see `kernels.exponential`."""
        if not isinstance(step, Exponential) or method != "auto" or not on_host(self.scores):
            return None
        if not self.filled or self.scores.numel() * len(self.own) < WORTH_A_LOOK:
            return None
        spread = self.sort(self.scores.amax(1)) - self.own.amin(0)
        return step if bool((spread <= step.cap * step.tau).all()) else None

    def rows(self, columns: int) -> Iterator[slice]:
        """Parts of the rows with relevant items, of about `chunk` entries."""
        many = max(self.chunk // columns, 1)
        return (slice(row, min(row + many, self.filled)) for row in range(0, self.filled, many))

    def _line(self, step: Step, columns: int, method: Method) -> Line | None:
        if not (known(step) and isinstance(step, (Sigmoid, SupStep))):
            return None
        rows, relevant, cost = self.filled, sum(self.sizes), COSTS[type(step)]
        # cost of pairs minus the fixed cost of cells
        spare = columns * (relevant * cost.pair - rows * cost.item) - relevant * cost.relevant - COST_OF_CALL
        if method == "auto" and spare < 0:
            return None
        low, high = (self.sort(bound)[:rows] for bound in (self.scores.amin(1), self.scores.amax(1)))
        line = Line.over(step, self.own[:, :rows].T, low, high)
        if line is None or line.cells > MOST_CELLS or (method == "auto" and rows * line.cells * cost.cell > spare):
            return None
        return line

    def cells(self, step: Step, line: Line) -> Cells:
        """Near-linear sums of a step, for the rows with relevant items."""
        assert isinstance(step, (Sigmoid, SupStep))
        return Cells(step, line, self.own[:, : self.filled].T, self.chunk)

    def counts(self, step: Step, line: Line, others: Callable[[slice], Tensor], columns: int) -> tuple[Tensor, Tensor]:
        """[slot, query] sums of the step and of its slope over the other items of each query, in near-linear time."""
        cells = self.cells(step, line)
        both = torch.zeros(2, *self.own.shape, dtype=torch.float64, device=self.own.device)
        for rows in cells.groups(columns):
            both[:, :, rows] = torch.stack(cells.counts(rows, others(rows))).mT
        value, slope = both
        return value, slope

    def exact_peers(self) -> Tensor:
        """[slot, query] number of other relevant items with at least this score."""
        below = torch.searchsorted(self.peers.sort(dim=1).values, self.own.T.contiguous())
        return (self.peers.shape[1] - 1 - below).T


def tiles_of(strip: Tensor, wide: int) -> Sequence[Tensor]:
    """[row, item] cut into tiles of `wide` columns."""
    tiles: Sequence[Tensor] = (strip,) if wide == strip.shape[1] else torch.split(strip, wide, dim=1)
    return tiles


def added(parts: list[Tensor]) -> Tensor | int:
    """Sum of the tensors, in float64 if there are many."""
    if len(parts) < 2:
        return parts[0] if parts else 0
    return torch.stack(parts).sum(0, dtype=torch.float64)
