"""`ScoreTable`: rows with features, and their relevance, query and split where known. `load_table` reads files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import setting
from ..datasets.tabular import AUTO, as_split, no_columns
from ..files import shown
from .columns import Columns, read_csv, read_npz_columns, read_parquet
from .division import held_out

Array = npt.NDArray[Any]
FORMATS = (".csv", ".tsv", ".parquet", ".npz")
# Role of a column -> the names that "auto" finds, the usual ones first.
AUTOMATIC = {"label": ("label", "y"), "query": ("query", "qid"), "split": ("split",)}


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Rows to be scored: their features, and what is known of them.

    Attributes:
        features: name -> [row] float64 with NaN where a value is missing, or str with None where one is missing.
        relevance: [row] float32 >= 0, 0 or 1 or grades; None: not known.
        query: [row] int64, ids from 0 on; None: all rows are one list.
        query_names: name of each query id in the file.
        split: [row] "train", "val" or "test"; None: not divided.
        rows: [row] its number in the file.
        files: [row] the file, and what it counts: "train.csv, line".
        name: of the file or the folder.

    >>> table = ScoreTable({"age": np.array([20.0, 70.0])}, torch.tensor([0.0, 1.0]))
    >>> print(table.summary())
    table: 2 rows, 1 feature; 1 relevant (50.0 %)
    >>> table.place(1)
    'row 1'
    """

    features: Mapping[str, Array]
    relevance: Tensor | None = None
    query: Tensor | None = None
    query_names: tuple[str, ...] = ()
    split: Array | None = None
    rows: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    files: Array = field(default_factory=lambda: np.empty(0, dtype=object))
    name: str = "table"

    def __post_init__(self) -> None:
        columns: list[Any] = [*self.features.values(), *([] if self.relevance is None else [self.relevance])]
        if not columns:
            raise ValueError("a table needs features or relevance; got neither")
        count = len(columns[0])
        if not len(self.rows):
            object.__setattr__(self, "rows", np.arange(count))
        if not len(self.files):
            object.__setattr__(self, "files", np.full(count, "row", dtype=object))
        known = {name: getattr(self, name) for name in ("relevance", "query", "split", "rows", "files")}
        for name, column in {**self.features, **known}.items():
            if column is not None and len(column) != count:
                raise ValueError(f"{name} must have one entry for each of {count} rows; got {len(column)}")

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> str:
        """Where a row stands in its file, for messages: "train.csv, line 12"."""
        return f"{self.files[row]} {self.rows[row]}"

    def subset(self, indices: Array | Tensor | Sequence[int]) -> ScoreTable:
        """Some of the rows; the ids of their queries are numbered anew, in the same order.

        Args:
            indices: row numbers, or [row] bool.
        """
        chosen = np.asarray(indices)
        if chosen.dtype != bool:
            chosen = chosen.astype(np.int64)
        query, names = self.query, self.query_names
        if query is not None:
            ids, numbered = np.unique(query.numpy()[chosen], return_inverse=True)
            query, names = (
                torch.from_numpy(numbered.reshape(-1)),
                tuple(names[number] for number in ids) if names else (),
            )
        return replace(
            self,
            features={name: column[chosen] for name, column in self.features.items()},
            relevance=None if self.relevance is None else torch.from_numpy(self.relevance.numpy()[chosen]),
            query=query,
            query_names=names,
            split=None if self.split is None else self.split[chosen],
            rows=self.rows[chosen],
            files=self.files[chosen],
        )

    def part(self, split: str) -> ScoreTable:
        """The rows of a split."""
        if self.split is None:
            raise ValueError(f"{self.name} is not divided: it has no split {split!r}")
        return self.subset(self.split == split)

    def summary(self) -> str:
        """One line: how many rows, features, relevant rows or grades, queries."""
        words = sum(column.dtype == object for column in self.features.values())
        width = len(self.features)
        parts = [f"{_count(len(self), 'row')}, {_count(width, 'feature')}" + (f" ({words} of words)" if words else "")]
        if self.relevance is not None:
            relevant = int((self.relevance > 0).sum())
            grades = np.unique(self.relevance.numpy()).tolist()
            known = f"{relevant} relevant ({100 * relevant / max(len(self), 1):.1f} %)"
            parts.append(known if set(grades) <= {0, 1} else f"{known}, grades {grades[0]:g} to {grades[-1]:g}")
        if self.query is not None:
            sizes = torch.bincount(self.query)
            parts.append(f"{_count(len(sizes), 'query')} of {int(sizes.min())} to {int(sizes.max())} rows")
        return f"{self.name}: {'; '.join(parts)}"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def load_table(
    root: str | Path,
    *,
    label: str | None = AUTO,
    query: str | None = AUTO,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    split: str | None = AUTO,
    positive: str | None = None,
    delimiter: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> ScoreTable:
    """Read a table of rows to be scored.

    Args:
        root: a csv, tsv, parquet or npz.
        label: column of the relevance, 0 and 1 or grades >= 0; "auto": called label or y; None: there is none, and
            the rows are not divided.
        query: column of the query ids; "auto": called query or qid, if there is one; None: all rows are one list.
        features: columns that are features; None: all that have no other role.
        drop: columns that are no features.
        categorical: columns of numbers that name categories.
        split: column with train, val and test; "auto": called split, if there is one; None: there is none.
        positive: the label that is relevant, where labels are words or not 0 and 1; all others are irrelevant.
        delimiter: of a csv; None: the comma, or the tab of a tsv.
        test_fraction: of the queries, or of the rows if there are no queries, for the test where no split is given.
        seed: of this division.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column that is not there; a label that is missing, negative or constant; a query that comes back
            later; an infinite feature. The message names the row.
    """
    path = Path(root)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    others = [name for name in (query, split) if name is not None and name != AUTO]
    others += [] if positive is None or label is None else [label]
    read = _read(path, {*categorical, *others, *AUTOMATIC["query"], *AUTOMATIC["split"]}, delimiter)
    roles = _roles(path, read, {"label": label, "query": query, "split": split})
    table = ScoreTable(
        _features(path, read, set(roles.values()), features, drop, categorical),
        rows=read.rows,
        files=np.full(len(read.rows), f"{shown(path.name)}, {read.unit}", dtype=object),
        name=path.name,
    )
    if "query" in roles:
        ids, names = _queries(table, read.values[roles["query"]], roles["query"])
        table = replace(table, query=ids, query_names=names)
    if "label" in roles:
        table = replace(table, relevance=_relevance(table, read.values[roles["label"]], roles["label"], positive))
    if "split" in roles:
        return replace(table, split=_splits(table, read.values[roles["split"]], roles["split"]))
    return table if table.relevance is None else _divided(table, test_fraction, seed)


def _read(path: Path, words: set[str], delimiter: str | None) -> Columns:
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        return read_csv(path, words, delimiter or ("\t" if kind == ".tsv" else ","))
    if kind == ".parquet":
        return read_parquet(path, words)
    if kind == ".npz":
        return read_npz_columns(path, words)
    raise ValueError(f"{shown(path)} is none of {', '.join(FORMATS)}; write the table as one of these")


def _roles(path: Path, read: Columns, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Role -> the name of its column, of those that are there."""
    roles: dict[str, str] = {}
    for role, name in wanted.items():
        if name == AUTO:
            name = next(
                (usual for usual in AUTOMATIC[role] if usual in read.values), "label" if role == "label" else None
            )
        if name is not None:
            roles[role] = name
    if not set(roles.values()) <= set(read.values):
        raise ValueError(no_columns(shown(path), roles, _listed(read)))
    return roles


def _listed(read: Columns) -> list[str]:
    """Names of columns for a message, of which there may be thousands."""
    names = list(read.values)
    return names if len(names) <= 40 else [*names[:20], "...", *names[-20:]]


def _features(
    path: Path,
    read: Columns,
    taken: set[str],
    features: Sequence[str] | None,
    drop: Sequence[str],
    words: Sequence[str],
) -> dict[str, Array]:
    for role, names in {"features": features or (), "drop": drop, "categorical": words}.items():
        absent = [name for name in names if name not in read.values]
        if absent:
            raise ValueError(no_columns(shown(path), {role: absent[0]}, _listed(read)))
    chosen = [name for name in read.values if name not in taken] if features is None else list(features)
    left = [name for name in chosen if name not in set(drop)]
    if not left:
        raise ValueError(f"{shown(path)} has no column that is a feature: it has {', '.join(map(shown, read.values))}")
    return {name: read.values[name] for name in left}


def _queries(table: ScoreTable, values: Array, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """[row] ids by first appearance, and the name of each."""
    missing = np.flatnonzero(values == None)  # noqa: E711 - of an array
    if len(missing):
        raise ValueError(f"{table.place(int(missing[0]))}: {name!r} is empty; each row needs its query")
    changes = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    names = values[changes].tolist()
    ids = {query: number for number, query in enumerate(dict.fromkeys(names))}
    if len(ids) < len(names):
        seen: set[str] = set()
        back = next(place for place, query in enumerate(names) if query in seen or seen.add(query))  # type: ignore[func-returns-value]
        row = int(changes[back])
        before = int(changes[names.index(names[back]) + 1]) - 1
        raise ValueError(
            f"{table.place(row)}: the query {shown(names[back])!r} comes back; its rows ended at "
            f"{table.place(before)}. Sort the rows by {name!r}, or give another query another id"
        )
    lengths = np.diff(np.append(changes, len(values)))
    return torch.arange(len(names)).repeat_interleave(torch.from_numpy(lengths)), tuple(names)


def _relevance(table: ScoreTable, values: Array, name: str, positive: str | None) -> Tensor:
    """[row] float32 relevance."""
    missing = np.flatnonzero(np.isnan(values) if values.dtype != object else values == None)  # noqa: E711 - of an array
    if len(missing):
        raise ValueError(
            f"{table.place(int(missing[0]))}: the label {name!r} is empty; give it a value or leave the row out"
        )
    if positive is not None:
        numbers = (values == str(positive)).astype(np.float32)
        if not numbers.any():
            raise ValueError(
                f"no row has the label {positive!r}; {name!r} has {_some(values)}: {setting('positive', 'LABEL')}"
            )
    elif values.dtype == object:
        truth = {"true": 1.0, "false": 0.0}
        found = {word: truth.get(str(word).lower()) for word in set(values.tolist())}
        if None in found.values():
            raise ValueError(
                f"the label {name!r} of {shown(table.name)} has the words {_some(values)}; say which is relevant: "
                f"{setting('positive', _rarest(values))}"
            )
        numbers = np.array([found[word] for word in values.tolist()], dtype=np.float32)
    else:
        numbers = values.astype(np.float32)
    negative = np.flatnonzero(numbers < 0)
    if len(negative):
        row = int(negative[0])
        raise ValueError(
            f"{table.place(row)}: the label {name!r} is {values[row]:g}; grades are >= 0. Say which label is relevant, "
            f"and all others are not: {setting('positive', '1')}"
        )
    if (numbers == numbers[0]).all():
        raise ValueError(
            f"all {len(numbers)} rows of {shown(table.name)} have the label {values[0]!s}: there is nothing to rank. "
            f"Is {name!r} the column of the label? Say which is: {setting('label', 'NAME')}"
        )
    return torch.from_numpy(np.ascontiguousarray(numbers))


def _some(values: Array) -> str:
    words = sorted(set(values.tolist()))
    return ", ".join(repr(shown(word)) for word in words[:5]) + (", ..." if len(words) > 5 else "")


def _rarest(values: Array) -> str:
    words, counts = np.unique(values.astype(str), return_counts=True)
    return str(words[counts.argmin()])


def _splits(table: ScoreTable, values: Array, name: str) -> Array:
    """[row] "train", "val" or "test"."""
    words: list[Any] = values.tolist()
    known: dict[Any, str] = {}
    for row, word in enumerate(words):
        if word not in known:
            known[word] = as_split("" if word is None else word, table.place(row))
    return np.array([known[word] for word in words])


def _divided(table: ScoreTable, fraction: float, seed: int) -> ScoreTable:
    assert table.relevance is not None
    query = None if table.query is None else table.query.numpy()
    test = held_out(table.relevance.numpy(), query, fraction, seed)
    return replace(table, split=np.where(test, "test", "train"))
