"""Runs and judgements as lists: the documents of one query with their scores or grades. Python's containers as lists.

A list is made, checked and forgotten query by query, so a long run needs little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from rankgrad.common.checks import Numbers, tensor, unmasked
from rankgrad.common.text import shown

Array = npt.NDArray[Any]
NO_DOCUMENT = -1  # this document number marks an empty place in a matrix


@dataclass(frozen=True, eq=False)
class QueryList:
    """Documents of one query, in the order in which they came.

    Args:
        query: its name.
        documents: their names.
        values: [document] float64: scores or grades.
        lines: [document] lines of the file; empty: they are not from a file.
    """

    query: str
    documents: list[str]
    values: Array
    lines: Sequence[int] = ()

    def place(self, row: int) -> str:
        """Line (if known), query and document of a row, for messages."""
        line = f"line {self.lines[row]}, " if self.lines else ""
        return f"{line}query {shown(self.query)!r}, document {shown(self.documents[row])!r}"


@dataclass(frozen=True)
class Source:
    """A run or judgements: something that returns lists.

    Args:
        name: name of the file or the variable, for messages.
        parts: function that returns the rows; the list of a query may come in several parts.
        empty: whether there may be no rows, as from a system that finds nothing.
    """

    name: str
    parts: Callable[[], Iterator[QueryList]]
    empty: bool = False

    def lists(self, *, together: bool = False) -> Iterator[QueryList]:
        """The list of each query, as it is read; or, together, after all rows were read.

        Raises:
            ScatteredError: not together, and the rows of a query do not follow one another.
            ValueError: there are no rows, a document is in a list twice, or the source raises it.
        """
        read = self.parts()
        if together:
            of_query: dict[str, list[QueryList]] = {}
            for part in read:
                of_query.setdefault(part.query, []).append(part)
            read = chain.from_iterable(of_query.values())
        seen: set[str] = set()
        for query, parts in groupby(read, lambda part: part.query):
            if query in seen:
                raise ScatteredError(self.name)
            seen.add(query)
            yield self._joined([*parts])
        if not seen and not self.empty:
            raise ValueError(f"{self.name} holds no rows")

    def _joined(self, parts: Sequence[QueryList]) -> QueryList:
        """One list, without a document that comes twice."""
        one = parts[0]
        if len(parts) > 1:
            documents = [document for part in parts for document in part.documents]
            lines = [line for part in parts for line in part.lines]
            one = QueryList(one.query, documents, np.concatenate([part.values for part in parts]), lines)
        if len(set(one.documents)) < len(one.documents):
            rows: dict[str, int] = {}
            row = next(row for row, name in enumerate(one.documents) if rows.setdefault(name, row) != row)
            first = f", first in line {one.lines[rows[one.documents[row]]]}" if one.lines else ""
            raise ValueError(
                f"{self.name}, {one.place(row)}: this document is there twice for this query{first}. Nothing was "
                "evaluated: keep only one of the two"
            )
        if not np.isfinite(one.values).all():
            row = int(np.argmin(np.isfinite(one.values)))
            raise ValueError(f"{self.name}, {one.place(row)}: a finite number is needed; got {one.values[row]:g}")
        return one


class ScatteredError(Exception):
    """The rows of a query do not follow one another."""


def by_query(
    queries: Sequence[str], documents: Sequence[str], values: Array, lines: Sequence[int] = ()
) -> Iterator[QueryList]:
    """Columns as lists: rows of the same query that follow one another.

    >>> [(each.query, each.documents) for each in by_query(["q1", "q1", "q2"], ["a", "b", "a"], np.ones(3))]
    [('q1', ['a', 'b']), ('q2', ['a'])]
    """
    first = 0
    for query, rows in groupby(queries):
        last = first + sum(1 for _ in rows)
        yield QueryList(query, list(documents[first:last]), values[first:last], lines[first:last])
        first = last


def from_mapping(values: Mapping[Any, Mapping[Any, float]], name: str = "the mapping") -> Source:
    """The lists of a mapping query -> document -> score or grade.

    Args:
        values: the mapping; queries and documents are strings or integers.
        name: its name in messages.

    >>> from rankgrad import trec
    >>> run = from_mapping({"q1": {"d1": 0.9, "d2": 0.4}}, name="mine")
    >>> trec.evaluate({"mine": run}, {"q1": {"d2": 1}}, ["recip_rank"], intervals=0).values["mine"]["recip_rank"]
    0.5
    """

    def parts() -> Iterator[QueryList]:
        for query, listed in values.items():
            if not isinstance(listed, Mapping):
                raise TypeError(
                    f"{name} must map queries to documents and their numbers; query {query!r} has {listed!r}. A run "
                    "needs a name: pass {'a name': run}"
                )
            if listed:
                try:
                    numbers = np.fromiter(listed.values(), np.float64, len(listed))
                except (TypeError, ValueError, OverflowError):
                    raise TypeError(f"{name}, query {query!r}: documents must have numbers; got {listed!r}") from None
                yield QueryList(names([query])[0], names(listed), numbers)

    return Source(name, parts)


def from_columns(queries: Any, documents: Any, values: Numbers, name: str = "the columns") -> Source:
    """The lists of three columns of the same length. The rows of a query need not follow one another.

    Args:
        queries: [row] strings or integers.
        documents: [row] strings or integers.
        values: [row] scores or grades.
        name: name of the columns in messages.

    Raises:
        ValueError: the columns differ in length.

    >>> source = from_columns(["q1", "q1", "q2"], ["d1", "d2", "d1"], [0.9, 0.4, 0.7])
    >>> [(each.query, each.documents) for each in source.lists()]
    [('q1', ['d1', 'd2']), ('q2', ['d1'])]
    """
    scores = numbers(values, "values")
    lengths = [len(unmasked(queries, "queries")), len(unmasked(documents, "documents")), len(scores)]
    if scores.ndim != 1 or len(set(lengths)) > 1:
        raise ValueError(f"queries, documents and values must have the same length; got {lengths}")
    return Source(name, lambda: by_query(names(queries), names(documents), scores))


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
    >>> [(each.query, each.documents) for each in found.lists()]
    [('0', ['7', '3']), ('1', ['5'])]
    """
    table, values = _array(documents), numbers(scores, "scores")
    if table.ndim != 2 or table.shape != values.shape:
        raise ValueError(
            f"documents and scores must be matrices [query, place] of equal shape; got {table.shape}, {values.shape}"
        )
    return _of_rows(table, values, table != (NO_DOCUMENT if table.dtype.kind in "iu" else ""), queries, name)


