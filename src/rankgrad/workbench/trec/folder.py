"""An evaluation of run files as a folder: the page, and the numbers as csv and json."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ...common.files import atomic_write, open_file, write_text
from .comparison import Difference
from .page import write_page
from .result import Evaluation

FILES = ("evaluation.html", "evaluation.json", "values.csv", "per-query.csv", "differences.csv", "groups.csv")
GROUP_COLUMNS = ("group", "queries", "run", "metric", "value", "low", "high")


def write(evaluation: Evaluation, folder: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write a folder with a page, and the numbers as csv and json.

    The files are evaluation.html, evaluation.json, values.csv and per-query.csv. With several runs there is also
    differences.csv, and with groups groups.csv.

    Args:
        evaluation: result of `evaluate`.
        folder: created if it does not exist. Existing files of these names are replaced. A differences.csv or
            groups.csv of an earlier evaluation is removed if this evaluation has none.
        title: heading of the page; None: the names of the runs.

    Returns:
        The page.

    >>> import tempfile
    >>> from rankgrad import trec
    >>> found = trec.evaluate({"mine": {"q1": {"d1": 0.9}}}, {"q1": {"d1": 1}}, ["map"], bootstrap=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write(found, folder)
    ...     print(page.name, sorted(path.name for path in page.parent.glob("*.csv")))
    evaluation.html ['per-query.csv', 'values.csv']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "evaluation.json", evaluation.to_json() + "\n")
    bounds = {
        (run, name): evaluation.intervals[run].get(name, ("", ""))
        for run in evaluation.runs
        for name in evaluation.metrics
    }
    rows = [
        [run, name, evaluation.values[run][name], *bounds[run, name]]
        for run in evaluation.runs
        for name in evaluation.metrics
    ]
    _write_csv(folder / "values.csv", ["run", "metric", "value", "low", "high"], rows)
    with_each = []
    for run in evaluation.runs:
        columns = [column.tolist() for column in evaluation.per_query[run].values()]
        with_each += [[run, *row] for row in zip(evaluation.queries, *columns, strict=True) if row[1] == row[1]]
    _write_csv(folder / "per-query.csv", ["run", "query", *evaluation.metrics], with_each)
    compared = [asdict(each) for each in (*evaluation.differences, *evaluation.between_groups)]
    _write_if_any(folder / "differences.csv", [field.name for field in fields(Difference)], compared)
    _write_if_any(folder / "groups.csv", GROUP_COLUMNS, evaluation.of_groups)
    return write_page(folder / "evaluation.html", evaluation, title=title)


def _write_if_any(path: Path, head: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table that not every evaluation has. Without rows, the table of an earlier evaluation is removed."""
    if rows:
        _write_csv(path, head, [[row[name] for name in head] for row in rows])
    elif path.is_file():
        with open_file(path) as file:
            ours = file.readline() == f"{','.join(head)}\n".encode()  # the user's own file may have this name
        if ours:
            path.unlink()


def _write_csv(path: Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with atomic_write(path) as opened, io.TextIOWrapper(opened, encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
