"""Files of runs and of judgements -> `Source`: TREC's text, csv, tsv, json, jsonl, parquet; gzipped or not."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ...common.files import shown
from ...tables.arrow import opened_parquet
from ...tables.delimited import delimited, sign_in
from ...tables.objects import lines_of_objects, need_object, parsed
from ...tables.parts import need_whole
from ...tables.text import kind_of, opened
from .rows import AT_ONCE, ListRows, Source, from_mapping, rows_of
from .texts import SPARE, Array, TextColumn

BYTES = 2**21  # number of bytes of text read at once
NEWLINE, HASH, SPACE = 10, 35, 32
_NUMBER = re.compile(rb"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        what: its name in messages.
        fields: the fields of a line of TREC text.
        query, document, value: index of these fields.
        more: whether a line may have more fields than these.
        columns: possible names of the column of numbers in a table.
    """

    what: str
    fields: str
    value: int
    more: bool
    columns: tuple[str, ...]
    query: int = 0
    document: int = 2

    @property
    def needed(self) -> int:
        """Number of fields of a line."""
        return len(self.fields.split())


RUN = FileKind("run", "query Q0 document rank score tag", 4, True, ("score", "sim", "similarity"))
QRELS = FileKind(
    "file of judgements", "query 0 document grade", 3, False, ("grade", "relevance", "rel", "label", "score")
)
QUERY = ("query", "query_id", "query-id", "qid", "q_id")
DOCUMENT = ("document", "document_id", "doc", "doc_id", "doc-id", "docid", "docno", "corpus-id", "corpus_id", "did")


def read(path: str | os.PathLike[str], kind: FileKind) -> Source:
    """The rows of a file. The file is read only when its rows are used.

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
        why = ": folders and pipes cannot be read" if path.exists() else ""
        raise FileNotFoundError(f"there is no file {shown(path)}{why}")
    need_whole(path)
    readers = {".csv": _table, ".tsv": _tabs, ".jsonl": _lines_of_json, ".json": _json, ".parquet": _parquet}
    reader = readers.get(kind_of(path), _trec)
    return Source(shown(path), lambda: reader(path, kind))


# -------------------------------------------------------------------------------------------------------- TREC's text


def _trec(path: Path, kind: FileKind) -> Iterator[ListRows]:
    """Lines of fields, separated by spaces or tabs. Empty lines and lines that begin with # are left out."""
    line = 1
    rest = b""
    with opened(path) as file:
        if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            file.seek(0)
        while piece := file.read(BYTES):
            cut = piece.rfind(b"\n") + 1
            if not cut:  # the line is longer than BYTES
                rest += piece
                continue
            text = rest + piece[:cut]
            rest = piece[cut:]
            yield _fields(text, line, path, kind)
            line += text.count(b"\n")
    if rest:
        yield _fields(rest + b"\n", line, path, kind)


def _fields(text: bytes, line: int, path: Path, kind: FileKind) -> ListRows:
    """The rows of some lines; `line` is the number of the first line."""
    _refuse_what_is_no_text(text, line, path)
    buffer = np.frombuffer(text + bytes(SPARE), np.uint8)
    filled = buffer[: len(text)] > SPACE
    edges = np.flatnonzero(filled[1:] != filled[:-1]) + 1
    if filled[0]:
        edges = np.concatenate([[0], edges])
    starts, ends = edges[0::2], edges[1::2]  # the last character is a newline, so every field has an end
    newlines = np.flatnonzero(buffer[: len(text)] == NEWLINE)
    before = np.searchsorted(starts, newlines)  # fields that begin before the end of each line
    count = np.diff(before, prepend=0)
    first = before - count
    lines = np.arange(line, line + len(newlines))
    used = count > 0
    used[used] = buffer[starts[first[used]]] != HASH
    wrong = count < kind.needed if kind.more else count != kind.needed
    for at in np.flatnonzero(~used & (count > 0) & ~wrong).tolist():
        fields = [
            text[start:end] for start, end in zip(starts[first[at] :][: kind.needed], ends[first[at] :], strict=False)
        ]
        if fields[0] != b"#" and _NUMBER.fullmatch(fields[kind.value]):
            raise ValueError(
                f"{shown(path)}, line {lines[at]} begins with # and has the fields of a row. Remove it if it is a "
                f"comment; if # belongs to the name of the query, write the rows as a .tsv with a header"
            )
    if not used.all():
        first, count, lines, wrong = first[used], count[used], lines[used], wrong[used]
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"{shown(path)}, line {lines[at]} has {count[at]} field{'' if count[at] == 1 else 's'}; a line of a "
            f"{kind.what} has {kind.needed}: {kind.fields}"
            + _hint(kind, int(count[at]), text[starts[first[at]] : ends[first[at]]])
        )

    def column(place: int) -> TextColumn:
        start = starts[first + place]
        return TextColumn(buffer, start, ends[first + place] - start)

    return _checked(column(kind.query), column(kind.document), column(kind.value), lines, path, kind)


