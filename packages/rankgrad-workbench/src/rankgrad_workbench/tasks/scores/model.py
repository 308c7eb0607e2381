"""Models that score rows, and the file of a model: layers, weights, and the encoding of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import torch
from torch import Tensor, nn

from rankgrad._version import __version__
from rankgrad.common.checks import integer, setting
from rankgrad.common.files import AGAIN
from rankgrad.common.text import shown
from rankgrad.scores.columns import Scaling, is_missing, odd_values
from rankgrad.scores.network import build_ranker

from ...models import state_dicts
from ...models.embedding_model import evaluating
from ...settings import typed
from .settings import GIVEN, Model
from .table import ScoreTable

Array = npt.NDArray[Any]
STRANGE = 1000  # a number is as many deviations from the mean of the training rows
ABSENT = "missing, and none was in the training rows: they count as the mean"
DISTANT = "far from those of the training rows, such as {:.7g}"
ADVICE = "Leave these cells empty if they mean that the value is missing."
FORMAT = "rankgrad-scores-1"
PART = 2**16  # number of rows that are scored at once
NUMBERS = 2**26  # of encoded rows that are in memory at once


def build_model(settings: Model, width: int) -> nn.Module:
    """A new model, [row, width] -> [row].

    Args:
        settings: kind and layers.
        width: width of the encoded rows.

    >>> build_model(Model("linear"), 3)(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    hidden = settings.hidden if settings.kind == "mlp" else ()
    return build_ranker(width, hidden, dropout=settings.dropout, batch_norm=settings.batch_norm)


def score_rows(model: nn.Module, inputs: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Scores of encoded rows, on the CPU. The mode of the model is restored.

    Args:
        model: [row, width] -> [row].
        inputs: [row, width] float.
        device: where to compute.

    Returns:
        [row] float32.

    Raises:
        ValueError: the output of the model is not one number per row.

    >>> score_rows(build_model(Model("linear"), 3), torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    with evaluating(model, device) as (where, _):
        parts = [model(part.to(where)).float().cpu() for part in torch.split(inputs, PART)]
    scores = torch.cat(parts)
    if scores.shape != inputs.shape[:1]:
        raise ValueError(f"the model must give a score for each row, [{len(inputs)}]; got {list(scores.shape)}")
    return scores.clone()  # a tensor of inference mode cannot be used in training


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
        left_out: names of the columns that are constant in the training rows, or have no frequent category; not stored.
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
            raise ValueError(f"no column differs in the {len(table)} training rows, and no word is in {fewest} of them")
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
        """The width of an encoded row, and the columns that are left out; then a line for each note.

        >>> Encoding.fitted(ScoreTable.of({"city": ["A", "B"], "name": ["a", "a"]}), fewest=1).summary()
        '1 column encoded as 2 numbers; left out (constant, or no frequent category): name'
        """
        used, width = len(self.names), self.width
        line = f"{used} column{'s' * (used > 1)} encoded as {width} number{'s' * (width > 1)}"
        if self.left_out:
            some = ", ".join(map(shown, self.left_out[:10])) + (", ..." if len(self.left_out) > 10 else "")
            line += f"; left out (constant, or no frequent category): {some}"
        return "\n".join([line, *self.notes])

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
                f"{table.place(row)}: {self.numbers[column]!r} is {values[row, column]:g}, far from all in the training"
            )
        parts: list[Array] = [scaled, is_missing(values)[:, self.indicator]]
        for name, words in self.words.items():
            codes = pandas.Index(words, dtype=object).get_indexer(self._column(table, name))
            parts.append(codes[:, None] == np.arange(len(words)))
        return torch.from_numpy(np.concatenate(parts, axis=1, dtype=np.float32))

    def _column(self, table: ScoreTable, name: str) -> pandas.Series:
        """A column of a table: of numbers or of words, as in the training rows."""
        if name not in table.features:
            raise ValueError(f"{shown(table.name)} has no column {name!r}, which the model was trained with")
        column = table.features[name]
        if name in self.words:
            if column.dtype != object and column.notna().any():
                raise ValueError(f"{name!r} has numbers, but the training had words: {setting('categorical', [name])}")
            return column.astype(object)
        numbers = pandas.to_numeric(column, errors="coerce")
        for row in np.flatnonzero(numbers.isna() & column.notna())[:1]:
            raise ValueError(f"{table.place(row)}: {name!r} is {shown(column.iloc[row])!r}; the training had numbers")
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
            encoding = cls(names, Scaling(mean, deviation, far), indicator, words)
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


@dataclass(frozen=True, eq=False)
class Ranker:
    """A trained model, and the encoding of its input columns.

    Attributes:
        model: a module [row, width] -> [row], in evaluation mode.
        encoding: the encoding, fitted on the training rows.
    """

    model: nn.Module
    encoding: Encoding

    def encoded(self, table: ScoreTable) -> Iterator[Tensor]:
        """The encoded rows of a table, some at a time: [row, width] float32."""
        part = max(NUMBERS // self.encoding.width, 1)
        for start in range(0, len(table), part):
            yield self.encoding.encode(table.subset(range(start, min(start + part, len(table)))))

    def score(self, table: ScoreTable, device: torch.device | str = "cpu") -> Tensor:
        """Scores of the rows of a table, [row] float32; higher is more relevant.

        Args:
            table: the rows.
            device: where to compute.

        Raises:
            ValueError: the table lacks a column of the training, or a score is NaN or infinite.
        """
        scores = torch.cat([score_rows(self.model, rows, device) for rows in self.encoded(table)])
        for row in (~scores.isfinite()).nonzero().flatten().tolist()[:1]:
            raise ValueError(f"{table.place(row)}: the score is {scores[row]:g}: too large for the model")
        return scores


def save_ranker(path: Path, model: nn.Module, encoding: Encoding, settings: Model) -> None:
    """Write model, encoding and settings as one file of tensors and plain values, see `load_ranker`.

    >>> import tempfile
    >>> table, settings = ScoreTable.of(torch.tensor([[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]])), Model("linear")
    >>> encoding = Encoding.fitted(table)
    >>> ranker = Ranker(build_model(settings, encoding.width), encoding)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_ranker(Path(folder, "model.pt"), ranker.model, encoding, settings)
    ...     again = load_ranker(Path(folder, "model.pt"))
    >>> again.score(table).equal(ranker.score(table))
    True
    """
    content = {
        "format": FORMAT,
        "model": {**asdict(settings), "hidden": list(settings.hidden)},
        "encoding": encoding.to_plain(),
        "state": {name: value.detach().cpu() for name, value in model.state_dict().items()},
        "version": __version__,
    }
    state_dicts.write_plain(path, content)


def load_ranker(path: Path, model: nn.Module | None = None) -> Ranker:
    """Load the model from a file of `save_ranker`. No code in the file is run.

    Args:
        path: the file, `model.pt` of a run.
        model: your own module, if such a module was trained. The weights are loaded into it.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is another file or damaged; or it has the weights of your own module, and `model` is None.

    >>> import tempfile
    >>> table = ScoreTable.of(torch.tensor([[1.0], [2.0], [3.0]]))
    >>> encoding = Encoding.fitted(table)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.pt")
    ...     save_ranker(path, build_model(Model("linear"), encoding.width), encoding, Model("linear"))
    ...     ranker = load_ranker(path)
    >>> ranker.score(table).shape
    torch.Size([3])
    """
    saved = _read(path)
    try:
        encoding = Encoding.from_plain(saved["encoding"])
        own = typed(Model, saved["model"])
        if own.kind != GIVEN:
            with torch.device("meta"), state_dicts.no_larger_than(saved["state"]):  # takes no memory
                model = build_model(own, encoding.width)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} describes a model that cannot be built: {state_dicts.one_line(error)}") from None
    if model is None:
        raise ValueError(f"{path} has the weights of your own module: call load_ranker(path, module) in Python")
    state = saved["state"]
    wrong = [f"{name} has NaN or infinity" for name in state_dicts.not_finite(state)]
    wrong += state_dicts.misfits(model.state_dict(), state)
    if wrong:
        raise ValueError(f"{path} does not fit the model that it describes: {'; '.join(wrong)}")
    if own.kind != GIVEN:
        model = model.to_empty(device="cpu")
    model.load_state_dict(state)
    return Ranker(model.eval(), encoding)


def _read(path: Path) -> Mapping[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give the folder of a finished run, or its model.pt")
    saved = state_dicts.read_plain(path)
    if not isinstance(saved, dict) or str(saved.get("format")) != FORMAT:
        raise ValueError(f"{path} is not a model of rankgrad train task=scores")
    wrong = [name for name in ("model", "encoding", "state") if not isinstance(saved.get(name), dict)]
    if wrong or not state_dicts.is_state_dict(saved["state"]):
        raise ValueError(f"{path} is damaged: {', '.join(wrong) or 'state'} not as rankgrad writes it")
    return saved


__all__ = ["Ranker", "build_ranker", "load_ranker", "save_ranker", "score_rows"]
