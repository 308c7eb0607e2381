"""`ScoreTable`: rows with features, and if known their relevance, query and split. `load_table` reads files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...common.checks import Numbers, closest, setting, unmasked
from ...common.checks import tensor as as_tensor
from ...common.files import shown
from ...datasets.tabular import AUTO, as_split, no_columns
from ...ranks.relevance import Labels
from ...tables.text import MISSING
from ...workbench.trec.files import QUERY
from .columns import TRUTH, ScoreColumns, Wanted, as_column, joined, numbered
from .division import held_out
from .reading import files_of, read_file, unread_beside

Array = npt.NDArray[Any]
LARGEST = 1e9  # extremes of types stand for missing values, and float32 has to tell grades apart
# Role of a column -> names of the columns that "auto" looks for, in this order.
AUTOMATIC = {"label": ("label", "y"), "query": QUERY, "split": ("split",)}


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Rows to score, with their features.

    Attributes:
        features: name -> [row] float64, NaN for a missing value; or [row] str, None for a missing value.
        relevance: [row] float32 >= 0: 0 and 1, or grades; None: unknown.
        query: [row] int64, ids from 0 on; None: all rows are one list.
        query_names: name of each query id in the file.
        split: [row] "train", "val" or "test"; None: the table is not divided.
        rows: [row] number of the row in the file.
        files: [row] the file, and the unit of the number: "train.csv, line".
        name: name of the file or the folder.
        notes: remarks on the columns and the labels of the file, one sentence each.

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
    notes: tuple[str, ...] = ()

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
        if self.query is not None and count:
            absent = np.flatnonzero(np.bincount(self.query.numpy()) == 0)
            if len(absent):
                raise ValueError(
                    f"query must number the queries from 0 on, but no row has {absent[0]}. ScoreTable.of takes any ids"
                )
        if self.relevance is not None:
            bad = (~(self.relevance.isfinite() & (self.relevance >= 0))).nonzero()
            if len(bad):
                row = int(bad[0])
                raise ValueError(f"relevance must be finite and >= 0; that of row {row} is {self.relevance[row]:g}")

    @classmethod
    def of(
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
        if hasattr(frame, "columns"):  # a table of pandas, polars or pyarrow, which are not imported for this check
            given_names = getattr(frame, "column_names", frame.columns)
            header = [str(name) for name in given_names]
            twice = next((name for name, count in Counter(header).items() if count > 1), None)
            if twice is not None:
                raise ValueError(f"the data frame has the column {twice!r} twice; give each its own name")
            features = {name: frame[name] for name in given_names}
        if isinstance(features, Mapping):
            columns = {str(name): _array(column, str(name)) for name, column in features.items()}
        else:
            matrix = as_tensor(features, "features").detach().cpu().numpy()
            if matrix.ndim != 2:
                raise ValueError(f"features must be [row, feature] or columns by name; got the shape {matrix.shape}")
            columns = numbered(matrix)
        ids: Array | None = None
        names: tuple[str, ...] = ()
        if query is not None:
            given = query.detach().cpu().numpy() if isinstance(query, Tensor) else _array(query, "query")
            need_queries(given)
            kinds, ids = np.unique(given, return_inverse=True)
            names = tuple(map(str, kinds.tolist()))
        return cls(
            # a copy, as the arrays are the caller's
            {name: as_column(column.copy(), name, lambda row: f"row {row}") for name, column in columns.items()},
            None if relevance is None else as_tensor(relevance, "relevance").detach().cpu().float(),
            None if ids is None else torch.from_numpy(ids.reshape(-1)),
            names,
        )

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, row: int) -> str:
        """The place of a row in its file, for messages: "train.csv, line 12"."""
        return f"{self.files[row]} {self.rows[row]}"

    def subset(self, indices: Array | Tensor | Sequence[int]) -> ScoreTable:
        """A table of some of the rows. Query ids are numbered again from 0 on, in the same order.

        Args:
            indices: row numbers, or [row] bool.
        """
        chosen = np.asarray(indices)
        if chosen.dtype != bool:
            chosen = chosen.astype(np.int64)
        query, names = self.query, self.query_names
        if query is not None:
            ids, numbers = np.unique(query.numpy()[chosen], return_inverse=True)
            query = torch.from_numpy(numbers.reshape(-1))
            names = tuple(names[number] for number in ids) if names else ()
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
        """One line: the numbers of rows, features, relevant rows and queries, and the range of the grades."""
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
            if self.relevance is not None:
                without = int((torch.bincount(self.query, weights=self.relevance) == 0).sum())
                parts += [f"{without} of them without a relevant row"] if without else []
        return f"{self.name}: {'; '.join(parts)}"


def need_queries(ids: Array) -> None:
    """Raise where a query id is missing.

    Args:
        ids: [row] integers or strings.

    Raises:
        ValueError: naming the row.
    """
    for row, value in enumerate(ids.tolist()):
        if value is None or value != value:  # NaN
            raise ValueError(f"query of row {row} is missing; each row needs its query")


def has_order(relevance: Tensor, query: Tensor | None) -> bool:
    """Whether two rows of a query differ in relevance. Without queries: whether two rows do.

    >>> has_order(torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1]))
    False
    """
    grades = relevance.numpy()
    ids = np.zeros(len(grades), dtype=np.int64) if query is None else query.numpy()
    order = np.lexsort((grades, ids))
    return bool(((np.diff(ids[order]) == 0) & (np.diff(grades[order]) != 0)).any())


def _array(column: Any, name: str) -> Array:
    """A column of a mapping or a data frame; what pandas calls missing, such as NA and NaT, is None among objects."""
    values = np.asarray(unmasked(column, name))
    if values.dtype == object and hasattr(column, "isna"):
        values = values.copy()
        values[column.isna()] = None
    return values


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
    roles_of = {"label": label, "query": query, "split": split}
    named = isinstance(positive, str) and positive.strip().lower() in MISSING  # such as NA: then it is no missing label
    wanted = _wanted(roles_of, features, drop, categorical, literal=("label", "query") if named else ("query",))
    parts = [read_file(file, wanted, delimiter) for _, file in files]
    read = joined(parts)
    roles = _roles(path, read, roles_of if len(files) == 1 else {**roles_of, "split": None})
    table = ScoreTable(
        _features(path, read, set(roles.values()), features, drop, categorical),
        split=np.repeat([name for name, _ in files], [len(part.rows) for part in parts]) if len(files) > 1 else None,
        rows=read.rows,
        files=read.files,
        name=shown(path.name),
    )
    notes = [note for _, file in files for note in unread_beside(file)]
    table = replace(table, notes=(*notes, *(_notes(read, table.features, drop) if features is None else [])))
    if "query" in roles:
        ids, names = _queries(table, read.values[roles["query"]], roles["query"])
        table = replace(table, query=ids, query_names=names)
    if "label" in roles:
        values = read.values[roles["label"]]
        judged = _judged(table, values) if positive is None else np.full(len(values), True)
        said = partial(_label_at, files, wanted, roles["label"], delimiter, np.flatnonzero(judged))
        if not judged.all():
            left_out = f"{int((~judged).sum())} of {len(values)} rows have the grade -1 (not judged) and are left out."
            table, values = replace(table.subset(judged), notes=(*table.notes, left_out)), values[judged]
            read = replace(read, values={name: column[judged] for name, column in read.values.items()})
        table = replace(table, relevance=_relevance(table, values, roles["label"], positive, said))
        if positive is None:
            table = replace(table, notes=(*table.notes, *_mostly_relevant(table, values)))
    if "split" in roles:
        table = replace(table, split=_splits(table, read.values[roles["split"]], roles["split"]))
    if table.relevance is None or test_fraction is None:
        return table
    return _with_test(table, test_fraction, seed)


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
    wanted = Wanted(ids.union(categorical), ids.union(features), literal=ids)
    read = joined([read_file(file, wanted, delimiter) for _, file in files_of(path)])
    columns = _features(path, read, set(), features, (), categorical)
    table = ScoreTable(columns, rows=read.rows, files=read.files, name=shown(path.name))
    if isinstance(query, str) and query not in read.values:
        raise ValueError(no_columns(shown(path), {"query": query}, read.listed))
    return table, next((read.values[name] for name in names if name in read.values), None)


def _wanted(
    roles: Mapping[str, str | None],
    features: Sequence[str] | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    literal: Sequence[str],
) -> Wanted:
    """The columns to read, and those to read as words; `literal` are roles whose columns may have words such as NA."""
    names = {role: _candidates(role, name, roles) for role, name in roles.items()}
    as_given = frozenset(name for role in literal for name in names[role])
    of_words = [*as_given, *names["split"]]
    taken = None if features is None else frozenset([*features, *(name for some in names.values() for name in some)])
    return Wanted(frozenset([*of_words, *categorical]), taken, frozenset(drop), as_given)


def _candidates(role: str, name: str | None, roles: Mapping[str, str | None]) -> tuple[str, ...]:
    """The columns that may have a role: the named column, or those that "auto" looks for."""
    if name == AUTO:
        return tuple(usual for usual in AUTOMATIC[role] if usual not in roles.values())
    return () if name is None else (name,)


def _roles(path: Path, read: ScoreColumns, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Role -> name of its column, for the roles that have a column."""
    roles: dict[str, str] = {}
    for role, name in wanted.items():
        candidates = _candidates(role, name, wanted)
        there = [candidate for candidate in candidates if candidate in read.values]
        if there or (candidates and (name != AUTO or role == "label")):
            roles[role] = (there or candidates)[0]
    if not set(roles.values()) <= set(read.values):
        raise ValueError(no_columns(shown(path), roles, read.listed))
    return roles


