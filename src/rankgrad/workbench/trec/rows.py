"""Rows of (query, document, number), read in parts. All files and Python containers become such rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from ...common.checks import Numbers, unmasked
from ...common.checks import tensor as as_tensor
from ...common.files import shown
from .texts import Array, TextColumn

AT_ONCE = 2**16  # number of rows of a part
NO_DOCUMENT = -1  # this document number marks an empty place in a matrix


@dataclass(frozen=True, eq=False)
class ListRows:
    """Rows in groups: consecutive rows of the same query.

    Args:
        queries: [group] query of each group, in the order of the rows.
        sizes: [group] int64, number of rows of each group.
        documents: [row] names.
        values: [row] float64: scores or grades.
        lines: [row] int64, line number in the file; 0: not from a file.
    """

    queries: list[str]
    sizes: Array
    documents: TextColumn
    values: Array
    lines: Array

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def starts(self) -> Array:
        """[group] first row of each group."""
        starts: Array = np.cumsum(self.sizes) - self.sizes
        return starts

    @property
    def groups(self) -> Array:
        """[row] group of each row."""
        numbers: Array = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return numbers

    def between(self, first: int, last: int) -> ListRows:
        """The rows of the groups first .. last - 1, without copying."""
        ends = np.concatenate([[0], np.cumsum(self.sizes)])
        rows = slice(int(ends[first]), int(ends[last]))
        return ListRows(
            self.queries[first:last],
            self.sizes[first:last],
            self.documents.take(rows),
            self.values[rows],
            self.lines[rows],
        )

    def take(self, groups: Array) -> ListRows:
        """The rows of some groups, in the given order of groups."""
        rows = spans(self.starts[groups], self.sizes[groups])
        return ListRows(
            [self.queries[group] for group in groups.tolist()],
            self.sizes[groups],
            self.documents.take(rows),
            self.values[rows],
            self.lines[rows],
        )

    def packed(self) -> ListRows:
        """A copy of the rows in new memory."""
        return replace(self, documents=self.documents.packed(), values=self.values.copy(), lines=self.lines.copy())

    @classmethod
    def joined(cls, parts: Sequence[ListRows]) -> ListRows:
        """The rows of several parts. A query at the end of one part and the beginning of the next is one group."""
        if len(parts) == 1:
            return parts[0]
        queries: list[str] = []
        sizes: list[int] = []
        for query, size in chain.from_iterable(zip(part.queries, part.sizes.tolist(), strict=True) for part in parts):
            if queries and queries[-1] == query:
                sizes[-1] += size
            else:
                queries.append(query)
                sizes.append(size)
        return cls(
            queries,
            np.array(sizes, np.int64),
            TextColumn.joined([part.documents for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.lines for part in parts]),
        )


@dataclass(frozen=True)
class Source:
    """A source of rows.

    Args:
        name: name of the file or the variable, for messages.
        parts: function that returns all rows, in parts of any size.
        empty: whether there may be no rows, as from a system that finds nothing.
    """

    name: str
    parts: Callable[[], Iterator[ListRows]]
    empty: bool = False

    def queries(self) -> Iterator[ListRows]:
        """The rows as they are read, in parts that contain whole queries; each query occurs once.

        Raises:
            ScatteredError: the rows of a query are not consecutive. The parts so far are then wrong; use `gathered`.
            ValueError: there are no rows, or the source raises it.
        """
        seen: set[str] = set()
        held: list[ListRows] = []  # rows of one query, which may continue in the next part
        for part in self.parts():
            if not len(part):
                continue
            if held and part.queries == held[0].queries:
                held.append(part)
                continue
            rows = ListRows.joined([*held, part])
            last = len(rows.queries) - 1
            if len(set(rows.queries)) <= last or not seen.isdisjoint(rows.queries):
                raise ScatteredError(self.name)
            seen.update(rows.queries[:last])
            held = [rows.between(last, last + 1).packed()]
            if last:
                yield rows.between(0, last)
        yield ListRows.joined(held) if held else self._nothing()

    def whole(self) -> ListRows:
        """All rows at once, grouped by query; the rows of a query keep their order.

        Raises:
            ValueError: there are no rows.
        """
        parts = [part for part in self.parts() if len(part)]
        if not parts:
            return self._nothing()
        rows = ListRows.joined(parts)
        number = {query: place for place, query in enumerate(dict.fromkeys(rows.queries))}
        if len(number) == len(rows.queries):
            return rows
        of_group = np.array([number[query] for query in rows.queries])
        sizes = np.bincount(of_group, weights=rows.sizes).astype(np.int64)
        return replace(rows.take(np.argsort(of_group, kind="stable")), queries=list(number), sizes=sizes)

    def _nothing(self) -> ListRows:
        if not self.empty:
            raise ValueError(f"{self.name} holds no rows")
        none = np.zeros(0, np.int64)
        return ListRows([], none, TextColumn.of([]), np.zeros(0), none)

    def gathered(self) -> Iterator[ListRows]:
        """The rows in parts that contain whole queries; each query occurs once. All rows are in memory."""
        rows = self.whole()
        part = (np.cumsum(rows.sizes) - 1) // AT_ONCE
        ends = np.append(np.flatnonzero(np.diff(part)) + 1, len(part)).tolist()
        for first, last in zip([0, *ends], ends, strict=False):
            yield rows.between(first, last)

    def place(self, rows: ListRows, row: int) -> str:
        """Description of a row for messages: file, line (if known), query and document."""
        query = rows.queries[int(np.searchsorted(np.cumsum(rows.sizes), row, side="right"))]
        [document] = rows.documents.words([row])
        line = f"line {rows.lines[row]}, " if rows.lines[row] else ""
        return f"{self.name}, {line}query {shown(query)!r}, document {shown(document)!r}"


class ScatteredError(Exception):
    """The rows of a query are not consecutive."""


def spans(starts: Array, sizes: Array) -> Array:
    """The numbers start, start + 1, ..., start + size - 1 of all spans, one span after the other.

    >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    positions: Array = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
    return positions


