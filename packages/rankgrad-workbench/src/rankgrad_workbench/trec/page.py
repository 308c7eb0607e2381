"""An evaluation of runs as a folder: a page without scripts, and the numbers as csv and json."""

from __future__ import annotations

import csv
import io
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from rankgrad.common.files import open_file

from ..files import atomic_write, write_text
from ..report.html import charts
from ..report.html.templates import write_page as write_html
from ..report.html.text import DASH, enumeration, verdict
from .comparison import Difference, chance
from .lists import Array
from .result import FILES, Evaluation

PAGE, JSON, VALUES, PER_QUERY, DIFFERENCES, GROUPS = FILES
GROUP_COLUMNS = ("group", "queries", "run", "metric", "value", "low", "high")
COLOURS = 8  # number of runs with different colours and dashes
MOST_TESTS = 60  # largest number of rows of a table of tests; the csv has all tests
MOST_QUERIES = 40  # largest number of rows of the table of queries; the csv has all queries
MOST_GROUPS = 200  # largest number of rows of the table of groups; the csv has all groups
STEPS = 200  # number of points of a curve over the queries


def write_folder(evaluation: Evaluation, folder: str | os.PathLike[str], title: str | None = None) -> Path:
    """See `Evaluation.write`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / JSON, evaluation.to_json() + "\n")
    values, each_query = [], []
    for run in evaluation.runs:
        for name, value in evaluation.values[run].items():
            values.append([run, name, value, *evaluation.intervals[run].get(name, ("", ""))])
        columns = [column.tolist() for column in evaluation.per_query[run].values()]
        each_query += [[run, *row] for row in zip(evaluation.queries, *columns, strict=True) if row[1] == row[1]]
    _write_csv(folder / VALUES, ["run", "metric", "value", "low", "high"], values)
    _write_csv(folder / PER_QUERY, ["run", "query", *evaluation.metrics], each_query)
    compared = [asdict(each) for each in (*evaluation.differences, *evaluation.between_groups)]
    _write_if_any(folder / DIFFERENCES, [field.name for field in fields(Difference)], compared)
    _write_if_any(folder / GROUPS, GROUP_COLUMNS, evaluation.of_groups)
    return write_page(folder / PAGE, evaluation, title)


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
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def write_page(path: Path, evaluation: Evaluation, title: str | None = None) -> Path:
    """Write the page. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        evaluation: the evaluation to show.
        title: heading; None: the names of the runs.
    """
    means = evaluation.means
    main = means[0] if means else evaluation.metrics[0]
    ordered = sorted(evaluation.runs, key=lambda run: -evaluation.values[run][main])
    kind = {run: place for place, run in enumerate(ordered[:COLOURS])}
    settings = evaluation.settings
    level = 1 - settings["confidence"]
    tests = {name: _tests([each for each in evaluation.differences if each.metric == name], level) for name in means}
    return write_html(
        path,
        "trec/page.html",
        styles=["report/html/base.css", "report/html/sections.css", "trec/page.css"],
        title=title or f"Runs: {enumeration(list(evaluation.runs), 4)}",
        facts=_facts(evaluation),
        notes=evaluation.notes,
        main=main,
        means=means,
        others=[name for name in evaluation.metrics if name not in means],
        runs=ordered,
        kind=kind,
        best={name: max(evaluation.values[run][name] for run in evaluation.runs) for name in means},
        found=evaluation,
        cell=_number,
        bounds=lambda bounds: "" if bounds is None or None in bounds else f"{bounds[0]:.3f} to {bounds[1]:.3f}",
        signed=lambda value: f"{value:+.4f}".replace("-", "\N{MINUS SIGN}"),
        chance=chance,
        marks={run: [_mark(evaluation, run, main, kind.get(run))] for run in evaluation.runs},
        sure=f"{100 * settings['confidence']:g}",
        level=level,
        verdict=_verdict(evaluation, main, ordered, level),
        tests={name: each for name, each in tests.items() if each["rows"]},
        curves=_curves(evaluation, main, kind),
        queries=_queries(evaluation, main),
        groups=_groups(evaluation, main),
        settings=[(name, _shown(value)) for name, value in settings.items()],
    )


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    settings = evaluation.settings
    facts = [("judged queries", f"{len(evaluation.queries):,}"), ("judgements", f"{settings['judgements']:,}")]
    facts.append(("relevant from grade", str(settings["level"])))
    if settings["depth"] is not None:
        facts.append(("lists cut after", f"{settings['depth']:,}"))
    if settings["judged_only"]:
        facts.append(("documents", "judged ones only"))
    return facts


def _number(value: float | None, name: str = "") -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if name.startswith("num_") else f"{value:.4f}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={each:g}" for key, each in value.items()) or "none"
    return "none" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _mark(evaluation: Evaluation, run: str, main: str, kind: int | None) -> tuple[str, float, Any]:
    colour = "before" if kind is None else f"s{kind}"  # "before" is grey
    return colour, evaluation.values[run][main], evaluation.intervals[run].get(main)


def _tests(rows: Sequence[Difference], level: float) -> dict[str, Any]:
    """The tests of one metric, lowest p-value first, and their summary."""
    tested = [each for each in rows if each.p is not None]
    varied = [each.detectable for each in tested if each.detectable]  # 0: no query differs from the others
    shown = sorted(rows, key=lambda each: (each.corrected or 0, each.p or 0, -abs(each.mean)))[:MOST_TESTS]
    return {
        "rows": shown,
        "left": len(rows) - len(shown),
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
    tests = {frozenset((each.run, each.other)): each for each in evaluation.differences if each.metric == main}
    found: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for run in compared:
        each = tests.get(frozenset((run, first)))
        if each is not None and each.p is not None:
            better = (each.mean > 0) == (each.run == run)
            found[0 if not each.is_sure(level) else 1 if better else -1].append(run)
    highest = "" if baseline else f"{first} has the highest mean. "
    return highest + (verdict(first, found[1], found[-1], found[0]) or "There are too few queries for a test.")


def _curves(evaluation: Evaluation, main: str, kind: dict[str, int]) -> list[Markup]:
    """Two charts, for the runs that have a colour: sorted values of the queries, and sorted differences to one run."""
    columns = {run: evaluation.per_query[run][main] for run in kind}
    first = evaluation.settings["baseline"] or evaluation.runs[0]
    away = {run: column - evaluation.per_query[first][main] for run, column in columns.items() if run != first}
    drawn = [(f"{main} of the queries, sorted", "", columns)]
    drawn += [(f"{main}, run minus {first}, sorted", "above 0: the run is better", away)] * (len(kind) > 1)
    return [
        charts.lines(
            title,
            [charts.Series(run if len(kind) > 1 else "", _spread(each), kind[run]) for run, each in values.items()],
            "queries, per cent",
            summary=summary,
            size=charts.WIDE,
        )
        for title, summary, values in drawn
    ]


def _spread(values: Array) -> list[tuple[float, float]]:
    """Points of a curve over sorted values: all values, or a few hundred at even steps."""
    values = np.sort(values[~np.isnan(values)])
    at = np.unique(np.linspace(0, len(values) - 1, min(STEPS, len(values))).round().astype(int))
    return list(zip((100 * (at + 0.5) / max(len(values), 1)).tolist(), values[at].tolist(), strict=True))


def _queries(evaluation: Evaluation, main: str) -> list[tuple[str, list[float]]]:
    """(query, value of each run) for the queries on which the runs differ most; for one run, the hardest queries."""
    table = np.stack([evaluation.per_query[run][main] for run in evaluation.runs], axis=1)
    known = np.flatnonzero(~np.isnan(table).all(1))
    several = len(evaluation.runs) > 1
    spread = np.nanmax(table[known], 1) - np.nanmin(table[known], 1) if several else -table[known, 0]
    rows = known[np.argsort(-spread, kind="stable")][:MOST_QUERIES].tolist()
    return [(evaluation.queries[row], table[row].tolist()) for row in rows]


def _groups(evaluation: Evaluation, main: str) -> list[dict[str, Any]]:
    """One row per group: its size, and value and interval of every run for the main metric. Of many, the largest."""
    rows = {(row["group"], row["run"]): row for row in evaluation.of_groups if row["metric"] == main}
    level = 1 - evaluation.settings["confidence"]
    tests: dict[str, list[bool]] = {}
    for each in evaluation.between_groups:
        if each.metric == main and each.p is not None:
            tests.setdefault(each.group, []).append(each.is_sure(level))
    shown = list(evaluation.groups.items())
    if len(shown) > MOST_GROUPS:
        shown = sorted(shown, key=lambda group: -len(group[1]))[:MOST_GROUPS]
    cells = {name: {run: rows[name, run] for run in evaluation.runs} for name, _ in shown}
    counts = {name: {"sure": sum(tests.get(name, ())), "tests": len(tests.get(name, ()))} for name, _ in shown}
    return [{"name": name, "size": len(members), "cells": cells[name]} | counts[name] for name, members in shown]
