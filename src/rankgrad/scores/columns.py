"""Files -> columns of numbers, with NaN for a missing value, and of words, with None. Errors name the row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import setting
from ..datasets.tabular import delimited, parquet_table
from ..files import read_npz, shown

Array = npt.NDArray[Any]
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})  # words for a missing value, in any capitals
DECIDING = 2**14  # the first rows of a csv, which decide what is a column of numbers


@dataclass(frozen=True, eq=False)
class Columns:
    """What a file holds.

    Attributes:
        values: name -> [row] float64 with NaN where a value is missing, or str with None where one is missing.
        rows: [row] its number in the file, for messages.
        unit: what is counted: "line" from 1, or "row" from 0.
    """

    values: dict[str, Array]
    rows: Array
    unit: str


def read_csv(path: Path, words: Collection[str], delimiter: str) -> Columns:
    """The columns of a csv with a header.

    A column is of numbers if at least half of its first 16384 values are; else it is of words.

    Args:
        path: the file.
        words: columns that are of words, whatever they look like.
        delimiter: between the fields.

    Raises:
        ValueError: no header, a word or an infinite number in a column of numbers, and all of `tabular.delimited`.
    """
    lines = delimited(path, delimiter)
    first, header = next(lines, (1, []))
    if header and all(_number(name) is not None for name in header):
        raise ValueError(
            f"{shown(path)}, line {first}: there is no header; write the names of the columns above the rows"
        )
    columns = [_Column(name, path, name in words) for name in header]
    rows: list[int] = []
    for numbers, fields in _parts(lines):
        for column, cells in zip(columns, zip(*fields, strict=True), strict=True):
            column.add(cells, numbers)
        rows += numbers
    if not rows:
        raise ValueError(f"{shown(path)} has no rows")
    return Columns({column.name: column.whole() for column in columns}, np.array(rows), "line")


def _parts(lines: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[list[int], list[list[str]]]]:
    while part := list(islice(lines, DECIDING)):
        yield [line for line, _ in part], [fields for _, fields in part]


@dataclass
class _Column:
    """A column of a csv, which is read part by part: a part of numbers takes an eighth of the memory of its texts."""

    name: str
    path: Path
    of_words: bool
    parts: list[Array] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)  # each word once: categories come back often

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Take the next cells."""
        if not self.parts and not self.of_words:
            given = [cell for cell in cells if cell.strip().lower() not in MISSING]
            self.of_words = 2 * sum(_number(cell) is None for cell in given) > len(given)
        if self.of_words:
            self.parts.append(as_words([self.known.setdefault(cell, cell) for cell in cells]))
            return
        numbers = self._numbers(cells, lines)
        refuse_infinite(numbers, self.name, lambda row: f"{shown(self.path)}, line {lines[row]}")
        self.parts.append(numbers)

    def _numbers(self, cells: Sequence[str], lines: Sequence[int]) -> Array:
        if "_" not in "".join(cells):  # 1_000 is a number for Python alone
            for given in (cells, ["nan" if cell.strip().lower() in MISSING else cell for cell in cells]):
                try:
                    return np.array(list(map(float, given)))
                except ValueError:
                    pass
        missing = [cell.strip().lower() in MISSING for cell in cells]
        found = [np.nan if empty else _number(cell) for cell, empty in zip(cells, missing, strict=True)]
        wrong = next(row for row, value in enumerate(found) if value is None)
        raise ValueError(
            f"{shown(self.path)}, line {lines[wrong]}: {self.name!r} is {shown(cells[wrong])!r}, where most values are "
            f"numbers. Mend it, empty it if it is missing, or read the column as words: "
            f"{setting('categorical', [self.name])}"
        )

    def whole(self) -> Array:
        """[row] all cells."""
        return np.concatenate(self.parts)


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def read_npz_columns(path: Path, words: Collection[str]) -> Columns:
    """The arrays of an npz: `X` [row, feature] becomes the columns x0, x1, ...; others are columns by their names.

    Args:
        path: the file.
        words: columns that are of words, whatever they look like.

    Raises:
        ValueError: arrays that are no columns, or of different lengths; an infinite number.
    """
    arrays = read_npz(path)
    values: dict[str, Array] = {}
    for name, array in arrays.items():
        if array.ndim == 2 and name == "X":
            values |= {f"x{place}": array[:, place] for place in range(array.shape[1])}
        elif array.ndim == 1:
            values[name] = array
        else:
            raise ValueError(
                f"{shown(path)}: {name!r} has the shape {array.shape}; an npz holds X [row, feature] and columns [row]"
            )
    lengths = {name: len(array) for name, array in values.items()}
    if len(set(lengths.values())) > 1:
        of = "X" if "X" in arrays else next(iter(lengths))
        other = next(name for name in lengths if lengths[name] != len(arrays[of]))
        raise ValueError(f"{shown(path)}: {of!r} has {len(arrays[of])} rows, {other!r} has {lengths[other]}")
    count = max(lengths.values(), default=0)
    if not count:
        raise ValueError(f"{shown(path)} has no rows")
    return Columns(
        {name: as_column(array, name, path, name in words) for name, array in values.items()}, np.arange(count), "row"
    )


