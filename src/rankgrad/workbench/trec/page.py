"""Writes the page of an evaluation of runs: values, tests, queries and groups of queries. The page has no script."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ..html import charts
from ..html.templates import write_page as write_html
from ..html.text import DASH, enumeration, verdict
from .comparison import Difference, chance
from .lists import Array
from .result import Evaluation

COLOURS = 8  # number of runs with different colours and dashes
MOST_TESTS = 60  # largest number of rows of a table of tests; the csv has all tests
MOST_QUERIES = 40  # largest number of rows of the table of queries; the csv has all queries
MOST_GROUPS = 200  # largest number of rows of the table of groups; the csv has all groups
STEPS = 200  # number of points of a curve over the queries


def write_page(path: str | os.PathLike[str], evaluation: Evaluation, *, title: str | None = None) -> Path:
    """Write the page. An existing file is replaced.

    Args:
        path: the file; its folder must exist.
        evaluation: the evaluation to show.
        title: heading; None: the names of the runs.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    means = evaluation.means
    main = means[0] if means else evaluation.metrics[0]
    ordered = sorted(evaluation.runs, key=lambda run: -evaluation.values[run][main])
    kind = {run: place for place, run in enumerate(ordered[:COLOURS])}
    level = 1 - evaluation.settings["confidence"]
    tests = {name: _tests([each for each in evaluation.differences if each.metric == name], level) for name in means}
    return write_html(
        path,
        "workbench/trec/page.html",
        styles=["workbench/html/base.css", "workbench/html/sections.css", "workbench/trec/page.css"],
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
        bounds=_bounds,
        signed=_signed,
        chance=chance,
        marks={run: [_mark(evaluation, run, main, kind.get(run))] for run in evaluation.runs},
        sure=f"{100 * evaluation.settings['confidence']:g}",
        level=level,
        verdict=_verdict(evaluation, main, ordered, level),
        tests={name: each for name, each in tests.items() if each["rows"]},
        curves=_curves(evaluation, main, kind),
        queries=_queries(evaluation, main),
        groups=_groups(evaluation, main),
        settings=[(name, _shown(value)) for name, value in evaluation.settings.items()],
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


def _number(value: float, name: str = "") -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if name.startswith("num_") else f"{value:.4f}"


def _bounds(bounds: tuple[float | None, float | None] | None) -> str:
    if bounds is None or bounds[0] is None or bounds[1] is None:
        return ""
    return f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "\N{MINUS SIGN}")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={each:g}" for key, each in value.items()) or "none"
    return {None: "none", True: "yes", False: "no"}.get(value, str(value)) if not isinstance(value, int) else str(value)


def _mark(
    evaluation: Evaluation, run: str, main: str, kind: int | None
) -> tuple[str, float, tuple[float, float] | None]:
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
    if len(ordered) == 1:
        return ""
    first = evaluation.settings["baseline"] or ordered[0]
    tests = {frozenset((each.run, each.other)): each for each in evaluation.differences if each.metric == main}
    ahead: list[str] = []
    behind: list[str] = []
    same: list[str] = []
    for run in ordered:
        each = tests.get(frozenset((run, first)))
        if each is None or each.p is None:
            continue
        better = (each.mean > 0) == (each.run == run)
        (same if not each.is_sure(level) else ahead if better else behind).append(run)
    highest = "" if evaluation.settings["baseline"] else f"{first} has the highest mean. "
    return highest + (verdict(first, ahead, behind, same) or "There are too few queries for a test.")


def _curves(evaluation: Evaluation, main: str, kind: dict[str, int]) -> list[Markup]:
    """Two charts, for the runs that have a colour: sorted values of the queries, and sorted differences to one run."""
    several = len(kind) > 1
    columns = {run: evaluation.per_query[run][main] for run in kind}
    lines = [
        charts.Series(run if several else "", _spread(np.sort(column[~np.isnan(column)])), kind[run])
        for run, column in columns.items()
    ]
    percent = "queries, per cent"
    drawn = [charts.lines(f"{main} of the queries, sorted", lines, percent, summary="", size=charts.WIDE)]
    if several:
        first = evaluation.settings["baseline"] or evaluation.runs[0]
        base = evaluation.per_query[first][main]
        away = [
            charts.Series(run, _spread(np.sort((column - base)[~np.isnan(column - base)])), kind[run])
            for run, column in columns.items()
            if run != first
        ]
        title = f"{main}, run minus {first}, sorted"
        drawn.append(charts.lines(title, away, percent, summary="above 0: the run is better", size=charts.WIDE))
    return drawn


def _spread(values: Array) -> list[tuple[float, float]]:
    """Points of a curve over sorted values: all values, or a few hundred at even steps."""
    if not len(values):
        return []
    at = np.unique(np.linspace(0, len(values) - 1, min(STEPS, len(values))).round().astype(int))
    shares = 100 * (at + 0.5) / len(values)
    return list(zip(shares.tolist(), values[at].tolist(), strict=True))


def _queries(evaluation: Evaluation, main: str) -> list[tuple[str, list[float]]]:
    """(query, value of each run) for the queries on which the runs differ most; for one run, the hardest queries."""
    table = np.stack([evaluation.per_query[run][main] for run in evaluation.runs], axis=1)
    known = ~np.isnan(table).all(1)
    spread = np.where(known, np.nanmax(np.where(np.isnan(table), -np.inf, table), 1), 0)
    if len(evaluation.runs) > 1:
        spread = spread - np.where(known, np.nanmin(np.where(np.isnan(table), np.inf, table), 1), 0)
    else:
        spread = -spread
    order = np.argsort(-spread, kind="stable")
    rows = [row for row in order.tolist() if known[row]][:MOST_QUERIES]
    return [(evaluation.queries[row], table[row].tolist()) for row in rows]


def _groups(evaluation: Evaluation, main: str) -> list[dict[str, Any]]:
    """One row per group: its size, and value and interval of every run for the main metric. Of many, the largest."""
    rows = {(row["group"], row["run"]): row for row in evaluation.of_groups if row["metric"] == main}
    level = 1 - evaluation.settings["confidence"]
    tests: dict[str, list[Difference]] = {}
    for each in evaluation.between_groups:
        if each.metric == main and each.p is not None:
            tests.setdefault(each.group, []).append(each)
    shown = list(evaluation.groups.items())
    if len(shown) > MOST_GROUPS:
        shown = sorted(shown, key=lambda group: -len(group[1]))[:MOST_GROUPS]
    return [
        {
            "name": name,
            "size": len(members),
            "cells": {run: rows[name, run] for run in evaluation.runs},
            "sure": sum(each.is_sure(level) for each in tests.get(name, ())),
            "tests": len(tests.get(name, ())),
        }
        for name, members in shown
    ]
