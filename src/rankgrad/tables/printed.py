"""Tables as text: aligned lines for a terminal, and Markdown; durations as text."""

from __future__ import annotations

from collections.abc import Sequence

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
