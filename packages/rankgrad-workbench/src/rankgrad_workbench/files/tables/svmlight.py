"""Read svmlight lines: a grade, an optional query id, and numbered features. A feature that is not written is 0."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import shown

from .arrow import Array, Arrays
from .text import opened, text_of

MOST = 2**31  # largest number of values in a table: 16 GB
LONGEST = 2**24  # largest number of bytes that are read of the first line
_LINE = re.compile(r"\s*\S+(?:\s+qid:\S+)?(?:\s+[0-9]{1,9}:[^\s:_]+)*\s*")
_QUERY = re.compile(r"(\s*\S+)\s+qid:(\S+)")
_ABSENT = re.compile(r"(?<=:)(?:\?|na|n/a|null)(?!\S)", re.IGNORECASE)  # words for a missing value; LETOR has NULL


def looks_like_svmlight(path: Path) -> bool:
    """Whether the first line of a file has a grade, and a query id or a feature."""
    with opened(path) as file:
        while raw := file.readline(LONGEST):
            line = raw.decode("utf-8", "replace").partition("#")[0]
            if line.strip():
                return ":" in line and _LINE.fullmatch(line) is not None
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
    whole = [line.partition("#")[0] for line in text_of(path).split("\n")]
    rows = [row for row, line in enumerate(whole) if line.strip()]
    if not rows:
        raise ValueError(f"{shown(path)} has no rows")
    queries = [match and match[2] for match in (_QUERY.match(whole[row]) for row in rows)]
    lone = next((at for at, query in enumerate(queries) if (query is None) != (queries[0] is None)), None)
    if lone is not None:
        what = "no" if queries[lone] is None else "a"
        raise ValueError(f"{shown(path)}, line {rows[lone] + 1} has {what} query id, unlike the lines above")
    lines = [_ABSENT.sub("nan", _QUERY.sub(r"\1", whole[row], count=1)) for row in rows]
    try:
        features, grades = _read(lines)
    except (ValueError, OverflowError):
        for row, line in zip(rows, lines, strict=True):
            try:
                _read([line])
            except (ValueError, OverflowError) as error:
                raise ValueError(
                    f"{shown(path)}, line {row + 1} is no line of svmlight, such as 2 qid:7 1:0.5 3:0.25; got "
                    f"{shown(whole[row].strip()[:80])!r} ({shown(error)})"
                ) from None
        raise
    numbers, place = np.unique(features.indices, return_inverse=True)
    if len(numbers) * len(rows) > MOST:
        raise ValueError(f"{shown(path)} has {len(rows)} rows of {len(numbers)} features, more than a table can hold")
    dense = np.zeros((len(numbers), len(rows)))
    dense[place, np.repeat(np.arange(len(rows)), np.diff(features.indptr))] = features.data
    columns = {f"x{number}": column for number, column in zip(numbers, dense, strict=True)}
    ids = {} if queries[0] is None else {"qid": np.array(queries, object)}
    return Arrays({"label": grades} | ids | columns, rows=np.array(rows) + 1, sparse=True)


def _read(lines: list[str]) -> tuple[Any, Array]:
    """(features, grades) of lines without query ids and comments."""
    from sklearn.datasets import load_svmlight_file

    if any("_" in line for line in lines):
        raise ValueError("an underscore is no part of a number")  # though Python reads 1_0
    features, grades = load_svmlight_file(io.BytesIO("\n".join(lines).encode()), zero_based=True)
    return features, grades
