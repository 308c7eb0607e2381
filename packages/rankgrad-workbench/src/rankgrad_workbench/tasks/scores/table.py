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

from rankgrad.common.checks import Numbers, closest, setting, unmasked
from rankgrad.common.checks import tensor as as_tensor
from rankgrad.common.text import shown
from rankgrad.ranks.relevance import Labels
from rankgrad.scores.division import held_out
from rankgrad.scores.rows import JudgedRows, numbered_queries

from ...datasets.tabular import AUTO, as_split, no_columns
from ...files.tables.text import MISSING, number_in
from ...trec.files import QUERY
from .reading import TRUTH, FileColumns, as_column, files_of, read_columns

Array = npt.NDArray[Any]
LARGEST = 1e9  # extremes of types stand for missing values, and float32 has to tell grades apart
MOST_GRADES = 32  # whole numbers of a label; with more it is a quantity
DISTINCT = 0.9  # share of the training rows that are like no other; with fewer, two equal rows are no sign of a copy
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
        return len(self.features)

    def _columns(self, chosen: Array) -> dict[str, Any]:
        split = None if self.split is None else self.split[chosen]
        return {"features": self.features.iloc[chosen], "split": split}

    @classmethod
    def of(  # type: ignore[override]  # a table needs features first
        cls, features: Numbers | Mapping[str, Any], relevance: Numbers | None = None, query: Labels | None = None
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
            for name in given:
                unmasked(given[name], str(name))
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
        assert self.split is not None, "the table is not divided"
        return self.subset(self.split == split)

    def held_out(self, fraction: float, seed: int, name: str = "test_fraction") -> npt.NDArray[np.bool_]:
        """[row] whether a row is held out, see `division.held_out`."""
        assert self.relevance is not None
        query = None if self.query is None else self.query.numpy()
        return held_out(self.relevance.numpy(), query, fraction, seed, name=name)

    def with_test(self, fraction: float, seed: int) -> ScoreTable:
        """The table with a test split: its own, or one that is held out from the training rows."""
        split = np.full(len(self), "train") if self.split is None else self.split.astype("<U5")
        rows = np.flatnonzero(split == "train")
        if "test" not in split:
            split[rows[self.subset(rows).held_out(fraction, seed)]] = "test"
        return replace(self, split=split)

    def summary(self) -> str:
        """One line: the numbers of rows, features, relevant rows and queries, and the range of the grades."""
        words, width = self.features.select_dtypes(object).shape[1], self.features.shape[1]
        parts = [f"{_count(len(self), 'row')}, {_count(width, 'feature')}{f' ({words} of words)' * (words > 0)}"]
        if self.relevance is not None:
            grades, hits = self.relevance, self.relevance > 0
            binary = "" if bool((grades == hits).all()) else f", grades {grades.min():g} to {grades.max():g}"
            parts.append(f"{int(hits.sum())} relevant ({100 * float(hits.double().mean()):.1f} %){binary}")
        if self.query is not None:
            sizes = torch.bincount(self.query)
            parts.append(f"{len(sizes)} queries of {int(sizes.min())} to {int(sizes.max())} rows")
        return f"{self.name}: {'; '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


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
    notes = _notes(read, table.features, drop) if features is None else []
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
    table = replace(table, notes=tuple(notes))
    if label is None:
        return replace(table, split=None)
    table = without_copies(table, len(files) > 1)
    return table if test_fraction is None else table.with_test(test_fraction, seed)


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


def marks_of(rows: pandas.DataFrame | Tensor) -> npt.NDArray[np.uint64]:
    """[row] a hash of each row: of its columns, or of its encoded values."""
    frame = pandas.DataFrame(rows.numpy()) if isinstance(rows, Tensor) else rows
    marks: npt.NDArray[np.uint64] = pandas.util.hash_pandas_object(frame, index=False).to_numpy().copy()
    return marks


def copies_of(marks: Array, query: Array | None, trained: Array) -> npt.NDArray[np.bool_]:
    """[row] bool, whether a row was trained on; with queries: whether half of the rows of its query were.

    If many training rows are equal to each other, an equal row says nothing, and none is named.

    Args:
        marks: [row] hashes of the rows.
        query: [row] ids from 0 on; None: all rows are one list.
        trained: hashes of the training rows.
    """
    known = np.isin(marks, trained)
    if len(np.unique(trained)) < DISTINCT * len(trained):
        return np.full(len(marks), False)
    return known if query is None else (2 * np.bincount(query, known) >= np.bincount(query))[query]


def without_copies(table: ScoreTable, of_files: bool) -> ScoreTable:
    """The table without the queries of val and test that are in an earlier split, too, with their number in a note.

    Copies of single rows of one list stay, and are counted.

    Args:
        table: the rows, with a split or without one.
        of_files: whether each split has a file of its own: then a query is known by its rows, as files may number their
            queries anew.
    """
    if table.split is None:
        return table
    marks = marks_of(table.features) if of_files or table.query is None else np.empty(0)
    query = None if table.query is None else table.query.numpy()
    stays, notes = np.full(len(table), True), list(table.notes)
    for split, earlier in (("val", ["train"]), ("test", ["train", "val"])):
        here, before = table.split == split, np.isin(table.split, earlier)
        if not here.any() or not before.any():
            continue
        known = here.copy()
        if query is not None and not of_files:
            known &= np.isin(query, query[before])
        else:
            known[here] = copies_of(
                marks[here], None if query is None else np.unique(query[here], return_inverse=True)[1], marks[before]
            )
        if not known.any():
            continue
        where = " or ".join(each for each in earlier if (table.split == each).any())
        if query is None:
            notes.append(f"{known.sum()} of {here.sum()} rows of {split} equal a row of {where} in all features.")
            continue
        count, all_here = len(np.unique(query[known])), len(np.unique(query[here]))
        if count == all_here:
            raise ValueError(f"{table.name}: all {count} queries of {split} are in {where}, too; give each one split")
        notes.append(f"{count} of {all_here} queries of {split} are in {where}, too, and are left out of {split}.")
        stays &= ~known
    return replace(table if stays.all() else table.subset(stays), notes=tuple(notes))


def not_judged(words: Array) -> npt.NDArray[np.bool_]:
    """[row] bool. In LETOR's files -1 is a grade beside 0, 1, ...: the row was not judged. Elsewhere it is a class.

    Args:
        words: [row] labels, None for a missing one.
    """
    grades = {_number(word) for word in pandas.unique(words) if word is not None}
    judged = {grade for grade in grades if grade is not None and grade != -1}
    letor = grades == judged | {-1.0} and min(judged, default=1) == 0 < max(judged)
    return np.array([letor and word is not None and _number(word) == -1 for word in words.tolist()])


def _number(word: str) -> float | None:
    """The number of a label; true and false are 1 and 0. None: it has none."""
    return TRUTH.get(word.lower(), number_in(word))


def graded(rows: JudgedRows, words: Array, name: str, positive: str | float | None) -> tuple[Tensor, list[str]]:
    """[row] float32 relevance, and remarks on the labels.

    Args:
        rows: the rows, for messages.
        words: [row] their labels, None for an empty one.
        name: name of the column.
        positive: the label of the relevant rows; None: labels are 0 and 1, or grades.

    Raises:
        ValueError: a label is missing, negative, infinite or too large, or all are alike; or `positive` is none of
            them. The message has the row.
    """
    codes, kinds = pandas.factorize(words, sort=True)
    for row in np.flatnonzero(codes < 0)[:1]:
        raise ValueError(f"{rows.place(row)}: the label {name!r} is empty; give it a value or leave the row out")
    numbers = [_number(word) for word in kinds]
    some = ", ".join(map(shown, kinds[:5])) + (", ..." if len(kinds) > 5 else "")
    name_it = f"Name the label that is relevant: {setting('positive', kinds[np.bincount(codes).argmin()])}"
    if len({word if number is None else number for word, number in zip(kinds, numbers, strict=True)}) == 1:
        raise ValueError(
            f"all {len(words)} rows of {rows.name} have the label {name!r} = {kinds[0]}; at least two different labels "
            f"are needed. If another column is the label, name it: {setting('label', 'NAME')}"
        )
    if positive is not None:
        given = str(positive).strip()
        relevant = [word == given for word in kinds]
        if not any(relevant) and _number(given) is not None:
            relevant = [number == _number(given) for number in numbers]
        if not any(relevant):
            raise ValueError(f"no row of {rows.name} has the label {given!r}; {name!r} has {some}. {name_it}")
        return torch.from_numpy(np.array(relevant, np.float32)[codes]), []
    if None in numbers:
        raise ValueError(f"the label {name!r} of {rows.name} has words: {some}. {name_it}")
    grades = np.array(numbers, np.float64)[codes]
    for row in np.flatnonzero(~((grades >= 0) & (grades <= LARGEST)))[:1]:
        raise ValueError(
            f"{rows.place(row)}: the label {name!r} is {grades[row]:g}; grades must be in 0 .. {LARGEST:g}. Correct "
            f"it, or name the label that is relevant: {setting('positive', 1)}"
        )
    if rows.query is None and grades.min() > 0:
        raise ValueError(f"each row of {rows.name} is relevant: {name!r} has {some}; only 0 is irrelevant. {name_it}")
    return torch.from_numpy(grades.astype(np.float32)), _remarks(rows, grades, name, name_it)


def _remarks(rows: JudgedRows, grades: Array, name: str, name_it: str) -> list[str]:
    """A sentence if the label is a quantity, or if most rows of one list have the relevant one of two labels."""
    values, relevant = np.unique(grades), int((grades > 0).sum())
    if (values != np.round(values)).any() or len(values) > MOST_GRADES:
        return [
            f"{name!r} has {len(values)} different values, such as {values[-1]:g}, so it looks like a quantity and not "
            f"like grades. Each value above 0 counts as relevant in AP, ROC AUC, MRR and P@k: {relevant} of "
            f"{len(grades)} rows. If another column is the label, name it: {setting('label', 'NAME')}"
        ]
    if rows.query is not None or 2 * relevant <= len(grades) or len(values) > 2:
        return []
    return [f"{relevant} of {len(grades)} rows are relevant. Is the rarer label the one to find? {name_it}"]


__all__ = ["ScoreTable", "load_table"]
