"""Rows of length 1, for cosine similarity: with gradient in training, without for references and galleries."""

from __future__ import annotations

import torch
from torch import Tensor

from .lists import asynchronous

# For rows with a length in this range, squares of entries neither overflow nor underflow in float32.
SHORT, LONG = 1e-12, 1e12


def unit_rows(rows: Tensor) -> Tensor:
    """Rows divided by their length. A zero row stays zero. No finite row overflows or underflows.

    Args:
        rows: [row, dim] float32 or float64, finite.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000],
            [0.6000, 0.8000]])
    """
    if rows.shape[1] == 0:
        return rows
    if rows.requires_grad or asynchronous(rows):  # a branch on values would break the graph, or wait for the device
        return _safely(rows)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit: Tensor = rows / length.clamp(min=SHORT)
    odd = ((length < SHORT) | (length > LONG)).squeeze(1)
    if odd.any():
        unit[odd] = _safely(rows[odd])
    return unit


def _safely(rows: Tensor) -> Tensor:
    """Rows divided by their length. They are divided by their largest entry first, so that squares stay in range."""
    largest = rows.detach().abs().amax(1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit: Tensor = rows / torch.where(length > 0, length, 1)
    return unit
