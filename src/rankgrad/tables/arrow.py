"""Tables of a parquet, by pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..extras import missing
from ..files import shown
from ..progress import through


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
