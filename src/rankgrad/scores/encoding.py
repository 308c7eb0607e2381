"""`Encoding`: columns of numbers and of words -> [row, width] float32, by what the training rows have."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import integer, setting
from ..files import AGAIN, shown
from .table import ScoreTable

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class NumberColumn:
    """How a column of numbers is encoded: (value - mean) / deviation, 0 where it is missing.

    Attributes:
        name: of the column.
        mean: of the training rows that have a value.
        deviation: their standard deviation, > 0.
        indicator: a further column is 1 where the value is missing, because training rows miss it.
    """

    name: str
    mean: float
    deviation: float
    indicator: bool


@dataclass(frozen=True)
class WordColumn:
    """How a column of words is encoded: a column for each category, 1 in the row's own; 0 in all for other words.

    Attributes:
        name: of the column.
        categories: those that enough training rows have.
    """

    name: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Encoding:
    """Rows of a table -> numbers for a network; fitted on the training rows, and stored with the model.

    Attributes:
        numbers: columns of numbers.
        words: columns of words.
        left_out: columns that are constant in the training rows, or have no frequent category.

    >>> table = ScoreTable({"age": np.array([20.0, 40.0, np.nan]), "city": np.array(["A", "A", "B"], dtype=object)})
    >>> encoding = Encoding.fitted(table, fewest=2)
    >>> encoding.columns
    ('age', 'age is missing', 'city = A')
    >>> encoding.encode(table)
    tensor([[-1.,  0.,  1.],
            [ 1.,  0.,  1.],
            [ 0.,  1.,  0.]])
    """

    numbers: tuple[NumberColumn, ...]
    words: tuple[WordColumn, ...]
    left_out: tuple[str, ...] = ()

    @classmethod
    def fitted(cls, table: ScoreTable, *, fewest: int = 10, most: int = 100) -> Encoding:
        """The encoding of a table's rows.

        Args:
            table: the training rows.
            fewest: rows that a category needs to have a column.
            most: categories of a column of words that have a column; the most frequent ones.

        Raises:
            ValueError: no column is left: all are constant, or have no frequent category.
        """
        integer(fewest, "fewest counts rows of a category", low=1)
        integer(most, "most counts categories of a column", low=1)
        numbers: list[NumberColumn] = []
        words: list[WordColumn] = []
        left_out: list[str] = []
        for name, column in table.features.items():
            number = None if column.dtype == object else _fitted_numbers(name, column)
            word = _fitted_words(name, column, fewest, most) if column.dtype == object else None
            numbers += [] if number is None else [number]
            words += [] if word is None else [word]
            left_out += [name] if number is None and word is None else []
        if not numbers and not words:
            raise ValueError(
                f"no column of {shown(table.name)} tells its {len(table)} training rows apart: columns of numbers are "
                f"constant, and no word stands in {fewest} rows"
            )
        return cls(tuple(numbers), tuple(words), tuple(left_out))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a file that are needed."""
        return (*(column.name for column in self.numbers), *self.categorical)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Those of them that are columns of words."""
        return tuple(column.name for column in self.words)

    @property
    def columns(self) -> tuple[str, ...]:
        """[width] what each encoded column says."""
        columns: list[str] = []
        for number in self.numbers:
            columns += [number.name, f"{number.name} is missing"] if number.indicator else [number.name]
        return (*columns, *(f"{word.name} = {category}" for word in self.words for category in word.categories))

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return len(self.columns)

    def summary(self) -> str:
        """One line: how wide a row is, and which columns of the table are left out.

        >>> Encoding((), (WordColumn("city", ("A", "B")),), ("name",)).summary()
        '1 column encoded as 2 numbers; left out, as they are constant or have no frequent category: name'
        """
        used = len(self.names)
        line = f"{used} column{'s' if used > 1 else ''} encoded as {self.width} number{'s' if self.width > 1 else ''}"
        if not self.left_out:
            return line
        some = ", ".join(map(shown, self.left_out[:10])) + (", ..." if len(self.left_out) > 10 else "")
        return f"{line}; left out, as they are constant or have no frequent category: {some}"

    def encode(self, table: ScoreTable) -> Tensor:
        """[row, width] float32 of a table's rows.

        Raises:
            ValueError: a column is absent, or is of words where the training rows have numbers, or the reverse; a
                number is too large to be encoded.
        """
        absent = [name for name in self.names if name not in table.features]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise ValueError(
                f"{shown(table.name)} has no column {absent[0]!r}{more}, which the model was trained with; it has "
                f"{', '.join(map(shown, list(table.features)[:40]))}"
            )
        encoded = np.zeros((len(table), self.width), dtype=np.float32)
        place = 0
        for number in self.numbers:
            values = _of_numbers(table, number.name)
            missing = np.isnan(values)
            with np.errstate(over="ignore"):
                encoded[:, place] = np.where(missing, 0, (values - number.mean) / number.deviation)
            if not np.isfinite(encoded[:, place]).all():
                row = int((~np.isfinite(encoded[:, place])).argmax())
                raise ValueError(
                    f"{table.place(row)}: {number.name!r} is {values[row]:g}, too far from the training rows, of mean "
                    f"{number.mean:g}. Mend it, or leave it empty if it is missing"
                )
            if number.indicator:
                encoded[:, place + 1] = missing
            place += 1 + number.indicator
        for word in self.words:
            values = _of_words(table, word.name)
            numbered = {category: column for column, category in enumerate(word.categories, place)}
            at = np.array([numbered.get(value, -1) for value in values.tolist()])
            known = np.flatnonzero(at >= 0)
            encoded[known, at[known]] = 1
            place += len(word.categories)
        return torch.from_numpy(encoded)

    def unknown(self, table: ScoreTable) -> list[str]:
        """A sentence for each column of words of which most values are in no category: are they written differently?

        >>> encoding = Encoding((), (WordColumn("zip", ("94110", "94112")),))
        >>> encoding.unknown(ScoreTable({"zip": np.array(["94110", "CA 94110", "CA 94112"], dtype=object)}))
        ["zip: 2 of 3 values are in no category of the training rows, such as 'CA 94110'."]
        """
        sentences: list[str] = []
        for column in self.words:
            given = [value for value in _of_words(table, column.name).tolist() if value is not None]
            known = set(column.categories)
            others = [value for value in given if value not in known]
            if 2 * len(others) > len(given):
                sentences.append(
                    f"{shown(column.name)}: {len(others)} of {len(given)} values are in no category of the training "
                    f"rows, such as {shown(others[0])!r}."
                )
        return sentences

    def to_plain(self) -> dict[str, Any]:
        """Plain values, which `from_plain` reads; for a file without code."""
        return {
            "numbers": [asdict(column) for column in self.numbers],
            "words": [{"name": column.name, "categories": list(column.categories)} for column in self.words],
            "left_out": list(self.left_out),
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Encoding:
        """An encoding from plain values.

        Raises:
            ValueError: they are damaged.
        """
        try:
            encoding = cls(
                tuple(NumberColumn(**column) for column in plain["numbers"]),
                tuple(WordColumn(column["name"], tuple(column["categories"])) for column in plain["words"]),
                tuple(plain["left_out"]),
            )
            whole = encoding._is_whole() and encoding.to_plain() == plain
        except (KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            raise ValueError(f"the encoding of the columns is damaged. {AGAIN}")
        return encoding

    def _is_whole(self) -> bool:
        """Whether all values are of their kinds: what was read of a file may be anything."""
        texts = [*self.names, *self.left_out, *(each for column in self.words for each in column.categories)]
        return (
            all(isinstance(text, str) for text in texts)
            and self.width > 0
            and len(set(self.names)) == len(self.names)
            and all(len(set(column.categories)) == len(column.categories) for column in self.words)
            and all(math.isfinite(column.mean) and 0 < column.deviation < math.inf for column in self.numbers)
            and all(isinstance(column.indicator, bool) for column in self.numbers)
        )


def _fitted_numbers(name: str, column: Array) -> NumberColumn | None:
    """How to encode a column of numbers; None if it is constant and without a gap, or empty."""
    missing = np.isnan(column)
    given = column[~missing]
    if not len(given) or (given.min() == given.max() and not missing.any()):
        return None
    scale = max(float(np.abs(given).max()), np.finfo(np.float64).tiny)  # the squares of 1e300 are beyond all numbers
    mean, deviation = float((given / scale).mean() * scale), float((given / scale).std() * scale)
    return NumberColumn(
        name, mean, deviation if given.min() < given.max() and deviation > 0 else 1.0, bool(missing.any())
    )


def _fitted_words(name: str, column: Array, fewest: int, most: int) -> WordColumn | None:
    given = [word for word in column.tolist() if word is not None]
    words, counts = (
        np.unique(np.array(given, dtype=object), return_counts=True) if given else (np.empty(0), np.empty(0))
    )
    order = np.argsort(-counts, kind="stable")
    kept = sorted(str(words[place]) for place in order[:most] if fewest <= counts[place] < len(column))
    return WordColumn(name, tuple(kept)) if kept else None


def _of_numbers(table: ScoreTable, name: str) -> Array:
    column = table.features[name]
    if column.dtype == object:
        row = next((row for row, value in enumerate(column.tolist()) if value is not None), None)
        if row is not None:
            raise ValueError(
                f"{table.place(row)}: {name!r} is {shown(column[row])!r}; the model was trained with numbers there"
            )
        return np.full(len(column), np.nan)
    return column


def _of_words(table: ScoreTable, name: str) -> Array:
    column = table.features[name]
    if column.dtype != object and not np.isnan(column).all():
        raise ValueError(
            f"{name!r} of {shown(table.name)} is a column of numbers; the model was trained with words there. Read "
            f"it as words: {setting('categorical', [name])}"
        )
    return column if column.dtype == object else np.full(len(column), None, dtype=object)


__all__ = ["Encoding", "NumberColumn", "WordColumn"]
