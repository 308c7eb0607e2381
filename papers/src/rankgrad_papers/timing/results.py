"""Options and results of a suite."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import torch

from rankgrad.common.text import aligned

T = TypeVar("T")
Cell: TypeAlias = "str | float | None"  # None: not measured

DIM = 512
PER_CLASS = 4


@dataclass(frozen=True)
class Options:
    """Options of a suite.

    Args:
        data_root: folder of Omniglot, for the training suite; None: the built-in glyphs.
        long: also measure the sizes that take minutes.
        quick: use tiny sizes and few rounds. This tests that the suites run. The numbers mean nothing.
        device: device on which losses are computed.
    """

    data_root: Path | None = None
    long: bool = False
    quick: bool = False
    device: torch.device = torch.device("cpu")

    @property
    def rounds(self) -> int:
        """Number of rounds of a median."""
        return 2 if self.quick else 5

    def pick(self, *, quick: T, cpu: T, gpu: T) -> T:
        """Sizes for this run.

        >>> Options(quick=True).pick(quick=16, cpu=384, gpu=4096)
        16
        """
        if self.quick:
            return quick
        return cpu if self.device.type == "cpu" else gpu


@dataclass(frozen=True)
class ResultTable:
    """One table of results.

    Attributes:
        title: title with units.
        columns: names of the columns.
        rows: cells of each row. The first cell is the name of the row.
        note: method of the measurement.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A measured number and its limit.

    Attributes:
        what: name of the number.
        value: measured value.
        limit: limit of the value.
        at_most: whether the limit is an upper one.
    """

    what: str
    value: float
    limit: float
    at_most: bool = True

    @property
    def kept(self) -> bool:
        """Whether the value is within the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        relation = "at most" if self.at_most else "at least"
        verdict = "kept" if self.kept else "MISSED"
        return f"{self.what}: {shown(self.value)} ({relation} {shown(self.limit)}: {verdict})"


@dataclass(frozen=True)
class Result:
    """Results of a suite."""

    tables: list[ResultTable]
    checks: list[Check] = field(default_factory=list)


def shown(cell: Cell) -> str:
    """A cell as text: numbers with about three digits, an empty cell as a dash.

    >>> shown(1234.5), shown(12.34), shown(0.01234), shown(None), shown("name")
    ('1,234', '12.3', '0.012', '-', 'name')
    """
    if isinstance(cell, str):
        return cell
    if cell is None or not math.isfinite(cell):
        return "-"
    digits = 0 if abs(cell) >= 100 else 1 if abs(cell) >= 10 else 2 if abs(cell) >= 0.1 or cell == 0 else 3
    return f"{cell:,.{digits}f}"


def as_text(table: ResultTable) -> str:
    """A table as aligned lines: title, head, rows, note.

    >>> print(as_text(ResultTable("Speed", ("loss", "ms"), [["a", 1.0], ["longer", None]])))
    Speed
    loss      ms
    a       1.00
    longer     -
    """
    return "\n".join([table.title, aligned(cells(table)), *([table.note] if table.note else [])])


def cells(table: ResultTable) -> list[list[str]]:
    """The head and the rows of a table as text."""
    return [list(table.columns), *([shown(cell) for cell in row] for row in table.rows)]
