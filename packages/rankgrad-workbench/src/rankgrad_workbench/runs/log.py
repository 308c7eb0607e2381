"""The log of a training run, a CSV table. A run that was killed and resumed has the same table as an uninterrupted one.

Rows are appended, and they reach the disk before the next saved state (`flush`). A resumed run removes the rows after
its state and writes them again.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rankgrad.common.files import AGAIN, read_text

from ..files import append_text, write_text

TABLE = "metrics.csv"
TEST = "test/"  # prefix of the test metrics

Row = dict[str, str]


class LogTable:
    """The table of one run, open for writing.

    Args:
        folder: folder of the logs, inside the folder of the run. It is created with the first row.
        done: steps of the state from which the run resumes; later rows are removed. 0: a new table.
    """

    def __init__(self, folder: Path, done: int = 0) -> None:
        self.path = folder / TABLE
        rows = [row for row in read_rows(folder) if float(row["step"]) < done]
        self.columns = list(dict.fromkeys(name for row in rows for name in row))
        self._rows = rows
        if self.path.exists():
            self._rewrite()

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Append a row. Readers of the file see it at once; the next `flush` writes it to the disk."""
        row = {"step": str(step), **{name: _cell(value) for name, value in values.items()}}
        self._rows.append(row)
        new = [name for name in row if name not in self.columns]
        if new or not self.path.exists():
            self.columns += new
            self._rewrite()
        else:
            # the file is not kept open, so that its disk can be unmounted
            append_text(self.path, _line(row, self.columns))

    def flush(self) -> None:
        """Write all rows to the disk."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _rewrite(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        head = ",".join(self.columns) + "\n" if self.columns else ""
        write_text(self.path, head + "".join(_line(row, self.columns) for row in self._rows))


def _cell(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _line(row: Mapping[str, str], columns: Sequence[str]) -> str:
    return ",".join(row.get(name, "") for name in columns) + "\n"


def read_rows(folder: Path) -> list[Row]:
    """The rows of a table, in the order of their steps; [] if there is no table.

    Raises:
        ValueError: the table is damaged.
    """
    path = folder / TABLE
    if not path.exists():
        return []
    try:
        lines = read_text(path).splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            del lines[-1]  # the process died while it wrote this line
        rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(lines)]
        for row in rows:
            list(map(float, row.values()))
    except (ValueError, TypeError, csv.Error) as error:  # TypeError: surplus cells of a row are a list
        raise ValueError(f"{path} is damaged ({error}). {AGAIN}") from None
    return [row for row in rows if "step" in row]


def read_curves(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """The logged values: name -> (step, value)."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in read_rows(folder):
        for name, value in row.items():
            if name not in ("step", "epoch"):
                curves.setdefault(name, []).append((float(row["step"]), float(value)))
    return curves
