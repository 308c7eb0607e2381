r"""`torch.searchsorted` for many unsorted values: a uniform grid answers most of them by one table look-up.

A binary search of n random values in p sorted ones is n log p unpredictable branches. The grid lays equal cells over
the sorted values; a value in a cell without any of them has its count in a table, exactly, because
x -> (x - low) * scale is monotone in floating point too. Only values in occupied cells are searched: a few per cent.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Below this length the table costs more than it saves.
GRID_FROM = 2**14
# Cells per sorted value: sparse enough that few cells are occupied, small enough for the second-level cache.
CELLS_PER_VALUE, MIN_CELLS, MAX_CELLS = 32, 2**12, 2**19
# Values handled at once: the passes over them stay in the second-level cache.
TILE = 2**16


def count_below(ordered: Tensor, values: Tensor, *, right: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Per row, how many sorted entries are smaller than each value, and which values are level with an entry.

    Args:
        ordered: [row, place] ascending; +inf pads.
        values: [row, item] of the same dtype; +inf allowed.
        right: count entries that are smaller or level.

    Returns:
        count: [row, item] int32, equal to torch.searchsorted(ordered, values, right=right).
        row, item: long, where a finite value is level with an entry.

    >>> count, row, item = count_below(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 2.0, 3.0]]))
    >>> count, item
    (tensor([[0, 1, 2]], dtype=torch.int32), tensor([1]))
    """
    ordered, values = ordered.contiguous(), values.contiguous()
    if values.shape[1] < GRID_FROM or values.device.type != "cpu" or ordered.shape[1] == 0:
        count = torch.searchsorted(ordered, values, right=right, out_int32=True)
        first = torch.searchsorted(ordered, values, out_int32=True) if right else count
        if ordered.shape[1] == 0:
            return count, *first.new_zeros(2, 0, dtype=torch.long)
        entry = ordered.gather(1, first.clamp(max=ordered.shape[1] - 1).long())
        row, item = ((entry == values) & (values < torch.inf)).nonzero(as_tuple=True)
        return count, row, item
    count = torch.empty(values.shape, dtype=torch.int32)
    rows, items = [], []
    for index in range(len(values)):
        level = _row(ordered[index], values[index], right, count[index])
        items.append(level)
        rows.append(torch.full_like(level, index))
    return count, torch.cat(rows), torch.cat(items)


def _row(ordered: Tensor, values: Tensor, right: bool, count: Tensor) -> Tensor:
    """Fill `count` for one row; return the items that are level with an entry."""
    entries = ordered[ordered < torch.inf]
    if len(entries) == 0:
        count.fill_(len(ordered) if right else 0)
        if right:  # +inf is not smaller than the pads, but level with them
            count.masked_fill_(values < torch.inf, 0)
        return torch.zeros(0, dtype=torch.long)
    low, high = float(entries[0]), float(entries[-1])
    cells = min(max(CELLS_PER_VALUE * len(entries), MIN_CELLS), MAX_CELLS)
    scale = cells / max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-30)

    def cell(x: Tensor) -> Tensor:
        # Product and sum are rounded one after the other, so both are monotone: a smaller x is never in a later cell.
        # Cell 0 holds what is below all entries, cell `cells` + 2 what is above.
        return (x * scale).add_(1 - low * scale).clamp_(0, cells + 2).to(torch.int32)

    occupancy = torch.bincount(cell(entries), minlength=cells + 3)
    table = (occupancy.cumsum(0) - occupancy).to(torch.int32)
    table.masked_fill_(occupancy > 0, -1)
    levels = [torch.zeros(0, dtype=torch.long)]
    for start in range(0, len(values), TILE):
        tile, answer = values[start : start + TILE], count[start : start + TILE]
        torch.index_select(table, 0, cell(tile), out=answer)
        unsure = (answer < 0).nonzero().squeeze(1)
        searched = tile[unsure]
        first = torch.searchsorted(entries, searched, out_int32=True)
        answer[unsure] = torch.searchsorted(entries, searched, right=True, out_int32=True) if right else first
        level = entries[first.clamp(max=len(entries) - 1).long()] == searched
        levels.append(unsure[level] + start)
    if right:
        count.masked_fill_(values == torch.inf, len(ordered))
    return torch.cat(levels)
