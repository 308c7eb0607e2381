"""Columns of a file: numbers, with NaN for a missing value, or words, with None. Errors name the row."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...common.checks import setting
from ...common.files import shown
from ...tables.text import MISSING, number_in

Array = npt.NDArray[Any]
EMPTY = frozenset({""})
SPELT = tuple("".join(each) for word in MISSING for each in product(*({c, c.upper()} for c in word)))  # all capitals


@dataclass(frozen=True)
class Wanted:
    """The columns of a file to read.

    Attributes:
        words: columns that are read as words, even if their values are numbers.
        only: columns to read; None: all columns with a name. (The row numbers that pandas writes have no name.)
        drop: columns that are not read.
        literal: columns among `words` in which only an empty text is missing: NA is an id or a label as any other.
    """

    words: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    drop: frozenset[str] = frozenset()
    literal: frozenset[str] = frozenset()

    def missing(self, name: str) -> frozenset[str]:
        """Words for a missing value in a column."""
        return EMPTY if name in self.literal else MISSING

    def __contains__(self, name: object) -> bool:
        return name not in self.drop and (bool(str(name).strip()) if self.only is None else name in self.only)


@dataclass(frozen=True, eq=False)
class ScoreColumns:
    """The columns of a file.

    Attributes:
        values: name -> [row] float64, NaN for a missing value; or [row] str, None for a missing value.
        rows: [row] number of the row in the file: lines count from 1, rows from 0.
        files: [row] the file, and the unit of the number: "train.csv, line".
        unread: names of the columns that were not read.
        sparse: whether a feature that is not in the file is 0 in each row.
    """

    values: dict[str, Array]
    rows: Array
    files: Array
    unread: tuple[str, ...] = ()
    sparse: bool = False

    @property
    def listed(self) -> list[str]:
        """Names of the columns for a message; only some of them if there are more than 40."""
        names = [*self.values, *self.unread]
        return names if len(names) <= 40 else [*names[:20], "...", *names[-20:]]


def files(path: Path, unit: str, rows: Array) -> Array:
    """[row] the file, and the unit of the numbers of its rows: "line" or "row"."""
    return np.full(len(rows), f"{shown(path.name)}, {unit}", dtype=object)


def as_column(
    values: Array,
    name: str,
    place: Callable[[int], str],
    of_words: bool = False,
    missing: Collection[str] = MISSING,
) -> Array:
    """[row] float64, or [row] str with None for a missing value.

    Args:
        values: [row] numbers, texts, dates, or Python objects. Dates become words.
        name: name of the column, for messages.
        place: row -> its place in the file, for messages.
        of_words: read numbers as words, too.
        missing: words for a missing value.

    Raises:
        ValueError: a value of another type, or an infinite number. The message has the row.
    """
    if values.dtype.kind in "biuf":
        if of_words:
            return as_words([_word_of(value) for value in values.tolist()])  # the nan of a float is missing
        numbers = values.astype(np.float64, copy=False)
        refuse_infinite(numbers, name, place)
        return numbers
    if values.dtype.kind == "M":
        return as_words(np.where(np.isnat(values), "", values.astype(str)).tolist())
    given = values.tolist()
    if not of_words and all(value is None or isinstance(value, (int, float)) for value in given):
        return as_column(np.array([np.nan if value is None else value for value in given], np.float64), name, place)
    for row, value in enumerate(given):
        if value is not None and not isinstance(value, (str, int, float, date)):
            raise ValueError(
                f"{place(row)}: {name!r} is a {type(value).__name__}; a column must have numbers, texts or dates. To "
                f"leave this column out: {setting('drop', [name])}"
            )
    # NaN is the only value that is different from itself
    return as_words(["" if value is None or value != value else _word_of(value) for value in given], missing)


TRUTH = {"true": 1.0, "false": 0.0}  # a csv has the words, a parquet or a data frame the bools


def _word_of(value: object) -> str:
    """A number as a word. A whole number has no decimal point, so that 3 and 3.0 are one category."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_WHOLE = re.compile(r"\s*(-?[0-9]+)\.0+\s*")


def without_point(text: str) -> str:
    """A whole number without its decimal point: pandas writes 94110.0 if another row of the column is empty.

    >>> without_point("94110.0"), without_point("1.05")
    ('94110', '1.05')
    """
    match = _WHOLE.fullmatch(text)
    return text if match is None else match[1]


def as_words(cells: Sequence[str], missing: Collection[str] = MISSING) -> Array:
    """[row] words without the spaces around them, None for a missing word."""
    column = np.empty(len(cells), dtype=object)
    column[:] = [None if cell.strip().lower() in missing else cell.strip() for cell in cells]
    return column


def numbered(matrix: Array) -> dict[str, Array]:
    """The columns of a matrix, named x0, x1, ..."""
    return {f"x{place}": matrix[:, place] for place in range(matrix.shape[1])}


