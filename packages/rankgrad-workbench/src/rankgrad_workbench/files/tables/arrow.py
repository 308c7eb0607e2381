"""Whole columns of a parquet or a csv, by pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rankgrad.common.progress import through
from rankgrad.common.text import shown

from .delimited import delimited, sign_of
from .text import MISSING, opened

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


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """A parquet file of pyarrow.

    Raises:
        ValueError: the file is not parquet, or it is damaged, or two columns have one name.
    """
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            twice = next((name for name, count in Counter(file.schema_arrow.names).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{shown(path)} has the column {twice!r} twice")
            yield file
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())  # an error of pyarrow may have several lines
        raise ValueError(f"{shown(path)} is not a parquet file, or it is damaged: {shown(reason)}") from None


def _with_texts(table: Any) -> Any:
    """The table, in which bytes are texts if they are UTF-8."""
    from pyarrow import ArrowInvalid, string, types

    for place, column in enumerate(table.columns):
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
            try:
                texts = column.cast(kind).cast(string())
            except ArrowInvalid:
                continue  # bytes that are no text, such as those of an image
            table = table.set_column(place, table.column_names[place], texts)
    return table


def parquet_arrays(path: Path, wanted: Chosen, words: Chosen) -> Arrays:
    """Columns of a parquet. Lists of numbers become [row, width], bytes of UTF-8 texts; others as in `Arrays`.

    Args:
        path: the file.
        wanted: which columns to read.
        words: which columns keep their whole numbers where some are missing: as floats, large ones are rounded.

    Raises:
        ValueError: the lists of a column have different lengths; also see `opened_parquet`.
    """
    with opened_parquet(path) as file:
        table = _with_texts(file.read())
    names = table.column_names
    values = {name: _array(path, name, table[name], words(name)) for name in names if wanted(name)}
    rows = np.arange(len(table) if names else 0)
    return Arrays(values, tuple(name for name in names if not wanted(name)), rows)


def _array(path: Path, name: str, column: Any, of_words: bool) -> Array:
    # copies, because pyarrow's memory is read-only and torch needs writable memory
    from pyarrow import compute, types

    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        lengths = compute.list_value_length(column).to_numpy().astype(float)  # NaN where there is no list
        other = np.flatnonzero(lengths != lengths[:1])
        if len(other):
            raise ValueError(f"{shown(path)}, row {other[0]}: {name!r} must have the same length as in the first row")
        return np.array(compute.list_flatten(column).to_numpy()).reshape(len(column), -1)
    if types.is_integer(kind) and column.null_count == 0:
        return np.array(column.to_numpy())
    if types.is_floating(kind) or (types.is_integer(kind) and not of_words):
        return np.array(column.cast("float64", safe=False).to_numpy())  # rounds integers above 2**53, as in a csv
    values = column.to_pylist()
    if types.is_decimal(kind):
        return np.array([np.nan if value is None else float(value) for value in values])
    return objects(values)


def parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number from 1 on, column -> value) of every row; some are in memory at a time. Raises as `opened_parquet`."""
    with opened_parquet(path) as file:
        from pyarrow import Table

        batches = (_with_texts(Table.from_batches([batch])) for batch in file.iter_batches(2**12))
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(through(rows, "reading", "row", file.metadata.num_rows), 1)


def csv_arrays(path: Path, wanted: Chosen, words: Chosen, delimiter: str | None) -> Arrays:
    """Columns of a csv with a header: float64 where each cell is a number or a word for a missing one, else texts.

    Args:
        path: the file.
        wanted: which columns to read.
        words: which columns are texts even if each cell is a number.
        delimiter: see `delimited`.

    Raises:
        ValueError: see `delimited`.
    """
    from pyarrow import ArrowException, csv, string

    first, header = next(delimited(path, delimiter), (1, []))
    places = [
        *map(str, range(len(header)))
    ]  # several columns may have no name, such as the empty ones of a spreadsheet
    try:
        with opened(path) as file:
            table = csv.read_csv(
                file,
                csv.ReadOptions(column_names=places, skip_rows=first, block_size=2**22),
                csv.ParseOptions(delimiter=sign_of(path, delimiter)[0], newlines_in_values=True),
                csv.ConvertOptions(column_types=dict.fromkeys(places, string())),
            )
    except (ArrowException, ValueError) as error:
        lines = [line for line, _ in delimited(path, delimiter)]  # names the line
        if len(lines) < 2:
            return Arrays({}, tuple(header), np.array([], np.int64))
        raise ValueError(f"{shown(path)} cannot be read: {shown(' '.join(str(error).split()))}") from None
    rows = np.arange(len(table)) + first + 1
    if _lines_in(path) != first + len(table):  # a row of several lines, perhaps rows between two quotes; or empty lines
        rows = np.array([line for line, _ in delimited(path, delimiter)][1:], np.int64)
        if len(rows) != len(table):
            raise ValueError(f"{shown(path)} has {len(rows)} rows by its lines, but {len(table)} by its quotes")
    values = {
        name: _cells(table[place], words(name)) for name, place in zip(header, places, strict=True) if wanted(name)
    }
    return Arrays(values, tuple(name for name in header if name not in values), rows)


def _lines_in(path: Path) -> int:
    count, last = 0, b"\n"
    with opened(path) as file:
        while part := file.read(2**22):
            count, last = count + part.count(b"\n"), part
    return count + (not last.endswith(b"\n"))


def _cells(column: Any, of_words: bool) -> Array:
    """[row] the cells of a column of texts: float64 if all are numbers or missing, else texts."""
    from pyarrow import ArrowException, array, compute, float64, scalar, string

    if not of_words:
        with suppress(ArrowException):
            return np.array(column.cast(float64()).to_numpy())  # a copy, which can be written
        cells = compute.utf8_trim_whitespace(column)
        absent = compute.is_in(compute.utf8_lower(cells), array([*MISSING]))
        with suppress(ArrowException):
            numbers = compute.if_else(absent, scalar(None, string()), cells).cast(float64())
            return np.array(numbers.to_numpy(), dtype=np.float64)
    return np.array(column.to_numpy(), dtype=object)
