"""Files of runs and of judgements: TREC's text, csv, tsv, json, jsonl, parquet; gzipped or not. And runs as text."""

from __future__ import annotations

import codecs
import gzip
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import shown

from ..files import atomic_write
from ..files.tables.formats import read_rows
from ..files.tables.objects import need_object, parsed
from ..files.tables.parts import need_whole
from ..files.tables.text import kind_of, opened
from .judged import ranks_in_list
from .lists import QueryList, Source, by_query, from_mapping

BYTES = 2**21  # number of bytes of text read at once
AT_ONCE = 2**16  # number of rows of a table read at once
PLAIN = bytes(range(36, 127)) + b'!" \t\n'  # what most files have alone; not the sign # of a comment
#: What ends a name or a line in some program, but is no space, tab or newline; and other control characters.
SEPARATOR = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        what: its name in messages.
        fields: the fields of a line of TREC text.
        value: index of the score or the grade.
        columns: possible names of the column of numbers in a table.
    """

    what: str
    fields: str
    value: int
    columns: tuple[str, ...]


RUN = FileKind("run", "query Q0 document rank score tag", 4, ("score", "sim", "similarity", "rank"))
QRELS = FileKind("file of judgements", "query 0 document grade", 3, ("grade", "relevance", "rel", "label", "score"))
QUERY = ("query", "query_id", "query-id", "qid", "q_id")
DOCUMENT = ("document", "document_id", "doc", "doc_id", "doc-id", "docid", "docno", "corpus-id", "corpus_id", "did")


def read(path: str | os.PathLike[str], kind: FileKind) -> Source:
    """The lists of a file. The file is read only when its rows are used.

    .csv, .tsv and .parquet have columns for query, document and score (or grade). A .tsv without a header is TREC text.
    .jsonl has an object with these names in each line. .json has a list of such objects, or one object that maps a
    query to documents and their numbers. All other files are TREC text. Files may be gzipped: NAME.gz.

    Args:
        path: the file.
        kind: RUN or QRELS.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {shown(path)}")
    need_whole(path)
    suffix = kind_of(path)
    table = suffix in (".csv", ".jsonl", ".parquet") or (suffix == ".tsv" and _has_header(path))
    reader = _json if suffix == ".json" else _table if table else _trec
    return Source(shown(path), lambda: reader(path, kind))


# -------------------------------------------------------------------------------------------------------- TREC's text


def _trec(path: Path, kind: FileKind) -> Iterator[QueryList]:
    """Lines of fields, separated by spaces or tabs. Empty lines and lines that begin with # are left out."""
    first, needed = 1, len(kind.fields.split())
    with opened(path) as file:
        while text := file.read(BYTES) + file.readline():  # whole lines
            words = text.removeprefix(codecs.BOM_UTF8 if first == 1 else b"").decode("utf-8", "backslashreplace")
            words = words.replace("\r\n", "\n").removesuffix("\n") + "\n"
            lines: Sequence[int] = range(first, first + words.count("\n"))
            fields = words.replace("\n", " \0 ").split()  # a zero byte is in no field
            regular = len(fields) == (needed + 1) * len(lines) and {*fields[needed :: needed + 1]} == {"\0"}
            first += len(lines)
            if not regular or text.translate(None, PLAIN):
                split = [(line, each, each.split()) for line, each in zip(lines, words.split("\n"), strict=False)]
                rows = [(line, row) for line, each, row in split if row and _is_row(line, row, each, path, kind)]
                lines = [line for line, _ in rows]
                fields = [field for _, row in rows for field in (*row[:needed], "")]
            if lines:
                yield from _checked([fields[at :: needed + 1] for at in (0, 2, kind.value)], lines, path, kind)


def _is_row(line: int, fields: Sequence[str], text: str, path: Path, kind: FileKind) -> bool:
    """Whether a line is no comment. Raise if it is read in another way by another program, or damaged."""
    place, count, needed = f"{shown(path)}, line {line}", len(fields), len(kind.fields.split())
    if fields[0].startswith("#"):
        if fields[0] != "#" and count > kind.value and np.isfinite(_number(fields[kind.value])):
            raise ValueError(
                f"{place} begins with # and has the fields of a row. Remove it if it is a comment; if # belongs to the "
                "name of the query, write the rows as a .tsv with a header"
            )
        return False
    if match := SEPARATOR.search(text):
        raise ValueError(
            f"{place} has the sign U+{ord(match[0]):04X}, at which some programs divide fields or lines. Save the file "
            "as UTF-8, with spaces or tabs between fields and newlines between lines, or with its usual ending if it "
            "is packed; a name that has this sign needs a csv with a header"
        )
    tag = kind is RUN and count > needed and not np.isnan(_number(fields[3])) and np.isnan(_number(fields[5]))
    if count != needed and not tag:  # the tag of a run may have several words
        raise ValueError(
            f"{place} has {count} field{'' if count == 1 else 's'}; a line of a {kind.what} has {needed}, separated by "
            f"spaces or tabs: {kind.fields}. Names have no spaces. Rows of another form are read from a .csv or .tsv "
            f"with the columns query, document and {kind.columns[0]}; judgements are given as --qrels FILE"
        )
    return True


def _number(value: object) -> float:
    """The number in a text; NaN if it is none. Python also reads 1_000, and digits of other scripts."""
    text = str(value)
    try:
        return float(text) if text.isascii() and "_" not in text else float("nan")
    except ValueError:
        return float("nan")


