"""Text for a terminal and a page: names without dangerous characters, aligned tables, durations."""

from __future__ import annotations

import re
from collections.abc import Sequence

BRIEF = 60  # characters of a name from a file in a message
Rows = Sequence[Sequence[str]]


def aligned(rows: Rows, *, left: int = 1) -> str:
    """Lines with two spaces between the columns. The first columns are left-aligned, the others right-aligned.

    Args:
        rows: cells, the same number in each row; the first row may be a header.
        left: number of left-aligned columns.

    >>> print(aligned([["loss", "ms"], ["supap", "1.25"], ["pnp", "11.5"]]))
    loss     ms
    supap  1.25
    pnp    11.5
    """
    return "\n".join("  ".join(row).rstrip() for row in _padded(rows, left))


def markdown(rows: Rows) -> str:
    r"""A Markdown table with aligned columns. The first row is the header; only the first column is left-aligned.

    >>> print(markdown([["loss", "ms"], ["supap", "1.25"], ["a|b", "11.5"]]))
    | loss  |   ms |
    |-------|-----:|
    | supap | 1.25 |
    | a\|b  | 11.5 |
    """
    head, *rest = _padded([[cell.replace("|", "\\|") for cell in row] for row in rows], 1)
    first, *others = ("-" * (len(cell) + 1) for cell in head)
    rule = "".join([f"|{first}-|", *(f"{dashes}:|" for dashes in others)])
    lines = [f"| {' | '.join(row)} |" for row in (head, *rest)]
    return "\n".join([lines[0], rule, *lines[1:]])


def _padded(rows: Rows, left: int) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        [cell.ljust(width) if place < left else cell.rjust(width) for place, (cell, width) in enumerate(pairs)]
        for pairs in (zip(row, widths, strict=True) for row in rows)
    ]


def duration(seconds: float) -> str:
    """A duration in s, min or h.

    >>> duration(59.6), duration(200), duration(8000)
    ('60 s', '3 min', '2.2 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Characters of a file name that are escaped in a terminal and on a page: control characters, line ends, marks that
# change the direction of writing, marks without a width, and bytes that are not text (Python stores them as lone
# surrogates). Two marks without a width are not escaped, since scripts and emoji need them: U+200C and U+200D.
_UNSHOWN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff\ud800-\udfff]"
)


def shown(name: object, keep: str = "") -> str:
    r"""A name that is safe in a message, in a table or on a page: dangerous characters are escaped.

    Args:
        name: any text.
        keep: characters that are not escaped, such as line ends.

    >>> shown("caf\xe9\n\x1b[2J.png"), shown("\udcff.png")
    ('caf\xe9\\n\\x1b[2J.png', '\\xff.png')
    """
    return _UNSHOWN.sub(lambda match: match[0] if match[0] in keep else _escaped(match[0]), str(name))


def brief(name: object) -> str:
    """A name as by `shown`, shortened: one that was read from a file may have any length.

    >>> brief("card"), brief("x" * 1000) == "x" * 57 + "..."
    ('card', True)
    """
    text = shown(name)
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 3]}..."


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
