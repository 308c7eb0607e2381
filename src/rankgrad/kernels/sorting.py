"""Stable radix sort of floating-point rows, 16 bits at a time: several times faster than a comparison sort."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .host import on_host

# Shorter rows are sorted by torch, which starts faster.
RADIX_FROM = 2**11


def sort_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """`values.sort(dim=1, stable=True)`: ascending rows, ties in the given order, and the original indices.

    Args:
        values: [row, place] float, no NaN.

    >>> sort_rows(torch.tensor([[2.0, -1.0, 2.0]]))
    (tensor([[-1.,  2.,  2.]]), tensor([[1, 0, 2]]))
    """
    plain = not on_host(values) or values.dtype not in (torch.float32, torch.float64)
    if plain or values.shape[1] < RADIX_FROM:
        sort = values.sort(dim=1, stable=True)
        return sort.values, sort.indices
    whole = np.int32 if values.dtype == torch.float32 else np.int64
    array = np.ascontiguousarray(values.numpy())
    bits = (array + array.dtype.type(0)).view(whole)  # adding 0 makes -0.0 and 0.0 equal
    # of two negative numbers, the one with larger bits is smaller
    digits = (bits ^ (bits >> whole(-1 + 8 * bits.itemsize) & np.iinfo(whole).max) ^ np.iinfo(whole).min).view(
        np.uint16
    )
    digits = digits.reshape(*bits.shape, -1)[:, :, :: 1 if np.little_endian else -1]
    order = np.empty(bits.shape, dtype=np.int64)
    for row, to in zip(digits, order, strict=True):
        to[:] = np.argsort(row[:, 0], kind="stable")  # numpy uses a counting sort for 16 bits
        for digit in range(1, row.shape[1]):
            to[:] = to[np.argsort(row[to, digit], kind="stable")]
    index = torch.from_numpy(order)
    return values.gather(1, index), index
