"""Files of rows as columns of numbers and of words. Errors name the row."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas

from rankgrad.common.checks import setting
from rankgrad.common.text import shown

from ...datasets.division import split_called
from ...files.tables.arrow import Chosen
from ...files.tables.formats import format_of, read_arrays
from ...files.tables.text import MISSING, number_in, text_of
from ...trec.files import QUERY

Array = npt.NDArray[Any]
Place = Callable[[int], str]  # row -> its place in a file, for messages
COMPARED = 2**12  # number of first rows that decide what a column holds
BESIDE = (".weight", ".init", ".position", ".base_margin")  # theirs for other files beside it, which are not read
SIZES = (".query", ".group")  # LightGBM's and XGBoost's names for a file of query sizes, beside the file of the rows
TRUTH = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The columns of one file or of several.

    Attributes:
        values: name -> [row] values as the file has them; `column` converts them.
        unread: names of the columns that were not read.
        rows: [row] number of the row in its file: lines count from 1, rows from 0.
        files: [row] the file, and the unit of the number: "train.csv, line".
        splits: [row] the split of the file.
        sparse: whether a feature that is not in the file is 0 in each row.
    """

    values: dict[str, Array]
    unread: tuple[str, ...]
    rows: Array
    files: Array
    splits: Array
    sparse: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return (*self.values, *self.unread)

    def column(self, name: str, of_words: bool = False, missing: Collection[str] = MISSING) -> Array:
        """[row] numbers or words, see `as_column`."""
        return as_column(self.values[name], name, lambda row: f"{self.files[row]} {self.rows[row]}", of_words, missing)


def read_columns(
    files: Sequence[tuple[str, Path]], wanted: Chosen, words: Chosen, delimiter: str | None = None
) -> FileColumns:
    """The columns of files, one file after the other: those of the first file; of all if they are sparse.

    Args:
        files: (split, file), see `files_of`.
        wanted: whether to read a column of this name.
        words: whether it is read as words, even if its values are numbers.
        delimiter: see `tables.delimited`.

    Raises:
        ValueError: a file is damaged, or a column of the first file is not in all.
    """
    parts = [_read_file(split, path, wanted, words, delimiter) for split, path in files]
    first = parts[0]
    names = dict.fromkeys(name for part in (parts if first.sparse else parts[:1]) for name in part.values)
    values: dict[str, Array] = {}
    for name in names:
        for part in parts:
            if name not in part.values and not part.sparse:
                raise ValueError(f"{part.files[0]}s: there is no column {name!r}, which {first.files[0]}s have")
        values[name] = np.concatenate([part.values.get(name, np.zeros(len(part.rows))) for part in parts])
    rows, of, splits = (np.concatenate([getattr(part, at) for part in parts]) for at in ("rows", "files", "splits"))
    return FileColumns(values, first.unread, rows, of, splits, first.sparse)


