"""`ScoreTable`: rows with features, and if known their relevance, query and split. `load_table` reads files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas
import torch
from torch import Tensor

from rankgrad.common.checks import Numbers, closest, setting
from rankgrad.common.checks import tensor as as_tensor
from rankgrad.common.text import shown
from rankgrad.ranks.relevance import Labels
from rankgrad.scores.division import held_out
from rankgrad.scores.rows import JudgedRows, numbered_queries

from ...datasets.tabular import AUTO, as_split, no_columns
from ...files.tables.text import MISSING
from ...trec.files import QUERY
from .copies import without_copies
from .labels import graded, not_judged
from .reading import BESIDE, FileColumns, as_column, beside, files_of, read_columns

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
        return {"features": self.features.iloc[chosen], "split": split}

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
        given: Any = features.to_pandas() if hasattr(features, "to_pandas") else features  # of polars or pyarrow
        if isinstance(given, (Mapping, pandas.DataFrame)):
            frame = pandas.DataFrame(given)
        else:
            matrix = as_tensor(given, "features").detach().cpu().numpy()
            if matrix.ndim != 2:
                raise ValueError(f"features must be [row, feature] or columns by name; got the shape {matrix.shape}")
            frame = pandas.DataFrame(matrix, columns=[f"x{place}" for place in range(matrix.shape[1])])
        frame.columns = frame.columns.map(str)
        for name in frame.columns[frame.columns.duplicated()]:
            raise ValueError(f"the data frame has the column {name!r} twice; give each its own name")
        ids, names = numbered_queries(query)
        return ScoreTable(
            None if relevance is None else as_tensor(relevance, "relevance").detach().cpu().float(),
            ids,
            names,
            features=_frame({name: as_column(frame[name].to_numpy(), name, "row {}".format) for name in frame}),
        )

    def part(self, split: str) -> ScoreTable:
        """The rows of a split."""
        if self.split is None:
            raise ValueError(f"{self.name} is not divided: it has no split {split!r}")
        return self.subset(self.split == split)

    def summary(self) -> str:
        """One line: the numbers of rows, features, relevant rows and queries, and the range of the grades."""
        words = self.features.select_dtypes(object).shape[1]
        width = _count(self.features.shape[1], "feature") + (f" ({words} of words)" if words else "")
        parts = [f"{_count(len(self), 'row')}, {width}"]
        if self.relevance is not None:
            grades, highest = self.relevance, float(self.relevance.max())
            share = f"{int((grades > 0).sum())} relevant ({100 * float((grades > 0).double().mean()):.1f} %)"
            binary = bool((grades == (grades > 0)).all())
            parts.append(share + ("" if binary else f", grades {float(grades.min()):g} to {highest:g}"))
        if self.query is not None:
            sizes = torch.bincount(self.query)
            parts.append(f"{_count(len(sizes), 'query')} of {int(sizes.min())} to {int(sizes.max())} rows")
            without = 0 if self.relevance is None else int((self.query.bincount(self.relevance) == 0).sum())
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
    files = files_of(path)
    given = {"label": label, "query": query, "split": None if len(files) > 1 else split}
    candidates = {role: _candidates(role, given) for role in given}
    of_roles = {name for names in candidates.values() for name in names}
    only = None if features is None else {*features, *of_roles}

    def wanted(name: str) -> bool:
        return name not in drop and (bool(name.strip()) if only is None else name in only)

    read = read_columns(files, wanted, {*of_roles, *categorical}.__contains__, delimiter)
    roles = {
        role: next((name for name in names if name in read.values), names[0])
        for role, names in candidates.items()
        if {*names} & {*read.values} or (names and (given[role] != AUTO or role == "label"))
    }
    if not {*roles.values()} <= {*read.values}:
        raise ValueError(no_columns(shown(path), roles, read.names))
    table = ScoreTable(
        features=_features(path, read, features, [*roles.values()], drop, categorical),
        split=read.splits if len(files) > 1 else None,
        rows=read.rows,
        files=read.files,
        name=shown(path.name),
    )
    notes = [f"{shown(file.name)} is not used." for _, rows in files for file in beside(rows, BESIDE)]
    notes += _notes(read, table.features, drop) if features is None else []
    if "query" in roles:
        ids, names = _queries(table, read.column(roles["query"], True, {""}), roles["query"])
        table = replace(table, query=ids, query_names=names)
    if "split" in roles:
        words = enumerate(read.column(roles["split"], True).tolist())
        table = replace(table, split=np.array([as_split(word or "", table.place(row)) for row, word in words]))
    if "label" in roles:
        # NA may be the label that is relevant
        labels = read.column(roles["label"], True, MISSING if str(positive).lower() not in MISSING else {""})
        if table.query is not None and positive is None and (dropped := not_judged(labels)).any():
            notes.append(f"{dropped.sum()} of {len(labels)} rows have the grade -1 (not judged) and are left out.")
            table, labels = table.subset(~dropped), labels[~dropped]
        relevance, remarks = graded(table, labels, roles["label"], positive)
        table = replace(table, relevance=relevance)
        notes += remarks
    table = without_copies(replace(table, notes=tuple(notes)), len(files) > 1)
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
    path, names = Path(root), (query,) if isinstance(query, str) else tuple(query)
    words = {*names, *categorical}
    read = read_columns(files_of(path), {*names, *features}.__contains__, words.__contains__, delimiter)
    columns = _features(path, read, features, (), (), categorical)
    there = [name for name in names if name in read.values]
    if isinstance(query, str) and not there:
        raise ValueError(no_columns(shown(path), {"query": query}, read.names))
    table = ScoreTable(features=columns, rows=read.rows, files=read.files, name=shown(path.name))
    return table, read.column(there[0], True, {""}) if there else None


def _candidates(role: str, roles: Mapping[str, str | None]) -> tuple[str, ...]:
    """The columns that may have a role: the named column, or those that "auto" looks for."""
    name = roles[role]
    if name == AUTO:
        return tuple(usual for usual in AUTOMATIC[role] if usual not in roles.values())
    return () if name is None else (name,)


def _features(
    path: Path,
    read: FileColumns,
    features: Sequence[str] | None,
    taken: Sequence[str],
    drop: Sequence[str],
    words: Sequence[str],
) -> pandas.DataFrame:
    """The columns of features."""
    chosen = [name for name in read.values if name not in taken] if features is None else list(features)
    chosen = [name for name in chosen if name not in drop]
    listed = ", ".join(map(shown, read.names[:40])) + (", ..." if len(read.names) > 40 else "")
    for name in (*chosen, *drop, *words):
        if name not in read.names and not (read.sparse and re.fullmatch(r"x[0-9]+", name)):
            raise ValueError(f"{shown(path)} has no column {name!r}{closest(name, read.names)} It has {listed}")
        if name in chosen and name in taken:
            raise ValueError(f"{name!r} is the label, the query or the split; leave it out of {setting('features')}")
    if not chosen:
        raise ValueError(f"{shown(path)} has no column for a feature; it has {listed}")
    zeros = np.zeros(len(read.rows))
    return _frame({name: read.column(name, name in words) if name in read.values else zeros for name in chosen})


def _notes(read: FileColumns, features: pandas.DataFrame, drop: Sequence[str]) -> list[str]:
    """Sentences about columns that look like a mistake."""
    nameless = [name for name in read.unread if not name.strip() and name not in drop]
    notes = [f"Columns without a name are left out: {len(nameless)}. One may number the rows."] if nameless else []
    return notes + [
        f"{shown(name)} has a different whole number in each row, as an id has. If it is one, leave it out: "
        f"{setting('drop', [name])}"
        for name in features.select_dtypes("number")
        if _like_an_id(features[name].to_numpy())
    ]


def _like_an_id(column: Array) -> bool:
    """Whether the values are different whole numbers, denser than numbers by chance, of which two would be equal."""
    rows, values = len(column), np.unique(column)  # several NaN are one value
    if len(values) < max(rows, 2) or (values != np.round(values)).any():
        return False
    width = values[-1] - values[0]
    return bool(width == rows - 1 or (rows >= 10 and width <= rows**2 / 2))


def _queries(table: ScoreTable, values: Array, name: str) -> tuple[Tensor, tuple[str, ...]]:
    """[row] ids by first appearance, and the name of each. The same id in another file is another query."""
    for row in np.flatnonzero(pandas.isna(values))[:1]:
        raise ValueError(f"{table.place(row)}: {name!r} is empty; each row needs its query")
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


def _with_test(table: ScoreTable, fraction: float, seed: int) -> ScoreTable:
    """The table with a test split: its own, or one drawn from the training rows."""
    split = np.full(len(table), "train") if table.split is None else table.split.astype("<U5")
    if "test" in split:
        if "train" not in split:
            raise ValueError(f"{table.name} has rows of split test, and none to train on")
        return table
    rows = np.flatnonzero(split == "train")
    train = table.subset(rows)
    assert train.relevance is not None
    query = None if train.query is None else train.query.numpy()
    split[rows[held_out(train.relevance.numpy(), query, fraction, seed)]] = "test"
    return replace(table, split=split)


__all__ = ["ScoreTable", "load_table"]