# --------------------------------------------------------------------------------------------------- Python containers


def from_mapping(values: Mapping[Any, Mapping[Any, float]], name: str = "the mapping") -> Source:
    """The rows of a mapping query -> document -> score or grade.

    Args:
        values: the mapping; queries and documents are strings or integers.
        name: its name in messages.

    >>> from rankgrad import trec
    >>> run = from_mapping({"q1": {"d1": 0.9, "d2": 0.4}}, name="mine")
    >>> trec.evaluate({"mine": run}, {"q1": {"d2": 1}}, ["recip_rank"], bootstrap=0).values["mine"]["recip_rank"]
    0.5
    """

    def parts() -> Iterator[ListRows]:
        queries: list[Any] = []
        rows = 0
        for query, listed in values.items():
            if not isinstance(listed, Mapping):
                raise TypeError(f"{name} must map a query to a mapping of documents; query {query!r} has {listed!r}")
            queries.append(query)
            rows += len(listed)
            if rows >= AT_ONCE:
                yield part(queries, rows)
                queries, rows = [], 0
        yield part(queries, rows)

    def part(queries: list[Any], rows: int) -> ListRows:
        lists = [values[query] for query in queries]
        return ListRows(
            TextColumn.of(queries).words(),
            np.fromiter(map(len, lists), np.int64, len(lists)),
            TextColumn.of(list(chain.from_iterable(lists))),
            _numbers(queries, lists, rows, name),
            np.zeros(rows, np.int64),
        )

    return Source(name, parts)


def _numbers(queries: Sequence[Any], lists: Sequence[Mapping[Any, Any]], count: int, name: str) -> Array:
    """[row] the numbers of some lists."""
    try:
        return np.fromiter(chain.from_iterable(each.values() for each in lists), np.float64, count)
    except (TypeError, ValueError, OverflowError):
        pass
    for query, listed in zip(queries, lists, strict=True):
        for document, value in listed.items():
            try:
                float(value)
            except (TypeError, ValueError, OverflowError):
                raise TypeError(
                    f"{name}, query {query!r}, document {document!r} must have a number; got {value!r}"
                ) from None
    raise AssertionError("numpy refuses a number that Python takes")


def from_columns(queries: Any, documents: Any, values: Numbers, name: str = "the columns") -> Source:
    """The rows of three columns of the same length. The rows of a query need not be consecutive.

    Args:
        queries: [row] strings or integers.
        documents: [row] strings or integers.
        values: [row] scores or grades.
        name: name of the columns in messages.

    Raises:
        ValueError: the columns differ in length.

    >>> source = from_columns(["q1", "q1", "q2"], ["d1", "d2", "d1"], [0.9, 0.4, 0.7])
    >>> [(rows.queries, rows.sizes.tolist()) for rows in source.queries()]
    [(['q1'], [2]), (['q2'], [1])]
    """
    numbers = as_tensor(values, "values").detach().cpu().double().numpy()
    lengths = [len(unmasked(queries, "queries")), len(unmasked(documents, "documents")), len(numbers)]
    if numbers.ndim != 1 or len(set(lengths)) > 1:
        raise ValueError(f"queries, documents and values must have the same length; got {lengths}")

    def parts() -> Iterator[ListRows]:
        for first in range(0, len(numbers), AT_ONCE):
            here = slice(first, first + AT_ONCE)
            yield rows_of(
                names(queries[here]), names(documents[here]), numbers[here], np.zeros_like(numbers[here], int)
            )

    return Source(name, parts)