def refuse_infinite(numbers: Array, name: str, place: Callable[[int], str]) -> None:
    """Raise if a column has an infinite number. NaN, a missing value, is allowed.

    Args:
        numbers: [row].
        name: name of the column.
        place: row -> its place in the file.

    Raises:
        ValueError: the message has the row.
    """
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"{place(int(infinite.argmax()))}: {name!r} is infinite; give a finite value, or leave the cell empty if "
            "the value is missing"
        )


# how people and spreadsheets write numbers: 1,5 or 1.234,5 or 12.5% or US$ 3 or 3 EUR or (3) or 1'250, a long minus,
# 3- or <5 or 21 °C
_NUMBER = r"([0-9]+([.,][0-9]+)?([eE][-+]?[0-9]+)?|[0-9]{1,3}([.,'’_\s][0-9]{3})+([.,][0-9]+)?)"
_SIGN, _CURRENCY = r"[-+−–]?\s*", r"([A-Z]{0,3}[$€£¥₹₩₽₺₫₪¢]|[A-Z]{3}|Rs\.?|kr\.?)"
_WRITTEN = re.compile(
    rf"\s*['=]?[<>≤≥~≈±]?\(?\s*{_SIGN}{_CURRENCY}?\s*{_SIGN}{_NUMBER}"
    rf"(\s*(%|‰|{_CURRENCY}|°[CF]?|[-−])|\s*°|\s+(?P<unit>[^\W\d]+\.?))?\s*\)?\s*"
)


def refuse_written(cells: Sequence[str | None], name: str, place: Callable[[int], str]) -> None:
    """Raise if most cells are numbers that people read and programs do not: they would count as words, all different.

    Args:
        cells: [row].
        name: name of the column.
        place: row -> its place in the file.

    Raises:
        ValueError: the message has the row.
    """
    given = [(row, cell) for row, cell in enumerate(cells) if cell is not None and cell.strip().lower() not in MISSING]
    matches = [(row, match) for row, cell in given if number_in(cell) is None and (match := _WRITTEN.fullmatch(cell))]
    units = {match["unit"] for _, match in matches if match["unit"]}
    if 2 * len(matches) > len(given) and len(units) < 2:
        row, match = matches[0]
        raise ValueError(
            f"{place(row)}: {name!r} is {shown(match[0])!r}; write numbers with a point and no comma, unit or other "
            f"sign. If these are not numbers: {setting('categorical', [name])}"
        )


def joined(parts: Sequence[ScoreColumns]) -> ScoreColumns:
    """The rows of several files, one file after the other. They have the columns of the first file.

    Args:
        parts: the files. If they are sparse, the result has the columns of all files.

    Raises:
        ValueError: a file lacks a column, or a column has words in one file and numbers in another.
    """
    if len(parts) == 1:
        return parts[0]
    sparse = all(part.sparse for part in parts)
    names = dict.fromkeys(name for part in parts for name in part.values) if sparse else parts[0].values
    values: dict[str, Array] = {}
    for name in names:
        for part in parts:
            if name not in part.values and not sparse:
                raise ValueError(f"{part.files[0]}s: there is no column {name!r}, which {parts[0].files[0]}s have")
        columns = [part.values[name] if name in part.values else np.zeros(len(part.rows)) for part in parts]
        values[name] = np.concatenate(_of_one_kind(name, columns, parts))
    rows, files = (np.concatenate([getattr(part, each) for part in parts]) for each in ("rows", "files"))
    return ScoreColumns(values, rows, files, parts[0].unread, sparse)


def _of_one_kind(name: str, columns: Sequence[Array], parts: Sequence[ScoreColumns]) -> Sequence[Array]:
    """The same column of each file, with one dtype. If all its values in a file are missing, either dtype fits."""
    empty = [all(value is None for value in c.tolist()) if c.dtype == object else np.isnan(c).all() for c in columns]
    kinds = {column.dtype == object for column, missing in zip(columns, empty, strict=True) if not missing}
    if len(kinds) > 1:
        words = next(place for place, column in enumerate(columns) if column.dtype == object and not empty[place])
        row = next(row for row, word in enumerate(columns[words].tolist()) if word is not None)
        part = parts[words]
        raise ValueError(
            f"{part.files[row]} {part.rows[row]}: {name!r} is {shown(columns[words][row])!r}, but another file has "
            f"numbers in this column. Correct it, or read the column as words: {setting('categorical', [name])}"
        )
    of_words = True in kinds
    fill = None if of_words else np.nan
    return [
        np.full(len(column), fill, dtype=object if of_words else np.float64)
        if missing and (column.dtype == object) != of_words
        else column
        for column, missing in zip(columns, empty, strict=True)
    ]
