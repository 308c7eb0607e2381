"""Files of runs and of judgements: TREC's text, csv, tsv, json, jsonl, parquet; gzipped or not. And runs as text."""

from __future__ import annotations

import codecs
import gzip
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import shown

from ..files import atomic_write
from ..files.tables.delimited import sign_in
from ..files.tables.formats import read_rows
from ..files.tables.objects import need_object, parsed
from ..files.tables.parts import need_whole
from ..files.tables.text import kind_of, opened
from .judged import ranks_in_list
from .lists import AT_ONCE, QueryList, Source, by_query, from_mapping

BYTES = 2**21  # number of bytes of text read at once
PLAIN = bytes(range(33, 127)) + b" \t\n"  # what most files have alone
#: What ends a name or a line in some program, but is no space, tab or newline; and other control characters.
SEPARATOR = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        what: its name in messages.
        fields: the fields of a line of TREC text.
        value: index of the score or the grade.
        more: whether a line may have more fields than these.
        columns: possible names of the column of numbers in a table.
    """

    what: str
    fields: str
    value: int
    more: bool
    columns: tuple[str, ...]

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
        why = ": folders and pipes cannot be read" if path.exists() else ""
        raise FileNotFoundError(f"there is no file {shown(path)}{why}")
    need_whole(path)
    suffix = kind_of(path)
    table = suffix in (".csv", ".jsonl", ".parquet") or (suffix == ".tsv" and _has_header(path))
    reader = _json if suffix == ".json" else _table if table else _trec
    return Source(shown(path), lambda: reader(path, kind))


# -------------------------------------------------------------------------------------------------------- TREC's text


def _trec(path: Path, kind: FileKind) -> Iterator[QueryList]:
    """Lines of fields, separated by spaces or tabs. Empty lines and lines that begin with # are left out."""
    line = 1
    with opened(path) as file:
        while text := file.read(BYTES) + file.readline():  # whole lines
            words = text.removeprefix(codecs.BOM_UTF8 if line == 1 else b"").decode("utf-8", "backslashreplace")
            if text.translate(None, PLAIN):
                words = words.replace("\r\n", "\n")
                _refuse_separators(words, line, path)
            words += "\n" * (not words.endswith("\n"))
            count = words.count("\n")
            lines: Sequence[int] = range(line, line + count)
            fields = words.replace("\n", " \0 ").split()  # a zero byte is in no field
            width = kind.needed + 1
            if "#" in words or len(fields) != width * count or {*fields[width - 1 :: width]} != {"\0"}:
                lines, fields = _one_by_one(words, line, path, kind)
            if lines:
                queries, documents, numbers = (fields[at::width] for at in (0, 2, kind.value))
                yield from _checked(queries, documents, numbers, lines, path, kind)
            line += count


def _one_by_one(text: str, line: int, path: Path, kind: FileKind) -> tuple[list[int], list[str]]:
    """The numbers of the lines that are rows, and the fields of all of them with one more at the end of each row."""
    lines: list[int] = []
    found: list[str] = []
    for number, fields in enumerate(map(str.split, text.split("\n")), line):
        if fields and not _is_comment(number, fields, path, kind):
            if len(fields) != kind.needed:
                _refuse_fields(fields, f"{shown(path)}, line {number}", kind)
            lines.append(number)
            found += [*fields[: kind.needed], ""]
    return lines, found


def _refuse_separators(text: str, line: int, path: Path) -> None:
    """Raise for signs at which other programs divide fields or lines: the rows would be read wrongly."""
    for match in SEPARATOR.finditer(text):
        at, sign = match.start(), match[0]
        if text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith("#"):
            continue
        place = f"{shown(path)}, line {line + text.count(chr(10), 0, at)}"
        if sign == "\0":
            raise ValueError(
                f"{place} has a zero byte, so this is not UTF-8 text. Save the file as UTF-8; the name of a gzip file "
                "must end in .gz"
            )
        if sign == "\r":
            raise ValueError(f"{place} has a carriage return inside. End the lines with a newline")
        raise ValueError(
            f"{place} has the sign U+{ord(sign):04X}, at which some programs divide the fields of a line. Use spaces "
            "or tabs between fields; if it belongs to a name, write the rows as a csv with a header"
        )


