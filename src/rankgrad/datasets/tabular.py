"""Files of rows with named columns (csv, tsv, jsonl, parquet): read whole, and what is wrong is named with its row."""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import setting
from ..files import shown
from ..progress import through
from .division import CALLED, split_called
from .rows import SPLITS, several_classes

Row = Mapping[str, Any]
DELIMITERS = (",", "\t", ";", "|")
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
AUTO = "auto"  # a column that is used if it is there
TAB = r"\t"  # how a tab is typed
# Role of a column -> what people call it: words that a name may hold, the usual ones first.
USUAL = {
    "text": (
        *("text", "sentence", "utterance", "query", "question", "title", "message", "content", "body", "comment"),
        *("review", "description", "document", "prompt"),
    ),
    "label": ("label", "class", "intent", "category", "target", "topic", "tag"),
    "path": ("path", "file", "filename", "image", "img", "name"),
    "embeddings": ("embedding", "vector", "feature", "values"),
}


@dataclass(frozen=True)
class Columns:
    """What was read of a file.

    Attributes:
        values: role of a column -> [row] its values.
        names: role of a column -> its name in the file.
        places: [row] where it stands, for messages.
    """

    values: Mapping[str, list[str]]
    names: Mapping[str, str]
    places: Sequence[str]

    @property
    def rows(self) -> list[str]:
        """[row] what to call it: "line 12" or "row 12"."""
        return [place.rpartition(", ")[2] for place in self.places]

    def take(self, rows: Sequence[int]) -> Columns:
        """Some of the rows."""
        values = {role: [column[row] for row in rows] for role, column in self.values.items()}
        return Columns(values, self.names, [self.places[row] for row in rows])

    def understood(self, path: Path, further: Sequence[str] = ()) -> str:
        """What a summary says of the columns of a file, and what else it has to say."""
        columns = [f"{role.replace('_', '-')} = {shown(name)}" for role, name in self.names.items()]
        return f"{path.name} is understood as {', '.join([*columns, *further])}"


def read_columns(
    path: Path,
    wanted: Mapping[str, str | None],
    delimiter: str | None = None,
    rows: Iterator[tuple[str, Row]] | None = None,
) -> Columns:
    """Read some columns of a file; each value is a text, or a whole number that is taken for one.

    Args:
        path: csv or tsv with a header, jsonl (an object per line), or parquet; UTF-8, with or without a byte order
            mark.
        wanted: role of a column -> its name in the file; "auto": the column of the role's own name, if there is one;
            None: not wanted.
        delimiter: of a csv, a backslash and t for a tab; None: the comma, or the tab of a tsv.
        rows: what to read instead of the file: where each stands, and its columns.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, a value is empty, a row has other fields than the header, the file is not
            UTF-8; naming the row.
    """
    if path.is_dir():
        raise IsADirectoryError(
            f"needed is a file ({', '.join(FORMATS)}); {shown(path)} is a folder. A folder of images is data=folder"
        )
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    names: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    places: list[str] = []
    for place, row in read_rows(path, delimiter) if rows is None else rows:
        if not places:
            for role, given in wanted.items():
                name = given if given != AUTO else role if role in row else None
                if name is not None:
                    names[role], values[role] = name, []
        for role, name in names.items():
            if name not in row:
                known = [str(column) for column in row if column is not None]
                # of a csv or a parquet all rows have the same columns: the file is wrong, and not this row
                where = place if path.suffix.lower() == ".jsonl" else shown(path)
                raise ValueError(no_columns(where, names, known))
            values[role].append(word(row[name], name, place))
        places.append(place)
    if not places:
        raise ValueError(f"{shown(path)} has no rows")
    return Columns(values, names, places)


def read_rows(path: Path, delimiter: str | None) -> Iterator[tuple[str, Row]]:
    """(where it stands, column -> value) of every row.

    Args:
        path: the file.
        delimiter: of a csv; None: the comma, or the tab of a tsv.

    Raises:
        ValueError: a kind of file that is not known, or a damaged one.
    """
    kind = path.suffix.lower()
    readers: dict[str, Callable[[], Iterator[tuple[str, Row]]]] = {
        ".csv": lambda: _delimited(path, delimiter or ","),
        ".tsv": lambda: _delimited(path, delimiter or "\t"),
        ".jsonl": lambda: _objects(path),
        ".parquet": lambda: parquet_rows(path),
    }
    if kind not in readers:
        raise ValueError(
            f"{shown(path)} is none of {', '.join(FORMATS)}: write it as one of these, a line for each text or image"
        )
    return readers[kind]()


