"""What a file of whole columns holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Chosen = Callable[[str], bool]  # whether a column of this name is meant


def objects(values: Sequence[Any]) -> Array:
    """[row] Python objects. Of lists, numpy alone would make a matrix."""
    return np.array([*values, None], dtype=object)[:-1]


@dataclass(frozen=True, eq=False)
class Arrays:
    """The columns of a file.

    Attributes:
        values: name -> [row] or [row, width]: numbers, texts or Python objects, with None or NaN where one is missing.
        unread: names of the columns that were not read.
        rows: [row] number of each row in the file; None: they are counted from 0.
        sparse: whether a column that is not in the file is 0 in each row.
    """

    values: Mapping[str, Array]
    unread: tuple[str, ...] = ()
    rows: Array | None = None
    sparse: bool = False
