"""Read files into `ScoreColumns`: any format of `tables`, or a folder with a file for each split."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...common.checks import setting
from ...common.files import shown
from ...datasets.division import split_called
from ...tables.arrow import plain_columns
from ...tables.delimited import COMPARED, about_rows, delimited, sign_of
from ...tables.formats import format_of, read_arrays
from ...tables.text import MISSING, number_in, text_of
from ...workbench.trec.files import QUERY
from .columns import (
    SPELT,
    ScoreColumns,
    Wanted,
    as_column,
    as_words,
    files,
    numbered,
    refuse_infinite,
    refuse_written,
    without_point,
)

Array = npt.NDArray[Any]
CELLS = 2**22  # texts of a csv that are in memory at once
BESIDE = (".weight", ".init", ".position", ".base_margin")  # theirs for other files beside it, which are not read
SIZES = (".query", ".group")  # LightGBM's and XGBoost's names for a file of query sizes, beside the file of the rows


def files_of(root: Path) -> list[tuple[str, Path]]:
    """(split, file) of each file to read; a single file has the split "".

    The files of a folder are train.csv, test.csv and, if it exists, val.csv; or names such as rank.train.

    Args:
        root: a file or a folder.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: a folder has no training file, or two files for one split.
    """
    if not root.is_dir():
        if not root.is_file():
            raise FileNotFoundError(f"there is no file {shown(root)}")
        return [("", root)]
    files: dict[str, Path] = {}
    for path in sorted(root.iterdir()):
        split = split_called(path.stem) or split_called(path.suffix[1:])
        if not path.is_file() or not split or path.suffix in (*SIZES, *BESIDE):
            continue
        if split in files:
            raise ValueError(
                f"{shown(root)} has {shown(files[split].name)} and {shown(path.name)}, both for {split}; keep one"
            )
        files[split] = path
    if "train" not in files:
        there = ", ".join(shown(path.name) for path in sorted(root.iterdir())[:10]) or "nothing"
        raise ValueError(
            f"the folder {shown(root)} has no training file, such as train.csv; it has {there}. Rename the file, or "
            f"give the file in place of the folder: {setting('root', 'FILE')}"
        )
    return [(split, files[split]) for split in ("train", "val", "test") if split in files]


def read_file(path: Path, wanted: Wanted, delimiter: str | None = None) -> ScoreColumns:
    """Read the columns of a file.

    If there is a file of query sizes beside it (rank.train.query), and no column of query ids, the rows get a column
    query.

    Args:
        path: the file.
        wanted: the columns to read.
        delimiter: see `tables.delimited`.

    Raises:
        ValueError: the file has another format, or is damaged.
    """
    columns = read_typed(path, wanted) if format_of(path).typed else read_csv(path, wanted, delimiter)
    sizes = next((path.with_name(path.name + end) for end in SIZES if path.with_name(path.name + end).is_file()), None)
    if sizes is not None and "query" in wanted and not set(QUERY) & set(columns.values):
        columns.values["query"] = _from_sizes(sizes, columns)
    return columns


def unread_beside(path: Path) -> list[str]:
    """A sentence for each file beside the rows that LightGBM or XGBoost would read, and this library does not.

    Args:
        path: the file of the rows.
    """
    there = [path.with_name(path.name + end) for end in BESIDE if path.with_name(path.name + end).is_file()]
    return [
        f"{shown(file.name)} is not used: all rows have the same weight."
        if file.suffix == ".weight"
        else f"{shown(file.name)} is not used."
        for file in there
    ]


def _from_sizes(path: Path, columns: ScoreColumns) -> Array:
    """[row] the query of each row, from a file with the number of rows of each query."""
    sizes: list[int] = []
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip() and not re.fullmatch(r"[0-9]{1,15}", line.strip()):
            raise ValueError(f"{shown(path)}, line {number} must be a number of rows; got {shown(line)!r}")
        sizes += [int(line)] if line.strip() else []
    if sum(sizes) != len(columns.rows):
        raise ValueError(
            f"{shown(path)}: the queries have {sum(sizes)} rows together, but {shown(path.stem)} has "
            f"{len(columns.rows)}. Write both files again, or remove this one"
        )
    return np.repeat(as_words([str(number) for number in range(1, len(sizes) + 1)]), sizes)


# ------------------------------------------------------------------------------------------------------------------ csv


def read_csv(path: Path, wanted: Wanted, delimiter: str | None) -> ScoreColumns:
    """Read the columns of a csv with a header.

    A column has numbers if at least half of its first 4096 values (fewer, of more than 1024 columns) are numbers; else
    it has words. In a column that is read as words, 3 and 3.0 are one word.

    Args:
        path: the file.
        wanted: the columns to read.
        delimiter: see `tables.delimited`.

    Raises:
        ValueError: there is no header, or a column of numbers has a word or an infinite number; also see
            `tables.delimited`.
    """
    lines = delimited(path, delimiter)
    first, header = next(lines, (1, []))
    named = wanted.only is not None and not wanted.only.isdisjoint(header)  # as by pandas: 0, 1, 2, ...
    if header and not named and all(number_in(name) is not None for name in header):
        raise ValueError(
            f"{shown(path)}, line {first}: there is no header; write the names of the columns above the rows"
        )
    columns = {
        name: _CsvColumn(name, path, name in wanted.words, wanted.missing(name)) for name in header if name in wanted
    }
    # several columns may have no name, such as the empty ones of a spreadsheet
    places = {place: columns[name] for place, name in enumerate(header) if name in columns}
    rows = np.empty(0, dtype=np.int64)
    most = min(COMPARED, max(CELLS // max(len(header), 1), 1))
    while part := list(islice(lines, most)):
        numbers = [line for line, _ in part]
        cells = list(zip(*(fields for _, fields in part), strict=True))
        for place, column in places.items():
            column.add(cells[place], numbers)
        rows = np.append(rows, numbers)
        if len(rows) == most and numbers[-1] == first + most and places:
            more = _add_plain(path, delimiter, len(header), first, most, places)
            rows = np.append(rows, np.arange(more) + numbers[-1] + 1)
            if more:
                break
    if not len(rows):
        raise ValueError(f"{shown(path)} has no rows")
    unread = [name for name in header if name not in columns]
    values = {name: column.whole() for name, column in columns.items()}
    return ScoreColumns(values, rows, files(path, "line", rows), tuple(unread))


def _add_plain(
    path: Path, delimiter: str | None, width: int, above: int, skip: int, places: Mapping[int, _CsvColumn]
) -> int:
    """Add the rows after the first ones, if they are plain; returns their number, 0 if they are not."""
    arrays = plain_columns(
        path,
        sign_of(path, delimiter)[0],
        width=width,
        above=above,
        skip=skip,
        about=round(1.05 * (about_rows(path) or 0)) + COMPARED,
        words={place: column.words if column.of_words else None for place, column in places.items()},
        missing=SPELT,
    )
    for place, array in (arrays or {}).items():
        places[place].complete(array, above + 1)
    return len(next(iter(arrays.values()))) - skip if arrays else 0


def _floats(cells: Sequence[str]) -> Array | None:
    """[row] numbers; None if a cell is no number."""
    try:
        return None if "_" in "".join(cells) else np.array(list(map(float, cells)))  # Python reads 1_000 as a number
    except ValueError:
        return None


@dataclass
class _CsvColumn:
    """A column of a csv, which is read part by part. A part of numbers takes an eighth of the memory of its texts."""

    name: str
    path: Path
    as_categories: bool
    missing: Collection[str] = MISSING
    of_words: bool = False
    parts: list[Array] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)  # stores each word once, because categories are repeated

    def __post_init__(self) -> None:
        self.of_words |= self.as_categories

    def add(self, cells: Sequence[str], lines: Sequence[int]) -> None:
        """Add the next cells."""
        numbers = None if self.of_words else _floats(cells)
        if numbers is None and not self.parts and not self.as_categories:
            given = [cell for cell in cells if cell.strip().lower() not in MISSING]
            self.of_words = 2 * sum(number_in(cell) is None for cell in given) > len(given)
            refuse_written(cells, self.name, lambda row: f"{shown(self.path)}, line {lines[row]}")
        if self.of_words:
            self.parts.append(self.words(cells))
            return
        numbers = self._numbers(cells, lines) if numbers is None else numbers
        refuse_infinite(numbers, self.name, lambda row: f"{shown(self.path)}, line {lines[row]}")
        self.parts.append(numbers)

    def complete(self, array: Array, begin: int) -> None:
        """Take an array of all cells, in which the first part is not set yet; `begin` is the line of its first row."""
        array[: len(self.parts[0])] = self.parts[0]
        if not self.of_words:
            refuse_infinite(array, self.name, lambda row: f"{shown(self.path)}, line {begin + row}")
        self.parts = [array]

    def words(self, cells: Sequence[str]) -> Array:
        """Cells as words."""
        words = map(without_point, cells) if self.as_categories else cells
        return as_words([self.known.setdefault(word, word) for word in words], self.missing)

    def _numbers(self, cells: Sequence[str], lines: Sequence[int]) -> Array:
        numbers = [np.nan if cell.strip().lower() in MISSING else number_in(cell) for cell in cells]
        wrong = next((row for row, number in enumerate(numbers) if number is None), None)
        if wrong is None:
            return np.array(numbers, dtype=np.float64)
        raise ValueError(
            f"{shown(self.path)}, line {lines[wrong]}: {self.name!r} is {shown(cells[wrong])!r}, but most values of "
            "this column are numbers. Correct it, leave it empty if it is missing, or read the column as words: "
            f"{setting('categorical', [self.name])}"
        )

    def whole(self) -> Array:
        """[row] all cells; the parts are given up, so that the memory of one column is needed twice."""
        parts, self.parts = self.parts, []
        return np.concatenate(parts) if len(parts) > 1 else parts[0]


# --------------------------------------------------------------------------------------------------- all other formats


def read_typed(path: Path, wanted: Wanted) -> ScoreColumns:
    """Read the columns of a file whose values have types. `X` [row, feature] becomes the columns x0, x1, ...

    Args:
        path: the file.
        wanted: the columns to read.

    Raises:
        ValueError: a column has another shape or length than the others, or neither numbers nor words; or a number is
            infinite. The message has the row.
    """
    read = read_arrays(path, lambda name: name == "X" or name in wanted, lambda name: name in wanted.words)
    named = [
        (name, column, values)
        for name, array in read.values.items()
        for column, values in (numbered(array) if name == "X" and array.ndim == 2 else {name: array}).items()
    ]
    unread = [*read.unread, *(column for _, column, _ in named if column not in wanted)]
    named = [each for each in named if each[1] in wanted]
    arrays: dict[str, Array] = {}
    for name, column, values in named:
        if column in arrays:
            raise ValueError(f"{shown(path)} has a column {column!r}, which X has, too; give it another name")
        if values.ndim != 1:
            raise ValueError(
                f"{shown(path)}, row 0: {name!r} has the shape {values.shape}; a column has a value for each row, and "
                f"only X has several. To leave this column out: {setting('drop', [name])}"
            )
        if len(values) != len(named[0][2]):
            raise ValueError(f"{shown(path)}: {named[0][0]!r} has {len(named[0][2])} rows, {name!r} has {len(values)}")
        arrays[column] = values
    there = [*arrays.values()] or [*map(np.atleast_1d, read.values.values())]
    rows = np.arange(max(map(len, there), default=0)) if read.rows is None else read.rows
    if not len(rows):
        raise ValueError(f"{shown(path)} has no rows")
    unit = format_of(path).unit

    def place(row: int) -> str:
        return f"{shown(path)}, {unit} {rows[row]}"

    for name, array in arrays.items():
        arrays[name] = as_column(array, name, place, name in wanted.words, wanted.missing(name))
        if arrays[name].dtype == object and name not in wanted.words:
            refuse_written(arrays[name][:COMPARED].tolist(), name, place)
    return ScoreColumns(arrays, rows, files(path, unit, rows), tuple(unread), read.sparse)