def text_of(path: Path) -> str:
    """The text of a file in UTF-8.

    Raises:
        ValueError: it is in another encoding; naming the line.
    """
    raw = path.read_bytes()
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{shown(path)} is UTF-16, by its byte order mark; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{shown(path)}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def _delimited(path: Path, delimiter: str) -> Iterator[tuple[str, Row]]:
    lines = delimited(path, delimiter)
    for _, header in lines:
        for line, fields in lines:
            yield f"{shown(path)}, line {line}", dict(zip(header, fields, strict=True))


def delimited(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, its fields) of a csv, as texts; the header comes first, and empty lines are left out.

    Args:
        path: the file.
        delimiter: one character, or a backslash and t for a tab.

    Raises:
        ValueError: a row has other fields than the header, a name stands twice in the header, the file is not UTF-8.
    """
    delimiter = "\t" if delimiter == TAB else delimiter
    if len(delimiter) != 1:
        raise ValueError(f"{setting('delimiter')} must be one character, or {TAB} for a tab; got {delimiter!r}")
    text = text_of(path)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    try:
        for fields in through(reader, "reading", "row", text.count("\n")):
            if not fields:
                continue
            if header is None:
                header = fields
                twice = next((name for name in header if header.count(name) > 1), None)
                if twice is not None:
                    raise ValueError(f"{shown(path)}, line {reader.line_num}: the column {twice!r} stands there twice")
            elif len(fields) != len(header):
                raise ValueError(
                    f"{shown(path)}, line {reader.line_num} has {len(fields)} fields, the header {len(header)}: a text "
                    f"that holds a {delimiter!r} or a line break must stand in double quotes" + _other_delimiter(header)
                )
            yield reader.line_num, fields
    except csv.Error as error:
        raise ValueError(f"{shown(path)}, line {reader.line_num}: {error}") from None


def _objects(path: Path) -> Iterator[tuple[str, Row]]:
    lines = text_of(path).splitlines()
    for number, line in enumerate(through(lines, "reading", "row", len(lines)), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{shown(path)}, line {number} is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f"{shown(path)}, line {number} must be an object with columns; got {type(row).__name__}")
        yield f"{shown(path)}, line {number}", row


def parquet_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """(where it stands, column -> value) of every row of a parquet; raises as `parquet_table`."""
    table = parquet_table(path)
    rows = (row for batch in table.to_batches(max_chunksize=2**14) for row in batch.to_pylist())
    for number, row in enumerate(through(rows, "reading", "row", len(table)), 1):
        yield f"{shown(path)}, row {number}", row


def parquet_table(path: Path) -> Any:
    """A parquet as a table of pyarrow.

    Raises:
        ValueError: the file is no parquet, or damaged.
        ModuleNotFoundError: pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        from ..extras import missing

        raise ModuleNotFoundError(missing("pyarrow"), name="pyarrow") from None
    try:
        return parquet.read_table(path)
    except (ArrowException, OSError) as error:
        reason = " ".join(str(error).split())  # pyarrow's may have several lines
        raise ValueError(f"{shown(path)} is no parquet file, or it is damaged: {shown(reason)}") from None


def no_columns(place: str, wanted: Mapping[str, str], known: Sequence[str]) -> str:
    """What to say where columns are missing: which, what is there, and the settings that name them.

    Args:
        place: where they are missing.
        wanted: role of a column -> its name.
        known: names of the columns that are there.

    >>> print(no_columns("a.csv", {"text": "text", "label": "label"}, ["id", "sentence", "intent"]))
    a.csv has no column 'text' and no column 'label'. It has id, sentence, intent. Say which to take: \
text='sentence' label='intent'
    """
    missing = {role: name for role, name in wanted.items() if name not in known}
    sign = _sign(known)
    has = f"It has {', '.join(map(shown, known)) or 'nothing'}"
    if sign is not None:
        has += _other_delimiter(known)
        known = known[0].split(sign)
        missing = {role: name for role, name in wanted.items() if name not in known}
    free = [name for name in known if name not in wanted.values()]
    settings = []
    for role, name in missing.items():
        candidate = free[0] if len(free) == len(missing) == 1 else _like(role, name, free)
        free = [column for column in free if column != candidate]
        settings.append(setting(role, "NAME" if candidate is None else shown(candidate)))
    absent = " and ".join(f"no column {name!r}" for name in wanted.values() if name not in known or sign is not None)
    return f"{place} has {absent}. {has}" + (f". Say which to take: {' '.join(settings)}" if settings else "")