def _checked(
    columns: Sequence[Sequence[Any]], lines: Sequence[int], path: Path, kind: FileKind, sign: int = 1
) -> Iterator[QueryList]:
    """Lists of queries, documents and numbers; raise if a name is empty or a number is not finite.

    Args:
        columns: queries, documents and numbers.
        lines: [row] its line.
        path: the file.
        kind: of the file.
        sign: -1 if a run has ranks instead of scores.
    """
    queries, documents, numbers = columns
    for what, names in (("query", queries), ("document", documents)):
        if not all(names):
            raise ValueError(f"{shown(path)}, line {lines[[*map(bool, names)].index(False)]}: the {what} has no name")
    values = np.array([*map(_number, numbers)])
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"{shown(path)}, line {lines[at]}: the {kind.fields.split()[kind.value]} must be a finite number; got "
            f"{shown(str(numbers[at]))!r}"
        )
    return by_query(queries, documents, sign * values, lines)


# --------------------------------------------------------------------------------------------------- tables with names


def _has_header(path: Path) -> bool:
    """Whether a .tsv begins with the names of columns, maybe in quotes, maybe below a line that names the delimiter."""
    with opened(path) as file:
        head = (file.readline() + file.readline()).decode("utf-8-sig", "replace").lower()
    return any(name.strip(' "') in QUERY for name in re.split(r"[\t\r\n]", head))


def _table(path: Path, kind: FileKind) -> Iterator[QueryList]:
    numbered = ((int(place.rpartition(" ")[2]), row) for place, row in read_rows(path, None))
    while part := [*islice(numbered, AT_ONCE)]:
        yield from _of_objects(part, path, kind)


def _json(path: Path, kind: FileKind) -> Iterator[QueryList]:
    with opened(path) as file:
        content = parsed(file.read(), shown(path))
    if isinstance(content, dict):
        yield from from_mapping(content, shown(path)).parts()
    elif not isinstance(content, list):
        raise ValueError(f"{shown(path)} must map queries to documents or list objects; got {type(content).__name__}")
    elif content:
        rows = [(line, need_object(row, f"{shown(path)}, line {line}")) for line, row in enumerate(content, 1)]
        yield from _of_objects(rows, path, kind)


def _of_objects(rows: Sequence[tuple[int, Mapping[str, Any]]], path: Path, kind: FileKind) -> Iterator[QueryList]:
    """Lists of rows (line, column -> value) that each have a query, a document and a number."""
    names = {name.strip().lower(): name for name in rows[0][1]}
    found = [next((names[name] for name in known if name in names), "") for known in (QUERY, DOCUMENT, kind.columns)]
    for role, column in zip(("query", "document", kind.columns[0]), found, strict=True):
        if not column:
            raise ValueError(
                f"{shown(path)} has no column {role!r}. It has {', '.join(map(shown, names.values()))}; columns may be "
                f"named {', '.join((*QUERY, *DOCUMENT, *kind.columns))}. They are divided by commas in a .csv, by tabs "
                "in a .tsv, and by another sign below a first line such as sep=;"
            )
    columns: list[list[Any]] = [[_name(row.get(each), each, line, path) for line, row in rows] for each in found[:2]]
    columns.append([row.get(found[2]) for _, row in rows])
    yield from _checked(columns, [line for line, _ in rows], path, kind, -1 if found[2] == names.get("rank") else 1)


def _name(value: object, column: str, line: int, path: Path) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, np.integer)):
        raise ValueError(
            f"{shown(path)}, line {line}: {column!r} must be a string or an integer; got {value!r}. Write decimals as "
            "texts or integers (pandas turns integers into decimals where one is missing: astype('Int64'))"
        )
    return str(value)


# --------------------------------------------------------------------------------------------------------- writing runs


def is_field(name: str) -> bool:
    r"""Whether a name can be a field of TREC text: it has no sign at which a program divides fields or lines.

    >>> is_field("d1"), is_field("d 1"), is_field("d\x07"), is_field("")
    (True, False, False, False)
    """
    return name.split() == [name] and not SEPARATOR.search(name)


def as_field(name: str) -> str:
    r"""A name as a field: signs that divide fields or lines become underscores.

    >>> as_field("d 1\x07")
    'd_1_'
    """
    return SEPARATOR.sub("_", "_".join(name.split())) or "_"


def write_run(run: Source, path: str | os.PathLike[str], tag: str = "rankgrad") -> Path:
    """See `trec.write_run`."""
    path = Path(path)
    lines = []
    for each in run.lists(together=True):
        for what, names in (("query", [each.query]), ("document", each.documents), ("tag", [tag])):
            wrong = next((name for name in names if not is_field(name) or (what == "query" and name[0] == "#")), None)
            if wrong is not None:
                raise ValueError(
                    f"the {what} {wrong!a} is empty or has white space or a control character, which divides the "
                    "fields of a run file, or begins with # as a comment does. Rename it"
                )
        ranks = ranks_in_list(each.documents, each.values)
        for row in np.argsort(ranks).tolist():
            lines.append(f"{each.query} Q0 {each.documents[row]} {ranks[row]} {float(each.values[row])!r} {tag}\n")
    text = "".join(lines).encode("utf-8", "surrogatepass")
    with atomic_write(path) as file:
        file.write(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path
