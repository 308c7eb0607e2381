"""Tables of a page about runs of any kind: metrics with their intervals, classes, settings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from rankgrad.evaluation.report import DISTANCES, Row
from rankgrad.evaluation.statistics import FEWEST_SEEDS, PairedDifference, caution, paired_t_test

from ..runs.run_warnings import at_size, begun_groups, change
from .content import RunContent, Section
from .glossary import definition, short, shown
from .html.templates import render
from .html.text import DASH, clean, percent, verdict

READABLE = 50  # rows of a table of classes that are visible without the script
FEW = 12  # tables with at most this many rows have no filter


def results(
    runs: Sequence[RunContent], extra: Markup | None = None, verdicts: Sequence[tuple[str, str]] = ()
) -> Section:
    """The headline metrics in tiles, and all metrics with their intervals; for a single run also before training.

    Args:
        runs: side by side.
        extra: HTML between the tables and the glossary of the metrics.
        verdicts: metric and what the comparison of single runs found in it; they come first.
    """
    names, first = _metrics(runs), runs[0]
    main = [name for name in names if any(name in run.main for run in runs)]
    before = first.before if len(runs) == 1 else None
    befores = [each for each in (first.untouched, before) if each is not None and before is not None]
    after = [run.after for run in runs if run.after is not None]
    sure = next((each.settings.get("confidence", 0.95) for each in after if each.intervals), None)
    columns = [("before", each.values, each.intervals) for each in befores]
    columns += [(f"s{n}", run.values, run.after.intervals if run.after else {}) for n, run in enumerate(runs)]
    # metric -> (colour, value, interval) of each run, and first of a run before training
    cells = {name: [(colour, of.get(name, math.nan), at.get(name)) for colour, of, at in columns] for name in names}
    headline = dict.fromkeys(name for run in runs for name in run.headline if name in names)
    changes = {}
    if before is not None and first.after is not None:
        tested = {name: change(vars(before), vars(first.after), name) for name in main}
        changes = {name: each.found for name, each in tested.items() if each is not None and each.p is not None}
    body = render(
        "report/results.html",
        runs=runs,
        before=before,
        befores=befores,
        at_size=at_size,
        cells=cells,
        changes=changes,
        sure="" if sure is None else f"{100 * sure:g}",
        counts=[each.counts for each in after],
        headline=[name for name in headline if not all(math.isnan(value) for _, value, _ in cells[name])],
        tables=[group for group in (main, [name for name in names if name not in main]) if group],
        distances=DISTANCES,
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
        said.append((metric, verdict(first, ahead, behind, [*level], "" if largest is None else percent(largest))))
    return said


def _metrics(runs: Sequence[RunContent]) -> list[str]:
    """The metrics of some runs, those of the first table first."""
    known = dict.fromkeys(name for run in runs for name in run.values)
    return list(dict.fromkeys([*(name for run in runs for name in run.main if name in known), *known]))


def seeds(runs: Sequence[RunContent]) -> Section:
    """Mean and standard deviation over the seeds of each variant, all single values, and paired differences."""
    names = [name for name in _metrics(runs) if any(name in run.main for run in runs)]
    of_seeds = {run.name: (run, *run.siblings) for run in runs}
    measured = {name: [each.values for each in of] for name, of in of_seeds.items()}
    for called, group in begun_groups([(run.name, run.config) for run in runs]).items():
        for kind in ("before", "untouched"):
            found = [report for each in of_seeds[group[0]] if (report := getattr(each, kind)) is not None]
            if found or kind == "before":
                measured[at_size(called, found[0].settings if found else {})] = [report.values for report in found]
    rows = [(of, len(all_), [[each[m] for each in all_ if m in each] for m in names]) for of, all_ in measured.items()]
    tests = [
        (run.name, name, difference)
        for run in runs[1:]
        for name in run.headline
        if (difference := _over_seeds(run, runs[0], name)) is not None
    ]
    judged = [(name, metric, t.low, t.high, t.detectable) for name, metric, t in tests if t.n >= FEWEST_SEEDS]
    body = render(
        "report/seeds.html",
        names=names,
        rows=rows,
        metric=shown,
        meaning=short,
        mean=statistics.mean,
        spread=statistics.stdev,
        first=runs[0].name,
        tests=tests,
        verdicts=verdicts(runs[0].name, judged),
        judged=bool(judged),
        fewest=FEWEST_SEEDS,
        tested=any(difference.p is not None for *_, difference in tests),
        caution=caution(min((difference.n for *_, difference in tests), default=1)) if len(runs) > 1 else "",
    )
    return Section("seeds", "All runs", body if names else Markup())


def _over_seeds(run: RunContent, first: RunContent, name: str) -> PairedDifference | None:
    """One variant minus another, over their common seeds; None for fewer than two."""
    one, other = (
        {each.config.get("seed"): each.values[name] for each in (of, *of.siblings) if name in each.values}
        for of in (run, first)
    )
    common = [seed for seed in one if seed in other]
    return paired_t_test([one[s] for s in common], [other[s] for s in common]) if len(common) > 1 else None


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
    asked, several, shapes = list(dict.fromkeys([*metrics, by])), len(runs) > 1, formats or {}
    frames = {
        run: pd.DataFrame([*of.values()], [*of], [count, *asked])
        for run, rows in enumerate(tables)
        if (of := {clean(row["name"]): row for row in rows})
    }
    known = [name for name in asked if any(frame[name].notna().any() for frame in frames.values())]
    if not known:
        return None
    by = by if by in known else known[0]
    wanted = sorted(known, key=lambda name: name == by)
    if several:
        wanted = [by, *(name for name in beside if name in known and name != by)]
    counts = pd.concat([frame[count] for frame in frames.values()])
    heads, columns = [(kind, "", ""), (count, "", "count")], [counts[~counts.index.duplicated()]]
    for metric in wanted:
        for run, frame in frames.items():
            name = f"{metric} {runs[run].name}" if several else metric
            heads.append((name, short(metric), shapes.get(metric, "share")))
            columns.append(frame[metric].astype(float).map(lambda value: round(value, 4)))
    if several:
        of_all = pd.concat(columns[1 : 1 + len(frames)], axis=1)
        heads.append((f"range of {by}", "largest minus smallest, over the runs", "share"))
        columns.append((of_all.max(axis=1) - of_all.min(axis=1)).round(4))
    lead = 2 if several else len(columns)  # the column by which the table is sorted first
    table = pd.concat(columns, axis=1).rename_axis("name").reset_index().set_axis(range(len(heads)), axis=1)
    table = table.sort_values([lead, 0])
    rows = table.astype(object).where(table.notna(), None).to_numpy().tolist()
    bars = -1 if several else lead
    html = render(
        "report/classes.html",
        kind=kind,
        heads=heads,
        lead=lead,
        bars=bars,
        rows=rows[:READABLE],
        total=len(rows),
        few=FEW,
        by=by,
        terms=[(metric, short(metric)) for metric in wanted if short(metric)],
    )
    names, _, kinds = map(list, zip(*heads, strict=True))
    return html, {"columns": names, "rows": rows, "sorted": lead, "bars": bars, "page": READABLE, "formats": kinds}


def configuration(runs: Sequence[RunContent]) -> Section:
    """Settings; for several runs, first those that differ and then the others."""
    tables = [{key: clean(value) for key, value in run.settings.items()} for run in runs]
    everything = sorted(dict.fromkeys(key for table in tables for key in table), key=lambda key: ": " in key)
    rows = [(key, [table.get(key, DASH) for table in tables]) for key in everything]
    differ = [row for row in rows if len(set(row[1])) > 1]
    same = [row for row in rows if len(set(row[1])) == 1]
    body = render("report/configuration.html", runs=runs, differ=differ, same=same)
    return Section("configuration", "Configuration", body if rows else Markup())
