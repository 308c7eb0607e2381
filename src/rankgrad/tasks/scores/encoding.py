"""`Encoding`: columns of numbers and of words -> [row, width] float32. It is fitted on the training rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...common.checks import integer, setting
from ...common.files import AGAIN, shown
from .columns import TRUTH
from .table import ScoreTable

Array = npt.NDArray[Any]
LARGEST = np.finfo(np.float64).max
STRANGE = 1000  # a number is as many deviations from the mean of the training rows
FAR = 100  # most standard deviations of a column per deviation of its middle values
# Programs write the extreme values of a type for a missing value: of floats, which may be rounded, and of integers.
EXTREME = np.array(
    [1.797e308, -1.797e308, 3.402e38, -3.402e38, 2.0**64, 2.0**63, -(2.0**63), 2.0**32 - 1, 2.0**31 - 1, -(2.0**31)]
)
ROUNDED = 1e-3 * np.abs(EXTREME) * (np.arange(10) < 4)
WIDEST = 100_000  # values of an encoded row; a crafted file could ask for gigabytes


@dataclass(frozen=True)
class NumberColumn:
    """Encoding of a column of numbers: (value - mean) / deviation, and 0 for a missing value.

    Attributes:
        name: name of the column.
        mean: mean over the training rows that have a value; with `far`, the median of their different values.
        deviation: their standard deviation, > 0; with `far`, the median distance from that median, times 1.48, which is
            the standard deviation of a normal distribution.
        indicator: whether there is a further column, which is 1 for a missing value. It exists if a value is missing in
            the training rows.
        far: whether some values are so far from the others that the standard deviation, which they decide, would make
            the others equal. Then arsinh of the quotient is taken: about the quotient itself if it is small, and its
            logarithm if it is large.
    """

    name: str
    mean: float
    deviation: float
    indicator: bool
    far: bool = False

    def encode(self, column: Array) -> Array:
        """[row] the encoded values of a column; missing values are 0."""
        return np.where(is_missing(column), 0, self._scaled(column))

    def _scaled(self, values: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled: Array = (values - self.mean) / self.deviation
        return np.arcsinh(np.clip(scaled, -LARGEST, LARGEST)) if self.far else scaled


@dataclass(frozen=True)
class WordColumn:
    """Encoding of a column of words: one column for each category. It is 1 for this word, and 0 for all others.

    Attributes:
        name: name of the column.
        categories: words that enough training rows have.
    """

    name: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Encoding:
    """Encoding of the rows of a table as numbers for a network. It is stored with the model.

    Attributes:
        numbers: the columns of numbers.
        words: the columns of words.
        left_out: names of the columns that are constant in the training rows, or have no frequent category.
        notes: remarks on columns of the training rows, one sentence each; not stored.

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
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def fitted(cls, table: ScoreTable, *, fewest: int = 10, most: int = 100) -> Encoding:
        """Fit an encoding.

        Args:
            table: the training rows.
            fewest: smallest number of rows of a category.
            most: largest number of categories of a column; the most frequent ones are used.

        Raises:
            ValueError: all columns are constant, or have no frequent category.
        """
        integer(fewest, "fewest is a number of rows of a category", low=1)
        integer(most, "most is a number of categories of a column", low=1)
        numbers: list[NumberColumn] = []
        words: list[WordColumn] = []
        left_out: list[str] = []
        notes: list[str] = []
        for name, column in table.features.items():
            if column.dtype == object:
                word = _fitted_words(name, column, fewest, most)
                words += [] if word is None else [word]
                left_out += [name] if word is None else []
            else:
                number, remarks = fitted_numbers(name, column)
                numbers += [] if number is None else [number]
                notes += remarks
                left_out += [name] if number is None else []
        if not numbers and not words:
            raise ValueError(
                f"no column of {shown(table.name)} distinguishes its {len(table)} training rows: all numbers are "
                f"constant, and no word is in {fewest} rows"
            )
        return cls(tuple(numbers), tuple(words), tuple(left_out), tuple(notes))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that a table needs."""
        return (*(column.name for column in self.numbers), *self.categorical)

    @property
    def categorical(self) -> tuple[str, ...]:
        """Names of the columns of words among them."""
        return tuple(column.name for column in self.words)

    @property
    def columns(self) -> tuple[str, ...]:
        """[width] name of each encoded column."""
        columns: list[str] = []
        for number in self.numbers:
            columns += [number.name, f"{number.name} is missing"] if number.indicator else [number.name]
        return (*columns, *(f"{word.name} = {category}" for word in self.words for category in word.categories))

    @property
    def width(self) -> int:
        """Number of values of an encoded row."""
        return len(self.columns)

    def summary(self) -> str:
        """The width of an encoded row, and the columns that are left out; then a line for each note, ten at most.

        >>> Encoding((), (WordColumn("city", ("A", "B")),), ("name",)).summary()
        '1 column encoded as 2 numbers; left out (constant, or no frequent category): name'
        """
        used = len(self.names)
        line = f"{used} column{'s' if used > 1 else ''} encoded as {self.width} number{'s' if self.width > 1 else ''}"
        if self.left_out:
            some = ", ".join(map(shown, self.left_out[:10])) + (", ..." if len(self.left_out) > 10 else "")
            line += f"; left out (constant, or no frequent category): {some}"
        more = [f"and {len(self.notes) - 10} more remarks on columns."] if len(self.notes) > 10 else []
        return "\n".join([line, *self.notes[:10], *more])

    def encode(self, table: ScoreTable) -> Tensor:
        """Encode the rows of a table: [row, width] float32.

        Raises:
            ValueError: a column is missing; it has words and the training rows have numbers, or the reverse; or a
                number is too large.
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
            with np.errstate(over="ignore"):
                encoded[:, place] = number.encode(values)
            if not np.isfinite(encoded[:, place]).all():
                row = int((~np.isfinite(encoded[:, place])).argmax())
                raise ValueError(
                    f"{table.place(row)}: {number.name!r} is {values[row]:g}, too far from the mean of the training "
                    f"rows, {number.mean:g}. Correct it, or leave it empty if it is missing"
                )
            if number.indicator:
                encoded[:, place + 1] = is_missing(values)
            place += 1 + number.indicator
        for word in self.words:
            values = _of_words(table, word.name, word.categories)
            column_of = {category: column for column, category in enumerate(word.categories, place)}
            columns = np.array([column_of.get(value, -1) for value in values.tolist()])
            known = np.flatnonzero(columns >= 0)
            encoded[known, columns[known]] = 1
            place += len(word.categories)
        return torch.from_numpy(encoded)

    def unknown(self, table: ScoreTable) -> list[str]:
        """A sentence for each column whose values are not as in the training rows. Perhaps they are written otherwise.

        These are numbers that are far from all in training, or missing where none was, and columns of words with most
        values in no category.

        >>> encoding = Encoding((), (WordColumn("zip", ("94110", "94112")),))
        >>> encoding.unknown(ScoreTable({"zip": np.array(["94110", "CA 94110", "CA 94112"], dtype=object)}))
        ["zip: 2 of 3 values are in no category of the training rows, such as 'CA 94110'."]
        """
        sentences = [sentence for number in self.numbers for sentence in _strange(number, table)]
        for column in self.words:
            given = [value for value in _of_words(table, column.name, column.categories).tolist() if value is not None]
            known = set(column.categories)
            others = [value for value in given if value not in known]
            if 2 * len(others) > len(given):
                sentences.append(
                    f"{shown(column.name)}: {len(others)} of {len(given)} values are in no category of the training "
                    f"rows, such as {shown(others[0])!r}."
                )
        return sentences

    def to_plain(self) -> dict[str, Any]:
        """The encoding as plain values, which `from_plain` reads."""
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
            width = len(plain["numbers"]) + sum(len(column["categories"]) for column in plain["words"])
            if width > WIDEST:
                raise ValueError(f"the encoding of the columns has {width} values a row, and {WIDEST} are allowed")
            encoding = cls(
                tuple(NumberColumn(**column) for column in plain["numbers"]),
                tuple(WordColumn(column["name"], tuple(column["categories"])) for column in plain["words"]),
                tuple(plain["left_out"]),
            )
            whole = encoding._is_whole() and encoding.to_plain() == plain
        except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError):
            whole = False
        if not whole:
            raise ValueError(f"the encoding of the columns is damaged. {AGAIN}")
        return encoding

    def _is_whole(self) -> bool:
        """Whether all values have the right types and ranges. They may come from a damaged file."""
        texts = [*self.names, *self.left_out, *(each for column in self.words for each in column.categories)]
        return (
            all(isinstance(text, str) for text in texts)
            and all(type(each) in (int, float) for column in self.numbers for each in (column.mean, column.deviation))
            and self.width > 0
            and len(set(self.names)) == len(self.names)
            and all(len(set(column.categories)) == len(column.categories) for column in self.words)
            and all(math.isfinite(column.mean) and 0 < column.deviation < math.inf for column in self.numbers)
            and all(isinstance(flag, bool) for column in self.numbers for flag in (column.indicator, column.far))
        )