def _is_comment(line: int, fields: Sequence[str], path: Path, kind: FileKind) -> bool:
    if not fields[0].startswith("#"):
        return False
    count = len(fields) >= kind.needed if kind.more else len(fields) == kind.needed
    if fields[0] != "#" and count and np.isfinite(_number(fields[kind.value])):
        raise ValueError(
            f"{shown(path)}, line {line} begins with # and has the fields of a row. Remove it if it is a comment; if # "
            "belongs to the name of the query, write the rows as a .tsv with a header"
        )
    return True


def _refuse_fields(fields: Sequence[str], place: str, kind: FileKind) -> None:
    """Raise if a line has another number of fields, unless the name of a system has several words."""
    count = len(fields)
    if kind.more and count > kind.needed:
        after = fields[kind.value + 1]
        if np.isnan(_number(fields[kind.value - 1])) or not np.isnan(_number(after)):
            raise ValueError(
                f"{place} has {count} fields, and {after!r} after the score {fields[kind.value]!r}: a name of a query "
                f"or document seems to have a space. A run has {kind.fields}; rename it, or use a csv with a header"
            )
        return
    hint = ""
    if kind is RUN and count == QRELS.needed:
        hint = ". This looks like judgements: pass them as --qrels FILE"
    elif count == 3:
        value = "score or rank" if kind is RUN else "grade"
        hint = f". For three columns use a .tsv or .csv with a header: query, document, and {value}"
    elif count == 1 and "," in fields[0]:
        hint = ". They are separated by spaces or tabs; a table with commas must be a .csv with a header"
    raise ValueError(
        f"{place} has {count} field{'' if count == 1 else 's'}; a line of a {kind.what} has {kind.needed}: "
        f"{kind.fields}{hint}"
    )


def _number(text: Any) -> float:
    """The number in a text; NaN if it is none. Python also reads 1_000, and digits of other scripts."""
    try:
        return float(text if text.isascii() and "_" not in text else "nan")
    except AttributeError:  # a number of a json or a parquet
        return _number(str(text))
    except ValueError:
        return float("nan")


def _checked(
    queries: Sequence[str],
    documents: Sequence[str],
    numbers: Sequence[Any],
    lines: Sequence[int],
    path: Path,
    kind: FileKind,
    sign: int = 1,
) -> Iterator[QueryList]:
    """Lists; raise if a name is empty or a number is not finite. sign is -1 if a run has ranks instead of scores."""
    for what, names in (("query", queries), ("document", documents)):
        if not all(names):
            raise ValueError(f"{shown(path)}, line {lines[[*map(bool, names)].index(False)]}: the {what} has no name")
    try:
        joined = "".join(numbers)
        values = np.array([*map(float if joined.isascii() and "_" not in joined else _number, numbers)])
    except (TypeError, ValueError):  # numbers of a json or a parquet; or one is none
        values = np.array([*map(_number, numbers)])
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        word = kind.fields.split()[kind.value]
        said = "nothing" if numbers[at] in ("", None) else repr(shown(str(numbers[at])))
        raise ValueError(f"{shown(path)}, line {lines[at]}: the {word} must be a finite number; got {said}")
    return by_query(queries, documents, sign * values, lines)


# --------------------------------------------------------------------------------------------------- tables with names


def _has_header(path: Path) -> bool:
    """Whether a .tsv begins with the names of columns, maybe in quotes, maybe below a line that names the delimiter."""
    with opened(path) as file:
        head = [file.readline().decode("utf-8-sig", "replace").lower() for _ in range(2)]
    fields = head[head[0].lstrip('"').startswith("sep=")].split("\t")
    return any(name.strip(' \r\n"') in QUERY for name in fields)


def _table(path: Path, kind: FileKind) -> Iterator[QueryList]:
    numbered = ((int(place.rpartition(" ")[2]), row) for place, row in read_rows(path, None))
    found = False
    while part := list(islice(numbered, AT_ONCE)):
        found = True
        yield from _of_objects([row for _, row in part], [line for line, _ in part], path, kind)
    if not found:
        raise ValueError(f"{shown(path)} holds no rows")


