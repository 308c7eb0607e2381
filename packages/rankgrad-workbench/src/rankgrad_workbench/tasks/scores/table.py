"""`ScoreTable`: rows with features, and if known their relevance, query and split. `load_table` reads files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import torch
from torch import Tensor

from rankgrad.common.checks import Numbers, closest, setting, unmasked
from rankgrad.common.checks import tensor as as_tensor
from rankgrad.common.text import shown
from rankgrad.ranks.relevance import Labels
from rankgrad.scores.division import held_out
from rankgrad.scores.rows import JudgedRows, numbered_queries

from ...datasets.tabular import AUTO, as_split, no_columns
from ...trec.files import QUERY
from .copies import without_copies
from .labels import graded, not_judged
from .reading import ReadColumns, Wanted, as_column, files_of, numbered, read_columns, unread_beside

Array = npt.NDArray[Any]
# Role of a column -> names of the columns that "auto" looks for, in this order.
AUTOMATIC = {"label": ("label", "y"), "query": QUERY, "split": ("split",)}


@dataclass(frozen=True, eq=False)
class ScoreTable(JudgedRows):
    """Rows to score, with their features.

    Attributes:
        relevance, query, query_names, rows, files, name: see `JudgedRows`.
        features: columns of float64, NaN for a missing value; or of str, None for a missing value.
        split: [row] "train", "val" or "test"; None: the table is not divided.
        notes: remarks on the columns and the labels of the file, one sentence each.

    >>> table = ScoreTable.of({"age": [20.0, 70.0]}, [False, True])
    >>> print(table.summary())
    table: 2 rows, 1 feature; 1 relevant (50.0 %)
    >>> table.place(1)
    'row 1'
    """

    features: pandas.DataFrame = field(default_factory=pandas.DataFrame)
    split: Array | None = None
    notes: tuple[str, ...] = ()

    def _count(self) -> int:
        if self.split is not None and len(self.split) != len(self.features):
            raise ValueError(f"split must have one entry for each of {len(self.features)} rows; got {len(self.split)}")
        return len(self.features)

    def _columns(self, chosen: Array) -> dict[str, Any]:
        split = None if self.split is None else self.split[chosen]
        return {
            "features": self.features[chosen] if chosen.dtype == bool else self.features.iloc[chosen],
            "split": split,
        }

    @classmethod
    def of(  # type: ignore[override]  # a table needs features first
        cls,
        features: Numbers | Mapping[str, Any],
        relevance: Numbers | None = None,
        query: Labels | None = None,
    ) -> ScoreTable:
        """Make a table from arrays in memory.

        Args:
            features: [row, feature] numbers, which get the names x0, x1, ...; or a mapping or a data frame of named
                columns, each [row] numbers or texts.
            relevance: [row] 0 and 1, bool, or grades >= 0.
            query: [row] integers or strings. Rows with the same id are a list; they may be in any order. None: all rows
                are one list.

        Raises:
            ValueError: a column has neither numbers nor texts, two columns have the same name, a number is infinite, a
                grade is negative, or a query is missing.

        >>> table = ScoreTable.of([[20, 1.5], [70, 0.5], [30, 1.0]], [False, True, False], query=["b", "a", "b"])
        >>> list(table.features), table.query, table.query_names
        (['x0', 'x1'], tensor([1, 0, 1]), ('a', 'b'))
        """
        frame: Any = features
        if hasattr(frame, "columns"):  # of pandas, polars or pyarrow
            given_names = getattr(frame, "column_names", frame.columns)
            header = [str(name) for name in given_names]
            twice = next((name for name, count in Counter(header).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"the data frame has the column {twice!r} twice; give each its own name")
            features = {name: frame[name] for name in given_names}
        if isinstance(features, Mapping):
            columns = {str(name): np.asarray(unmasked(column, str(name))) for name, column in features.items()}
        else:
            matrix = as_tensor(features, "features").detach().cpu().numpy()
            if matrix.ndim != 2:
                raise ValueError(f"features must be [row, feature] or columns by name; got the shape {matrix.shape}")
            columns = numbered(matrix)
        count = len(next(iter(columns.values()), ()))
        wrong = next((name for name, column in columns.items() if len(column) != count), None)
        if wrong is not None:
            raise ValueError(f"{wrong} must have one entry for each of {count} rows; got {len(columns[wrong])}")
        ids, names = numbered_queries(query)
        return ScoreTable(
            None if relevance is None else as_tensor(relevance, "relevance").detach().cpu().float(),
            ids,
            names,
            # a copy, as the arrays are the caller's
            features=_frame({name: as_column(c.copy(), name, lambda row: f"row {row}") for name, c in columns.items()}),
        )

    def part(self, split: str) -> ScoreTable:
        """The rows of a split."""
        if self.split is None:
            raise ValueError(f"{self.name} is not divided: it has no split {split!r}")
        return self.subset(self.split == split)

    def summary(self) -> str:
        """One line: the numbers of rows, features, relevant rows and queries, and the range of the grades."""
        words = self.features.select_dtypes(object).shape[1]
        width = self.features.shape[1]
        parts = [f"{_count(len(self), 'row')}, {_count(width, 'feature')}" + (f" ({words} of words)" if words else "")]
        if self.relevance is not None:
            relevant = int((self.relevance > 0).sum())
            grades = np.unique(self.relevance.numpy()).tolist()
            known = f"{relevant} relevant ({100 * relevant / max(len(self), 1):.1f} %)"
            parts.append(known if set(grades) <= {0, 1} else f"{known}, grades {grades[0]:g} to {grades[-1]:g}")
        if self.query is not None:
            sizes = torch.bincount(self.query)
            parts.append(f"{_count(len(sizes), 'query')} of {int(sizes.min())} to {int(sizes.max())} rows")
            if self.relevance is not None:
                without = int((torch.bincount(self.query, weights=self.relevance) == 0).sum())
                parts += [f"{without} of them without a relevant row"] if without else []
        return f"{self.name}: {'; '.join(parts)}"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _frame(columns: Mapping[str, Array]) -> pandas.DataFrame:
    """A data frame whose words stay Python objects."""
    return pandas.DataFrame({name: pandas.Series(column, dtype=column.dtype) for name, column in columns.items()})


def load_table(
    root: str | Path,
    *,
    label: str | None = AUTO,
    query: str | None = AUTO,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    split: str | None = AUTO,
    positive: str | float | None = None,
    delimiter: str | None = None,
    test_fraction: float | None = 0.2,
    seed: int = 0,
) -> ScoreTable:
    r"""Read a table of rows to score.

    `tables.formats` has the formats. A csv has a header. An npz has `X` [row, feature], whose columns get the names x0,
    x1, ..., and columns such as `y`. A file of svmlight lines has the columns label, qid and x1, x2, .... If there is a
    file of query sizes beside the file, called NAME.query or NAME.group, it becomes a column query. In a folder, each
    split has its own file, such as train.csv and test.csv.

    A query of val or test that trains, too, is left out there; `notes` has the number of these queries.

    Args:
        root: a csv, tsv, jsonl, parquet, npz or svmlight file, or a folder with files such as train.csv and test.csv.
        label: column of the relevance, 0 and 1 or grades >= 0; "auto": the column label or y; None: there is none, and
            the rows are not divided.
        query: column of the query ids; "auto": the column query, query_id or qid, if it exists; None: all rows are
            one list.
        features: columns that are features; None: all columns without another role.
        drop: columns that are not features.
        categorical: columns whose numbers name categories.
        split: column with train, val and test; "auto": the column split, if it exists; None: there is none.
        positive: the label of the relevant rows, if labels are words or not 0 and 1. All other labels are irrelevant.
        delimiter: delimiter of a csv; None: a comma, or a tab for a tsv.
        test_fraction: fraction of the queries (without queries: of the rows) for the test, if there is no split; None:
            rows without a split are not divided.
        seed: seed of this division.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a column does not exist; a label is missing, negative or constant; the rows of a query do not follow
            each other; or a feature is infinite. The message has the row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "cards.csv")
    ...     _ = file.write_text("amount,country,label\n12.5,FR,0\n900,XX,1\n7,FR,0\n")
    ...     table = load_table(file, test_fraction=None)
    >>> list(table.features), table.relevance
    (['amount', 'country'], tensor([0., 1., 0.]))
    """
    path = Path(root)
    roles_of = {"label": label, "query": query, "split": split}
    read, parts = read_columns(path, _wanted(roles_of, features, drop, categorical), delimiter)
    several = len(parts) > 1
    roles = _roles(path, read, roles_of if not several else {**roles_of, "split": None})
    table = ScoreTable(
        features=_features(path, read, set(roles.values()), features, drop, categorical),
        split=np.repeat([name for name, _ in parts], [count for _, count in parts]) if several else None,
        rows=read.rows,
        files=read.files,
        name=shown(path.name),
        notes=tuple(note for _, file in files_of(path) for note in unread_beside(file)),
    )
    table = replace(table, notes=(*table.notes, *(_notes(read, table.features, drop) if features is None else [])))
    if "query" in roles:
        ids, names = _queries(table, read.values[roles["query"]], roles["query"])
        table = replace(table, query=ids, query_names=names)
    if "split" in roles:
        table = replace(table, split=_splits(table, read.values[roles["split"]], roles["split"]))
    if "label" in roles:
        words = read.values[roles["label"]]
        dropped = not_judged(words) if table.query is not None and positive is None else np.full(len(words), False)
        if dropped.any():
            left_out = f"{dropped.sum()} of {len(words)} rows have the grade -1 (not judged) and are left out."
            table, words = replace(table.subset(~dropped), notes=(*table.notes, left_out)), words[~dropped]
        relevance, notes = graded(table, words, roles["label"], positive)
        table = replace(table, relevance=relevance, notes=(*table.notes, *notes))
    table = without_copies(table, several)
    return table if table.relevance is None or test_fraction is None else _with_test(table, test_fraction, seed)


def load_rows(
    root: str | Path,
    features: Sequence[str],
    *,
    categorical: Sequence[str] = (),
    query: str | Sequence[str] = (),
    delimiter: str | None = None,
) -> tuple[ScoreTable, Array | None]:
    """Read rows without labels, and the [row] query ids. The rows of a query need not follow each other.

    Args:
        root: see `load_table`.
        features: the columns of the training.
        categorical: columns among them that are read as words.
        query: column of the ids, which must exist; or several names: the first existing column is used. None: the
            file has none of them.
        delimiter: see `load_table`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a column does not exist, or a feature is infinite.
    """
    path = Path(root)
    names = [query] if isinstance(query, str) else query
    ids = frozenset(names)
    read, _ = read_columns(path, Wanted(ids.union(categorical), ids.union(features), literal=ids), delimiter)
    columns = _features(path, read, set(), features, (), categorical)
    if isinstance(query, str) and query not in read.values:
        raise ValueError(no_columns(shown(path), {"query": query}, read.names))
    table = ScoreTable(features=columns, rows=read.rows, files=read.files, name=shown(path.name))
    return table, next((read.values[name] for name in names if name in read.values), None)


def _wanted(
    roles: Mapping[str, str | None], features: Sequence[str] | None, drop: Sequence[str], categorical: Sequence[str]
) -> Wanted:
    """The columns to read, and those to read as words."""
    names = [name for role, given in roles.items() for name in _candidates(role, given, roles)]
    literal = [name for role in ("label", "query") for name in _candidates(role, roles[role], roles)]
    taken = None if features is None else frozenset([*features, *names])
    return Wanted(frozenset([*names, *categorical]), taken, frozenset(drop), frozenset(literal))


def _candidates(role: str, name: str | None, roles: Mapping[str, str | None]) -> tuple[str, ...]:
    """The columns that may have a role: the named column, or those that "auto" looks for."""
    if name == AUTO:
        return tuple(usual for usual in AUTOMATIC[role] if usual not in roles.values())
    return () if name is None else (name,)


def _roles(path: Path, read: ReadColumns, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Role -> name of its column, for the roles that have a column."""
    roles: dict[str, str] = {}
    for role, name in wanted.items():
        candidates = _candidates(role, name, wanted)
        there = [candidate for candidate in candidates if candidate in read.values]
        if there or (candidates and (name != AUTO or role == "label")):
            roles[role] = (there or candidates)[0]
    if not set(roles.values()) <= set(read.values):
        raise ValueError(no_columns(shown(path), roles, read.names))
    return roles