def _features(
    path: Path,
    read: ScoreColumns,
    taken: set[str],
    features: Sequence[str] | None,
    drop: Sequence[str],
    words: Sequence[str],
) -> dict[str, Array]:
    """The feature columns: name -> [row] values."""
    chosen = [name for name in read.values if name not in taken] if features is None else list(features)
    known, dropped = {*read.values, *read.unread}, set(drop)
    absent = [name for name in (*chosen, *drop, *words) if name not in known]
    if read.sparse:
        absent = [name for name in absent if not re.fullmatch(r"x[0-9]+", name)]
    if absent:
        raise ValueError(
            f"{shown(path)} has no column {absent[0]!r}{closest(absent[0], [*read.values, *read.unread])} It has "
            f"{', '.join(map(shown, read.listed))}"
        )
    both = [name for name in chosen if name in taken]
    if both:
        raise ValueError(f"{both[0]!r} is the label, the query or the split; leave it out of {setting('features')}")
    left = [name for name in chosen if name not in dropped]
    if not left:
        raise ValueError(f"{shown(path)} has no column for a feature; it has {', '.join(map(shown, read.listed))}")
    return {name: read.values[name] if name in read.values else np.zeros(len(read.rows)) for name in left}


def _notes(read: ScoreColumns, features: Mapping[str, Array], drop: Sequence[str]) -> list[str]:
    """Sentences about columns that look like a mistake."""
    nameless = [name for name in read.unread if not name.strip() and name not in drop]
    notes = ["A column without a name is left out: it may number the rows."] if len(nameless) == 1 else []
    notes += [f"{len(nameless)} columns without a name are left out."] if len(nameless) > 1 else []
    for name, column in features.items():
        if column.dtype != object and _counts_up(column):
            notes.append(
                f"{shown(name)} has a different whole number in each row, without a gap. If it is an id, leave it out: "
                f"{setting('drop', [name])}"
            )
    return notes