def _like(role: str, name: str, known: Sequence[str]) -> str | None:
    """The column that is meant, by what is usual for its role; else one whose name is nearly the same."""
    parts = {column: re.split(r"[^a-z]+", column.lower()) for column in known}
    for usual in USUAL.get(role, ()):
        candidate = next((column for column, words in parts.items() if usual in words or f"{usual}s" in words), None)
        if candidate is not None:
            return candidate
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)


def _sign(columns: Sequence[str]) -> str | None:
    """The sign that seems to divide what was read as the name of a single column."""
    return next((sign for sign in DELIMITERS if len(columns) == 1 and sign in columns[0]), None)


def _other_delimiter(columns: Sequence[str]) -> str:
    """What to say where one column's name looks like several."""
    sign = _sign(columns)
    return "" if sign is None else f". The columns seem to be divided by {sign!r}: {setting('delimiter', sign)}"


def word(value: Any, column: str, place: str) -> str:
    """A text or name of a row; numbers that are whole are names, too.

    Args:
        value: what stands there.
        column: its name, for the message.
        place: where it stands.

    Raises:
        ValueError: it is empty, or something else.
    """
    empty = value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()
    if empty or str(value).strip().lower() == "nan":
        raise ValueError(f"{place}: {column!r} is empty; give it a value or leave the row out")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise ValueError(f"{place}: {column!r} must be a text or a whole number; got {value!r}")
    return str(value)


def as_split(value: str, place: str) -> str:
    """The split that a word means.

    Args:
        value: the word.
        place: where it stands, for the message.

    Raises:
        ValueError: it means none.
    """
    split = split_called(value)
    if not split:
        known = ", ".join(names[0] + (f" ({', '.join(names[1:])})" if names[1:] else "") for names in CALLED.values())
        raise ValueError(f"{place}: a split is {known}; got {value!r}")
    return split


def need_two_splits(splits: Collection[str], path: Path) -> None:
    """Raise unless a file has rows to train on, and others.

    Args:
        splits: of its rows.
        path: the file.

    Raises:
        ValueError: it has not.
    """
    there = [split for split in SPLITS if split in splits]
    if "train" not in there or len(there) == 1:
        raise ValueError(
            f"all rows of {shown(path)} are of split {' and '.join(there)}: needed are some of train and some of test. "
            f"Complete the column, or leave it out with {setting('split', None)}, and whole classes are divided by "
            f"{setting('test_fraction')}"
        )


def splits_of(read: Columns, path: Path) -> list[str] | None:
    """[row] train, val or test; None: the file does not say it.

    Args:
        read: what was read of the file.
        path: the file.

    Raises:
        ValueError: a word that means no split, or all rows are of one.
    """
    if "split" not in read.values:
        return None
    splits = [as_split(value, place) for value, place in zip(read.values["split"], read.places, strict=True)]
    need_two_splits(set(splits), path)
    return splits


def several_classes_of(read: Columns, separator: str | None, path: Path) -> list[list[str]] | None:
    """[row] all its classes; None: each row has its label alone.

    Args:
        read: what was read of the file.
        separator: between the classes of a row; None: each row has one.
        path: the file.

    Raises:
        ValueError: rows of several classes without a split: divided by class, a row would be on both sides. Rows of one
            class, of which one has two super-labels.
    """
    if separator is None:
        if "super_label" in read.values:
            _require_one(read)
        return None
    classes = several_classes(read.values["label"], separator, read.places)
    if "split" not in read.values:
        raise ValueError(
            f"rows of several classes can't be divided by class: {shown(path)} needs a column with train and test, "
            f"called split or named by {setting('split', 'NAME')}"
        )
    return classes


def _require_one(read: Columns) -> None:
    """Raise if a class has two super-labels, naming both rows."""
    labels, supers, places = read.values["label"], read.values["super_label"], read.places
    column = read.names["super_label"]
    first: dict[str, int] = {}
    for row, label in enumerate(labels):
        before = first.setdefault(label, row)
        if supers[before] != supers[row]:
            raise ValueError(
                f"{places[row]}: the class {label!r} has {column} {supers[row]!r} here and {supers[before]!r} in "
                f"{places[before]}; a class has one"
            )