def is_missing(column: Array) -> Array:
    """[row] bool: NaN, or an extreme value of a type, which programs write for a missing value.

    >>> is_missing(np.array([1.0, np.nan, 1.797e308, -(2.0**31), 2.0**31]))
    array([False,  True,  True,  True, False])
    """
    missing = np.isnan(column)
    large = np.flatnonzero(np.abs(column) >= 2.0**31 - 1)
    if not len(large):
        return missing
    with np.errstate(over="ignore"):
        missing[large] = (np.abs(column[large, None] - EXTREME) <= ROUNDED).any(1)
    return missing


def fitted_numbers(name: str, column: Array) -> tuple[NumberColumn | None, list[str]]:
    """The encoding of a column of numbers, and remarks; None if it is empty, or constant without a missing value.

    Args:
        name: name of the column.
        column: [row] float64, NaN for a missing value.

    >>> column, _ = fitted_numbers("age", np.array([20.0, 40.0, np.nan]))
    >>> column.mean, column.deviation, column.indicator
    (30.0, 10.0, True)
    """
    missing = is_missing(column)
    given = np.sort(column[~missing])
    values = given[np.append(True, given[1:] != given[:-1])] if len(given) else given
    remarks = []
    extreme = column[missing & ~np.isnan(column)]
    if len(extreme):
        remarks.append(
            f"{shown(name)}: {len(extreme)} of {len(column)} values are extremes of a type, such as {extreme[0]:.7g}; "
            "they are read as missing."
        )
    if not len(values) or (len(values) == 1 and not missing.any()):
        return None, remarks
    number = NumberColumn(name, *mean_and_deviation(given), bool(missing.any()))
    with np.errstate(over="ignore"):  # then the width is infinite, and the deviation is taken
        middle = float(np.median(values))
        width = 1.4826 * float(np.median(np.abs(values - middle)))
    if 0 < width < number.deviation / FAR:
        number = replace(number, mean=middle, deviation=width, far=True)
        far = values[0] if middle - values[0] > values[-1] - middle else values[-1]
        remarks.append(
            f"{shown(name)}: some values, such as {far:.7g}, are far from the others, which are near {middle:.7g}; the "
            "column is encoded on a logarithmic scale. Leave the cell empty if such a value means that it is missing."
        )
    else:
        remarks += _alone(name, given, values)
    kept = 1 + np.count_nonzero(np.diff(number._scaled(values).astype(np.float32)))
    if 2 * kept < len(values):
        remarks.append(
            f"{shown(name)}: its {len(values)} different values become {kept} when they are standardised, because they "
            "are in groups far apart. Divide it into several columns."
        )
    return number, remarks


