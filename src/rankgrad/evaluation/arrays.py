"""Tensors as numpy arrays, and rows as text."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]
NAMED = 10  # largest number of rows that a note lists


def to_numpy(tensor: Tensor) -> Array:
    """The values on the CPU, without a gradient."""
    array: Array = tensor.detach().cpu().numpy()
    return array


def some(rows: Array) -> str:
    """The first rows, as text."""
    return ", ".join(map(str, rows[:NAMED].tolist())) + (", ..." if len(rows) > NAMED else "")
