r"""How many items stand above each of some sorted entries, exactly, and what an item's place among them is worth.

`torch.searchsorted` finds the place of an item among the entries: n items among p entries are n log p unpredictable
branches. On a CPU equal cells over the range of the scores do most of it. Score -> cell is monotone in floating point
too, so an item in an earlier cell than an entry is above it: such items are counted by cell and never compared. Only
items whose own cell holds entries, a few per cent, are searched for, and only among the entries of that cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..types import Scores
from .host import on_host

Ties = Literal["pessimistic", "optimistic", "index"]
Array = npt.NDArray[Any]

# Fewer scores than this are searched in plain form: making the cells would cost more than it saves.
CELLS_FROM = 2**16
# Cells of one row: more would not stay in the cache. Cells of all rows that are counted together.
MOST_CELLS, TABLE = 2**18, 2**20
# Scores that go through all passes together: few enough for the cache, enough to make each pass worth its call.
TILE = 2**18
# Rows with at most FEW relevant entries and at least LONG items are compared directly. Short inputs allow more entries:
# making the cells costs as much as comparing `MAKING` scores.
FEW, LONG, MAKING = 8, 2**14, 2**20
# Scores that are worth another thread.
PER_THREAD = 2**17
# Scores searched together in plain form: bounds its temporaries, some 50 bytes each.
PLAIN = 2**22
# Items per row that the range of the cells is read from, and where among all items, in no order they may have.
SAMPLE = np.arange(256) * 0.6180339887498949 % 1


@dataclass(frozen=True)
class Above:
    """Items above each entry.

    Attributes:
        index: [row, place] long; of level items those of lower column (or of the entry's own) are above.
        other: the same under another reading of a tie; None if no item is known to be level with an entry.
    """

    index: Tensor
    other: Callable[[Ties], Tensor] | None = None

    def under(self, ties: Ties) -> Tensor:
        """[row, place] long; "pessimistic": a level item is above, "optimistic": it is not."""
        return self.index if ties == "index" or self.other is None else self.other(ties)


def count_below(ordered: Tensor, scores: Scores, *, right: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Per row, how many sorted entries are smaller than each negated score, and which of these are level with an entry.

    Args:
        ordered: [row, place] ascending negated scores; +inf pads.
        scores: [row, item] of the same dtype, finite. Negating them here spares the caller a copy of the matrix.
        right: count entries that are smaller or level.

    Returns:
        count: [row, item] int32, equal to torch.searchsorted(ordered, -scores, right=right).
        row, item: long, where a negated score is level with an entry.

    >>> count, row, item = count_below(torch.tensor([[1.0, 2.0]]), torch.tensor([[-0.5, -2.0, -3.0]]))
    >>> count, item
    (tensor([[0, 1, 2]], dtype=torch.int32), tensor([1]))
    """
    ordered, scores = ordered.contiguous(), scores.detach()
    if not _by_cells(ordered, scores):
        values = scores.neg().contiguous()
        count = torch.searchsorted(ordered, values, right=right, out_int32=True)
        first = torch.searchsorted(ordered, values, out_int32=True) if right else count
        if ordered.shape[1] == 0:
            return count, *first.new_zeros(2, 0, dtype=torch.long)
        entry = ordered.gather(1, first.clamp(max=ordered.shape[1] - 1).long())
        row, item = ((entry == values) & (values < torch.inf)).nonzero(as_tuple=True)
        return count, row, item
    # a level entry is counted if its column is the lower one, so if all columns are lower or none
    column = np.broadcast_to(np.int64(-1 if right else scores.shape[1]), ordered.shape)
    worth = np.broadcast_to(np.arange(ordered.shape[1] + 1, dtype=np.int32), (len(ordered), ordered.shape[1] + 1))
    out = np.empty(scores.shape, dtype=np.int32)
    level = [np.zeros(0, dtype=np.intp)]
    for rows, cells in _cells_of(_Items.of(scores, None), ordered.shape[1]):
        counted = cells.look_up(_Entries(ordered[rows].numpy(), column[rows], cells), worth[rows], out[rows])
        level += [part + rows.start * scores.shape[1] for part in counted]
    at = torch.from_numpy(np.concatenate(level))
    return torch.from_numpy(out), at // scores.shape[1], at % scores.shape[1]


class Counter:
    """Counts the items of some lists that are above sorted entries, for one set of entries after another.

    Args:
        scores: [row, item] float, -inf or finite; -inf stands below all entries.
        absent: items that are not there: [row, item] bool, or long, their positions row x items + column, ascending.
            None: all are there.
        may_wait: a GPU may be asked whether any scores are level, which spares it work if there are none.

    >>> counter = Counter(torch.tensor([[0.5, 2.0, 3.0, 2.0]]))
    >>> entries, columns = torch.tensor([[-2.0, -1.0]]), torch.tensor([[2, 3]])
    >>> above, worth = counter.above(entries, columns, torch.tensor([[0.1, 0.2, 0.3]]))
    >>> above.index, above.under("optimistic")  # the 2.0 of column 1 is above that of column 2, the one of column 3 not
    (tensor([[2, 3]]), tensor([[1, 3]]))
    >>> worth
    tensor([[0.3000, 0.1000, 0.1000, 0.2000]])
    """

    def __init__(self, scores: Scores, absent: Tensor | None = None, *, may_wait: bool = False) -> None:
        self.scores, self.absent, self.may_wait = scores.detach(), absent, may_wait
        self._cells: list[tuple[slice, _Cells]] = []

    def above(self, ordered: Tensor, column: Tensor, worth: Tensor | None = None) -> tuple[Above, Tensor | None]:
        """Count the items above each entry; look up what the place of each item is worth.

        An item's place is the number of entries above it; a level entry is if its column is the lower one.

        Args:
            ordered: [row, place] negated scores of the entries, ascending, level ones by column; +inf pads.
            column: [row, place] long, columns of the entries, -1 .. item.
            worth: [row, place + 1] no NaN.

        Returns:
            The counts; and [row, item] the worth of the place of each item (meaningless where there is none).
        """
        if ordered.shape[1] == 0:
            return Above(column), None if worth is None else worth.expand(self.scores.shape).clone()
        if not _by_cells(ordered, self.scores):
            return _searched(ordered.contiguous(), column, self.scores, self.absent, worth, self.may_wait)
        few = FEW + MAKING // self.scores.numel()
        if worth is None and ordered.shape[1] <= few and self.scores.shape[1] >= LONG:
            return _compared(ordered.numpy(), column.numpy(), _Items.of(self.scores, self.absent)), None
        if not self._cells:
            self._cells = list(_cells_of(_Items.of(self.scores, self.absent), ordered.shape[1]))
        # numpy asks the system for large pages, torch does not, and making small ones would cost more than the counting
        out = None if worth is None else np.empty(self.scores.shape, dtype=worth.numpy().dtype)
        parts = []
        for rows, cells in self._cells:
            entries = _Entries(ordered[rows].numpy(), column[rows].numpy(), cells)
            if worth is None or out is None:
                parts.append(cells.above(entries))
            else:
                parts.append(cells.above(entries, worth[rows].numpy(), out[rows]))
        return _stacked(parts), None if out is None else torch.from_numpy(out)


def _stacked(parts: list[Above]) -> Above:
    """The counts of some rows, then those of the next ones."""
    if len(parts) == 1:
        return parts[0]
    index = torch.cat([part.index for part in parts])
    if all(part.other is None for part in parts):
        return Above(index)
    return Above(index, lambda ties: torch.cat([part.under(ties) for part in parts]))


def _by_cells(ordered: Tensor, scores: Scores) -> bool:
    return on_host(scores) and scores.numel() >= CELLS_FROM and ordered.shape[1] > 0


def _searched(
    ordered: Tensor, column: Tensor, scores: Scores, absent: Tensor | None, worth: Tensor | None, may_wait: bool
) -> tuple[Above, Tensor | None]:
    """`Counter.above` in plain form. Nothing is read back from a GPU unless that is allowed."""
    if absent is not None and absent.dtype != torch.bool:
        absent = scores.new_zeros(scores.numel(), dtype=torch.bool).index_fill_(0, absent, True).view_as(scores)
    if scores.numel() <= PLAIN:
        counts, out = _searched_box(ordered, column, scores, absent, worth, 0, may_wait)
    else:
        counts = [torch.zeros_like(column) for _ in range(3)]
        out = None if worth is None else worth.new_empty(scores.shape)
        for rows, items in _boxes(scores, PLAIN):
            here = None if absent is None else absent[rows, items]
            given = ordered[rows], column[rows], scores[rows, items], here, None if worth is None else worth[rows]
            above, value = _searched_box(*given, items.start, may_wait)
            for total, part in zip(counts, above, strict=True):
                total[rows] += part
            if out is not None and value is not None:
                out[rows, items] = value
    index, pessimistic, optimistic = counts
    if pessimistic is index:
        return Above(index), out
    return Above(index, lambda ties: pessimistic if ties == "pessimistic" else optimistic), out


def _searched_box(
    ordered: Tensor,
    column: Tensor,
    scores: Scores,
    absent: Tensor | None,
    worth: Tensor | None,
    start: int,
    may_wait: bool,
) -> tuple[list[Tensor], Tensor | None]:
    """Counts by column of level items, with and without them; worth of the items, which begin with column `start`."""
    places = _places(ordered, column, scores, start, may_wait)
    counts = [_summed(at, absent, ordered.shape[1]) for at in places]
    return counts if len(counts) == 3 else 3 * counts, None if worth is None else worth.gather(1, places[0])


def _places(ordered: Tensor, column: Tensor, scores: Scores, start: int, may_wait: bool) -> list[Tensor]:
    """[row, item] places: by column among level entries, before, and behind them; one only if there are none."""
    width = ordered.shape[1]
    x = scores.neg().contiguous()
    first = torch.searchsorted(ordered, x)
    level = (ordered.gather(1, first.clamp(max=width - 1)) == x).logical_and_(x < torch.inf)
    if (may_wait or on_host(x)) and not bool(level.any()):
        return [first]
    end = torch.where(level, torch.searchsorted(ordered, x, right=True), first)
    # of the level entries, those of lower column: a search in steps of powers of two
    item = torch.arange(start, start + x.shape[1], device=x.device)
    columns = torch.cat([column, column.new_zeros(len(x), 1)], 1)
    place = first
    for step in _steps(width):
        probe = place + (step - 1)
        lower = columns.gather(1, probe.clamp(max=width)) < item
        place = place + step * ((probe < end) & lower)
    return [place, first, end]


def _summed(place: Tensor, absent: Tensor | None, width: int) -> Tensor:
    """[row, place] items at this place or before it."""
    place = place if absent is None else place.masked_fill(absent, width)
    histogram = place.new_zeros(len(place), width + 1).scatter_add_(1, place, place.new_ones(1).expand_as(place))
    return histogram.cumsum(1)[:, :width]


def _steps(most: int) -> list[int]:
    """Powers of two, descending, that add up to at least `most`."""
    return [2**k for k in reversed(range(most.bit_length()))]


@dataclass(frozen=True)
class _Items:
    """Scores of some rows and which of them are not there, see `Counter`."""

    scores: Array
    absent: Array | None

    @classmethod
    def of(cls, scores: Scores, absent: Tensor | None) -> _Items:
        """From tensors."""
        return cls(scores.numpy(), None if absent is None else absent.numpy())

    def rows(self, rows: slice) -> _Items:
        """Some of the rows."""
        if self.absent is None or self.absent.dtype == bool:
            return _Items(self.scores[rows], None if self.absent is None else self.absent[rows])
        start, end = (at * self.scores.shape[1] for at in (rows.start, rows.stop))
        return _Items(self.scores[rows], self._between(start, end))

    def absent_from(self, rows: slice, items: slice) -> Array | None:
        """Positions within a box of those that are not there."""
        if self.absent is None:
            return None
        if self.absent.dtype == bool:
            return np.flatnonzero(self.absent[rows, items])
        start, end = (
            (row * self.scores.shape[1] + at) for row, at in ((rows.start, items.start), (rows.stop - 1, items.stop))
        )
        return self._between(start, end)

    def _between(self, start: int, end: int) -> Array:
        assert self.absent is not None
        first, last = np.searchsorted(self.absent, (start, end))
        return self.absent[first:last] - start


def _cells_of(items: _Items, entries: int) -> Iterator[tuple[slice, _Cells]]:
    """Rows and the cells of these rows, for about so many entries in each."""
    rows, width = items.scores.shape
    # A cell costs about as much as an item in an occupied cell costs more than another one.
    count = int(min(2 * math.sqrt(entries * width), 512 * entries, width, MOST_CELLS))
    size = max(TABLE // max(count, entries), 1)
    for start in range(0, rows, size):
        part = slice(start, min(start + size, rows))
        yield part, _Cells(items.rows(part), count)


def _boxes(scores: Array | Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Cut a matrix into boxes of about `size` elements: of whole rows, or each within one row."""
    rows, items = scores.shape
    height, width = max(size // max(items, 1), 1), max(min(size, items), 1)
    for top in range(0, rows, height):
        for left in range(0, items, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, items))


class _Share(Protocol):
    """What one worker does with its share of the items."""

    def add(self, rows: slice, items: slice) -> None:
        """Go through a box of the items."""

    def merge(self, other: Any) -> None:
        """Add what another worker found."""


S = TypeVar("S", bound=_Share)


def _through(scores: Array, size: int, start: Callable[[], S]) -> S:
    """Go through all items in boxes of about this size, on as many threads as torch has."""
    workers = max(min(torch.get_num_threads(), scores.size // PER_THREAD), 1)
    boxes = math.ceil(scores.size / size / workers) * workers
    todo = list(_boxes(scores, math.ceil(scores.size / boxes)))

    def work(number: int) -> S:
        share = start()
        for box in todo[number::workers]:
            share.add(*box)
        return share

    if workers == 1:
        return work(0)
    with ThreadPoolExecutor(workers) as pool:  # torch and numpy release the interpreter's lock
        total, *others = pool.map(work, range(workers))
    for share in others:
        total.merge(share)
    return total


class _Comparison:
    """Items above each of a few entries, each compared with all items.

    Attributes:
        found: [reading, row, place] items above under the readings "optimistic", "index", "pessimistic".
    """

    def __init__(self, ordered: Array, column: Array, items: _Items) -> None:
        self.ordered, self.column, self.items = ordered, column, items
        self.found = np.zeros((3, *ordered.shape), dtype=np.int64)
        self._flag = np.empty(0, dtype=bool)

    def merge(self, other: _Comparison) -> None:
        """Add what another worker found."""
        self.found += other.found

    def add(self, rows: slice, items: slice) -> None:
        """Go through a box of the items."""
        if len(self._flag) < items.stop - items.start:
            self._flag = np.empty(items.stop - items.start, dtype=bool)
        flag = self._flag[: items.stop - items.start]
        for row in range(rows.start, rows.stop):
            x = self.items.scores[row, items]
            absent = self.items.absent_from(slice(row, row + 1), items)
            if absent is not None and len(absent):
                x = x.copy()
                x[absent] = -np.inf
            for place, (entry, column) in enumerate(zip(self.ordered[row], self.column[row], strict=True)):
                if entry == np.inf:
                    break
                better = np.count_nonzero(np.greater(x, -entry, out=flag))
                as_good = np.count_nonzero(np.greater_equal(x, -entry, out=flag))
                lower = better
                if as_good > better:
                    lower += np.count_nonzero(x[: max(column + 1 - items.start, 0)] == -entry)
                self.found[:, row, place] += better, lower, as_good


def _compared(ordered: Array, column: Array, items: _Items) -> Above:
    above = _through(items.scores, TILE, lambda: _Comparison(ordered, column, items)).found
    optimistic, index, pessimistic = map(torch.from_numpy, above)
    if torch.equal(optimistic, pessimistic):
        return Above(index)
    return Above(index, lambda ties: pessimistic if ties == "pessimistic" else optimistic)


class _Cells:
    """The items of some rows in equal cells over the range of their scores.

    Attributes:
        per_row: cells of a row: the first holds what is above the range, then equal ones, one for what is below.
        nowhere: the last cell of a row, for what is absent.
        upto: [1 + row x cell] items in that many cells, once a pass over the items has been made.
    """

    def __init__(self, items: _Items, cells: int) -> None:
        self.items, self.scores = items, items.scores
        self.nowhere, self.per_row = cells + 2, cells + 3
        self.low, self.scale = _fitted(self.scores, cells)
        self.upto: Array | None = None
        self._size = max(TILE, 4 * self.per_row)  # of a box of items

    def locate(self, x: Array, rows: slice, position: Array, cell: Array) -> None:
        """Write the cell of each score of these rows."""
        # One sum and one product, each rounded: both are monotone. So is cutting off at the ends and after the point.
        with np.errstate(over="ignore"):
            np.add(x, self.low[rows], out=position)
            np.multiply(position, self.scale[rows], out=position)
        position.clip(0, self.nowhere - 1, out=position)
        np.copyto(cell, position, casting="unsafe")

    def above(self, entries: _Entries, worth: Array | None = None, out: Array | None = None) -> Above:
        """The items above each entry; the worth of the places of the items goes to `out`."""
        table = entries.occupied if worth is None else entries.by_cell(worth)
        total = _through(self.scores, self._size, lambda: _Pass(self, entries, table, worth, out))
        if self.upto is None:
            assert total.count is not None
            self.upto = np.concatenate([[0], np.cumsum(total.count, out=total.count)])
        index = entries.earlier(self.upto) + entries.above(total.searched)

        moved = total.moved
        if moved is None:
            return Above(torch.from_numpy(index))

        def other(ties: Ties) -> Tensor:
            return torch.from_numpy(index + entries.above(moved[1 if ties == "optimistic" else 0]))

        return Above(torch.from_numpy(index), other)

    def look_up(self, entries: _Entries, worth: Array, out: Array) -> list[Array]:
        """Write the worth of the places of the items to `out`; returns the positions of items level with entries."""
        table = entries.by_cell(worth)
        run = _through(self.scores, self._size, lambda: _Pass(self, entries, table, worth, out, look_up_only=True))
        return run.level


def _fitted(scores: Array, cells: int) -> tuple[Array, Array]:
    """([row, 1] addend, [row, 1] factor) that lead from a score to its cell.

    The cells cover the bulk of the items and half as much on either side. Any range gives the same counts.
    """
    items = scores.shape[1]
    sample = -scores[:, (SAMPLE * items).astype(np.intp)].astype(np.float64)
    sample = np.where(sample < np.inf, sample, sample.min(1, keepdims=True))
    sample.sort(axis=1)
    cut = sample.shape[1] // 64
    least, low, high, most = np.where(np.isfinite(sample), sample, 0.0)[:, [0, cut, -1 - cut, -1]].T
    bulk, whole = high / 2 - low / 2, most / 4 - least / 4
    limits = np.finfo(scores.dtype)
    with np.errstate(over="ignore"):
        low, high = np.maximum(low - bulk, least - whole), np.minimum(high + bulk, most + whole)
        low, high = np.maximum(low, limits.min), np.minimum(high, limits.max)
        width = np.minimum(np.maximum(high / cells - low / cells, 4 * float(limits.tiny)), float(limits.max) / 4)
        low = np.maximum(low - width, limits.min)
    return low.astype(scores.dtype)[:, None], (-1 / width).astype(scores.dtype)[:, None]


class _Entries:
    """Sorted entries of some rows and where they lie in the cells.

    Places and cells of all rows are numbered through. To a row belong `stride` places: its entries, then NaN, with
    which every comparison fails, so that a search never leaves its row.
    """

    def __init__(self, ordered: Array, column: Array, cells: _Cells) -> None:
        rows, self.width = ordered.shape
        self.column = column
        absent = ordered == np.inf
        cell = np.empty(ordered.shape, dtype=np.int32)
        cells.locate(-ordered, slice(None), np.empty_like(ordered), cell)
        cell[absent] = cells.nowhere
        # [row, 1 + place] cells, and first of all the one before the row begins
        number = np.empty((rows, 1 + self.width), dtype=np.intp)
        number[:, 0] = -1
        number[:, 1:] = cell
        number = (number + np.arange(0, rows * cells.per_row, cells.per_row)[:, None]).ravel()
        # A group is the entries of one cell: its first entry, its size, its cell, whether it is one at all.
        fresh = np.ones(len(number), dtype=bool)
        np.not_equal(number[1:], number[:-1], out=fresh[1:])
        begin = np.flatnonzero(fresh)
        self._size, self._cell = _gaps(begin, len(number)), number[begin]
        row, place = np.divmod(begin, 1 + self.width)
        self._real = (place > 0) & (self._cell - row * cells.per_row < cells.nowhere)
        real = self._cell[self._real]
        self.steps = _steps(int(self._size[self._real].max(initial=0)))
        self.stride = self.width + 1 + sum(self.steps)
        self.occupied = np.zeros(rows * cells.per_row, dtype=bool)
        self.occupied[real] = True
        # [row x cell] place of the first entry of an occupied cell, meaningless elsewhere
        self.first = np.zeros(rows * cells.per_row, dtype=np.int32)
        self.first[real] = (row * self.stride + place - 1)[self._real]
        self.values = np.full((rows, self.stride), np.nan, dtype=ordered.dtype)
        np.copyto(self.values[:, : self.width], ordered, where=~absent)

    @cached_property
    def columns(self) -> Array:
        """[place] columns of the entries."""
        columns = np.zeros(self.values.shape, dtype=self.column.dtype)
        columns[:, : self.width] = self.column
        return columns.ravel()

    def above(self, counted: Array) -> Array:
        """[row, place] those at this place or before it, of so many found at each."""
        summed: Array = counted.reshape(self.values.shape).cumsum(1)
        return summed[:, : self.width]

    def by_cell(self, worth: Array) -> Array:
        """[row x cell] the worth of an item in the cell, `_unsure` where entries lie in the cell too."""
        # the worth changes behind every group
        values = worth.reshape(-1)[np.cumsum(self._size) - 1]
        table = np.repeat(values, _gaps(self._cell + 1, len(self.occupied)))
        table[self._cell[self._real]] = _unsure(worth)
        return table

    def earlier(self, upto: Array) -> Array:
        """[row, place] items in earlier cells of the row that hold no entries; upto[i]: items in the first i cells."""
        here = upto[self._cell + 1]
        inside = np.where(self._real, here - upto[self._cell], 0)
        free: Array = np.repeat(here - np.cumsum(inside), self._size).reshape(-1, 1 + self.width)
        return free[:, 1:] - free[:, :1]


_ONE = torch.ones(1, dtype=torch.long)


def _gaps(starts: Array, end: int) -> Array:
    """Lengths of the parts that start there, the last up to `end`."""
    gaps = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=gaps[:-1])
    gaps[-1:] = end - starts[-1:]
    return gaps


def _unsure(worth: Array) -> float:
    """What stands for an unknown worth: NaN, and -1 for counts."""
    return np.nan if worth.dtype.kind == "f" else -1


def _taken(array: Array, index: Array) -> Array:
    """array[index]; torch's look-up is twice as fast as numpy's and takes narrow indices as they are."""
    return torch.from_numpy(array).index_select(0, torch.from_numpy(index)).numpy()


class _Pass:
    """One worker's share of a pass over the items, and what it found there.

    Attributes:
        count: [row x cell] items; None if they have been counted before or only places are looked up.
        searched: [row x place] items that were searched for.
        moved: [2, row x place] what changes about that where level items stand before or behind the entries.
        level: positions of the items that are level with entries, if only places are looked up.
    """

    def __init__(
        self,
        cells: _Cells,
        entries: _Entries,
        table: Array,
        worth: Array | None,
        out: Array | None,
        look_up_only: bool = False,
    ) -> None:
        self.cells, self.entries, self.out = cells, entries, out
        self._table, self._look_up_only = table, look_up_only
        self._worth: Array | None = None
        if worth is not None:
            self._worth = np.zeros(entries.values.shape, dtype=worth.dtype)
            self._worth[:, : worth.shape[1]] = worth
            self._worth = self._worth.ravel()
        self.count: Array | None = None
        if cells.upto is None and not look_up_only:
            self.count = np.zeros(len(entries.occupied), dtype=np.int64)
        self.searched = np.zeros(entries.values.size, dtype=np.int64)
        self.moved: Array | None = None
        self.level: list[Array] = []
        self._position = np.empty(0, dtype=cells.scores.dtype)
        self._cell, self._flag = np.empty(0, dtype=np.int32), np.empty(0, dtype=bool)

    def merge(self, other: _Pass) -> None:
        """Add what another worker found."""
        if self.count is not None and other.count is not None:
            self.count += other.count
        if other.moved is not None:
            self.moved = other.moved if self.moved is None else self.moved + other.moved
        self.searched += other.searched
        self.level += other.level

    def add(self, rows: slice, items: slice) -> None:
        """Go through a box of the items."""
        cells = self.cells
        x = cells.scores[rows, items]
        if x.size > len(self._cell):
            self._position = np.empty(x.size, dtype=x.dtype)
            self._cell, self._flag = np.empty(x.size, dtype=np.int32), np.empty(x.size, dtype=bool)
        cell = self._cell[: x.size]
        matrix = cell.reshape(x.shape)
        cells.locate(x, rows, self._position[: x.size].reshape(x.shape), matrix)
        absent = cells.items.absent_from(rows, items)
        if absent is not None:
            cell[absent] = cells.nowhere
        if len(x) > 1:
            matrix += np.arange(0, len(x) * cells.per_row, cells.per_row, dtype=np.int32)[:, None]
        here = slice(rows.start * cells.per_row, rows.stop * cells.per_row)
        # look-ups and counts by torch: numpy would first widen the numbers
        number = torch.from_numpy(cell)
        if self.count is not None:
            count = torch.from_numpy(self.count[here])
            if torch.get_num_threads() == 1:
                count += torch.bincount(number, minlength=len(count))
            else:  # bincount looks at the numbers with threads of its own, and each of our workers would have them
                count.index_add_(0, number, _ONE.expand(x.size))
        flags = self._flag[: x.size] if self.out is None else self.out[rows, items].reshape(-1)
        torch.index_select(torch.from_numpy(self._table[here]), 0, number, out=torch.from_numpy(flags))
        if self.out is None:
            unsure = np.flatnonzero(flags)
        else:
            unsure = np.flatnonzero(np.isnan(flags) if flags.dtype.kind == "f" else flags < 0)
        if len(unsure):
            place = self._search(x.reshape(-1), cell, unsure, rows, items)
            if self._worth is not None:
                flags[unsure] = _taken(self._worth, place)

    def _search(self, x: Array, cell: Array, unsure: Array, rows: slice, items: slice) -> Array:
        """Places of the items that share their cell with entries."""
        entries, stride = self.entries, self.entries.stride
        values = entries.values.ravel()
        x = -_taken(x, unsure)
        place = _taken(entries.first[rows.start * self.cells.per_row :], _taken(cell, unsure))
        for step in entries.steps:
            place += (_taken(values, place + np.int32(step - 1)) < x) * np.int32(step)
        level = np.flatnonzero(_taken(values, place) == x)
        if len(level):
            # of the level entries, which all lie in one cell, those of lower column stand above the item
            x, first, position = x[level], place[level].astype(np.intp), unsure[level]
            row, column = np.divmod(position, items.stop - items.start)
            row, column = row + rows.start, column + items.start
            mine, end = first.copy(), first.copy()
            for step in entries.steps:
                probe = mine + (step - 1)
                mine += ((values[probe] == x) & (entries.columns[probe] < column)) * step
                end += (values[end + (step - 1)] == x) * step
            place[level] = mine
            if self._look_up_only:
                self.level.append(row * self.cells.scores.shape[1] + column)
            else:
                if self.moved is None:
                    self.moved = np.zeros((2, len(self.searched)), dtype=np.int64)
                for moved, instead in zip(self.moved, (first, end), strict=True):
                    np.add.at(moved, instead, 1)
                    np.add.at(moved, mine, -1)
        if not self._look_up_only:
            here = slice(rows.start * stride, rows.stop * stride)
            self.searched[here] += np.bincount(place - here.start, minlength=here.stop - here.start)
        return place
