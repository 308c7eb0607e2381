"""Read svmlight lines: a grade, an optional query id, and numbered features. A feature that is not written is 0."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...common.files import shown
from ...common.progress import through
from ...tables.text import opened, text_of
from .columns import EMPTY, MISSING, ScoreColumns, as_words, number_in, refuse_infinite

Array = npt.NDArray[Any]
MOST = 2**31  # largest number of values in a table: 16 GB
LONGEST = 2**24  # largest number of bytes that are read of the first line
_LINE = re.compile(r"\s*(\S+)(?:\s+qid:(\S+))?((?:\s+[0-9]{1,9}:[^\s:_]+)*)\s*")


def looks_like_svmlight(path: Path) -> bool:
    """Whether the first line of a file has a grade, and a query id or a feature."""
    with opened(path) as file:
        while raw := file.readline(LONGEST):
            line = raw.decode("utf-8", "replace").partition("#")[0]
            if line.strip():
                match = _LINE.fullmatch(line)
                return match is not None and bool(match[2] or match[3])
    return False


def read_svmlight(path: Path) -> ScoreColumns:
    """The columns of a file of svmlight lines: label, qid if each line has one, and x1, x2, ... by their numbers.

        2 qid:7 1:0.5 3:0.25  # a comment

    Args:
        path: the file.

    Raises:
        ValueError: a line has another form, a value is infinite or not a number, the features are not in ascending
            order, only some lines have a query id, or there are too many features. The message has the line.
    """
    lines, file = text_of(path).split("\n"), shown(path)
    rows: list[int] = []
    grades: list[str] = []
    queries: list[str] = []
    counts: list[int] = []
    pairs: list[Array] = []
    for number, line in enumerate(through(lines, "reading", "row", len(lines)), 1):
        text = line.partition("#")[0]
        if not text.strip():
            continue
        match = _LINE.fullmatch(text)
        place = f"{file}, line {number}"
        if match is None:
            raise ValueError(f"{place} is no line of svmlight, such as 2 qid:7 1:0.5 3:0.25; got {shown(text[:80])!r}")
        grade, query, features = match.groups()
        if rows and (query is None) != (not queries):
            raise ValueError(f"{place} has {'no' if query is None else 'a'} query id, unlike the lines above")
        rows.append(number)
        grades.append(grade)
        queries += [] if query is None else [query]
        pairs.append(_pairs(features, place))
        counts.append(len(pairs[-1]))
    if not rows:
        raise ValueError(f"{shown(path)} has no rows")
    values = {"label": _grades(grades, rows, path)} | ({"qid": as_words(queries, EMPTY)} if queries else {})
    return ScoreColumns.of(
        values | _features(np.concatenate(pairs), counts, path), np.array(rows), path, "line", sparse=True
    )


def _pairs(features: str, place: str) -> Array:
    """[feature, 2] number and value; NULL, as in LETOR's files, and other words for a missing value become NaN."""
    try:
        words = features.replace(":", " ").split()
        try:
            pairs = np.array(list(map(float, words))).reshape(-1, 2)
        except ValueError:
            numbers = (np.nan if word.lower() in MISSING else float(word) for word in words)
            pairs = np.array(list(numbers)).reshape(-1, 2)
    except ValueError:
        values = {pair: pair.partition(":")[2] for pair in features.split()}
        wrong = next(pair for pair, text in values.items() if number_in(text) is None and text.lower() not in MISSING)
        raise ValueError(f"{place}: {shown(wrong)!r} has no number as its value") from None
    if not (pairs[1:, 0] > pairs[:-1, 0]).all():
        after = int((pairs[1:, 0] <= pairs[:-1, 0]).argmax())
        raise ValueError(
            f"{place}: feature {pairs[after + 1, 0]:.0f} comes after {pairs[after, 0]:.0f}; write each once, and in "
            "ascending order"
        )
    refuse_infinite(pairs[:, 1], "a feature", lambda _: place)
    return pairs


def _grades(grades: list[str], rows: list[int], path: Path) -> Array:
    numbers = [number_in(grade) for grade in grades]
    for grade, number, row in zip(grades, numbers, rows, strict=True):
        if number is None:
            raise ValueError(f"{shown(path)}, line {row}: the grade is {shown(grade)!r}; it must be a number")
    values = np.array(numbers, dtype=np.float64)
    refuse_infinite(values, "the grade", lambda row: f"{shown(path)}, line {rows[row]}")
    return values


def _features(pairs: Array, counts: list[int], path: Path) -> dict[str, Array]:
    """[row] values of each feature in the file, named x1, x2, ..."""
    numbers, place = np.unique(pairs[:, 0], return_inverse=True)
    if len(numbers) * len(counts) > MOST:
        raise ValueError(f"{shown(path)} has {len(counts)} rows of {len(numbers)} features, more than a table can hold")
    dense = np.zeros((len(numbers), len(counts)))
    dense[place.reshape(-1), np.repeat(np.arange(len(counts)), counts)] = pairs[:, 1]
    return {f"x{number:.0f}": column for number, column in zip(numbers, dense, strict=True)}