def files_of(root: Path) -> list[tuple[str, Path]]:
    """(split, file) of each file to read; a single file has the split "".

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
            raise ValueError(f"{shown(root)} has {shown(files[split].name)} and {shown(path.name)}, both for {split}")
        files[split] = path
    if "train" not in files:
        there = ", ".join(shown(path.name) for path in sorted(root.iterdir())[:10]) or "nothing"
        raise ValueError(f"{shown(root)} has no training file, such as train.csv; it has {there}")
    return [(split, files[split]) for split in ("train", "val", "test") if split in files]


def _read_file(split: str, path: Path, wanted: Chosen, words: Chosen, delimiter: str | None) -> FileColumns:
    """The columns of a file. `X` [row, feature] becomes the columns x0, x1, ...

    A file of query sizes beside it (rank.train.query) is a column query, if there is none.
    """
    read = read_arrays(path, lambda name: name == "X" or wanted(name), words, delimiter)
    every = dict(read.values)
    if "X" in every and every["X"].ndim == 2:
        matrix = {f"x{place}": column for place, column in enumerate(every.pop("X").T)}
        for name in {*every} & {*matrix}:
            raise ValueError(f"{shown(path)} has a column {name!r}, which X has, too; give it another name")
        every = {**matrix, **every}
    values = {name: column for name, column in every.items() if wanted(name)}
    rows = read.rows
    if rows is None:
        rows = np.arange(len(np.atleast_1d(next(iter((values or every).values()), np.empty(0)))))
    if not len(rows):
        raise ValueError(f"{shown(path)} has no rows")
    for name, column in values.items():
        if column.shape != rows.shape:
            raise ValueError(
                f"{shown(path)}: {name!r} has the shape {column.shape}; {setting('drop', [name])} leaves it out"
            )
    sizes = [file for end in SIZES if (file := path.with_name(path.name + end)).is_file()]
    if sizes and wanted("query") and not {*QUERY} & {*values}:
        values["query"] = _from_sizes(sizes[0], len(rows))
    unread = (*read.unread, *(name for name in every if name not in values))
    files = np.full(len(rows), f"{shown(path.name)}, {format_of(path).unit}", dtype=object)
    return FileColumns(values, unread, rows, files, np.full(len(rows), split), read.sparse)


def _from_sizes(path: Path, rows: int) -> Array:
    """[row] the query of each row, from a file with the number of rows of each query."""
    try:
        sizes = [int(line) for line in text_of(path).split()]
    except ValueError as error:
        raise ValueError(f"{shown(path)} must have a number of rows on each line: {shown(error)}") from None
    if sum(sizes) != rows or min(sizes) < 0:
        raise ValueError(f"{shown(path)}: the queries have {sum(sizes)} rows together, but the file has {rows}")
    return np.repeat(np.arange(1, len(sizes) + 1), sizes)


# -------------------------------------------------------------------------------------------- numbers or words


def as_column(
    values: Array, name: str, place: Place, of_words: bool = False, missing: Collection[str] = MISSING
) -> Array:
    """[row] float64, NaN for a missing value; or [row] str, None for a missing value.

    A column of texts has numbers if at least half of its first 4096 values are numbers; then all must be. True and
    False are 1 and 0. Dates are words. In a column that is read as words, 3 and 3.0 are one word.

    Args:
        values: [row] numbers, texts, dates, or Python objects.
        name: name of the column, for messages.
        place: row -> its place in the file, for messages.
        of_words: read numbers as words, too.
        missing: words for a missing value.

    Raises:
        ValueError: a value of another type, an infinite number, or a word among numbers. The message has the row.
    """
    if values.dtype.kind in "biuf" and not of_words:
        return _finite(values.astype(np.float64, copy=False), name, place)
    cells = pandas.Series(values).astype(object).to_numpy(copy=True)
    cells[pandas.isna(cells)] = None
    for row, value in enumerate(cells.tolist()):
        if not isinstance(value, (str, int, float, date, Decimal, NoneType)):
            raise ValueError(
                f"{place(row)}: {name!r} is a {type(value).__name__}: {setting('drop', [name])} leaves it out"
            )
    codes, kinds = pandas.factorize(cells)  # [row] number of its value, -1 for a missing one; the different values
    known = [_word(kind, of_words) for kind in kinds]
    words = np.array([*(None if word.lower() in missing else word for word in known), None], dtype=object)
    numbers = None if of_words else _numbers(words, codes, name, place)
    return words[codes] if numbers is None else _finite(numbers[codes], name, place)


def _word(value: Any, of_words: bool) -> str:
    """A value as a word. A whole number that names a category has no decimal point: 3 and 3.0 are one category."""
    word = str(value).strip()
    return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", word) if of_words or isinstance(value, float) else word


def _numbers(words: Array, codes: Array, name: str, place: Place) -> Array | None:
    """[kind] the words as numbers; None: most of the first cells are no numbers."""
    given = {word.lower() for word in words if word is not None}
    truth = TRUTH if given <= {*TRUTH} else {}
    found = [np.nan if word is None else truth.get(word.lower(), number_in(word)) for word in words]
    wrong = np.array([number is None for number in found])[codes]
    most = sum(word is not None for word in words[codes[:COMPARED]]) / 2
    if wrong[:COMPARED].sum() <= most:
        for row in np.flatnonzero(wrong)[:1]:
            raise ValueError(
                f"{place(row)}: {name!r} is {shown(words[codes[row]])!r}, but most values of this column are numbers. "
                f"Correct it, leave it empty if it is missing, or read words: {setting('categorical', [name])}"
            )
        return np.array(found, np.float64)
    # numbers that people read and programs do not would count as words
    read = [None if word is None else _WRITTEN.fullmatch(word) for word in words]
    written = [row for row, code in enumerate(codes[:COMPARED].tolist()) if read[code] is not None]
    if len(written) > most and len({match["unit"] for match in read if match is not None and match["unit"]}) < 2:
        raise ValueError(
            f"{place(written[0])}: {name!r} is {shown(words[codes[written[0]]])!r}; write numbers with a point and no "
            f"comma, unit or other sign. If these are not numbers: {setting('categorical', [name])}"
        )
    return None


# how people and spreadsheets write numbers: 1,5 or 1.234,5 or 12.5% or US$ 3 or 3 EUR or (3) or 1'250, a long minus,
# 3- or <5 or 21 °C
_NUMBER = r"([0-9]+([.,][0-9]+)?([eE][-+]?[0-9]+)?|[0-9]{1,3}([.,'’_\s][0-9]{3})+([.,][0-9]+)?)"
_SIGN, _CURRENCY = r"[-+−–]?\s*", r"([A-Z]{0,3}[$€£¥₹₩₽₺₫₪¢]|[A-Z]{3}|Rs\.?|kr\.?)"
_WRITTEN = re.compile(
    rf"\s*['=]?[<>≤≥~≈±]?\(?\s*{_SIGN}{_CURRENCY}?\s*{_SIGN}{_NUMBER}"
    rf"(\s*(%|‰|{_CURRENCY}|°[CF]?|[-−])|\s*°|\s+(?P<unit>[^\W\d]+\.?))?\s*\)?\s*"
)


def _finite(numbers: Array, name: str, place: Place) -> Array:
    for row in np.flatnonzero(np.isinf(numbers))[:1]:
        raise ValueError(f"{place(row)}: {name!r} is infinite; give a finite value, or leave the cell empty")
    return numbers
