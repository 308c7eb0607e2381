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
from ...files.tables.formats import format_of, read_arrays
from ...files.tables.text import MISSING, number_in, text_of
from ...trec.files import QUERY

Array = npt.NDArray[Any]
Place = Callable[[int], str]  # row -> its place in a file, for messages
COMPARED = 2**12  # number of first rows that decide what a column holds
BESIDE = (".weight", ".init", ".position", ".base_margin")  # theirs for other files beside it, which are not read
SIZES = (".query", ".group")  # LightGBM's and XGBoost's names for a file of query sizes, beside the file of the rows
TRUTH = {"true": 1.0, "false": 0.0}


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

    def __contains__(self, name: object) -> bool:
        return name not in self.drop and (bool(str(name).strip()) if self.only is None else name in self.only)


@dataclass(frozen=True, eq=False)
class ReadColumns:
    """The columns of one file or of several.

    Attributes:
        values: name -> [row] values; in the end float64, NaN for a missing value, or str, None for a missing value.
        rows: [row] number of the row in its file: lines count from 1, rows from 0.
        files: [row] the file, and the unit of the number: "train.csv, line".
        unread: names of the columns that were not read.
        sparse: whether a feature that is not in the file is 0 in each row.
        sized: whether the queries come from a file of sizes, so that their ids name nothing.
    """

    values: dict[str, Array]
    rows: Array
    files: Array
    unread: tuple[str, ...] = ()
    sparse: bool = False
    sized: bool = False

    def place(self, row: int) -> str:
        """The place of a row."""
        return f"{self.files[row]} {self.rows[row]}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return (*self.values, *self.unread)

    @property
    def listed(self) -> str:
        """Names of the columns for a message; only some of them if there are more than 40."""
        names = [*map(shown, self.names)]
        return ", ".join(names if len(names) <= 40 else [*names[:20], "...", *names[-20:]])


def read_columns(root: Path, wanted: Wanted, delimiter: str | None = None) -> tuple[ReadColumns, list[tuple[str, int]]]:
    """The columns of a file or of a folder's files, and the (split, number of rows) of each file.

    Args:
        root: a file; or a folder with train.csv, test.csv and perhaps val.csv, or names such as rank.train.
        wanted: the columns to read.
        delimiter: see `tables.delimited`.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: a file is damaged, or a column has other values than numbers, texts and dates. Messages name the
            row.
    """
    parts = [(split, _read_file(path, wanted, delimiter)) for split, path in files_of(root)]
    read = _joined([part for _, part in parts])
    for name, column in read.values.items():
        missing = frozenset({""}) if name in wanted.literal else MISSING
        read.values[name] = as_column(column, name, read.place, name in wanted.words, missing)
    return read, [(split, len(part.rows)) for split, part in parts]


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


def unread_beside(path: Path) -> list[str]:
    """A sentence for each file beside the rows that LightGBM or XGBoost would read, and this library does not."""
    there = [path.with_name(path.name + end) for end in BESIDE if path.with_name(path.name + end).is_file()]
    why = {".weight": ": all rows have the same weight"}
    return [f"{shown(file.name)} is not used{why.get(file.suffix, '')}." for file in there]