def from_scores(scores: Numbers, queries: Any = None, documents: Any = None, name: str = "the scores") -> Source:
    """The rows of a whole matrix [query, document] of scores.

    Args:
        scores: [query, document] numbers. Minus infinity: the document was not retrieved for the query.
        queries: [query] names; None: 0, 1, 2, ...
        documents: [document] names; None: 0, 1, 2, ...
        name: name of the matrix in messages.

    Raises:
        ValueError: the shapes do not fit.

    >>> from rankgrad import trec
    >>> run = from_scores([[0.1, 0.9, 0.5]], queries=["q1"], documents=["d1", "d2", "d3"])
    >>> trec.evaluate({"mine": run}, {"q1": {"d3": 1}}, ["recip_rank"], intervals=0).values["mine"]["recip_rank"]
    0.5
    """
    values = numbers(scores, "scores")
    if values.ndim != 2:
        raise ValueError(f"scores must be a matrix [query, document]; got shape {values.shape}")
    columns = np.array(names(range(values.shape[1]) if documents is None else documents), object)
    if len(columns) != values.shape[1]:
        raise ValueError(f"scores {values.shape} need a name for each column; got {len(columns)} names")
    return _of_rows(np.broadcast_to(columns, values.shape), values, values != -np.inf, queries, name)


def _of_rows(table: Array, values: Array, inside: Array, queries: Any, name: str) -> Source:
    """A list for each row of a matrix: the places that are inside."""
    called = names(range(len(table)) if queries is None else queries)
    if len(called) != len(table):
        raise ValueError(f"queries must have {len(table)} names, one per row; got {len(called)}")
    rows = list(zip(called, table, values, inside, strict=True))
    return Source(name, lambda: (QueryList(q, names(row[here]), of[here]) for q, row, of, here in rows if here.any()))


def names(values: Iterable[Any]) -> list[str]:
    """Names of queries or documents, from strings and integers.

    Raises:
        TypeError: a value is neither a string nor an integer.

    >>> names(np.array([3, 12])), names(["d1", 7])
    (['3', '12'], ['d1', '7'])
    """
    given = _array(values).tolist() if hasattr(values, "dtype") else unmasked(list(values), "a column of names")
    for value in given:
        if type(value) is not str and (isinstance(value, bool) or not isinstance(value, (str, int, np.integer))):
            raise TypeError(f"names of queries and documents must be strings or integers; got {value!r}")
    return [*map(str, given)]


def numbers(values: Numbers, name: str) -> Array:
    """Numbers as float64, from an array, a list or a tensor. torch is imported for a tensor alone."""
    try:
        array = _array(tensor(values, name) if hasattr(values, "detach") else unmasked(values, name))
    except ValueError as error:
        raise ValueError(f"{name} must be numbers in rows of equal length: {error}") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numbers: a tensor, a numpy array or a list; got {array.dtype}")
    return array.astype(np.float64)


def _array(values: Any) -> Array:
    """An array of integers, numbers, strings or objects."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values  # numpy has no bfloat16
    array = np.asarray(unmasked(values, "an array"))
    return array if array.dtype.kind in "biufUO" else np.asarray(values, dtype=object)