def _alone(name: str, given: Array, values: Array) -> list[str]:
    """A sentence if one value occurs again and again, farther from all others than these are from each other.

    Args:
        name: name of the column.
        given: [row] numbers in ascending order.
        values: the different numbers among them.

    >>> column = np.array([-999.0, -999.0, 0.0, 31.0, 42.0, 87.0])
    >>> _alone("age", column, np.unique(column))
    ['age: 2 of 6 values are -999, and the others are from 0 to 87. Leave these cells empty if they mean that the \
value is missing.']
    """
    if len(values) < 5:
        return []
    for value, others in ((values[0], values[1:]), (values[-1], values[:-1])):
        count = np.count_nonzero(given == value)
        if count > 1 and np.abs(others - value).min() > others[-1] - others[0]:
            return [
                f"{shown(name)}: {count} of {len(given)} values are {value:.7g}, and the others are from "
                f"{others[0]:.7g} to {others[-1]:.7g}. Leave these cells empty if they mean that the value is missing."
            ]
    return []


def mean_and_deviation(column: Array) -> tuple[float, float]:
    """Mean and standard deviation of numbers; the deviation is 1 if all are equal, as rounding would give 1e-16.

    >>> mean_and_deviation(np.array([1.0, 3.0])), mean_and_deviation(np.array([0.1, 0.1, 0.1]))[1]
    ((2.0, 1.0), 1.0)
    """
    scale = max(float(np.abs(column).max()), np.finfo(np.float64).tiny)  # without it, the square of 1e300 overflows
    mean, deviation = float((column / scale).mean() * scale), float((column / scale).std() * scale)
    return mean, deviation if column.min() < column.max() and deviation > 0 else 1.0


