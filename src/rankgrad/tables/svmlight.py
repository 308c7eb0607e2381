"""Read svmlight lines: a grade, an optional query id, and numbered features. A feature that is not written is 0."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ..common.files import shown
from ..common.progress import through
from .arrays import Array, Arrays
from .text import MISSING, number_in, opened, text_of

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


def read_svmlight(path: Path) -> Arrays:
    """The columns of a file of svmlight lines: label, qid if each line has one, and x1, x2, ... by their numbers.

        2 qid:7 1:0.5 3:0.25  # a comment

    Args:
        path: the file.

    Raises:
        ValueError: a line has another form, a value is not a number, the features are not in ascending order, only some
            lines have a query id, or there are too many features. The message has the line.
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
        raise ValueError(f"{file} has no rows")
    values = {"label": _grades(grades, rows, file)} | ({"qid": np.array(queries, object)} if queries else {})
    return Arrays(values | _features(np.concatenate(pairs), counts, file), rows=np.array(rows), sparse=True)


def _pairs(features: str, place: str) -> Array:
    """[feature, 2] number and value; NULL, as in LETOR's files, and other words for a missing value become NaN."""
    words = features.replace(":", " ").split()
    try:
        numbers = list(map(float, words))
    except ValueError:
        found = [np.nan if word.lower() in MISSING else number_in(word) for word in words]
        wrong = next((at for at, number in enumerate(found) if number is None), None)
        if wrong is not None:
            pair = shown(f"{words[wrong - 1]}:{words[wrong]}")
            raise ValueError(f"{place}: {pair!r} has no number as its value") from None
        numbers = found  # type: ignore[assignment]
    pairs = np.array(numbers, np.float64).reshape(-1, 2)
    if not (pairs[1:, 0] > pairs[:-1, 0]).all():
        after = int((pairs[1:, 0] <= pairs[:-1, 0]).argmax())
        raise ValueError(
            f"{place}: feature {pairs[after + 1, 0]:.0f} comes after {pairs[after, 0]:.0f}; write each once, and in "
            "ascending order"
        )
    return pairs


def _grades(grades: list[str], rows: list[int], file: str) -> Array:
    numbers = [number_in(grade) for grade in grades]
    for grade, number, row in zip(grades, numbers, rows, strict=True):
        if number is None:
            raise ValueError(f"{file}, line {row}: the grade is {shown(grade)!r}; it must be a number")
    return np.array(numbers, dtype=np.float64)


def _features(pairs: Array, counts: list[int], file: str) -> dict[str, Array]:
    """[row] values of each feature in the file, named x1, x2, ..."""
    numbers, place = np.unique(pairs[:, 0], return_inverse=True)
    if len(numbers) * len(counts) > MOST:
        raise ValueError(f"{file} has {len(counts)} rows of {len(numbers)} features, more than a table can hold")
    dense = np.zeros((len(numbers), len(counts)))
    dense[place.reshape(-1), np.repeat(np.arange(len(counts)), counts)] = pairs[:, 1]
    return {f"x{number:.0f}": column for number, column in zip(numbers, dense, strict=True)}