def _features(
    path: Path,
    read: ReadColumns,
    taken: set[str],
    features: Sequence[str] | None,
    drop: Sequence[str],
    words: Sequence[str],
) -> pandas.DataFrame:
    """The columns of features."""
    chosen = [name for name in read.values if name not in taken] if features is None else list(features)
    known = {*read.values, *read.unread}
    absent = [name for name in (*chosen, *drop, *words) if name not in known]
    if read.sparse:
        absent = [name for name in absent if not re.fullmatch(r"x[0-9]+", name)]
    if absent:
        raise ValueError(
            f"{shown(path)} has no column {absent[0]!r}{closest(absent[0], [*known])} It has {read.listed}"
        )
    both = [name for name in chosen if name in taken]
    if both:
        raise ValueError(f"{both[0]!r} is the label, the query or the split; leave it out of {setting('features')}")
    left = [name for name in chosen if name not in drop]
    if not left:
        raise ValueError(f"{shown(path)} has no column for a feature; it has {read.listed}")
    return _frame({name: read.values.get(name, np.zeros(len(read.rows))) for name in left})


def _notes(read: ReadColumns, features: pandas.DataFrame, drop: Sequence[str]) -> list[str]:
    """Sentences about columns that look like a mistake."""
    nameless = [name for name in read.unread if not name.strip() and name not in drop]
    notes = ["A column without a name is left out: it may number the rows."] if len(nameless) == 1 else []
    notes += [f"{len(nameless)} columns without a name are left out."] if len(nameless) > 1 else []
    return notes + [
        f"{shown(name)} has a different whole number in each row, as an id has. If it is one, leave it out: "
        f"{setting('drop', [name])}"
        for name in features
        if features[name].dtype != object and _like_an_id(features[name].to_numpy())
    ]


