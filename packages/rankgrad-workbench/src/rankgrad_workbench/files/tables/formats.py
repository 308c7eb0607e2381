"""The formats of files of rows, in one table: suffix -> how it is read. A new format is a file here and a row in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.progress import through
from rankgrad.common.text import shown

from .. import read_npz
from .arrow import Arrays, Chosen, csv_arrays, objects, parquet_arrays, parquet_rows
from .delimited import delimited
from .objects import lines_of_objects
from .parts import need_whole
from .svmlight import looks_like_svmlight, read_svmlight
from .text import kind_of, opened

Row = Mapping[str, Any]
NumberedRows = Iterator[tuple[int, Row]]


@dataclass(frozen=True)
class Format:
    """How the files of a format are read. It has at least one of the two functions.

    Attributes:
        unit: what the numbers of rows count in messages: "line" or "row".
        rows: (file, delimiter) -> (number, column -> value) of each row. A file without it holds no texts.
        arrays: (file, columns to read, columns to read as words) -> whole columns; None: they are made of the rows.
        typed: whether values have types; in a csv, each is a text, and readers decide which columns are numbers.
    """

    unit: str
    rows: Callable[[Path, str | None], NumberedRows] | None = None
    arrays: Callable[[Path, Chosen, Chosen], Arrays] | None = None
    typed: bool = True


def _named(path: Path, delimiter: str | None) -> NumberedRows:
    lines = delimited(path, delimiter)
    for _, header in lines:
        for line, fields in lines:
            yield line, dict(zip(header, fields, strict=True))


DELIMITED = Format("line", _named, typed=False)
SVMLIGHT = Format("line", arrays=lambda path, wanted, words: read_svmlight(path))
#: Suffix, without that of gzip -> format.
FORMATS = {
    ".csv": DELIMITED,
    ".tsv": DELIMITED,
    ".jsonl": Format("line", lambda path, delimiter: through(lines_of_objects(path), "reading", "row")),
    ".parquet": Format("row", lambda path, delimiter: parquet_rows(path), parquet_arrays),
    ".npz": Format("row", arrays=lambda path, wanted, words: Arrays(read_npz(path))),
    **dict.fromkeys((".svm", ".svmlight", ".libsvm"), SVMLIGHT),
}


def of_texts() -> tuple[str, ...]:
    """The suffixes of files whose rows may hold texts.

    >>> of_texts()
    ('.csv', '.tsv', '.jsonl', '.parquet')
    """
    return tuple(suffix for suffix, each in FORMATS.items() if each.rows is not None)


def of_arrays() -> tuple[str, ...]:
    """The suffixes of files that hold whole columns, such as vectors."""
    return tuple(suffix for suffix, each in FORMATS.items() if each.arrays is not None)


def format_of(path: Path) -> Format:
    """The format of a file: by its suffix, else svmlight, whose files often have another name.

    Raises:
        ValueError: its format is unknown.
    """
    found = FORMATS.get(kind_of(path)) or (SVMLIGHT if looks_like_svmlight(path) else None)
    if found is None:
        raise _unknown(path, [*FORMATS, "lines of svmlight (GRADE qid:QUERY 1:VALUE ...)"])
    return found


def _unknown(path: Path, known: Iterable[str]) -> ValueError:
    """The error for a file of another format; `opened` names a packed file."""
    with opened(path):
        return ValueError(f"{shown(path)} is not one of {', '.join(known)}: write its rows in one of these formats")


def read_rows(path: Path, delimiter: str | None) -> Iterator[tuple[str, Row]]:
    """(file and line, column -> value) of every row.

    Args:
        path: the file.
        delimiter: of a csv, see `tables.delimited`.

    Raises:
        ValueError: the format is unknown or holds no texts, or the file is damaged.
    """
    found = FORMATS.get(kind_of(path))
    if found is None or found.rows is None:
        raise _unknown(path, of_texts())
    need_whole(path)
    for number, row in found.rows(path, delimiter):
        yield f"{shown(path)}, {found.unit} {number}", row


def read_arrays(path: Path, wanted: Chosen, words: Chosen, delimiter: str | None = None) -> Arrays:
    """Whole columns of a file.

    Args:
        path: the file.
        wanted: whether to read a column of this name.
        words: whether to leave whole numbers as they are where some are missing, because they are names.
        delimiter: of a csv, see `tables.delimited`.

    Raises:
        ValueError: the format is unknown, or the file is damaged.
    """
    found = format_of(path)
    need_whole(path)
    if found is DELIMITED:
        return csv_arrays(path, wanted, words, delimiter)
    if found.arrays is not None:
        return found.arrays(path, wanted, words)
    assert found.rows is not None
    numbered = [*found.rows(path, None)]
    names = dict.fromkeys(name for _, row in numbered for name in row)
    return Arrays(
        {name: objects([row.get(name) for _, row in numbered]) for name in names if wanted(name)},
        tuple(name for name in names if not wanted(name)),
        np.array([number for number, _ in numbered], np.int64),
    )