def _read_file(path: Path, wanted: Wanted, delimiter: str | None) -> ReadColumns:
    """The columns of a file. `X` [row, feature] becomes the columns x0, x1, ...

    A file of query sizes beside it (rank.train.query) is a column query, if there is none.
    """
    kind = format_of(path)
    read = read_arrays(path, lambda name: name == "X" or name in wanted, lambda name: name in wanted.words, delimiter)
    every: dict[str, Array] = {}
    for given, array in read.values.items():
        for name, one in (numbered(array) if given == "X" and array.ndim == 2 else {given: array}).items():
            if name in every:
                raise ValueError(f"{shown(path)} has a column {name!r}, which X has, too; give it another name")
            every[name] = one
    values = {name: column for name, column in every.items() if name in wanted}
    for name, column in values.items():
        if column.ndim != 1:
            raise ValueError(
                f"{shown(path)}, row 0: {name!r} has the shape {column.shape}; a column has a value for each row, and "
                f"only X has several. To leave this column out: {setting('drop', [name])}"
            )
    there = [*values.values()] or [*map(np.atleast_1d, every.values())]
    rows = np.arange(len(there[0]) if there else 0) if read.rows is None else read.rows
    if not len(rows):
        raise ValueError(f"{shown(path)} has no rows")
    for name, column in values.items():
        if len(column) != len(rows):
            raise ValueError(
                f"{shown(path)}: {next(iter(read.values))!r} has {len(rows)} rows, {name!r} has {len(column)}"
            )
    names = {*every, *read.unread}
    if not kind.typed and not (wanted.only or set()) & names and all(number_in(name) is not None for name in names):
        raise ValueError(
            f"{shown(path)}, line {rows[0] - 1}: there is no header; write the names of the columns above the rows"
        )
    unread = (*read.unread, *(name for name in every if name not in wanted))
    sizes = next((path.with_name(path.name + end) for end in SIZES if path.with_name(path.name + end).is_file()), None)
    sized = sizes is not None and "query" in wanted and not set(QUERY) & set(values)
    if sizes is not None and sized:
        values["query"] = _from_sizes(sizes, len(rows))
    files = np.full(len(rows), f"{shown(path.name)}, {kind.unit}", dtype=object)
    return ReadColumns(values, rows, files, unread, read.sparse, sized)


def _from_sizes(path: Path, rows: int) -> Array:
    """[row] the query of each row, from a file with the number of rows of each query."""
    sizes: list[int] = []
    for number, line in enumerate(text_of(path).split("\n"), 1):
        if line.strip() and not re.fullmatch(r"[0-9]{1,15}", line.strip()):
            raise ValueError(f"{shown(path)}, line {number} must be a number of rows; got {shown(line)!r}")
        sizes += [int(line)] if line.strip() else []
    if sum(sizes) != rows:
        raise ValueError(
            f"{shown(path)}: the queries have {sum(sizes)} rows together, but {shown(path.stem)} has {rows}. Write "
            "both files again, or remove this one"
        )
    return np.repeat(np.arange(1, len(sizes) + 1), sizes)


def numbered(matrix: Array) -> dict[str, Array]:
    """The columns of a matrix, named x0, x1, ..."""
    return {f"x{place}": matrix[:, place] for place in range(matrix.shape[1])}


def _joined(parts: Sequence[ReadColumns]) -> ReadColumns:
    """The rows of several files, one file after the other, with the columns of the first file; of all if sparse."""
    first = parts[0]
    if len(parts) == 1:
        return first
    sparse = all(part.sparse for part in parts)
    names = dict.fromkeys(name for part in parts for name in part.values) if sparse else first.values
    values: dict[str, Array] = {}
    for name in names:
        without = next((part for part in parts if name not in part.values), None)
        if without is not None and not sparse:
            raise ValueError(f"{without.files[0]}s: there is no column {name!r}, which {first.files[0]}s have")
        columns = [part.values.get(name, np.zeros(len(part.rows))) for part in parts]
        same = len({column.dtype for column in columns}) == 1
        values[name] = np.concatenate(columns if same else [column.astype(object) for column in columns])
    rows, files = (np.concatenate([getattr(part, each) for part in parts]) for each in ("rows", "files"))
    return ReadColumns(values, rows, files, first.unread, sparse, any(part.sized for part in parts))


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
    if values.dtype.kind == "M":
        cells = values.astype(str).astype(object)
        cells[np.isnat(values)] = None
    else:
        cells = values.astype(object)
        cells[pandas.isna(cells)] = None
    for row, value in enumerate(cells.tolist()):
        if not isinstance(value, (str, int, float, date, Decimal, NoneType)):
            raise ValueError(
                f"{place(row)}: {name!r} is a {type(value).__name__}; a column must have numbers, texts or dates. To "
                f"leave this column out: {setting('drop', [name])}"
            )
    codes, kinds = pandas.factorize(cells)  # [row] number of its value, -1 for a missing one; the different values
    words = np.array([*(_word(kind, of_words) for kind in kinds), None], dtype=object)
    words[[word is not None and word.lower() in missing for word in words]] = None
    numbers = None if of_words else _numbers(words, codes, name, place)
    return words[codes] if numbers is None else _finite(numbers[codes], name, place)


