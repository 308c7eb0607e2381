"""The result of an evaluation of runs, as a table, as lines of trec_eval, and as json."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import aligned, shown
from rankgrad.evaluation.json_report import plain

from .comparison import Difference, chance
from .lists import Array
from .names import metrics_of

FILES = ("evaluation.html", "evaluation.json", "values.csv", "per-query.csv", "differences.csv", "groups.csv")
SIDE_BY_SIDE = 4  # with up to this many runs, a printed table has a column per run; with more, a row
MOST_TESTS = 20  # largest number of tests in a printed table


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation of one or several runs.

    Attributes:
        runs: names of the runs.
        metrics: names of the metrics.
        queries: names of the queries, in the order of their bytes.
        values: run -> metric -> one number: a mean over the queries, a sum for counts, a geometric mean for gm_map.
        per_query: run -> metric -> [query] float64; NaN if a query does not count for the run.
        intervals: run -> metric -> (low, high) of the bootstrap over queries; for means only.
        differences: tests between the runs for each metric that is a mean; empty for a single run.
        silent: run -> number of queries without a list, for runs that lack too many of them to be compared.
        groups: name -> [member] rows of its queries.
        of_groups: one row for each group, run and metric: group, queries, run, metric, value, low, high.
        meanings: metric -> its meaning.
        settings: all settings that determine the numbers.
        notes: remarks for the reader, one sentence each.
    """

    runs: tuple[str, ...]
    metrics: tuple[str, ...]
    queries: tuple[str, ...]
    values: dict[str, dict[str, float]]
    per_query: dict[str, dict[str, Array]]
    intervals: dict[str, dict[str, tuple[float, float]]]
    differences: tuple[Difference, ...]
    silent: dict[str, int]
    groups: dict[str, Array]
    of_groups: tuple[dict[str, Any], ...]
    meanings: dict[str, str]
    settings: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def means(self) -> tuple[str, ...]:
        """The metrics that are means over the queries. The others are counts or geometric means."""
        return tuple(str(metric) for metric in metrics_of(self.metrics) if metric.is_mean)

    def by_query(self, run: str) -> dict[str, dict[str, float]]:
        """Query -> metric -> value for the queries that count for a run, as pytrec_eval returns it."""
        columns = self.per_query[run]
        inside = np.flatnonzero(~np.isnan(next(iter(columns.values())))).tolist()
        return {self.queries[row]: {name: float(column[row]) for name, column in columns.items()} for row in inside}

    def lines(self, run: str, *, every: bool = False) -> list[str]:
        """The lines that trec_eval prints for these metrics.

        Args:
            run: name of the run.
            every: also print the lines of each query, as `trec_eval -q` does.
        """
        printed = []
        for row, query in enumerate(self.queries) if every else ():
            for name, column in self.per_query[run].items():
                if name not in ("num_q", "gm_map") and not np.isnan(column[row]):
                    printed.append(f"{name:<22}\t{shown(query)}\t{_printed(name, float(column[row]))}")
        return [*printed, *(f"{name:<22}\tall\t{_printed(name, value)}" for name, value in self.values[run].items())]

    def __str__(self) -> str:
        table = [["metric", *map(shown, self.runs)]]
        for metric in metrics_of(self.metrics):
            table.append([metric.printed, *(self._cell(run, str(metric)) for run in self.runs)])
        if len(self.runs) > SIDE_BY_SIDE:
            table = [["run", *self.metrics], *([*row] for row in list(zip(*table, strict=True))[1:])]
        parts = [aligned(table)]
        if any(self.intervals.values()):
            parts.append(f"in brackets: {100 * self.settings['confidence']:g} % interval over queries")
        if self.differences:
            rows = [["difference", "metric", "mean", "interval", "p (Holm)", "detectable"]]
            for test in [test for test in self.differences if test.metric == self.differences[0].metric][:MOST_TESTS]:
                bounds = f"{test.low:+.4f} to {test.high:+.4f}"
                size = "-" if test.detectable is None else f"{test.detectable:.4f}"
                pair = f"{shown(test.run)} - {shown(test.other)}"
                rows.append([pair, test.metric, f"{test.mean:+.4f}", bounds, chance(test.corrected), size])
            parts += ["", aligned(rows, left=2)]
            if left := len(self.differences) - len(rows) + 1:
                more = f"{left:,} more tests of other metrics and runs"
                parts.append(f"{more} are in `differences` (in Python) and on the page (with -o)")
        return "\n".join([*parts, *(["", *self.notes] if self.notes else [])])

    def _cell(self, run: str, name: str) -> str:
        around = self.intervals[run].get(name)
        return _printed(name, self.values[run][name]) + (f" [{around[0]:.3f}, {around[1]:.3f}]" if around else "")

    def write(self, folder: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write a folder with a page, and the numbers as csv and json.

        The files are evaluation.html, evaluation.json, values.csv and per-query.csv. With several runs there is also
        differences.csv, and with groups groups.csv.

        Args:
            folder: created if it does not exist. Existing files of these names are replaced. A differences.csv or
                groups.csv of an earlier evaluation is removed if this evaluation has none.
            title: heading of the page; None: the names of the runs.

        Returns:
            The page.

        >>> import tempfile
        >>> from rankgrad import trec
        >>> found = trec.evaluate({"mine": {"q1": {"d1": 0.9}}}, {"q1": {"d1": 1}}, ["map"], intervals=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = found.write(folder)
        ...     print(page.name, sorted(path.name for path in page.parent.glob("*.csv")))
        evaluation.html ['per-query.csv', 'values.csv']
        """
        from .page import write_folder  # it needs jinja2

        return write_folder(self, folder, title)

    def to_json(self) -> str:
        """All fields, as JSON."""
        return json.dumps(asdict(self) | {"version": 1}, default=plain, allow_nan=False)


def _printed(name: str, value: float) -> str:
    """A number as trec_eval prints it."""
    return f"{value:.0f}" if name.startswith("num_") else f"{value:6.4f}"