def from_matrix(documents: Any, scores: Numbers, queries: Any = None, name: str = "the matrix") -> Source:
    """The rows of two matrices [query, place]: the retrieved documents of every query, and their scores.

    Lists may differ in length: an empty place holds -1 (as in faiss) or an empty string, and its score is ignored.

    Args:
        documents: [query, place] integers or strings.
        scores: [query, place] numbers.
        queries: [query] names; None: 0, 1, 2, ...
        name: name of the matrix in messages.

    Raises:
        ValueError: the shapes differ.

    >>> found = from_matrix([[7, 3], [5, -1]], [[0.9, 0.4], [0.8, 0.0]])
    >>> [(rows.queries, rows.sizes.tolist()) for rows in found.queries()]
    [(['0'], [2]), (['1'], [1])]
    """
    table = as_array(documents)
    numbers = as_tensor(scores, "scores").detach().cpu().numpy()
    if table.ndim != 2 or table.shape != numbers.shape:
        raise ValueError(
            f"documents and scores must be matrices [query, place] of equal shape; got {table.shape}, {numbers.shape}"
        )
    return _by_row(table, numbers, table != (NO_DOCUMENT if table.dtype.kind in "iu" else ""), queries, name)


def from_scores(
    scores: Numbers, retrieved: Any = None, queries: Any = None, documents: Any = None, name: str = "the scores"
) -> Source:
    """The rows of a whole matrix [query, document] of scores.

    Args:
        scores: [query, document] numbers. Minus infinity: the document was not retrieved for the query.
        retrieved: [query, document] bool; False: the document was not retrieved, and its score is ignored. None: all
            were retrieved.
        queries: [query] names; None: 0, 1, 2, ...
        documents: [document] names; None: 0, 1, 2, ...
        name: name of the matrix in messages.

    Raises:
        ValueError: the shapes do not fit.

    >>> from rankgrad import trec
    >>> run = from_scores([[0.1, 0.9, 0.5]], queries=["q1"], documents=["d1", "d2", "d3"])
    >>> trec.evaluate({"mine": run}, {"q1": {"d3": 1}}, ["recip_rank"], bootstrap=0).values["mine"]["recip_rank"]
    0.5
    """
    numbers = as_tensor(scores, "scores").detach().cpu().numpy()
    if numbers.ndim != 2:
        raise ValueError(f"scores must be a matrix [query, document]; got shape {numbers.shape}")
    columns = np.arange(numbers.shape[1]) if documents is None else as_array(documents)
    inside = np.ones(numbers.shape, bool) if retrieved is None else np.asarray(unmasked(retrieved, "retrieved"))
    if inside.dtype != bool or inside.shape != numbers.shape or len(columns) != numbers.shape[1]:
        raise ValueError(
            f"scores {numbers.shape} need retrieved as bool of the same shape and a name for each column; got "
            f"{inside.dtype} {inside.shape} and {len(columns)} names"
        )
    return _by_row(np.broadcast_to(columns, numbers.shape), numbers, inside & (numbers != -np.inf), queries, name)


def _by_row(table: Array, numbers: Array, inside: Array, queries: Any, name: str) -> Source:
    named = TextColumn.of_integers(np.arange(len(table))) if queries is None else names(queries)
    if len(named) != len(table):
        raise ValueError(f"queries must have {len(table)} names, one per row; got {len(named)}")
    words = named.words()

    def parts() -> Iterator[ListRows]:
        step = max(1, AT_ONCE // max(1, table.shape[1]))
        for first in range(0, len(table), step):
            here = slice(first, first + step)
            chosen = inside[here]
            values = numbers[here][chosen].astype(np.float64)
            sizes = chosen.sum(1)
            yield ListRows(words[here], sizes, names(table[here][chosen]), values, np.zeros(len(values), np.int64))

    return Source(name, parts)


def rows_of(queries: TextColumn, documents: TextColumn, values: Array, lines: Array) -> ListRows:
    """Rows of columns; consecutive rows of the same query become a group."""
    first = np.flatnonzero(~queries.repeated())
    sizes = np.diff(np.append(first, len(queries)))
    return ListRows(queries.words(first), sizes, documents, values, lines)


def names(values: Any) -> TextColumn:
    """[row] names of queries or documents, from an array or a list of integers or strings."""
    array = as_array(values)
    return TextColumn.of_integers(array) if array.dtype.kind in "iu" else TextColumn.of(array.tolist())


def as_array(values: Any) -> Array:
    """Names as an array of integers, strings or objects (`TextColumn.of` checks objects)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    array = np.asarray(unmasked(values, "a column of names"))
    return array if array.dtype.kind in "iuUO" else np.asarray(values, dtype=object)
