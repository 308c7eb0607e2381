"""An evaluation of runs as a folder: a page without scripts, and the numbers as csv and json."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rankgrad.common.files import open_file

from ..files import write_text
from ..report.html.templates import write_page as write_html
from ..report.html.text import DASH, enumeration, verdict
from .comparison import Difference, chance
from .result import FILES, Evaluation

PAGE, JSON, VALUES, PER_QUERY, DIFFERENCES, GROUPS = FILES
GROUP_COLUMNS = ("group", "queries", "run", "metric", "value", "low", "high")
MOST_QUERIES = 40  # largest number of rows of the table of queries; the csv has all queries


def write_folder(evaluation: Evaluation, folder: str | os.PathLike[str], title: str | None = None) -> Path:
    """See `Evaluation.write`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / JSON, evaluation.to_json() + "\n")
    values = [
        [run, name, value, *evaluation.intervals[run].get(name, (None, None))]
        for run in evaluation.runs
        for name, value in evaluation.values[run].items()
    ]
    queries = pd.Index(evaluation.queries, name="query")
    by_run = {run: pd.DataFrame(columns, queries).dropna() for run, columns in evaluation.per_query.items()}
    tables = {
        VALUES: pd.DataFrame(values, columns=["run", "metric", "value", "low", "high"]),
        PER_QUERY: pd.concat(by_run, names=["run"]).reset_index(),
        DIFFERENCES: pd.DataFrame(evaluation.differences, columns=[field.name for field in fields(Difference)]),
        GROUPS: pd.DataFrame(evaluation.of_groups, columns=GROUP_COLUMNS),
    }
    for name, table in tables.items():
        path, text = folder / name, table.to_csv(index=False, lineterminator="\n")
        if len(table) or name in (VALUES, PER_QUERY):
            write_text(path, text)
        elif path.is_file():  # of an earlier evaluation, or the user's own file of this name
            with open_file(path) as file:
                ours = file.readline() == text.encode()
            if ours:
                path.unlink()
    return write_page(folder / PAGE, evaluation, title)


def write_page(path: Path, evaluation: Evaluation, title: str | None = None) -> Path:
    """Write the page. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        evaluation: the evaluation to show.
        title: heading; None: the names of the runs.
    """
    means, settings = evaluation.means, evaluation.settings
    main = means[0] if means else evaluation.metrics[0]
    ordered = sorted(evaluation.runs, key=lambda run: -evaluation.values[run][main])
    level = 1 - settings["confidence"]
    tests = {name: _tests([each for each in evaluation.differences if each.metric == name], level) for name in means}
    return write_html(
        path,
        "trec/page.html",
        styles=["report/html/base.css", "report/html/sections.css", "trec/page.css"],
        title=title or f"Runs: {enumeration(list(evaluation.runs), 4)}",
        facts=[
            ("judged queries", f"{len(evaluation.queries):,}"),
            ("judgements", f"{settings['judgements']:,}"),
            ("relevant from grade", settings["level"]),
        ],
        notes=evaluation.notes,
        main=main,
        means=means,
        others=[name for name in evaluation.metrics if name not in means],
        runs=ordered,
        best={name: max(evaluation.values[run][name] for run in evaluation.runs) for name in means},
        found=evaluation,
        bounds=lambda bounds: "" if bounds is None or None in bounds else f"{bounds[0]:.3f} to {bounds[1]:.3f}",
        signed=lambda value: f"{value:+.4f}".replace("-", "\N{MINUS SIGN}"),
        cell=_number,
        chance=chance,
        level=level,
        verdict=_verdict(evaluation, main, ordered, level),
        tests={name: each for name, each in tests.items() if each["rows"]},
        queries=_queries(evaluation, main),
        groups=[row for row in evaluation.of_groups if row["metric"] == main],
    )


def _number(value: float | None, name: str = "") -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if name.startswith("num_") else f"{value:.4f}"


def _tests(rows: Sequence[Difference], level: float) -> dict[str, Any]:
    """The tests of one metric, lowest p-value first, and their summary."""
    tested = [each for each in rows if each.p is not None]
    varied = [each.detectable for each in tested if each.detectable]  # 0: no query differs from the others
    return {
        "rows": sorted(rows, key=lambda each: (each.corrected or 0, each.p or 0, -abs(each.mean))),
        "all": len(tested),
        "sure": sum(each.is_sure(level) for each in tested),
        "detectable": statistics.median(varied) if varied else None,
    }


def _verdict(evaluation: Evaluation, main: str, ordered: Sequence[str], level: float) -> str:
    """The result of the tests of the main metric, against the baseline or the run with the highest mean."""
    compared = [run for run in ordered if run not in evaluation.silent]
    baseline = evaluation.settings["baseline"]
    if len(compared) < 2 or baseline in evaluation.silent:
        return ""  # the notes say how many queries a run has no list for
    first = baseline or compared[0]
    found: dict[str, list[str]] = {"ahead": [], "behind": [], "level": []}
    for each in evaluation.differences:
        if each.metric == main and each.p is not None and first in (each.run, each.other):
            run, better = (each.run, each.mean > 0) if each.other == first else (each.other, each.mean < 0)
            found["level" if not each.is_sure(level) else "ahead" if better else "behind"].append(run)
    highest = "" if baseline else f"{first} has the highest mean. "
    return highest + (
        verdict(first, found["ahead"], found["behind"], found["level"]) or "There are too few queries for a test."
    )


def _queries(evaluation: Evaluation, main: str) -> list[tuple[str, list[float]]]:
    """(query, value of each run) for the queries on which the runs differ most; for one run, the hardest queries."""
    table = np.stack([evaluation.per_query[run][main] for run in evaluation.runs], axis=1)
    known = np.flatnonzero(~np.isnan(table).all(1))
    several = len(evaluation.runs) > 1
    spread = np.nanmax(table[known], 1) - np.nanmin(table[known], 1) if several else -table[known, 0]
    rows = known[np.argsort(-spread, kind="stable")][:MOST_QUERIES].tolist()
    return [(evaluation.queries[row], table[row].tolist()) for row in rows]
