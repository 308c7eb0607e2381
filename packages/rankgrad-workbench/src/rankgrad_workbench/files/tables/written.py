"""Write columns as a csv, a tsv or a parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import atomic_write, write_text


def write_columns(out: Path, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]], sign: str = ",") -> None:
    """Write a table; an existing file is replaced when the new one is complete.

    Args:
        out: the file; .parquet is written by pyarrow, any other name as text.
        columns: name -> [row] values; None is an empty cell.
        sign: separator of the columns of a text.
    """
    lists = {name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    if out.suffix.lower() != ".parquet":
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=sign, lineterminator="\n")
        writer.writerow(lists)
        writer.writerows(zip(*lists.values(), strict=True))
        write_text(out, text.getvalue())
        return
    import pyarrow
    from pyarrow import parquet

    with atomic_write(out) as file:
        parquet.write_table(pyarrow.table(dict(columns)), file)