def _refuse_what_is_no_text(text: bytes, line: int, path: Path) -> None:
    """Raise for zero bytes, and for carriage returns inside a line: the rows would be read wrongly."""
    if b"\0" in text:
        line += text.count(b"\n", 0, text.index(b"\0"))
        raise ValueError(
            f"{shown(path)}, line {line} has a zero byte, so this is not UTF-8 text. Save the file as UTF-8; the name "
            "of a gzip file must end in .gz"
        )
    if text.count(b"\r") != text.count(b"\r\n"):
        line += text.replace(b"\r\n", b"\n").partition(b"\r")[0].count(b"\n")
        raise ValueError(f"{shown(path)}, line {line} has a carriage return inside. End the lines with a newline")


def _hint(kind: FileKind, count: int, field: bytes) -> str:
    """What a line with a wrong number of fields probably is; `field` is its first one."""
    if kind is RUN and count == QRELS.needed:
        return ". This looks like judgements: pass them as --qrels FILE"
    if count == 3:
        value = "score or rank" if kind is RUN else "grade"
        return f". For three columns use a .tsv or .csv with a header: query, document, and {value}"
    if count == 1 and b"," in field:
        return ". They are separated by spaces or tabs; a table with commas must be a .csv with a header"
    return ""


def _checked(
    queries: TextColumn,
    documents: TextColumn,
    numbers: TextColumn | Array,
    lines: Array,
    path: Path,
    kind: FileKind,
    sign: int = 1,
) -> ListRows:
    """Rows; raise if a name is empty or a number is not finite. sign is -1 if a run has ranks instead of scores."""
    for what, named in (("query", queries), ("document", documents)):
        if not named.length.all():
            raise ValueError(f"{shown(path)}, line {lines[int(np.argmin(named.length))]}: the {what} has no name")
    values = numbers.numbers() if isinstance(numbers, TextColumn) else numbers
    wrong = ~np.isfinite(values)
    if wrong.any():
        at = int(np.argmax(wrong))
        said = repr(shown(numbers.words([at])[0])) if isinstance(numbers, TextColumn) else f"{values[at]:g}"
        word = kind.fields.split()[kind.value]
        raise ValueError(f"{shown(path)}, line {lines[at]}: the {word} must be a finite number; got {said}")
    return rows_of(queries, documents, sign * values, lines)


# --------------------------------------------------------------------------------------------------- tables with names


def _tabs(path: Path, kind: FileKind) -> Iterator[ListRows]:
    """A .tsv: a table if its first line is a header, else TREC text."""
    with opened(path) as file:
        head = file.readline().decode("utf-8-sig", "replace").strip().lower().split("\t")
    if any(name in QUERY for name in head):
        return _table(path, kind, "\t")
    return _trec(path, kind)


def _table(path: Path, kind: FileKind, delimiter: str | None = None) -> Iterator[ListRows]:
    rows = delimited(path, delimiter, quotes=delimiter is None, show=False)
    _, head = next(rows, (1, None))
    if head is None:
        raise ValueError(f"{shown(path)} is empty")
    *places, sign = _columns(head, path, kind)
    wanted = itemgetter(*places)
    while part := list(islice(rows, AT_ONCE)):
        yield _from_texts([wanted(fields) for _, fields in part], [line for line, _ in part], path, kind, sign)


def _from_texts(rows: Sequence[Sequence[str]], lines: Sequence[int], path: Path, kind: FileKind, sign: int) -> ListRows:
    queries, documents, numbers = (TextColumn.of(column) for column in zip(*rows, strict=True))
    return _checked(queries, documents, numbers, np.array(lines), path, kind, sign)


