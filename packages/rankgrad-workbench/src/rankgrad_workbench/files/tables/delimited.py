"""Rows of a csv or tsv. Errors name the line."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path

from rankgrad.common.checks import setting
from rankgrad.common.progress import steps
from rankgrad.common.text import brief, shown

from .text import kind_of, opened_text

DELIMITERS = (",", "\t", ";", "|")
TAB = r"\t"  # how a user types a tab
COMPARED = 2**12  # number of first rows that decide what a column holds
_SEP = re.compile(r'"?sep=(.|\\t|<tab>)"?\s*', re.IGNORECASE)  # a first line of Excel, which names the delimiter
_LINE_END = re.compile(r"\r\n?|\n")


def delimited(path: Path, delimiter: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a csv or tsv, as texts. The header comes first; empty lines are skipped.

    Args:
        path: the file; NAME.gz is unzipped.
        delimiter: one character, or a backslash and t for a tab; None: what a line sep=; at the top says, else a tab in
            a tsv and a comma in other files.

    Raises:
        ValueError: a row has more or fewer fields than the header, the header repeats a name, several rows are between
            two double quotes, or the file is not UTF-8. Several columns may have no name.
    """
    sign, above = sign_of(path, delimiter)
    with opened_text(path) as file, steps(None, "reading", "row") as advance:
        for _ in range(above):
            file.readline()
        reader = csv.reader(file, delimiter=sign, strict=True)
        header: list[str] = []
        head: _Head | None = None
        line, done = 0, above  # the last line of this row, and of the row before
        try:
            for fields in reader:
                line = reader.line_num + above
                advance(1)
                if fields:
                    if not header:
                        header = fields
                        _need_names(header, f"{shown(path)}, line {line}")
                    if len(fields) != len(header):
                        raise ValueError(
                            f"{shown(path)}, line {line} has {len(fields)} fields, the header {len(header)}: put a "
                            f"text with a {sign!r} or a line break in double quotes{other_delimiter(header)}"
                        )
                    if line - done > 1:
                        head = head or _Head(path, sign, above)
                        head.refuse_rows(fields, f"{shown(path)}, line {done + 1}", line)
                    yield line, fields
                done = line
        except csv.Error as error:
            longer = ". A text longer than that needs a jsonl or a parquet" if "field limit" in str(error) else ""
            other = other_delimiter(header or _Head(path, sign, above).lines[:1])
            raise ValueError(
                f"{shown(path)}, line {done + 1}: {error}. A text that begins with a double quote must end with one, "
                f"and double quotes in it are written twice{longer}{other}"
            ) from None


def sign_of(path: Path, delimiter: str | None) -> tuple[str, int]:
    """The delimiter of a file, and the number of lines above its header (1 if a first line sep=; names the delimiter).

    Args:
        path: the file.
        delimiter: see `delimited`.

    Raises:
        ValueError: the delimiter is not one character.
    """
    if delimiter is not None and len(delimiter) != 1 and delimiter != TAB:
        raise ValueError(f"{setting('delimiter')} must be one character, or {TAB} for a tab; got {delimiter!r}")
    with opened_text(path) as file:
        said = _SEP.fullmatch(file.readline())
    sign = delimiter or (said[1] if said else "\t" if kind_of(path) == ".tsv" else ",")
    return "\t" if len(sign) > 1 else sign, 1 if said else 0


def _need_names(header: Sequence[str], place: str) -> None:
    twice = next((name for name, count in Counter(header).items() if name.strip() and count > 1), None)
    if twice is not None:
        raise ValueError(
            f"{place}: the header has the column {brief(twice)!r} twice. If this line is no header, write the names of "
            "the columns above it"
        )


class _Head:
    """The first lines of a file, which tell a text of several lines from rows between two double quotes.

    A text that begins with a quote takes in all lines up to the next one. The field is then other rows if its lines are
    divided as rows are, and if the cells of these rows resemble the other cells of their columns. A text of several
    lines may have commas, but what follows a comma is no label of the file. Lines of an only column are rows if they
    are as long as its other texts, and no line shows that a program wrote the file: such a program puts each text that
    needs it in double quotes, or all texts.
    """

    def __init__(self, path: Path, sign: str, above: int) -> None:
        with opened_text(path) as file:
            self.lines = [*islice(file, above, above + COMPARED)]
        self.sign = sign
        self.records = [*filter(None, csv.reader(self.lines, delimiter=sign))]
        self.rows = [fields for fields in self.records if not any(map(_LINE_END.search, fields))]
        # column -> how often each cell is in the first rows
        self.cells = [*map(Counter, zip_longest(*self.rows, fillvalue=""))]

    def refuse_rows(self, fields: Sequence[str], place: str, last: int) -> None:
        """Raise if a record of several lines has other rows in a field."""
        for column, field in enumerate(fields):
            lines = _LINE_END.split(field)
            full = [line for line in lines if line.strip()]
            if len(full) > 1 and (self._alike(fields, column, full) if len(fields) > 1 else self._texts(lines)):
                raise ValueError(
                    f"{place}: the double quote before {brief(field)!r} is closed only in line {last}, and these lines "
                    f'look like {len(full)} rows. Write a double quote at the start of a text as """ and end the text '
                    "with one. If this is one text, use a jsonl or a parquet"
                )

    def _texts(self, lines: Sequence[str]) -> bool:
        """Whether the lines of an only column look like its other texts."""
        lengths = [len(cell) for (cell,) in self.rows[1:] if cell]
        alike = sum(min(lengths, default=0) <= len(line) <= max(lengths, default=len(line)) for line in lines)
        raw = [line.rstrip("\r\n") for line in self.lines]
        quoted = [line[1:-1] for line in raw if len(line) > 2 and line[0] == line[-1] == '"']
        written = 2 * sum(line.startswith('"') for line in raw) > len(self.records)
        written = written or any(self.sign in text or '""' in text for text in quoted)
        return all(map(str.strip, lines)) and 2 * alike >= len(lines) and not written

    def _alike(self, fields: Sequence[str], place: int, lines: Sequence[str]) -> bool:
        """Whether most lines of a field are rows, most of whose cells are like the other cells of their columns."""
        cells: list[tuple[int, str]] = []
        rows = 0
        for number, line in enumerate(lines):
            parts = line.split(self.sign)
            left = 0 if number else place  # cells of the record itself, left and right of these
            right = 0 if number + 1 < len(lines) else len(fields) - place - 1
            if left + len(parts) + right == len(fields):
                rows += 1
                cells += [(column, cell) for column, cell in enumerate(parts, left) if column != place]
        again = Counter(cells)
        fit = 0
        for column, cell in cells:
            there = self.cells[column]
            various = 2 * len(there) > there.total() and bool(cell.strip()) and not cell[0].isspace()
            fit += various or there[cell] + again[column, cell] > 1
        return 2 * rows > len(lines) and 2 * fit > len(cells)


def other_delimiter(columns: Sequence[str]) -> str:
    """A hint on the delimiter, if the name of the only column looks like several names."""
    sign = next((sign for sign in DELIMITERS if len(columns) == 1 and sign in columns[0]), None)
    return "" if sign is None else f". The columns seem to be separated by {sign!r}: {setting('delimiter', sign)}"
