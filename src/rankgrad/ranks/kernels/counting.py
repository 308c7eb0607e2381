r"""Exact number of items above each of some sorted entries, and a table value for the place of each item among them.

The place of an item is the number of entries above it. `torch.searchsorted` finds it, but for n items and p entries it
takes n log p unpredictable branches. On a CPU, equal cells over the range of the scores are faster. Score -> cell is
monotone also in floating point, so an item in an earlier cell than an entry is above it. Such items are counted by cell
and never compared. Only items whose cell contains entries, a few per cent, are searched, and only among the entries of
that cell.
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

# With fewer scores than this, searchsorted is faster than to make the cells.
CELLS_FROM = 2**16
# Largest number of cells of one row (more do not fit into the cache), and of all rows that are counted together.
MOST_CELLS, TABLE = 2**18, 2**20
# Number of scores that go through all passes together: few enough for the cache, enough to make a call worthwhile.
TILE = 2**18
# Rows with at most FEW relevant entries and at least LONG items are compared directly. Short inputs allow more entries:
# to make the cells costs as much as to compare `MAKING` scores.
FEW, LONG, MAKING = 8, 2**14, 2**20
# Smallest number of scores for another thread.
PER_THREAD = 2**17
# Number of scores searched together with searchsorted. It limits the temporaries, about 50 bytes per score.
PLAIN = 2**22
# Relative positions of the items of a row that give the range of the cells; irregular, in case the items are ordered.
SAMPLE = np.arange(256) * 0.6180339887498949 % 1


@dataclass(frozen=True)
class Above:
    """Number of items above each entry.

    Attributes:
        index: [row, place] long; of tied items those of lower column (or of the entry's own) are above.
        other: the counts under another rule for ties; None if no item is tied with an entry.
    """

    index: Tensor
    other: Callable[[Ties], Tensor] | None = None

    def under(self, ties: Ties) -> Tensor:
        """[row, place] long; "pessimistic": a tied item is above, "optimistic": it is not."""
        return self.index if ties == "index" or self.other is None else self.other(ties)


def count_below(ordered: Tensor, scores: Scores, *, right: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Per row, number of sorted entries smaller than each negated score, and the scores that are tied with an entry.

    Args:
        ordered: [row, place] ascending negated scores; +inf is padding.
        scores: [row, item] of the same dtype, finite. They are negated here, so the caller needs no copy of the matrix.
        right: whether to count entries that are smaller or equal.

    Returns:
        count: [row, item] int32, equal to torch.searchsorted(ordered, -scores, right=right).
        row, item: long, positions where a negated score equals an entry.

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
    # a tied entry counts if its column is lower than the item's: make all columns lower, or none
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
    """Counts the items of some lists above sorted entries. It can be used for several sets of entries.

    Args:
        scores: [row, item] float, -inf or finite; -inf is below all entries.
        absent: items that do not count: [row, item] bool, or long, ascending positions row x items + column. None: all
            items count.
        may_wait: whether the host may wait for a GPU to read if there are ties; without ties there is less to do.

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
        """Count the items above each entry, and look up the table value `worth` for the place of each item.

        The place of an item is the number of entries above it. Of tied entries, those of lower column are above it.

        Args:
            ordered: [row, place] ascending negated scores of the entries, ties by column; +inf is padding.
            column: [row, place] long, columns of the entries, -1 .. item.
            worth: [row, place + 1] table of values, no NaN.

        Returns:
            The counts; and [row, item] the table value of each item (undefined for absent items).
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
        # numpy asks the system for large pages, torch does not; to allocate small pages takes longer than the counting
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
    """The counts of consecutive parts of the rows as one."""
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
    """`Counter.above` with searchsorted. The host waits for a GPU only with `may_wait`."""
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
    """Counts with ties by column, with ties and without; and the worth of the items, whose first column is `start`."""
    places = _places(ordered, column, scores, start, may_wait)
    counts = [_summed(at, absent, ordered.shape[1]) for at in places]
    return counts if len(counts) == 3 else 3 * counts, None if worth is None else worth.gather(1, places[0])


def _places(ordered: Tensor, column: Tensor, scores: Scores, start: int, may_wait: bool) -> list[Tensor]:
    """[row, item] places of the items: by column among tied entries, before them, and after them; one if no ties."""
    width = ordered.shape[1]
    x = scores.neg().contiguous()
    first = torch.searchsorted(ordered, x)
    level = (ordered.gather(1, first.clamp(max=width - 1)) == x).logical_and_(x < torch.inf)
    if (may_wait or on_host(x)) and not bool(level.any()):
        return [first]
    end = torch.where(level, torch.searchsorted(ordered, x, right=True), first)
    # number of tied entries of lower column: a binary search in steps of powers of two
    item = torch.arange(start, start + x.shape[1], device=x.device)
    columns = torch.cat([column, column.new_zeros(len(x), 1)], 1)
    place = first
    for step in _steps(width):
        probe = place + (step - 1)
        lower = columns.gather(1, probe.clamp(max=width)) < item
        place = place + step * ((probe < end) & lower)
    return [place, first, end]


def _summed(place: Tensor, absent: Tensor | None, width: int) -> Tensor:
    """[row, place] number of items at this place or before it."""
    place = place if absent is None else place.masked_fill(absent, width)
    histogram = place.new_zeros(len(place), width + 1).scatter_add_(1, place, place.new_ones(1).expand_as(place))
    return histogram.cumsum(1)[:, :width]


def _steps(most: int) -> list[int]:
    """Descending powers of two whose sum is at least `most`."""
    return [2**k for k in reversed(range(most.bit_length()))]


@dataclass(frozen=True)
class _Items:
    """Scores of some rows, and their absent items; see `Counter`."""

    scores: Array
    absent: Array | None

    @classmethod
    def of(cls, scores: Scores, absent: Tensor | None) -> _Items:
        """The items of tensors."""
        return cls(scores.numpy(), None if absent is None else absent.numpy())

    def rows(self, rows: slice) -> _Items:
        """Some of the rows."""
        if self.absent is None or self.absent.dtype == bool:
            return _Items(self.scores[rows], None if self.absent is None else self.absent[rows])
        start, end = (at * self.scores.shape[1] for at in (rows.start, rows.stop))
        return _Items(self.scores[rows], self._between(start, end))

    def absent_from(self, rows: slice, items: slice) -> Array | None:
        """Positions of the absent items within a box."""
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
    """Parts of the rows and their cells, for about `entries` entries per row."""
    rows, width = items.scores.shape
    # the cost of a cell is about the additional cost of an item whose cell contains entries
    count = int(min(2 * math.sqrt(entries * width), 512 * entries, width, MOST_CELLS))
    size = max(TABLE // max(count, entries), 1)
    for start in range(0, rows, size):
        part = slice(start, min(start + size, rows))
        yield part, _Cells(items.rows(part), count)


def _boxes(scores: Array | Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Cut a matrix into boxes of about `size` elements: several whole rows, or a part of one row."""
    rows, items = scores.shape
    height, width = max(size // max(items, 1), 1), max(min(size, items), 1)
    for top in range(0, rows, height):
        for left in range(0, items, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, items))


class _Share(Protocol):
    """The work of one thread on its part of the items."""

    def add(self, rows: slice, items: slice) -> None:
        """Process a box of the items."""

    def merge(self, other: Any) -> None:
        """Add the result of another thread."""


S = TypeVar("S", bound=_Share)


def _through(scores: Array, size: int, start: Callable[[], S]) -> S:
    """Process all items in boxes of about this size, with as many threads as torch uses."""
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
    with ThreadPoolExecutor(workers) as pool:  # torch and numpy release the interpreter lock
        total, *others = pool.map(work, range(workers))
    for share in others:
        total.merge(share)
    return total


class _Comparison:
    """Number of items above each of a few entries, by comparing each entry with all items.

    Attributes:
        found: [rule, row, place] number of items above, for the rules for ties "optimistic", "index", "pessimistic".
    """

    def __init__(self, ordered: Array, column: Array, items: _Items) -> None:
        self.ordered, self.column, self.items = ordered, column, items
        self.found = np.zeros((3, *ordered.shape), dtype=np.int64)
        self._flag = np.empty(0, dtype=bool)

    def merge(self, other: _Comparison) -> None:
        """Add the result of another thread."""
        self.found += other.found

    def add(self, rows: slice, items: slice) -> None:
        """Process a box of the items."""
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
    """The items of some rows, in equal cells over the range of their scores.

    Attributes:
        per_row: number of cells of a row: one for scores above the range, equal cells, one for scores below the range,
            one for absent items.
        nowhere: the last cell of a row, for absent items.
        upto: [1 + row x cell] number of items in all earlier cells; None before the first pass over the items.
    """

    def __init__(self, items: _Items, cells: int) -> None:
        self.items, self.scores = items, items.scores
        self.nowhere, self.per_row = cells + 2, cells + 3
        self.low, self.scale = _fitted(self.scores, cells)
        self.upto: Array | None = None
        self._size = max(TILE, 4 * self.per_row)  # size of a box of items

    def locate(self, x: Array, rows: slice, position: Array, cell: Array) -> None:
        """Write the cell of each score of these rows."""
        # one rounded sum and one rounded product: both are monotone, and so are clipping and truncation
        with np.errstate(over="ignore"):
            np.add(x, self.low[rows], out=position)
            np.multiply(position, self.scale[rows], out=position)
        position.clip(0, self.nowhere - 1, out=position)
        np.copyto(cell, position, casting="unsafe")

    def above(self, entries: _Entries, worth: Array | None = None, out: Array | None = None) -> Above:
        """Number of items above each entry. Writes the worth of each item's place to `out`."""
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
        """Write the worth of each item's place to `out`. Returns the positions of items that are tied with entries."""
        table = entries.by_cell(worth)
        run = _through(self.scores, self._size, lambda: _Pass(self, entries, table, worth, out, look_up_only=True))
        return run.level


def _fitted(scores: Array, cells: int) -> tuple[Array, Array]:
    """([row, 1] addend, [row, 1] factor) that map a score to its cell.

    The cells cover the range of most items, and half as much on either side. Any range gives the same counts.
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
    """Sorted entries of some rows, and their cells.

    Places and cells are numbered consecutively over all rows. A row has `stride` places: its entries, then NaN. Every
    comparison with NaN is false, so a search never leaves its row.
    """

    def __init__(self, ordered: Array, column: Array, cells: _Cells) -> None:
        rows, self.width = ordered.shape
        self.column = column
        absent = ordered == np.inf
        cell = np.empty(ordered.shape, dtype=np.int32)
        cells.locate(-ordered, slice(None), np.empty_like(ordered), cell)
        cell[absent] = cells.nowhere
        # [row, 1 + place] cells; column 0 is the cell before the row begins
        number = np.empty((rows, 1 + self.width), dtype=np.intp)
        number[:, 0] = -1
        number[:, 1:] = cell
        number = (number + np.arange(0, rows * cells.per_row, cells.per_row)[:, None]).ravel()
        # a group is the entries of one cell: its first entry, its size, its cell, and whether it has entries
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
        # [row x cell] place of the first entry of an occupied cell, undefined elsewhere
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
        """[row, place] number of items at this place or before it, from the number at each place."""
        summed: Array = counted.reshape(self.values.shape).cumsum(1)
        return summed[:, : self.width]

    def by_cell(self, worth: Array) -> Array:
        """[row x cell] the worth of an item in the cell, `_unsure` if the cell also contains entries."""
        # the worth changes after every group
        values = worth.reshape(-1)[np.cumsum(self._size) - 1]
        table = np.repeat(values, _gaps(self._cell + 1, len(self.occupied)))
        table[self._cell[self._real]] = _unsure(worth)
        return table

    def earlier(self, upto: Array) -> Array:
        """[row, place] number of items in earlier cells without entries; upto[i]: items in the first i cells."""
        here = upto[self._cell + 1]
        inside = np.where(self._real, here - upto[self._cell], 0)
        free: Array = np.repeat(here - np.cumsum(inside), self._size).reshape(-1, 1 + self.width)
        return free[:, 1:] - free[:, :1]


_ONE = torch.ones(1, dtype=torch.long, device="cpu")


def _gaps(starts: Array, end: int) -> Array:
    """Lengths of the parts that begin at `starts`; the last part ends at `end`."""
    gaps = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=gaps[:-1])
    gaps[-1:] = end - starts[-1:]
    return gaps


def _unsure(worth: Array) -> float:
    """The mark for an unknown worth: NaN for floats, -1 for counts."""
    return np.nan if worth.dtype.kind == "f" else -1


def _taken(array: Array, index: Array) -> Array:
    """array[index]. torch is twice as fast here as numpy, and need not widen narrow indices."""
    return torch.from_numpy(array).index_select(0, torch.from_numpy(index)).numpy()


class _Pass:
    """The part of one thread of a pass over the items, and its result.

    Attributes:
        count: [row x cell] number of items; None if they were counted before, or if only places are looked up.
        searched: [row x place] number of items that were searched and have this place.
        moved: [2, row x place] change of `searched` if tied items are placed before or after the entries.
        level: positions of the items that are tied with entries, if only places are looked up.
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
        """Add the result of another thread."""
        if self.count is not None and other.count is not None:
            self.count += other.count
        if other.moved is not None:
            self.moved = other.moved if self.moved is None else self.moved + other.moved
        self.searched += other.searched
        self.level += other.level

    def add(self, rows: slice, items: slice) -> None:
        """Process a box of the items."""
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
        # torch looks up and counts directly; numpy would first widen the numbers
        number = torch.from_numpy(cell)
        if self.count is not None:
            count = torch.from_numpy(self.count[here])
            if torch.get_num_threads() == 1:
                count += torch.bincount(number, minlength=len(count))
            else:  # bincount uses threads of its own: each of our threads would start some
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
        """Places of the items whose cells contain entries."""
        entries, stride = self.entries, self.entries.stride
        values = entries.values.ravel()
        x = -_taken(x, unsure)
        place = _taken(entries.first[rows.start * self.cells.per_row :], _taken(cell, unsure))
        for step in entries.steps:
            place += (_taken(values, place + np.int32(step - 1)) < x) * np.int32(step)
        level = np.flatnonzero(_taken(values, place) == x)
        if len(level):
            # tied entries are all in one cell; those of lower column are above the item
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