def _columns(head: Sequence[str], path: Path, kind: FileKind) -> tuple[int, int, int, int]:
    """The indices of the columns of query, document and number, and the sign of the number."""
    names = [name.strip().lower() for name in head]
    values = (*kind.columns, "rank") if kind is RUN else kind.columns
    positions = []
    for role, known in (("query", QUERY), ("document", DOCUMENT), (kind.columns[0], values)):
        place = next((names.index(name) for name in known if name in names), None)
        if place is None:
            sign = sign_in(head)
            divided = "" if sign is None else f". For columns separated by {sign!r}: write a line sep={sign} above them"
            raise ValueError(
                f"{shown(path)} has no column {role!r}. It has {', '.join(map(shown, head))}; the column may be named "
                f"{', '.join(known)}{divided}"
            )
        if names.count(names[place]) > 1:
            raise ValueError(f"{shown(path)} has two columns {names[place]!r}")
        positions.append(place)
    return positions[0], positions[1], positions[2], -1 if names[positions[2]] == "rank" else 1


def _lines_of_json(path: Path, kind: FileKind) -> Iterator[ListRows]:
    objects = lines_of_objects(path)
    while part := list(islice(objects, AT_ONCE)):
        lines, content = zip(*part, strict=True)
        yield _objects(content, lines, path, kind)


def _json(path: Path, kind: FileKind) -> Iterator[ListRows]:
    with opened(path) as file:
        content = parsed(file.read(), shown(path))
    if isinstance(content, list):
        if content:
            rows = [need_object(row, f"{shown(path)}, line {line}") for line, row in enumerate(content, 1)]
            yield _objects(rows, range(1, len(content) + 1), path, kind)
    elif isinstance(content, dict):
        yield from from_mapping(content, shown(path)).parts()
    else:
        raise ValueError(f"{shown(path)} must map queries to documents or list objects; got {type(content).__name__}")


def _objects(content: Sequence[Mapping[str, Any]], lines: Sequence[int], path: Path, kind: FileKind) -> ListRows:
    """Rows of objects, each with a query, a document and a number."""
    names = list(content[0])
    *places, sign = _columns(names, path, kind)
    query, document, value = (names[place] for place in places)
    held = []
    for row, line in zip(content, lines, strict=True):
        lost = [name for name in (query, document, value) if name not in row]
        if lost:
            raise ValueError(f"{shown(path)}, line {line} has no {lost[0]!r}")
        odd = [name for name in (query, document) if type(row[name]) not in (str, int)]
        if odd:
            raise ValueError(
                f"{shown(path)}, line {line}: {odd[0]!r} must be a string or an integer; got {row[odd[0]]!r}"
            )
        held.append((str(row[query]), str(row[document]), str(row[value])))
    return _from_texts(held, lines, path, kind, sign)


def _parquet(path: Path, kind: FileKind) -> Iterator[ListRows]:
    with opened_parquet(path) as file:
        head = file.schema_arrow.names
        *places, sign = _columns(head, path, kind)
        wanted = [head[place] for place in places]
        line = 1
        for batch in file.iter_batches(AT_ONCE, columns=wanted):
            queries, documents, numbers = (batch.column(name) for name in wanted)
            lines = np.arange(line, line + len(batch))
            for name, column in zip(wanted, (queries, documents, numbers), strict=True):
                if column.null_count:
                    empty = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                    raise ValueError(f"{shown(path)}, line {lines[empty]}: {name!r} is empty")
            what = [f"{shown(path)}: {name!r}" for name in wanted]
            values = _cast(numbers, "float64", what[2]).to_numpy(zero_copy_only=False)
            yield _checked(_arrow(queries, what[0]), _arrow(documents, what[1]), values, lines, path, kind, sign)
            line += len(batch)


def _cast(column: Any, kind: str, what: str) -> Any:
    """An arrow column as another type; the message has the file and the column."""
    from pyarrow import ArrowException

    try:
        return column.cast(kind, safe=kind != "float64")  # large integers are rounded
    except ArrowException as error:
        wanted = "numbers" if kind == "float64" else "texts or whole numbers"
        raise ValueError(f"{what} must have {wanted}; got {column.type}: {shown(str(error))}") from None


def _arrow(column: Any, what: str) -> TextColumn:
    """Names of an arrow column: integers or strings, with or without dictionary encoding."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_integer(column.type):
        return TextColumn.of_integers(column.to_numpy(zero_copy_only=False))
    column = _cast(column, "large_string", what)
    _, offsets, content = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    return TextColumn(np.concatenate([text, np.zeros(SPARE, np.uint8)]), ends[:-1], np.diff(ends))
