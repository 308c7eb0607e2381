r"""`torch.searchsorted` for many unsorted values: a uniform grid answers most of them by one table look-up.

A binary search of n random values in p sorted ones is n log p unpredictable branches. The grid lays equal cells over
the sorted values; a value in a cell without any of them has its count in a table, exactly, because
x -> (x - low) * scale is monotone in floating point too. Only values in occupied cells are compared, nearly always with
one entry: a few per cent.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Below this length the table costs more than it saves.
GRID_FROM = 2**14
# Cells per sorted value: sparse enough that few cells are occupied, small enough for the second-level cache.
CELLS_PER_VALUE, MIN_CELLS, MAX_CELLS = 16, 2**12, 2**19
# Values handled at once: few enough for the passes over them to stay in the cache, enough to make each worth its call.
TILE = 2**17


def count_below(ordered: Tensor, scores: Tensor, *, right: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Per row, how many sorted entries are smaller than each negated score, and which of these are level with an entry.

    Args:
        ordered: [row, place] ascending negated scores; +inf pads.
        scores: [row, item] of the same dtype, finite. Negating them here spares the caller a copy of the matrix.
        right: count entries that are smaller or level.

    Returns:
        count: [row, item] integers, as narrow as the number of places allows; equal to
            torch.searchsorted(ordered, -scores, right=right).
        row, item: long, where a negated score is level with an entry.

    >>> count, row, item = count_below(torch.tensor([[1.0, 2.0]]), torch.tensor([[-0.5, -2.0, -3.0]]))
    >>> count, item
    (tensor([[0, 1, 2]], dtype=torch.int32), tensor([1]))
    """
    ordered = ordered.contiguous()
    if scores.shape[1] < GRID_FROM or scores.device.type != "cpu" or ordered.shape[1] == 0:
        values = scores.neg().contiguous()
        count = torch.searchsorted(ordered, values, right=right, out_int32=True)
        first = torch.searchsorted(ordered, values, out_int32=True) if right else count
        if ordered.shape[1] == 0:
            return count, *first.new_zeros(2, 0, dtype=torch.long)
        entry = ordered.gather(1, first.clamp(max=ordered.shape[1] - 1).long())
        row, item = ((entry == values) & (values < torch.inf)).nonzero(as_tuple=True)
        return count, row, item
    # On long lists fresh memory costs more than the arithmetic.
    narrow = next(t for t in (torch.int8, torch.int16, torch.int32) if ordered.shape[1] < torch.iinfo(t).max)
    count = torch.empty(scores.shape, dtype=narrow)
    rows, items = [], []
    for index in range(len(scores)):
        level = _row(ordered[index], scores[index], right, count[index])
        items.append(level)
        rows.append(torch.full_like(level, index))
    return count, torch.cat(rows), torch.cat(items)


def _row(ordered: Tensor, scores: Tensor, right: bool, count: Tensor) -> Tensor:
    """Fill `count` for one row; return the items that are level with an entry."""
    entries = ordered[: int(torch.searchsorted(ordered, torch.inf))]
    levels = [torch.zeros(0, dtype=torch.long)]
    if len(entries) == 0:
        count.zero_()
        return levels[0]
    low, high = float(entries[0]), float(entries[-1])
    cells = min(max(CELLS_PER_VALUE * len(entries), MIN_CELLS), MAX_CELLS)
    scale = cells / max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-30)
    size = min(max(len(scores), len(entries)), TILE)
    position, cell = scores.new_empty(size), torch.empty(size, dtype=torch.int32)

    def locate(x: Tensor, factor: float) -> Tensor:
        # Product and sum are rounded one after the other, so both are monotone: a smaller x is never in a later cell.
        # Cell 0 holds what is below all entries, cell `cells` + 2 what is above.
        torch.mul(x, factor, out=position[: len(x)]).add_(1 - low * scale).clamp_(0, cells + 2)
        return cell[: len(x)].copy_(position[: len(x)])

    # [cell] entries in earlier cells, inverted (so negative) where the cell itself has entries.
    occupied = torch.cat([locate(part, scale).long() for part in torch.split(entries, TILE)])
    table = torch.zeros(cells + 4, dtype=torch.int32)
    table.index_add_(0, occupied + 1, table.new_ones(1).expand(len(occupied)))
    torch.cumsum(table, 0, dtype=torch.int32, out=table)
    table.index_copy_(0, occupied, table.index_select(0, occupied).bitwise_not_())
    table = table.to(count.dtype)

    padded = torch.cat([entries, entries.new_full((2,), torch.inf)])
    below = torch.le if right else torch.lt
    for start in range(0, len(scores), TILE):
        tile, answer = scores[start : start + TILE], count[start : start + TILE]
        torch.index_select(table, 0, locate(tile, -scale), out=answer)
        unsure = _where(answer < 0)
        x, at = tile.index_select(0, unsure).neg_(), answer.index_select(0, unsure).bitwise_not_().int()
        found = at + below(padded.index_select(0, at), x)
        crowded = _where(below(padded.index_select(0, at + 1), x))  # more than one entry of the cell is below
        searched = torch.searchsorted(entries, x.index_select(0, crowded), right=right, out_int32=True)
        found.index_copy_(0, crowded, searched)
        answer.index_copy_(0, unsure, found.to(answer.dtype))
        first = (found - 1).clamp_(min=0) if right else found
        levels.append(unsure[padded.index_select(0, first) == x] + start)
    return torch.cat(levels)


def _where(mask: Tensor) -> Tensor:
    """Indices of a sparse mask: numpy skips over zeros, torch looks at each."""
    return torch.from_numpy(np.flatnonzero(mask.numpy()))
