"""Reading the log of a training run, a CSV table. See `training.log`, which writes it."""

from __future__ import annotations

import csv
from pathlib import Path

from rankgrad.common.files import AGAIN, read_text

TABLE = "metrics.csv"
TEST = "test/"  # prefix of the test metrics


def read_rows(folder: Path) -> list[dict[str, str]]:
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