def _like_an_id(column: Array) -> bool:
    """Whether the values are different whole numbers, denser than numbers by chance, of which two would be equal."""
    rows = len(column)
    if rows < 2 or np.isnan(column).any():
        return False
    width = column.max() - column.min()
    if width != rows - 1 and (rows < 10 or width > rows**2 / 2):
        return False
    return bool((column == np.round(column)).all() and (np.diff(np.sort(column)) > 0).all())


def _queries(table: ScoreTable, values: Array, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """[row] ids by first appearance, and the name of each. The same id in another file is another query."""
    missing = np.flatnonzero(values == None)  # noqa: E711 - of an array
    if len(missing):
        raise ValueError(f"{table.place(int(missing[0]))}: {name!r} is empty; each row needs its query")
    other = (values[1:] != values[:-1]) | (table.files[1:] != table.files[:-1])
    first = np.flatnonzero(np.append(True, other))
    begun: dict[tuple[str, str], int] = {}  # (file, query) -> its number
    for number, row in enumerate(first.tolist()):
        before = begun.setdefault((table.files[row], values[row]), number)
        if before < number:
            raise ValueError(
                f"{table.place(row)}: the query {shown(values[row])!r} appears again, but its rows ended at "
                f"{table.place(int(first[before + 1]) - 1)}. Sort the rows by {name!r}, or give each query its own id"
            )
    sizes = np.diff(np.append(first, len(values)))
    return torch.from_numpy(np.repeat(np.arange(len(first)), sizes)), tuple(values[first].tolist())


def _splits(table: ScoreTable, values: Array, name: str) -> Array:
    """[row] "train", "val" or "test"."""
    words: list[Any] = values.tolist()
    known: dict[Any, str] = {}
    for row, word in enumerate(words):
        if word not in known:
            known[word] = as_split("" if word is None else word, table.place(row))
    return np.array([known[word] for word in words])


def _with_test(table: ScoreTable, fraction: float, seed: int) -> ScoreTable:
    """The table with a test split: its own, or one drawn from the training rows."""
    split = np.full(len(table), "train") if table.split is None else table.split
    if "test" in split:
        if "train" not in split:
            raise ValueError(f"{table.name} has rows of split test, and none to train on")
        return table
    rows = np.flatnonzero(split == "train")
    train = table.subset(rows)
    assert train.relevance is not None
    query = None if train.query is None else train.query.numpy()
    drawn = split.astype("<U5")
    drawn[rows[held_out(train.relevance.numpy(), query, fraction, seed)]] = "test"
    return replace(table, split=drawn)


__all__ = ["ScoreTable", "load_table"]