def _counts_up(column: Array) -> bool:
    """Whether the values are different whole numbers without a gap, in any order."""
    if len(column) < 2 or column.max() - column.min() != len(column) - 1:  # also where a value is missing
        return False
    return bool((np.diff(np.sort(column)) == 1).all()) and float(column[0]).is_integer()


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


def _judged(table: ScoreTable, values: Array) -> npt.NDArray[np.bool_]:
    """[row] bool. In LETOR's files -1 is a grade beside 0, 1, ...: the row was not judged. Elsewhere it is a class."""
    every = np.full(len(values), True)
    if table.query is None or values.dtype == object:
        return every
    judged: npt.NDArray[np.bool_] = values != -1
    return judged if (values == 0).any() and (values > 0).any() and not (values[judged] < 0).any() else every


def _label_at(
    files: Sequence[tuple[str, Path]],
    wanted: Wanted,
    name: str,
    delimiter: str | None,
    rows: Array,
    row: int,
) -> str:
    """The label of one of the rows as the file has it, for a message; "" if it is empty."""
    only = frozenset([name])
    given = replace(wanted, words=only, only=only, literal=only, drop=frozenset())
    values = joined([read_file(path, given, delimiter) for _, path in files]).values[name]
    value = values[rows[row]]
    return value if isinstance(value, str) else ""


