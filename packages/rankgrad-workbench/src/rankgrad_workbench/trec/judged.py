"""Ranks of the judged documents in the lists of a run. Metrics need only these, so no list stays in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import filterfalse
from typing import Any, NamedTuple

import numpy as np

from rankgrad.common.text import shown

from .alike import pairs_alike, told_alike
from .lists import Array, QueryList, ScatteredError, Source

EXAMINED = 1000  # number of lists whose names are compared with those of the judgements


@dataclass(frozen=True, eq=False)
class Judgements:
    """The grades of the documents of each query.

    Args:
        name: name of the file in messages.
        grades: query -> document -> grade, the queries in the order of their names. A grade below 0: in the file but
            not judged, as in samples of a pool.
    """

    name: str
    grades: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, source: Source) -> Judgements:
        """The judgements of a file or of a mapping.

        Raises:
            ValueError: there are no judgements, a grade is not an integer, or a document is judged twice for a query.
        """
        grades = {}
        for each in sorted(source.lists(together=True), key=lambda each: each.query):
            whole = (each.values == np.floor(each.values)) & (np.abs(each.values) < 2**31)
            if not whole.all():
                row = int(np.argmin(whole))
                raise ValueError(
                    f"{source.name}, {each.place(row)}: a grade must be an integer below 2^31; got "
                    f"{each.values[row]:g}. Use the grades 0, 1, 2, ... and pass the gain of each grade by gains"
                )
            grades[each.query] = dict(zip(each.documents, each.values.astype(np.int64).tolist(), strict=True))
        return cls(source.name, grades)

    @cached_property
    def queries(self) -> tuple[str, ...]:
        """Names of the queries."""
        return tuple(self.grades)

    @cached_property
    def query(self) -> Array:
        """[judgement] index of its query."""
        return np.repeat(np.arange(len(self.grades)), [len(judged) for judged in self.grades.values()])

    @cached_property
    def grade(self) -> Array:
        """[judgement] int64."""
        return np.array([grade for judged in self.grades.values() for grade in judged.values()], np.int64)


@dataclass(frozen=True, eq=False)
class Relevant:
    """The relevant documents for one lowest relevant grade. An entry is a retrieved relevant document.

    Attributes:
        level: lowest relevant grade.
        known: [query] number of documents that are judged relevant.
        query: [entry] index of the query, ascending.
        rank: [entry] rank, ascending within a query, float64.
        found: [entry] number of relevant documents down to this rank, including this one; float64.
    """

    level: int
    known: Array
    query: Array
    rank: Array
    found: Array


@dataclass(frozen=True, eq=False)
class JudgedLists:
    """The lists of a run, of which only the judged documents are kept. An entry is a retrieved judged document.

    Args:
        judgements: all judgements.
        listed: [query] number of retrieved documents for each judged query; 0: the run lacks the query.
        query: [entry] index of the query, ascending.
        rank: [entry] 1, 2, ..., ascending within a query.
        grade: [entry] grade of the document.
        gains: grade -> gain for NDCG; the gain of other grades is the grade.
        early: whether recall points are computed as in trec_eval 9.
    """

    judgements: Judgements
    listed: Array
    query: Array
    rank: Array
    grade: Array
    gains: Mapping[int, float] = field(default_factory=dict)
    early: bool = False

    def cut(self, depth: int) -> JudgedLists:
        """The same with only the first `depth` documents of each list."""
        return replace(self._only(self.rank <= depth), listed=np.minimum(self.listed, depth))

    def judged_only(self) -> JudgedLists:
        """The same without the documents that have no judgement."""
        kept = self._only(self.grade >= 0)
        listed = np.bincount(kept.query, minlength=len(self.listed))
        return replace(kept, listed=listed, rank=counted_within(kept.query))

    def _only(self, kept: Array) -> JudgedLists:
        return replace(self, query=self.query[kept], rank=self.rank[kept], grade=self.grade[kept])

    def sums(self, query: Array, values: Array | None = None) -> Array:
        """[query] float64, the sum of the values [entry] of each query. Without values: the number of entries."""
        return np.bincount(query, weights=values, minlength=len(self.listed)).astype(np.float64)

    def relevant(self, level: int) -> Relevant:
        """The relevant documents: those with a grade of at least `level`."""
        kept = self._only(self.grade >= level)
        known = self.sums(self.judgements.query[self.judgements.grade >= level])
        found = counted_within(kept.query).astype(np.float64)
        return Relevant(level, known, kept.query, kept.rank.astype(np.float64), found)


class AboutRun(NamedTuple):
    """What is odd about a run.

    Attributes:
        unknown: queries of the run that are not in the judgements.
        alike: "queries" and "documents" -> pairs (name in the run, name in the judgements) that only look alike.
    """

    unknown: list[str]
    alike: dict[str, list[tuple[str, str]]]


def judged_lists(run: Source, judgements: Judgements, *, single: bool = False) -> tuple[JudgedLists, AboutRun]:
    """The judged documents in the lists of a run, and what is odd about it. See `ranks_in_list` for equal scores.

    Args:
        run: the run.
        judgements: judgements of its queries.
        single: whether scores are compared in single precision.

    Raises:
        ValueError: a document is listed twice for a query, no query is judged, or the source raises it.
    """
    try:
        return _collected(run, run.lists(), judgements, single)
    except ScatteredError:
        return _collected(run, run.lists(together=True), judgements, single)


def _collected(
    run: Source, lists: Iterable[QueryList], judgements: Judgements, single: bool
) -> tuple[JudgedLists, AboutRun]:
    number = {query: place for place, query in enumerate(judgements.queries)}
    listed = np.zeros(len(number), np.int64)
    entries: list[Array] = [np.empty((3, 0), np.int64)]  # [query | rank | grade, entry] of each list
    about = AboutRun([], {"queries": [], "documents": []})
    for examined, each in enumerate(lists):
        if each.query not in number:
            about.unknown.append(each.query)
            continue
        place, grades = number[each.query], judgements.grades[each.query]
        listed[place] = len(each.documents)
        rows = [row for row, document in enumerate(each.documents) if document in grades]
        ranks = ranks_in_list(each.documents, each.values.astype(np.float32) if single else each.values)[rows]
        entries.append(np.array([np.full(len(rows), place), ranks, [grades[each.documents[row]] for row in rows]]))
        if examined < EXAMINED and len(rows) < min(len(grades), len(each.documents)):
            here = {*each.documents}
            others = [name for name in grades if name not in here]
            about.alike["documents"] += pairs_alike(filterfalse(grades.__contains__, each.documents), others)
    lacking = [query for query, count in zip(number, listed.tolist(), strict=True) if not count]
    about.alike["queries"] += pairs_alike(about.unknown, lacking)
    if about.unknown and len(entries) == 1:
        raise ValueError(
            f"no query of {run.name} is judged in {judgements.name}: their first queries are "
            f"{shown(about.unknown[0])!r} and {shown(judgements.queries[0])!r}. "
            f"{told_alike('queries', about.alike['queries']) or 'Use the same names in both'}"
        )
    query, rank, grade = np.concatenate(entries, axis=1).astype(np.int64)
    order = np.lexsort((rank, query))
    return JudgedLists(judgements, listed, query[order], rank[order], grade[order]), about


def ranks_in_list(documents: Sequence[str], values: Array) -> Array:
    """[document] ranks in a list: 1 + number of documents of higher score, or of equal score and later name.

    Names are compared by their code points, which is the order of their bytes in UTF-8.

    >>> ranks_in_list(["d1", "d2", "d3"], np.array([0.5, 0.5, 0.9])).tolist()
    [3, 2, 1]
    """
    ranks = np.arange(1, len(values) + 1)
    if (values[1:] < values[:-1]).all():  # as in most files
        return ranks
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    for first, last in zip(edges[:-1][np.diff(edges) > 1], edges[1:][np.diff(edges) > 1], strict=True):
        order[first:last] = sorted(order[first:last].tolist(), key=documents.__getitem__, reverse=True)
    places = np.empty_like(ranks)
    places[order] = ranks
    return places


def counted_within(query: Array) -> Array:
    """[entry] 1, 2, 3, ... within each query; the entries of a query are consecutive.

    >>> counted_within(np.array([0, 0, 2, 2, 2])).tolist()
    [1, 2, 1, 2, 3]
    """
    first = np.searchsorted(query, query)  # queries ascend
    count: Array = np.arange(1, len(query) + 1) - first
    return count


def some(values: Any) -> str:
    """The first names, and the number of further names."""
    words = [shown(value) for value in values[:3]]
    return ", ".join(words) + (f" and {len(values) - 3:,} more" if len(values) > 3 else "")
