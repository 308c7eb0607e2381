"""Data sets packed as one npz file of arrays."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from ..files import shown


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Arrays of an npz file; nothing in it is executed.

    Raises:
        ValueError: if it is damaged, or lacks an array; it names the file.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            held = sorted(file.files)
            found = {name: file[name] for name in names if name in held}
    except (OSError, ValueError, EOFError, MemoryError, zlib.error, BadZipFile, AttributeError) as error:
        raise ValueError(f"{shown(path)} can't be read ({shown(error)}); was it copied to its end?") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{shown(path)} lacks the arrays {missing}; it holds {held}")
    return found