def _relevance(
    table: ScoreTable, values: Array, name: str, positive: str | float | None, said: Callable[[int], str]
) -> Tensor:
    """[row] float32 relevance; `said` is the word of a row in the file."""
    missing = np.flatnonzero(np.isnan(values) if values.dtype != object else values == None)  # noqa: E711 - of an array
    if len(missing):
        row = int(missing[0])
        word = said(row)
        is_what = f"{shown(word)!r}, a word for a missing value" if word else "empty"
        ours = f". If it is the label that is relevant: {setting('positive', shown(word))}" if word else ""
        raise ValueError(
            f"{table.place(row)}: the label {name!r} is {is_what}; give it a value or leave the row out{ours}"
        )
    _need_two_labels(table, values, name)
    grades = _grades(table, values, name) if positive is None else _is_positive(table, values, name, str(positive))
    for wrong, must in ((grades < 0, ">= 0"), (grades > LARGEST, f"at most {LARGEST:g}")):
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"{table.place(row)}: the label {name!r} is {values[row]:g}; grades must be {must}. Correct it, or "
                f"name the label that is relevant: {setting('positive', 1)}"
            )
    _need_two_labels(table, grades, name)
    if table.query is None and grades.min() > 0:
        raise ValueError(
            f"each row of {table.name} is relevant: the label {name!r} has {_some(values)}, and only 0 is irrelevant. "
            f"Name the label that is relevant: {setting('positive', _rarest(values))}"
        )
    return torch.from_numpy(np.ascontiguousarray(grades, dtype=np.float32))


def _mostly_relevant(table: ScoreTable, values: Array) -> list[str]:
    """A sentence if one list has two labels, and the relevant label is the more frequent one."""
    assert table.relevance is not None
    relevant = int((table.relevance > 0).sum())
    if table.query is not None or 2 * relevant <= len(table) or len(set(values.tolist())) > 2:
        return []
    return [
        f"{relevant} of {len(table)} rows are relevant. If the rarer label is the one to find, name it: "
        f"{setting('positive', _rarest(values))}"
    ]


def _need_two_labels(table: ScoreTable, values: Array, name: str) -> None:
    if (values == values[0]).all():
        raise ValueError(
            f"all {len(values)} rows of {table.name} have the label {name!r} = {_some(values[:1])}; at least two "
            f"different labels are needed. If another column is the label, name it: {setting('label', 'NAME')}"
        )


def _grades(table: ScoreTable, values: Array, name: str) -> Array:
    """[row] numbers; the words true and false become 1 and 0."""
    if values.dtype != object:
        return values
    truth = {word: TRUTH.get(word.lower()) for word in set(values.tolist())}
    if None in truth.values():
        raise ValueError(
            f"the label {name!r} of {table.name} has words: {_some(values)}. Name the one that is relevant: "
            f"{setting('positive', _rarest(values))}"
        )
    return np.array([truth[word] for word in values.tolist()])


def _is_positive(table: ScoreTable, values: Array, name: str, positive: str) -> Array:
    """[row] 1 for the relevant label, else 0. "1" is the label 1.0, too."""
    words = np.array([f"{value:g}" if isinstance(value, float) else value.lower() for value in values.tolist()])
    wanted = positive.strip().lower()
    with suppress(ValueError):
        wanted = f"{float(wanted):g}" if values.dtype != object else wanted
    if not (words == wanted).any():
        raise ValueError(
            f"no row of {table.name} has the label {positive!r}; {name!r} has {_some(values)}. Name the one that is "
            f"relevant: {setting('positive', _rarest(values))}"
        )
    return np.where(words == wanted, 1.0, 0.0)


def _some(values: Array) -> str:
    words = sorted({shown(value) if isinstance(value, str) else f"{value:g}" for value in values.tolist()})
    return ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")


def _rarest(values: Array) -> str:
    kinds, counts = np.unique(values.astype(str) if values.dtype == object else values, return_counts=True)
    rarest = kinds[counts.argmin()]
    return str(rarest) if values.dtype == object else f"{rarest:g}"


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
    train = replace(table, features={}).subset(rows)
    assert train.relevance is not None
    query = None if train.query is None else train.query.numpy()
    drawn = split.astype("<U5")
    drawn[rows[held_out(train.relevance.numpy(), query, fraction, seed)]] = "test"
    return replace(table, split=drawn)


__all__ = ["ScoreTable", "load_table"]
