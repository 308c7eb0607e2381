"""Rows of a csv or tsv. Errors name the line."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
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


def delimited(
    path: Path, delimiter: str | None = None, *, quotes: bool = True, show: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a csv or tsv, as texts. The header comes first; empty lines are skipped.

    Args:
        path: the file; NAME.gz is unzipped.
        delimiter: one character, or a backslash and t for a tab; None: what a line sep=; at the top says, else a tab in
            a tsv and a comma in other files.
        quotes: whether double quotes may surround a field.
        show: show a progress bar.

    Raises:
        ValueError: a row has more or fewer fields than the header, the header repeats a name, several rows are between
            two double quotes, or the file is not UTF-8. Several columns may have no name.
    """
    sign, above = sign_of(path, delimiter)
    with opened_text(path) as file, steps(about_rows(path) if show else None, "reading", "row", show) as advance:
        for _ in range(above):
            file.readline()
        reader = csv.reader(file, delimiter=sign, quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, strict=True)
        header: list[str] = []
        hidden = _HiddenRows(path, sign, above)
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
                        put = f": put a text with a {sign!r} or a line break in double quotes" if quotes else ""
                        raise ValueError(
                            f"{shown(path)}, line {line} has {len(fields)} fields, the header {len(header)}{put}"
                            + other_delimiter(header)
                        )
                    if line - done > 1:
                        hidden.refuse(fields, done + 1, line)
                    yield line, fields
                done = line
        except csv.Error as error:
            longer = ". A text longer than that needs a jsonl or a parquet" if "field limit" in str(error) else ""
            raise ValueError(
                f"{shown(path)}, line {done + 1}: {error}. A text that begins with a double quote must end with one, "
                f"and double quotes in it are written twice{longer}{other_delimiter(header or hidden.head)}"
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


def about_rows(path: Path) -> int | None:
    """About the number of rows, by the length of the first ones; None: the file is gzipped."""
    with path.open("rb") as file:
        head = file.read(2**16)
    return None if path.suffix.lower() == ".gz" else path.stat().st_size * head.count(b"\n") // max(len(head), 1)


def _need_names(header: Sequence[str], place: str) -> None:
    twice = next((name for name, count in Counter(header).items() if name.strip() and count > 1), None)
    if twice is not None:
        raise ValueError(
            f"{place}: the header has the column {brief(twice)!r} twice. If this line is no header, write the names of "
            "the columns above it"
        )


class _HiddenRows:
    """Rows between two double quotes: a text that begins with a quote takes in all lines up to the next one.

    The field is then other rows if its lines are divided as rows are, and if the cells of these rows resemble the other
    cells of their columns. A text of several lines may have commas, but what follows a comma is no label of the file.
    Lines of an only column are rows if they are as long as its other texts, and no line shows that a program wrote the
    file: such a program puts each text that needs it in double quotes, or all texts.
    """

    def __init__(self, path: Path, sign: str, above: int) -> None:
        self.path, self.sign, self.above = path, sign, above

    def refuse(self, fields: Sequence[str], first: int, last: int) -> None:
        """Raise if a record of several lines has other rows in a field."""
        for place, field in enumerate(fields):
            lines = _LINE_END.split(field)
            full = [line for line in lines if line.strip()]
            if len(full) > 1 and (self._alike(fields, place, full) if len(fields) > 1 else self._texts(lines)):
                raise ValueError(
                    f"{shown(self.path)}, line {first}: the double quote before {brief(field)!r} is closed only in "
                    f"line {last}, and these lines look like {len(full)} rows. Write a double quote at the start of a "
                    'text as """ and end the text with one. If this is one text, use a jsonl or a parquet'
                )

    def _texts(self, lines: Sequence[str]) -> bool:
        """Whether the lines of an only column look like its other texts."""
        lengths = [len(cell) for (cell,) in self._rows[1:] if cell]
        alike = sum(min(lengths, default=0) <= len(line) <= max(lengths, default=len(line)) for line in lines)
        return all(map(str.strip, lines)) and 2 * alike >= len(lines) and not self._written

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
        fit = sum(self._fits(self._cells[column], cell, again[column, cell]) for column, cell in cells)
        return 2 * rows > len(lines) and 2 * fit > len(cells)

    def _fits(self, column: Counter[str], cell: str, times: int) -> bool:
        various = 2 * len(column) > column.total() and bool(cell.strip()) and not cell[0].isspace()
        return various or column[cell] + times > 1

    @cached_property
    def _lines(self) -> list[str]:
        with opened_text(self.path) as file:
            return [*islice(file, self.above, self.above + COMPARED)]

    @property
    def head(self) -> list[str]:
        """The first line, as one field."""
        return self._lines[:1]

    @cached_property
    def _records(self) -> list[list[str]]:
        return [*filter(None, csv.reader(self._lines, delimiter=self.sign))]

    @cached_property
    def _rows(self) -> list[list[str]]:
        """The fields of the first rows that have one line."""
        return [fields for fields in self._records if not any(map(_LINE_END.search, fields))]

    @cached_property
    def _cells(self) -> list[Counter[str]]:
        """Column -> how often each cell is in the first rows."""
        return [*map(Counter, zip_longest(*self._rows, fillvalue=""))]

    @cached_property
    def _written(self) -> bool:
        """Whether a text is in double quotes because it needs them, or most texts are."""
        lines = [line.rstrip("\r\n") for line in self._lines]
        quoted = [line[1:-1] for line in lines if len(line) > 2 and line[0] == line[-1] == '"']
        most = 2 * sum(line.startswith('"') for line in lines) > len(self._records)
        return most or any(self.sign in text or '""' in text for text in quoted)


def sign_in(columns: Sequence[str]) -> str | None:
    """The delimiter that a single column name seems to contain; None: the name contains none."""
    return next((sign for sign in DELIMITERS if len(columns) == 1 and sign in columns[0]), None)


def other_delimiter(columns: Sequence[str]) -> str:
    """A hint on the delimiter, if the name of the only column looks like several names."""
    sign = sign_in(columns)
    return "" if sign is None else f". The columns seem to be separated by {sign!r}: {setting('delimiter', sign)}"
