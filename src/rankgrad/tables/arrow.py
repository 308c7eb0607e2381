"""Tables of a parquet, and the plain rows of a large csv, by pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.extras import missing
from ..common.files import shown
from ..common.progress import through
from .text import opened

Array = npt.NDArray[Any]


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """A parquet file of pyarrow.

    Raises:
        ValueError: the file is not parquet, or it is damaged, or two columns have one name.
        ModuleNotFoundError: pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(missing("pyarrow"), name="pyarrow") from None
    try:
        with parquet.ParquetFile(path) as file:
            twice = next((name for name, count in Counter(file.schema_arrow.names).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"{shown(path)} has the column {twice!r} twice")
            yield file
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())  # an error of pyarrow may have several lines
        raise ValueError(f"{shown(path)} is not a parquet file, or it is damaged: {shown(reason)}") from None


def parquet_table(path: Path) -> Any:
    """A parquet file as a table of pyarrow; bytes are texts if they are UTF-8. Raises as `opened_parquet`."""
    from pyarrow import ArrowInvalid, string, types

    with opened_parquet(path) as file:
        table = file.read()
    for place, column in enumerate(table.columns):
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
            try:
                texts = column.cast(kind).cast(string())
            except ArrowInvalid:
                continue  # bytes that are no text, such as those of an image
            table = table.set_column(place, table.column_names[place], texts)
    return table


def parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(number from 1 on, column -> value) of every row. Raises as `opened_parquet`."""
    table = parquet_table(path)
    rows = (row for batch in table.to_batches(max_chunksize=2**14) for row in batch.to_pylist())
    yield from enumerate(through(rows, "reading", "row", len(table)), 1)


def plain_columns(
    path: Path,
    sign: str,
    *,
    width: int,
    above: int,
    skip: int,
    words: Mapping[int, Callable[[list[str]], Array] | None],
    missing: Collection[str],
) -> dict[int, Array] | None:
    """Columns of a csv in which each line is a row without a double quote: much faster than row by row.

    Args:
        path: the file.
        sign: the delimiter.
        width: number of fields of a row.
        above: number of lines above the rows.
        skip: number of first rows that are left unset in the result.
        words: place of a column -> function from its different texts to words; None: it has numbers. Other columns are
            not read.
        missing: texts of a missing number.

    Returns:
        place -> [row] float64, NaN for a missing number; or [row] words. None: pyarrow is not installed, or a line is
        not such a row, which `delimited` then reads or names.
    """
    if find_spec("pyarrow") is None or (rows := _rows_without_quotes(path, above)) is None:
        return None
    from pyarrow import ArrowException, csv, float64, string

    names = [str(place) for place in range(width)]
    kinds = {str(place): float64() if of_words is None else string() for place, of_words in words.items()}
    # arrays of the final length, because fresh memory for each part would take as long as reading it
    columns = {place: np.empty(rows, np.float64 if of_words is None else object) for place, of_words in words.items()}
    end = skip
    try:
        reader = csv.open_csv(
            path,
            csv.ReadOptions(
                column_names=names, skip_rows=above, skip_rows_after_names=skip, block_size=2**18 + 2**10 * width
            ),
            csv.ParseOptions(delimiter=sign, quote_char=False),
            csv.ConvertOptions(
                column_types=kinds, include_columns=[*kinds], null_values=[*missing], strings_can_be_null=False
            ),
        )
        for batch in reader:
            begin, end = end, end + len(batch)
            if end > rows:
                return None
            for (place, of_words), column in zip(words.items(), batch.columns, strict=True):
                if of_words is not None:
                    coded = column.dictionary_encode()
                    columns[place][begin:end] = of_words(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
                else:
                    columns[place][begin:end] = column.to_numpy(zero_copy_only=False)
    except (ArrowException, OSError):
        return None
    return columns if end == rows else None  # fewer rows: there are empty lines


def _rows_without_quotes(path: Path, above: int) -> int | None:
    count, last = 0, b"\n"
    with opened(path) as file:
        for _ in range(above):
            file.readline()
        while part := file.read(2**20):
            if b'"' in part:
                return None
            count, last = count + part.count(b"\n"), part[-1:]
    return count + (last != b"\n")