def _fitted_words(name: str, column: Array, fewest: int, most: int) -> WordColumn | None:
    given = [word for word in column.tolist() if word is not None]
    words, counts = (
        np.unique(np.array(given, dtype=object), return_counts=True) if given else (np.empty(0), np.empty(0))
    )
    order = np.argsort(-counts, kind="stable")
    kept = sorted(str(words[place]) for place in order[:most] if fewest <= counts[place] < len(column))
    return WordColumn(name, tuple(kept)) if kept else None


def _strange(number: NumberColumn, table: ScoreTable) -> list[str]:
    """A sentence if numbers are missing where none was in training, and one if some are far from those in training."""
    values = _of_numbers(table, number.name)
    missing = is_missing(values)
    far = ~missing & (np.abs(number._scaled(values)) > STRANGE)
    found = (
        (missing & (not number.indicator), "missing, and none was in the training rows: they count as the mean"),
        (far, f"far from those of the training rows, such as {np.append(values[far], 0)[0]:.7g}"),
    )
    place = shown(number.name)
    return [f"{place}: {rows.sum()} of {len(rows)} values are {what}." for rows, what in found if rows.any()]


def _of_numbers(table: ScoreTable, name: str) -> Array:
    column = table.features[name]
    if column.dtype == object:
        numbers = [np.nan if value is None else TRUTH.get(value.lower()) for value in column.tolist()]
        if None in numbers:
            row = numbers.index(None)
            raise ValueError(
                f"{table.place(row)}: {name!r} is {shown(column[row])!r}; in the training, this column had numbers"
            )
        return np.array(numbers, dtype=np.float64)
    return column


def _of_words(table: ScoreTable, name: str, categories: Sequence[str]) -> Array:
    column = table.features[name]
    truth = {TRUTH[word.lower()]: word for word in categories if word.lower() in TRUTH}
    if truth and column.dtype != object and np.isin(column[~np.isnan(column)], [0, 1]).all():
        return np.array([truth.get(value) for value in column.tolist()], dtype=object)
    if column.dtype != object and not np.isnan(column).all():
        raise ValueError(
            f"{name!r} of {shown(table.name)} is a column of numbers; in the training, it had words. Read it as words: "
            f"{setting('categorical', [name])}"
        )
    return column if column.dtype == object else np.full(len(column), None, dtype=object)


__all__ = ["Encoding", "NumberColumn", "WordColumn", "fitted_numbers"]
