"""Tables of a parquet, and the plain rows of a large csv, by pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..common.extras import missing
from ..common.files import shown
from ..common.progress import through
from .arrays import Array, Arrays, Chosen, objects
from .text import opened


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


def plain_columns(
    path: Path,
    sign: str,
    *,
    width: int,
    above: int,
    skip: int,
    about: int,
    words: Mapping[int, Callable[[list[str]], Array] | None],
    missing: Collection[str],
) -> dict[int, Array] | None:
    """Columns of a csv in which each line is a row: much faster than row by row.

    Args:
        path: the file.
        sign: the delimiter.
        width: number of fields of a row.
        above: number of lines above the rows.
        skip: number of first rows that are left unset in the result.
        about: number of rows, if it is known approximately.
        words: place of a column -> function from its different texts to words; None: it has numbers. Other columns are
            not read.
        missing: texts of a missing number.

    Returns:
        place -> [row] float64, NaN for a missing number; or [row] words. None: pyarrow is not installed, or a line is
        not such a row, which `delimited` then reads or names.
    """
    if find_spec("pyarrow") is None or width < 2 or not sign.isascii():
        return None
    from pyarrow import ArrowException, csv, float64, string

    names = [str(place) for place in range(width)]
    kinds = {str(place): float64() if of_words is None else string() for place, of_words in words.items()}
    # memory that is not written costs nothing; fresh memory for each part would take as long as reading it
    columns = {place: np.empty(about, object if words[place] else np.float64) for place in words}
    end = skip
    try:
        with opened(path) as file:
            reader = csv.open_csv(
                _RowsOfOneLine(file, sign),
                csv.ReadOptions(
                    column_names=names, skip_rows=above, skip_rows_after_names=skip, block_size=2**20 + 2**10 * width
                ),
                csv.ParseOptions(delimiter=sign, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types=kinds, include_columns=[*kinds], null_values=[*missing], strings_can_be_null=False
                ),
            )
            for batch in reader:
                begin, end = end, end + len(batch)
                for (place, of_words), values in zip(words.items(), batch.columns, strict=True):
                    if end > len(columns[place]):
                        more = np.empty(max(end - begin, begin), columns[place].dtype)
                        columns[place] = np.concatenate([columns[place][:begin], more])
                    if of_words is not None:
                        coded = values.dictionary_encode()
                        of_each = of_words(coded.dictionary.to_pylist())
                        columns[place][begin:end] = of_each[np.from_dlpack(coded.indices)]
                    else:  # `to_numpy` would import pandas
                        given = values.fill_null(np.nan) if values.null_count else values
                        columns[place][begin:end] = np.from_dlpack(given)
    except (ArrowException, OSError, ValueError):
        return None
    empty = np.arange(skip, end)  # rows that have no value: an empty line is read as one
    for column in columns.values():
        values = column[empty]
        empty = empty[(values == None) | (values != values)]  # noqa: E711 - of an array
    return None if len(empty) else {place: column[:end] for place, column in columns.items()}


class _RowsOfOneLine:
    """The bytes of a csv, for as long as its double quotes surround whole fields of one line.

    Raises:
        ValueError: by `read`, at a double quote inside a text without quotes, or a line break between two of them.
    """

    closed = False

    def __init__(self, file: IO[bytes], sign: str) -> None:
        self.file, self.last, self.inside = file, b"\n", 0
        self.beside = np.isin(np.arange(256), [*map(ord, ('"', "\r", "\n", sign))])  # what may be next to a quote

    def read(self, size: int) -> bytes:
        """The next bytes."""
        whole = self.file.read(size)
        for begin in range(0, max(len(whole), 1), 2**16):  # such parts stay in the cache of a processor
            part = whole[begin : begin + 2**16]
            if self.inside or b'"' in part or (self.last == b'"' and part):
                self._check(part)
            self.last = part[-1:]
        return whole

    def _check(self, part: bytes) -> None:
        whole = self.last + part
        text = np.frombuffer(whole, np.uint8)
        before = int(whole[:1] == b'"')  # the last quote of the part before, whose next byte was not known
        quotes = np.flatnonzero(text == ord('"'))
        first = (self.inside - before) % 2
        opening, closing = quotes[first::2], quotes[1 - first :: 2]
        breaks = [np.flatnonzero(text == ord(end)) for end in ("\n", "\r") if end.encode() in whole]
        self.inside = (first + len(quotes)) % 2
        if not (
            self.beside[text[opening[opening > 0] - 1]].all()
            and self.beside[text[closing[closing + 1 < len(text)] + 1]].all()
            and not any(((first + np.searchsorted(quotes, each)) % 2).any() for each in breaks)
            and (part or not self.inside)
        ):
            raise ValueError("a double quote or a line break is inside a field")