def _json(path: Path, kind: FileKind) -> Iterator[QueryList]:
    with opened(path) as file:
        content = parsed(file.read(), shown(path))
    if isinstance(content, dict):
        yield from from_mapping(content, shown(path)).parts()
    elif not isinstance(content, list):
        raise ValueError(f"{shown(path)} must map queries to documents or list objects; got {type(content).__name__}")
    elif content:
        rows = [need_object(row, f"{shown(path)}, line {line}") for line, row in enumerate(content, 1)]
        yield from _of_objects(rows, range(1, len(rows) + 1), path, kind)


def _of_objects(
    rows: Sequence[Mapping[str, Any]], lines: Sequence[int], path: Path, kind: FileKind
) -> Iterator[QueryList]:
    """Lists of rows that each have a query, a document and a number."""
    query, document, value = _columns(list(rows[0]), path, kind)
    queries, documents = (
        [_name(row.get(column), column, line, path) for row, line in zip(rows, lines, strict=True)]
        for column in (query, document)
    )
    sign = -1 if value.strip().lower() == "rank" else 1
    yield from _checked(queries, documents, [row.get(value) for row in rows], lines, path, kind, sign)


def _name(value: object, column: str, line: int, path: Path) -> str:
    if type(value) is str:
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return str(value)
    remedy = ""
    if isinstance(value, (float, Decimal)):
        remedy = (
            ". Numbers with decimals are no names: write the column as texts or integers (pandas turns integers into "
            "decimals where one is missing: astype('Int64'))"
        )
    raise ValueError(f"{shown(path)}, line {line}: {column!r} must be a string or an integer; got {value!r}{remedy}")


def _columns(head: Sequence[str], path: Path, kind: FileKind) -> tuple[str, str, str]:
    """The columns of query, document and number."""
    names = [name.strip().lower() for name in head]
    values = (*kind.columns, "rank") if kind is RUN else kind.columns
    found = []
    for role, known in (("query", QUERY), ("document", DOCUMENT), (kind.columns[0], values)):
        name = next((name for name in known if name in names), None)
        if name is None:
            sign = sign_in(head)
            divided = "" if sign is None else f". For columns separated by {sign!r}: write a line sep={sign} above them"
            if sign == "\t":
                divided = ". Its columns are separated by tabs: name the file .tsv"
            raise ValueError(
                f"{shown(path)} has no column {role!r}. It has {', '.join(map(shown, head))}; the column may be named "
                f"{', '.join(known)}{divided}"
            )
        if names.count(name) > 1:
            raise ValueError(f"{shown(path)} has two columns {name!r}")
        found.append(head[names.index(name)])
    return found[0], found[1], found[2]


# --------------------------------------------------------------------------------------------------------- writing runs


def is_field(name: str) -> bool:
    r"""Whether a name can be a field of TREC text: it has no sign at which a program divides fields or lines.

    >>> is_field("d1"), is_field("d 1"), is_field("d\x07"), is_field("")
    (True, False, False, False)
    """
    return bool(name) and name.split() == [name] and not SEPARATOR.search(name)


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
    for each in run.whole():
        for what, names in (("query", [each.query]), ("document", each.documents), ("tag", [tag])):
            wrong = next((name for name in names if not is_field(name)), None)
            if wrong is not None:
                raise ValueError(
                    f"the {what} {wrong!a} is empty or has white space or a control character, which divides the "
                    "fields of a run file. Rename it"
                )
        if each.query.startswith("#"):
            raise ValueError(
                f"the query {shown(each.query)!r} begins with #, as a comment in a run file does. Rename it"
            )
        ranks = ranks_in_list(each.documents, each.values)
        for row in np.argsort(ranks).tolist():
            lines.append(f"{each.query} Q0 {each.documents[row]} {ranks[row]} {float(each.values[row])!r} {tag}\n")
    text = "".join(lines).encode("utf-8", "surrogatepass")
    with atomic_write(path) as file:
        file.write(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path
