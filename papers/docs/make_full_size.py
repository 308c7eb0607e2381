"""Writes papers/results/full-size.csv, what the papers' tables cost at full size.

Run `python papers/docs/make_full_size.py`.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rankgrad_papers.experiments.cost import work_of_grid
from rankgrad_papers.experiments.grid import grids

PAGE = Path(__file__).parents[1] / "results" / "full-size.csv"
HEAD = ["`ID`", "`NAME`", "cells", "runs", "trained, million", "embedded, million", "hours"]


def rows(*names: str) -> list[list[str]]:
    """A row for each data set of some tables; without names of all."""
    found = []
    for name, grid in grids().items():
        if name in names or not names:
            for data, (cells, runs, work) in work_of_grid(grid).items():
                images = [f"{count / 1e6:.1f}" for count in (work.trained, work.embedded)]
                found.append([f"`{name}`", f"`{data}`", str(cells), str(runs), *images, f"{work.hours:.1f}"])
    return found


def written() -> str:
    """The file as it should be."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEAD, *rows()])
    return text.getvalue()


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