def read_parquet(path: Path, words: Collection[str]) -> Columns:
    """The columns of a parquet.

    Args:
        path: the file.
        words: columns that are of words, whatever they look like.

    Raises:
        ValueError: a column that is neither of numbers nor of words, and all of `tabular.parquet_table`.
    """
    table = parquet_table(path)
    if not len(table):
        raise ValueError(f"{shown(path)} has no rows")
    values = {name: as_column(_from_arrow(table[name]), name, path, name in words) for name in table.column_names}
    return Columns(values, np.arange(len(table)), "row")


def _from_arrow(column: Any) -> Array:
    """A column of pyarrow as numbers, where it is of numbers, else as Python's objects."""
    from pyarrow import types

    if types.is_integer(column.type) and column.null_count == 0:
        return np.asarray(column.to_numpy())
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.asarray(column.cast("float64").to_numpy())
    if types.is_decimal(column.type):
        return np.array([np.nan if value is None else float(value) for value in column.to_pylist()])
    return np.array([*column.to_pylist(), None], dtype=object)[:-1]  # the last one keeps lists from becoming columns


def as_column(values: Array, name: str, path: Path, of_words: bool) -> Array:
    """[row] float64, or str with None where a value is missing.

    Args:
        values: [row] numbers, texts, or Python's objects.
        name: of the column, for messages.
        path: its file.
        of_words: read numbers as words, too.

    Raises:
        ValueError: other values, or an infinite number; naming the row.
    """
    if values.dtype.kind in "biuf":
        if of_words:
            return as_words([_name_of(value) for value in values.tolist()])
        numbers = values.astype(np.float64)
        refuse_infinite(numbers, name, lambda row: f"{shown(path)}, row {row}")
        return numbers
    given = values.tolist()
    present = [value for value in given if value is not None]
    if present and all(isinstance(value, bool) for value in present) and not of_words:
        return np.array([np.nan if value is None else float(value) for value in given])
    for row, value in enumerate(given):
        if value is not None and not isinstance(value, (str, int, bool)):
            raise ValueError(
                f"{shown(path)}, row {row}: {name!r} is a {type(value).__name__}; a column holds numbers or texts. "
                f"Leave it out: {setting('drop', [name])}"
            )
    return as_words(["" if value is None else _name_of(value) for value in given])


def _name_of(value: object) -> str:
    """A number as a word: a whole one without a decimal point, so that 3 and 3.0 are one category."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_words(cells: Sequence[str]) -> Array:
    """[row] words without the spaces around them, None where one is missing."""
    column = np.empty(len(cells), dtype=object)
    column[:] = [None if cell.strip().lower() in MISSING else cell.strip() for cell in cells]
    return column


def refuse_infinite(numbers: Array, name: str, place: Any) -> None:
    """Raise where a column is infinite; NaN is a missing value.

    Args:
        numbers: [row].
        name: of the column.
        place: row -> where it stands.

    Raises:
        ValueError: naming the row.
    """
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(infinite.argmax())
        raise ValueError(
            f"{place(row)}: {name!r} is infinite; give it a finite value, or leave it empty if it is missing"
        )