def _word(value: Any, of_words: bool) -> str:
    """A value as a word. A whole number that names a category has no decimal point: 3 and 3.0 are one category."""
    word = str(value).strip()
    return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", word) if of_words or isinstance(value, float) else word


def _numbers(words: Array, codes: Array, name: str, place: Place) -> Array | None:
    """[kind] the words as numbers; None: most of the first cells are no numbers."""
    given = {word.lower() for word in words if word is not None}
    found = [
        np.nan if word is None else TRUTH[word.lower()] if given <= {*TRUTH} else number_in(word) for word in words
    ]
    no_number = np.array([number is None for number in found])
    first, missing = codes[:COMPARED], np.array([word is None for word in words])
    most = (~missing[first]).sum() / 2
    if no_number[first].sum() > most:
        _refuse_written(words, first, most, name, place)
        return None
    wrong = np.flatnonzero(no_number[codes])
    if len(wrong):
        raise ValueError(
            f"{place(int(wrong[0]))}: {name!r} is {shown(words[codes[wrong[0]]])!r}, but most values of this column "
            "are numbers. Correct it, leave it empty if it is missing, or read the column as words: "
            f"{setting('categorical', [name])}"
        )
    return np.array(found, np.float64)


def _finite(numbers: Array, name: str, place: Place) -> Array:
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"{place(int(infinite.argmax()))}: {name!r} is infinite; give a finite value, or leave the cell empty if "
            "the value is missing"
        )
    return numbers


# how people and spreadsheets write numbers: 1,5 or 1.234,5 or 12.5% or US$ 3 or 3 EUR or (3) or 1'250, a long minus,
# 3- or <5 or 21 °C
_NUMBER = r"([0-9]+([.,][0-9]+)?([eE][-+]?[0-9]+)?|[0-9]{1,3}([.,'’_\s][0-9]{3})+([.,][0-9]+)?)"
_SIGN, _CURRENCY = r"[-+−–]?\s*", r"([A-Z]{0,3}[$€£¥₹₩₽₺₫₪¢]|[A-Z]{3}|Rs\.?|kr\.?)"
_WRITTEN = re.compile(
    rf"\s*['=]?[<>≤≥~≈±]?\(?\s*{_SIGN}{_CURRENCY}?\s*{_SIGN}{_NUMBER}"
    rf"(\s*(%|‰|{_CURRENCY}|°[CF]?|[-−])|\s*°|\s+(?P<unit>[^\W\d]+\.?))?\s*\)?\s*"
)


def _refuse_written(words: Array, first: Array, most: float, name: str, place: Place) -> None:
    """Raise if most cells are numbers that people read and programs do not: they would count as words."""
    matches = [None if word is None or number_in(word) is not None else _WRITTEN.fullmatch(word) for word in words]
    written = [row for row, code in enumerate(first.tolist()) if matches[code] is not None]
    units = {match["unit"] for match in matches if match is not None and match["unit"]}
    if len(written) > most and len(units) < 2:
        raise ValueError(
            f"{place(written[0])}: {name!r} is {shown(words[first[written[0]]])!r}; write numbers with a point "
            f"and no comma, unit or other sign. If these are not numbers: {setting('categorical', [name])}"
        )


__all__ = ["ReadColumns", "Wanted", "as_column", "files_of", "numbered", "read_columns", "unread_beside"]
