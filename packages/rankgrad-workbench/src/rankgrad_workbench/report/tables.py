"""Tables of a page about runs of any kind: metrics with their intervals, classes, settings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rankgrad.evaluation.report import DISTANCES, Row
from rankgrad.evaluation.statistics import FEWEST_SEEDS, PairedDifference, caution, paired_t_test

from ..runs.change import change
from ..runs.run_warnings import begun_groups
from .content import Evaluated, RunContent, Section
from .glossary import definition, short, shown
from .html.templates import render
from .html.text import DASH, clean, percent, verdict

READABLE = 50  # rows of a table of classes that are visible without the script
FEW = 12  # tables with at most this many rows have no filter


# ------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Column:
    """A column of the table of metrics: a run, or a run before training.

    Attributes:
        colour: CSS class.
        evaluated: its evaluation; None: the run is not finished.
        values: its metrics, or the latest ones.
    """

    colour: str
    evaluated: Evaluated | None
    values: Mapping[str, float]

    def around(self, name: str) -> tuple[float, float] | None:
        """The interval of a metric, if it has one."""
        return self.evaluated.intervals.get(name) if self.evaluated is not None else None

    def value(self, name: str) -> float:
        """A metric; NaN if it is unknown."""
        return self.values.get(name, math.nan)


def results(
    runs: Sequence[RunContent], extra: Markup | None = None, verdicts: Sequence[tuple[str, str]] = ()
) -> Section:
    """The headline metrics in tiles, and all metrics with their intervals; for a single run also before training.

    Args:
        runs: side by side.
        extra: HTML between the tables and the glossary of the metrics.
        verdicts: metric and what the comparison of single runs found in it; they come first.
    """
    names, (first, *others) = _names(runs), runs
    main = [name for name in dict.fromkeys(name for run in runs for name in run.main) if name in names]
    before = first.before if not others else None
    sure = next((run.after.settings.get("confidence", 0.95) for run in runs if run.after and run.after.intervals), None)
    groups = [group for group in (main, [name for name in names if name not in main]) if group]
    if not others and before is None and set(names) <= set(first.headline) and sure is None:
        groups = []  # the tiles show everything
    columns = [] if before is None else [Column("before", before, before.values)]
    columns += [Column(f"s{kind}", run.after, run.values) for kind, run in enumerate(runs)]
    best = {
        name: max(known)
        for name in dict.fromkeys(name for run in runs for name in run.headline)
        if (known := [value for run in runs if not math.isnan(value := run.values.get(name, math.nan))])
    }
    changes = {}
    if before is not None and first.after is not None:
        tested = {name: change(vars(before), vars(first.after), name) for name in main}
        changes = {name: each.found for name, each in tested.items() if each is not None and each.tested}
    body = render(
        "report/results.html",
        runs=runs,
        before=before,
        columns=columns,
        changes=changes,
        sure="" if sure is None else f"{100 * sure:g}",
        counts=list(dict.fromkeys(_counted(run.after) for run in runs if run.after is not None)),
        best=best,
        tables=groups,
        marks=lambda name: [] if name in DISTANCES else [(c.colour, c.value(name), c.around(name)) for c in columns],
        metric=shown,
        meaning=short,
        terms=[(name, long) for name in names if (long := definition(name))],
        extra=extra or Markup(),
        verdicts=verdicts,
    )
    return Section("results", "Results", body if names else Markup())


def verdicts(first: str, found: Sequence[tuple[str, str, float, float, float | None]]) -> list[tuple[str, str]]:
    """Each metric, and which runs are ahead of the first one or behind it: those whose interval does not contain 0.

    Args:
        first: name of the run that the others are compared with.
        found: run, metric, the bounds of the interval of the run minus the first one, and the size of a difference
            that would be found; None: unknown.

    >>> verdicts("a", [("b", "AP", 0.1, 0.3, None), ("c", "AP", -0.1, 0.1, None), ("b", "R@1", -0.2, -0.1, 0.1)])
    [('AP', 'b is ahead of a. No difference from a was found for c.'), ('R@1', 'b is behind a.')]
    """
    said = []
    for metric in dict.fromkeys(metric for _, metric, *_ in found):
        of = [(run, low, high, size) for run, name, low, high, size in found if name == metric]
        ahead, behind = [run for run, low, *_ in of if low > 0], [run for run, _, high, _ in of if high < 0]
        level = {run: size for run, low, high, size in of if low <= 0 <= high}
        largest = max((size for size in level.values() if size is not None), default=None)
        seen = "" if largest is None else percent(largest)
        said.append((metric, verdict(first, ahead, behind, list(level), seen)))
    return said


def _names(runs: Sequence[RunContent]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.values))


def _counted(report: Evaluated) -> str:
    """Numbers of queries, items, classes, ... in one line. What there is none of is not said."""
    called = {"duplicates": "items with the embedding of another"}
    told = ((called.get(name, name.replace("_", " ")), value) for name, value in report.counts.items())
    return " · ".join(f"{name}: {value:,}" for name, value in told if value)


def seeds(runs: Sequence[RunContent]) -> Section:
    """Mean and standard deviation over the seeds of each variant, all single values, and paired differences."""
    names = [name for name in dict.fromkeys(name for run in runs for name in run.main) if name in _names(runs)]
    measured = {run.name: [each.values for each in (run, *run.siblings)] for run in runs}
    of_name = {run.name: (run, *run.siblings) for run in runs}
    for called, group in begun_groups([(run.name, run.config) for run in runs]).items():
        measured[called] = [each.before.values for each in of_name[group[0]] if each.before is not None]
    rows = []
    for called, of_seeds in measured.items():
        cells = []
        for name in names:
            values = [of_seed[name] for of_seed in of_seeds if name in of_seed]
            mean = shown(name, statistics.mean(values)) if values else DASH
            spread = f" ± {shown(name, statistics.stdev(values))}" if len(values) > 1 else ""
            cells.append((mean + spread, " ".join(shown(name, value) for value in values)))
        rows.append({"name": called, "runs": len(of_seeds), "cells": cells})
    tests = [
        (run.name, name, difference)
        for run in runs[1:]
        for name in run.headline
        if (difference := _over_seeds(run, runs[0], name)) is not None
    ]
    heads = [(name, short(name)) for name in names]
    told = caution(min((difference.n for *_, difference in tests), default=1)) if len(runs) > 1 else ""
    body = render(
        "report/seeds.html",
        heads=heads,
        rows=rows,
        first=runs[0].name,
        tests=tests,
        verdicts=verdicts(
            runs[0].name,
            [(name, metric, t.low, t.high, t.detectable) for name, metric, t in tests if t.n >= FEWEST_SEEDS],
        ),
        judged=any(difference.n >= FEWEST_SEEDS for *_, difference in tests),
        fewest=FEWEST_SEEDS,
        tested=any(difference.p is not None for *_, difference in tests),
        caution=told,
    )
    return Section("seeds", "All runs", body if names else Markup())


def _over_seeds(run: RunContent, first: RunContent, name: str) -> PairedDifference | None:
    """One variant minus another, over their common seeds; None for fewer than two."""
    both = [
        {each.config.get("seed"): each.values[name] for each in (of, *of.siblings) if name in each.values}
        for of in (run, first)
    ]
    common = [seed for seed in both[0] if seed in both[1]]
    if len(common) < 2:
        return None
    return paired_t_test([both[0][seed] for seed in common], [both[1][seed] for seed in common])


# ------------------------------------------------------------------------------------------------------------- classes


def class_table(
    runs: Sequence[RunContent],
    kind: str,
    tables: Sequence[Sequence[Row]],
    metrics: Sequence[str],
    by: str,
    beside: Sequence[str] = (),
    count: str = "queries",
    formats: Mapping[str, str] | None = None,
) -> tuple[Markup, dict[str, Any]] | None:
    """A table by class or by super-label, which a script sorts, filters and divides into pages.

    Without the script, it shows the rows with the lowest values of one metric.

    Args:
        runs: the runs.
        kind: "class" or "super-label".
        tables: rows of each run, empty for a run that has none; a row has a name, a count and metrics.
        metrics: columns for a single run.
        by: the metric by which the table is sorted first. For several runs, it is shown for each run, with its range.
        beside: further metrics for several runs.
        count: key of the count in a row.
        formats: columns that are not in per cent -> "count" or "score".

    Returns:
        (HTML, the whole table for the script); None if there is nothing to show.
    """
    known = [
        name
        for name in dict.fromkeys([*metrics, by])
        if any(row.get(name) is not None for table in tables for row in table)
    ]
    if not known:
        return None
    by = by if by in known else known[0]
    several = len(runs) > 1
    columns = _class_columns(tables, known, by, beside)
    rows = _class_rows(tables, columns, count, by if several else None)
    names = [kind, count, *(f"{metric} {runs[run].name}" if several else metric for run, metric in columns)]
    shapes = ["", "count", *((formats or {}).get(metric, "share") for _, metric in columns)]
    meanings = ["", "", *(short(metric) for _, metric in columns)]
    if several:
        names.append(f"range of {by}")
        shapes.append("share")
        meanings.append("largest minus smallest, over the runs")
    lead = 2 + (0 if several else len(columns) - 1)  # the column by which the table is sorted first
    rows.sort(key=lambda row: (row[lead] is None, row[lead] if row[lead] is not None else 0.0, row[0]))
    bars = -1 if several else lead
    html = render(
        "report/classes.html",
        kind=kind,
        heads=list(zip(names, meanings, strict=True)),
        lead=lead,
        bars=bars,
        formats=shapes,
        rows=rows[:READABLE],
        total=len(rows),
        few=len(rows) <= FEW,
        by=by,
        terms=list(dict.fromkeys((metric, short(metric)) for _, metric in columns if short(metric))),
    )
    data = {"columns": names, "rows": rows, "sorted": lead, "bars": bars, "page": READABLE, "formats": shapes}
    return html, data


def _class_columns(
    tables: Sequence[Sequence[Row]], known: Sequence[str], by: str, beside: Sequence[str]
) -> list[tuple[int, str]]:
    """(run, metric) of each column: all metrics for a single run; `by` and `beside` of each run for several."""
    if len(tables) == 1:
        return [(0, name) for name in (*(name for name in known if name != by), by)]
    wanted = [by, *(name for name in beside if name in known and name != by)]
    return [(run, name) for name in wanted for run, table in enumerate(tables) if table]


def _class_rows(
    tables: Sequence[Sequence[Row]], columns: Sequence[tuple[int, str]], count: str, ranged: str | None
) -> list[list[Any]]:
    """[name, count, values] of each class; and the range of one metric over the runs, if `ranged` names it.

    Args:
        tables: rows of each run.
        columns: (run, metric) of each column.
        count: key of the count in a row.
        ranged: the metric, or None.
    """
    by_name: list[dict[str, Row]] = [{str(row["name"]): row for row in table} for table in tables]
    rows = []
    for name in dict.fromkeys(name for table in by_name for name in table):
        of_runs = [table.get(name, {}) for table in by_name]
        exact = [of_runs[run].get(metric) for run, metric in columns]
        values = [None if value is None else round(float(value), 4) for value in exact]
        if ranged is not None:
            known = [v for v, (_, metric) in zip(values, columns, strict=True) if metric == ranged and v is not None]
            values.append(round(max(known) - min(known), 4) if known else None)
        rows.append([name, next(int(row[count]) for row in of_runs if row), *values])
    return rows


# ------------------------------------------------------------------------------------------------------- configuration


def configuration(runs: Sequence[RunContent]) -> Section:
    """Settings; for several runs, first those that differ and then the others."""
    tables = [{key: clean(value) for key, value in run.settings.items()} for run in runs]
    everything = sorted(dict.fromkeys(key for table in tables for key in table), key=lambda key: ": " in key)
    rows = [(key, [table.get(key, DASH) for table in tables]) for key in everything]
    differ = [row for row in rows if len(set(row[1])) > 1]
    same = [row for row in rows if len(set(row[1])) == 1]
    body = render("report/configuration.html", runs=runs, differ=differ, same=same)
    return Section("configuration", "Configuration", body if rows else Markup())
