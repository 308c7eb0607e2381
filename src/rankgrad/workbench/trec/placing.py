"""Ranks of the judged documents in the lists of a run. The measures need only these ranks.

A run of 10^8 rows is read in parts; only the judged rows of each part stay in memory. If the rows of a part are already
in the order of their scores, as in most files, the part is not sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ...common.files import shown
from .rows import ListRows, ScatteredError, Source, spans
from .texts import Array, TextColumn, mixed

_ODD = np.uint64(0xD6E8FEB86659FD93)
_FILTER_BITS = 20
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class Judgements:
    """The grades of the documents of each query.

    Args:
        queries: names of the queries, in the order of their bytes.
        starts: [query + 1] first judgement of each query.
        documents: [judgement] names of the documents.
        grades: [judgement] int64; below 0: in the file but not judged, as in samples of a pool.
        query: [judgement] index of the query.
        pairs: [judgement] uint64, a key of query and document; all keys are different.
        seed: seed of these keys.
        name: name of the file in messages.
    """

    queries: tuple[str, ...]
    starts: Array
    documents: TextColumn
    grades: Array
    query: Array
    pairs: Array
    seed: int
    name: str

    @classmethod
    def of(cls, source: Source) -> Judgements:
        """The judgements of a file or of a mapping.

        Raises:
            ValueError: there are no judgements, a grade is not an integer, or a document is judged twice for a query.
        """
        rows = source.whole()
        rows = rows.take(np.argsort(np.array(rows.queries, dtype=object), kind="stable"))
        whole = (rows.values == np.floor(rows.values)) & (np.abs(rows.values) < 2**31)
        if not whole.all():
            row = int(np.argmin(whole))
            raise ValueError(
                f"{source.place(rows, row)}: a grade must be an integer below 2^31; got {rows.values[row]:g}. Use the "
                "grades 0, 1, 2, ... and pass the gain of each grade by gains"
            )
        groups = rows.groups
        for seed in count():
            pairs = pair_keys(rows.documents.keys(seed), groups)
            refuse_repeated(pairs, rows, source, "judged")
            if len(np.unique(pairs)) == len(pairs):  # if two different pairs have the same key, try another seed
                break
        starts = np.append(rows.starts, len(rows))
        grades = rows.values.astype(np.int64)
        return cls(tuple(rows.queries), starts, rows.documents, grades, groups, pairs, seed, source.name)


@dataclass(frozen=True, eq=False)
class Placed:
    """Ranks and grades of the judged documents of a run. An entry is a retrieved judged document.

    Args:
        listed: [query] number of retrieved documents for each judged query; 0: the run lacks the query.
        query: [entry] index of the query, ascending.
        rank: [entry] 1, 2, ..., ascending within a query.
        grade: [entry] grade of the document.
        judgement: [entry] its place in `Judgements`.
        unknown: queries of the run that are not in the judgements.
        lowest: lowest score of the run.
        at_lowest: number of documents with this score.
    """

    listed: Array
    query: Array
    rank: Array
    grade: Array
    judgement: Array
    unknown: tuple[str, ...] = ()
    lowest: float = np.inf
    at_lowest: int = 0

    def cut(self, depth: int) -> Placed:
        """The same with only the first `depth` documents of each list."""
        kept = self.rank <= depth
        listed = np.minimum(self.listed, depth)
        return Placed(listed, self.query[kept], self.rank[kept], self.grade[kept], self.judgement[kept])

    def judged_only(self) -> Placed:
        """The same without the documents that have no judgement."""
        kept = self.grade >= 0
        query = self.query[kept]
        listed = np.bincount(query, minlength=len(self.listed))
        rank = np.arange(1, len(query) + 1) - (np.cumsum(listed) - listed)[query]
        return Placed(listed, query, rank, self.grade[kept], self.judgement[kept])


def placed(run: Source, judgements: Judgements, *, single: bool = False) -> Placed:
    """Ranks of the judged documents of a run. Documents of equal score are in the reverse order of their names.

    Args:
        run: rows of the run.
        judgements: judgements of its queries.
        single: whether scores are compared in single precision.

    Raises:
        ValueError: a document is listed twice for a query, no query is judged, or the source raises it.
    """
    try:
        return _collected(run, run.queries(), judgements, single)
    except ScatteredError:
        return _collected(run, run.gathered(), judgements, single)


def _collected(run: Source, parts: Iterator[ListRows], judgements: Judgements, single: bool) -> Placed:
    number = {query: place for place, query in enumerate(judgements.queries)}
    listed = np.zeros(len(number), np.int64)
    placed: list[tuple[Array, Array, Array]] = []
    unknown: list[str] = []
    lowest, at_lowest = np.inf, 0
    for part in parts:
        of_group = np.array([number.get(query, -1) for query in part.queries], np.int64)
        known = of_group >= 0
        if not known.all():
            unknown += [part.queries[group] for group in np.flatnonzero(~known).tolist()]
            part, of_group = part.take(np.flatnonzero(known)), of_group[known]
        if not len(part):
            continue
        listed[of_group] = part.sizes
        placed.append(_judged(run, part, of_group, judgements, single))
        least = float(part.values.min())
        at_lowest = (at_lowest if least >= lowest else 0) + int((part.values == min(least, lowest)).sum())
        lowest = min(least, lowest)
    if not placed and not unknown:  # the run may be empty
        none = np.zeros(0, np.int64)
        return Placed(listed, none, none, none, none)
    if not placed:
        raise ValueError(
            f"no query of {run.name} is judged in {judgements.name}: their first queries are {shown(unknown[0])!r} "
            f"and {shown(judgements.queries[0])!r}. Use the same names in both"
        )
    query, rank, judgement = (np.concatenate(column) for column in zip(*placed, strict=True))
    order = np.lexsort((rank, query))
    query, rank, judgement = query[order], rank[order], judgement[order]
    return Placed(listed, query, rank, judgements.grades[judgement], judgement, tuple(unknown), lowest, at_lowest)


def _judged(
    run: Source, rows: ListRows, of_group: Array, judgements: Judgements, single: bool
) -> tuple[Array, Array, Array]:
    """(query, rank, judgement) of every judged document of some lists."""
    groups = rows.groups
    query = of_group[groups]
    pairs = pair_keys(rows.documents.keys(judgements.seed), query)
    refuse_wrong_lists(pairs, rows, run)
    here = spans(judgements.starts[of_group], np.diff(judgements.starts)[of_group])
    here = here[np.argsort(judgements.pairs[here])]
    keys = judgements.pairs[here]
    # most documents are not judged; a table that fits into the cache excludes most of them
    maybe = np.zeros(1 << _FILTER_BITS, bool)
    shift = np.uint64(64 - _FILTER_BITS)
    maybe[(keys >> shift).astype(np.int64)] = True
    row = np.flatnonzero(maybe[(pairs >> shift).astype(np.int64)])
    at = np.minimum(np.searchsorted(keys, pairs[row]), len(keys) - 1)
    judgement = here[at]
    same = (keys[at] == pairs[row]) & (judgements.query[judgement] == query[row])
    row, judgement = row[same], judgement[same]
    same = rows.documents.take(row).equal(judgements.documents.take(judgement))
    row, judgement = row[same], judgement[same]
    scores = rows.values.astype(np.float32).astype(np.float64) if single else rows.values
    return query[row], ranks_in_lists(rows, scores, groups, row), judgement


def ranks_in_lists(rows: ListRows, scores: Array, groups: Array, wanted: Array) -> Array:
    """[wanted] rank of rows in their groups: 1 + number of rows of higher score, or of equal score and later name."""
    first = np.zeros(len(rows), bool)
    first[rows.starts[rows.sizes > 0]] = True
    rises = ~first
    rises[1:] &= scores[1:] > scores[:-1]
    place = wanted
    if rises.any():
        keys = _descending(scores, groups)
        order = np.argsort(keys)
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows))
        place = place[wanted]
        level = np.append(False, keys[order][1:] == keys[order][:-1])
    else:
        order = np.arange(len(rows))
        level = ~first
        level[1:] &= scores[1:] == scores[:-1]
    if level.any():
        place = _ties_by_name(rows, scores, order, level, wanted, place)
    rank: Array = place + 1 - rows.starts[groups[wanted]]
    return rank


def _descending(scores: Array, groups: Array) -> Array:
    """[row] uint64 sort keys: by group, then from the highest score to the lowest. Close scores may have equal keys."""
    bits = (scores + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    ascending = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    wide = np.uint64(max(1, int(groups[-1]).bit_length()))
    keys: Array = (groups.astype(np.uint64) << (np.uint64(64) - wide)) | (~ascending >> wide)
    return keys


def _ties_by_name(rows: ListRows, scores: Array, order: Array, level: Array, wanted: Array, place: Array) -> Array:
    """[wanted] corrected places: rows of equal score are sorted by name.

    Args:
        rows: rows of some lists.
        scores: [row] scores to compare.
        order: [place] the row at each place, sorted by group and score.
        level: [place] bool, whether the score may equal that of the previous place.
        wanted: the rows whose places are needed.
        place: [wanted] their places before the correction.
    """
    stretch = np.cumsum(~level)
    asked = np.zeros(int(stretch[-1]) + 1, bool)
    asked[stretch[place]] = True
    asked &= np.bincount(stretch) > 1
    places = np.flatnonzero(asked[stretch])
    if not len(places):
        return place
    unsorted = order[places]
    name = rows.documents.take(unsorted).places()
    rank = np.lexsort((-name, -scores[unsorted], stretch[places]))
    known = np.full(len(rows), -1)
    known[unsorted[rank]] = places
    by_name: Array = np.where(known[wanted] >= 0, known[wanted], place)
    return by_name


def pair_keys(documents: Array, query: Array) -> Array:
    """[row] uint64, a key of each (query, document).

    Args:
        documents: [row] keys of the documents.
        query: [row] index of the query.
    """
    return mixed(documents + query.astype(np.uint64) * _ODD)


def refuse_wrong_lists(pairs: Array, rows: ListRows, run: Source) -> None:
    """Raise if a document is in a list twice, or a score is not a finite number.

    Args:
        pairs: [row] key of query and document.
        rows: rows of some lists.
        run: source of the rows.
    """
    refuse_repeated(pairs, rows, run, "listed")
    wrong = ~np.isfinite(rows.values)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{run.place(rows, row)}: the score must be a finite number; got {rows.values[row]:g}")


def refuse_repeated(pairs: Array, rows: ListRows, source: Source, how: str) -> None:
    """Raise if a document is in a list twice.

    Args:
        pairs: [row] key of query and document.
        rows: rows of some lists.
        source: source of the rows.
        how: "listed" for a run, "judged" for judgements.

    Raises:
        ValueError: a document is in a list twice; the message has both places.
    """
    ordered = np.sort(pairs)
    suspects = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(suspects):
        return
    groups = rows.groups
    seen: dict[tuple[int, str], int] = {}
    for row in np.flatnonzero(np.isin(pairs, suspects)).tolist():
        [document] = rows.documents.words([row])
        before = seen.setdefault((int(groups[row]), document), row)
        if before != row:
            first = f", first in line {rows.lines[before]}" if rows.lines[before] else ""
            raise ValueError(
                f"{source.place(rows, row)}: this document is {how} twice for this query{first}. Nothing was "
                "evaluated: keep only one of the two"
            )


def some(values: Any) -> str:
    """The first names, and the number of further names."""
    words = [shown(value) for value in values[:3]]
    return ", ".join(words) + (f" and {len(values) - 3:,} more" if len(values) > 3 else "")
