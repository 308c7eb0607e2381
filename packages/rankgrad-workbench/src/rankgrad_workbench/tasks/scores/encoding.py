"""`Encoding`: columns of numbers and of words -> [row, width] float32. It is fitted on the training rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import torch
from torch import Tensor

from rankgrad.common.checks import integer, setting
from rankgrad.common.files import AGAIN
from rankgrad.common.text import shown
from rankgrad.scores.columns import Scaling, is_missing, odd_values

from .table import ScoreTable

Array = npt.NDArray[Any]
STRANGE = 1000  # a number is as many deviations from the mean of the training rows
ABSENT = "missing, and none was in the training rows: they count as the mean"
DISTANT = "far from those of the training rows, such as {:.7g}"
ADVICE = "Leave these cells empty if they mean that the value is missing."


@dataclass(frozen=True, eq=False)
class Encoding:
    """Encoding of the rows of a table as numbers for a network. It is stored with the model, as plain values.

    A column of numbers becomes one column, and a second one, 1 for a missing value, if a value is missing in the
    training rows; a column of words one for each category, 1 for this word. These are the numbers of scikit-learn's
    SimpleImputer(add_indicator=True), StandardScaler and OneHotEncoder.

    Attributes:
        numbers: names of the columns of numbers.
        scaling: of these columns.
        indicator: [column] whether a value of these columns is missing in the training rows.
        words: column of words -> its categories, words that enough training rows have.
        left_out: names of the columns that are constant in the training rows, or have no frequent category.
        notes: remarks on columns of the training rows, one sentence each; not stored.

    >>> table = ScoreTable.of({"age": [20.0, 40.0, None], "city": ["A", "A", "B"]})
    >>> encoding = Encoding.fitted(table, fewest=2)
    >>> encoding.columns
    ('age', 'age is missing', 'city = A')
    >>> encoding.encode(table)
    tensor([[-1.,  0.,  1.],
            [ 1.,  0.,  1.],
            [ 0.,  1.,  0.]])
    """

    numbers: tuple[str, ...]
    scaling: Scaling
    indicator: Array
    words: Mapping[str, Sequence[str]]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
        words: dict[str, Sequence[str]] = {}
        given = table.features.select_dtypes("number")
        for name, column in table.features.drop(columns=given.columns).items():
            counts = column.value_counts().sort_index().sort_values(ascending=False, kind="stable")
            kept = counts[(counts >= fewest) & (counts < len(column))].index[:most]
            words |= {name: sorted(map(str, kept))} if len(kept) else {}
        columns = given.to_numpy(np.float64)
        missing: Array = is_missing(columns)
        gaps: Array = np.atleast_1d(missing.any(axis=0))
        kept = given.mask(missing).nunique().to_numpy() + gaps > 1
        numbers = tuple(given.columns[kept])
        if not numbers and not words:
            raise ValueError(
                f"no column of {shown(table.name)} distinguishes its {len(table)} training rows: all numbers are "
                f"constant, and no word is in {fewest} rows"
            )
        odd = [(name, odd_values(column)) for name, column in zip(given, columns.T, strict=True)]
        return cls(
            numbers,
            Scaling.fitted(columns[:, kept]),
            gaps[kept],
            words,
            tuple(name for name in table.features if name not in numbers and name not in words),
            tuple(f"{shown(name)}: {what}. {ADVICE}" for name, what in odd if what),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that a table needs."""
        return (*self.numbers, *self.words)

    @property
    def columns(self) -> tuple[str, ...]:
        """[width] name of each encoded column."""
        absent = [f"{name} is missing" for name, there in zip(self.numbers, self.indicator, strict=True) if there]
        return (*self.numbers, *absent, *(f"{name} = {word}" for name, words in self.words.items() for word in words))

    @property
    def width(self) -> int:
        """Number of values of an encoded row."""
        return len(self.columns)

    def summary(self) -> str:
        """The width of an encoded row, and the columns that are left out; then a line for each note, ten at most.

        >>> Encoding.fitted(ScoreTable.of({"city": ["A", "B"], "name": ["a", "a"]}), fewest=1).summary()
        '1 column encoded as 2 numbers; left out (constant, or no frequent category): name'
        """
        used, width = len(self.names), self.width
        line = f"{used} column{'s' * (used > 1)} encoded as {width} number{'s' * (width > 1)}"
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
        values = self._numbers(table)
        with np.errstate(over="ignore"):
            scaled = self.scaling(values).astype(np.float32)
        for row, column in np.argwhere(~np.isfinite(scaled))[:1]:
            raise ValueError(
                f"{table.place(row)}: {self.numbers[column]!r} is {values[row, column]:g}, too far from the mean of "
                f"the training rows, {self.scaling.mean[column]:g}. Correct it, or leave it empty if it is missing"
            )
        parts: list[Array] = [scaled, is_missing(values)[:, self.indicator]]
        for name, words in self.words.items():
            codes = pandas.Index(words, dtype=object).get_indexer(self._column(table, name))
            parts.append(codes[:, None] == np.arange(len(words)))
        return torch.from_numpy(np.concatenate(parts, axis=1, dtype=np.float32))

    def _column(self, table: ScoreTable, name: str) -> pandas.Series:
        """A column of a table: of numbers or of words, as in the training rows."""
        if name not in table.features:
            raise ValueError(
                f"{shown(table.name)} has no column {name!r}, which the model was trained with; it has "
                f"{', '.join(map(shown, list(table.features)[:40]))}"
            )
        column = table.features[name]
        if name in self.words:
            if column.dtype != object and column.notna().any():
                raise ValueError(
                    f"{name!r} of {shown(table.name)} is a column of numbers; in the training, it had words. Read it "
                    f"as words: {setting('categorical', [name])}"
                )
            return column.astype(object)
        numbers = pandas.to_numeric(column, errors="coerce")
        for row in np.flatnonzero(numbers.isna() & column.notna())[:1]:
            raise ValueError(
                f"{table.place(row)}: {name!r} is {shown(column.iloc[row])!r}; in the training, this column had numbers"
            )
        return numbers

    def _numbers(self, table: ScoreTable) -> Array:
        """[row, column] the columns of numbers of a table."""
        columns = [self._column(table, name).to_numpy(np.float64) for name in self.numbers]
        return np.stack(columns, axis=1) if columns else np.empty((len(table), 0))

    def unknown(self, table: ScoreTable) -> list[str]:
        """A sentence for each column whose values are not as in the training rows. Perhaps they are written otherwise.

        These are numbers that are far from all in training, or missing where none was, and columns of words with most
        values in no category.

        >>> encoding = Encoding.fitted(ScoreTable.of({"city": ["Rome", "Oslo"]}), fewest=1)
        >>> encoding.unknown(ScoreTable.of({"city": ["Rome", "rome", "oslo"]}))
        ["city: 2 of 3 values are in no category of the training rows, such as 'rome'."]
        """
        values = self._numbers(table)
        missing = is_missing(values) & ~self.indicator
        far = np.abs(self.scaling(values)) > STRANGE
        told = [
            f"{shown(name)}: {rows.sum()} of {len(table)} values are {what.format(values[rows, at][0])}."
            for at, name in enumerate(self.numbers)
            for rows, what in ((missing[:, at], ABSENT), (far[:, at], DISTANT))
            if rows.any()
        ]
        for name, words in self.words.items():
            given = self._column(table, name).dropna()
            others = given[~given.isin(words)]
            if 2 * len(others) > len(given):
                told.append(
                    f"{shown(name)}: {len(others)} of {len(given)} values are in no category of the training rows, "
                    f"such as {shown(others.iloc[0])!r}."
                )
        return told

    def to_plain(self) -> dict[str, Any]:
        """The encoding as plain values, which `from_plain` reads."""
        scaling = {name: getattr(self.scaling, name).tolist() for name in ("mean", "deviation", "far")}
        return {
            "numbers": {"name": [*self.numbers], **scaling, "indicator": self.indicator.tolist()},
            "words": {name: [*words] for name, words in self.words.items()},
            "left_out": [*self.left_out],
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Encoding:
        """An encoding from plain values, perhaps those of a damaged file.

        Raises:
            ValueError: they are damaged.
        """
        try:
            numbers, words = plain["numbers"], dict(plain["words"])
            mean, deviation = (np.array([*map(float, numbers[name])]) for name in ("mean", "deviation"))
            far, indicator = (np.array([*map(bool, numbers[name])], bool) for name in ("far", "indicator"))
            names = tuple(numbers["name"])
            encoding = cls(names, Scaling(mean, deviation, far), indicator, words, tuple(map(str, plain["left_out"])))
            whole = (
                encoding.to_plain() == plain
                and all(isinstance(name, str) for each in (encoding.names, *words.values()) for name in each)
                and all(len({*each}) == len(each) for each in (encoding.names, *words.values()))
                and all(each.shape == (len(names),) for each in (mean, deviation, far, indicator))
                and bool(np.isfinite([mean, deviation]).all() and (deviation > 0).all())
                and encoding.width > 0
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError):
            whole = False
        if not whole:
            raise ValueError(f"the encoding of the columns is damaged. {AGAIN}")
        return encoding


__all__ = ["Encoding"]
