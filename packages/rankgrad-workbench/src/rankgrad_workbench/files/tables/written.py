"""Tables and embeddings as they are written: csv, tsv, npz, parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankgrad.common.text import shown

from .. import Pieces, atomic_write, write_npz, write_text

#: Endings of a file of embeddings. Without an ending it is an npz; an index is one, too.
VECTORS = (".npz", ".parquet", ".index", "")


def need_ending(out: Path, endings: Sequence[str], option: str = "") -> None:
    """Raise unless the name of an output ends in one of the formats that are written.

    Args:
        out: the file.
        endings: in small letters with their dot; "" allows a name without an ending.
        option: the option that names the file, such as "-o".

    >>> need_ending(Path("a.csv"), (".npz", ".parquet"), "-o")
    Traceback (most recent call last):
    ValueError: -o a.csv ends in .csv; give a name that ends in .npz or .parquet
    """
    ending = out.suffix.lower()
    if ending not in endings:
        named = f"ends in {shown(ending)}" if ending else "has no ending"
        known = " or ".join(each for each in endings if each)
        raise ValueError(f"{option} {shown(out)} {named}; give a name that ends in {known}".lstrip())


def write_vectors(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a file of embeddings, in the format that its ending says.

    A parquet has a row for each embedding. Its labels are the names of the classes, and what is no column of the rows,
    such as the origin, is in the metadata of its schema.

    Args:
        path: .parquet, or any other name for an npz; an existing file is replaced.
        columns: name -> array; embeddings [row, dim] may be `Pieces`.
    """
    if path.suffix.lower() != ".parquet":
        write_npz(path, columns)
        return
    import pyarrow
    from pyarrow import parquet

    rows = columns["embeddings"].shape[0]
    given = {name: np.asarray(column) for name, column in columns.items() if name != "embeddings"}
    for name, of in (("class_names", "labels"), ("super_names", "super_labels")):
        names = given.pop(name, None)
        if names is not None and names.tolist() == [""]:  # no classes
            del given[of]
        elif names is not None:
            given[of] = _named(given[of], names)
    beside = {name: column for name, column in given.items() if column.shape[:1] != (rows,)}
    about = {name: str(column) for name, column in beside.items()}
    start, writer = 0, None
    with atomic_write(path) as file:
        for piece in _pieces(columns["embeddings"]):
            there = slice(start, start + len(piece))
            vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(piece.ravel()), piece.shape[1])
            rest = {name: column[there].tolist() for name, column in given.items() if name not in beside}
            table = pyarrow.table({"embeddings": vectors, **rest}).replace_schema_metadata(about)
            writer = parquet.ParquetWriter(file, table.schema) if writer is None else writer
            writer.write_table(table)
            start += len(piece)
        if writer is not None:
            writer.close()


def note_of(path: Path, name: str) -> str | None:
    """A text in the metadata of a parquet that `write_vectors` wrote; None: it has none of this name."""
    from pyarrow import parquet

    found = (parquet.read_schema(path).metadata or {}).get(name.encode())
    return None if found is None else found.decode("utf-8", "replace")


def _pieces(embeddings: Any) -> Iterator[npt.NDArray[np.float32]]:
    for piece in embeddings.pieces if isinstance(embeddings, Pieces) else [embeddings]:
        yield np.ascontiguousarray(piece, np.float32)


def _named(labels: npt.NDArray[Any], names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The names of the classes of each row; of rows with several classes, a list."""
    if labels.ndim == 1:
        return np.array(names[labels]) if labels.dtype.kind in "iu" else labels
    listed = np.empty(len(labels), object)
    listed[:] = [names[np.flatnonzero(row)].tolist() for row in labels]
    return listed


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
