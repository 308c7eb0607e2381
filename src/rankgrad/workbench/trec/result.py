"""The result of an evaluation of runs, as a table, as lines of trec_eval, and as json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...common.files import shown
from ...evaluation.json_report import plain
from ...tables import aligned
from .comparison import Difference, chance
from .measures import asked, averaged, printed_name
from .texts import Array

SIDE_BY_SIDE = 4  # with up to this many runs, a printed table has a column per run; with more, a row
MOST_TESTS = 20  # largest number of tests in a printed table


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation of one or several runs.

    Attributes:
        runs: names of the runs.
        measures: names of the measures.
        queries: names of the queries, in the order of their bytes.
        values: run -> measure -> one number: a mean over the queries, a sum for counts, a geometric mean for gm_map.
        per_query: run -> measure -> [query] float64; NaN if a query does not count for the run.
        intervals: run -> measure -> (low, high) of the bootstrap over queries; for means only.
        differences: tests between the runs for each measure that is a mean; empty for a single run.
        groups: name -> [member] rows of its queries.
        of_groups: one row for each group, run and measure: group, queries, run, measure, value, low, high.
        between_groups: tests between the runs in each group.
        meanings: measure -> its meaning.
        settings: all settings that determine the numbers.
        notes: remarks for the reader, one sentence each.
    """

    runs: tuple[str, ...]
    measures: tuple[str, ...]
    queries: tuple[str, ...]
    values: dict[str, dict[str, float]]
    per_query: dict[str, dict[str, Array]]
    intervals: dict[str, dict[str, tuple[float, float]]]
    differences: tuple[Difference, ...]
    groups: dict[str, Array]
    of_groups: tuple[dict[str, Any], ...]
    between_groups: tuple[Difference, ...]
    meanings: dict[str, str]
    settings: dict[str, Any]
    notes: tuple[str, ...]

    @property
    def means(self) -> tuple[str, ...]:
        """The measures that are means over the queries. The others are counts or geometric means."""
        return tuple(map(str, averaged(asked(self.measures))))

    def by_query(self, run: str) -> dict[str, dict[str, float]]:
        """Query -> measure -> value for the queries that count for a run, as pytrec_eval returns it."""
        columns = self.per_query[run]
        inside = np.flatnonzero(~np.isnan(next(iter(columns.values())))).tolist()
        return {self.queries[row]: {name: float(column[row]) for name, column in columns.items()} for row in inside}

    def lines(self, run: str, *, every: bool = False) -> list[str]:
        """The lines that trec_eval prints for these measures.

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
        if len(self.runs) <= SIDE_BY_SIDE:
            head = ["measure", *map(shown, self.runs)]
            rows = [[printed_name(name), *(self._cell(run, name) for run in self.runs)] for name in self.measures]
            sure = f"in brackets: {100 * self.settings['confidence']:g} % interval over queries"
        else:
            head = ["run", *self.measures]
            rows = [[shown(run), *(_printed(*each) for each in self.values[run].items())] for run in self.runs]
            sure = "`intervals` and the page have the intervals over queries"
        tested = [["difference", "measure", "mean", "interval", "p (Holm)", "detectable"]]
        shown_tests = [test for test in self.differences if test.measure == self.differences[0].measure][:MOST_TESTS]
        for test in shown_tests:
            tested.append(
                [
                    f"{shown(test.run)} - {shown(test.other)}",
                    test.measure,
                    f"{test.mean:+.4f}",
                    f"{test.low:+.4f} to {test.high:+.4f}",
                    chance(test.corrected),
                    "-" if test.detectable is None else f"{test.detectable:.4f}",
                ]
            )
        left = len(self.differences) - len(shown_tests)
        parts = [aligned([head, *rows]), *([sure] if any(self.intervals.values()) else [])]
        if self.differences:
            parts += ["", aligned(tested, left=2)]
            if left:
                more = f"{left:,} more tests of other measures and runs"
                parts.append(f"{more} are in `differences` (in Python) and on the page (with -o)")
        return "\n".join([*parts, *(["", *self.notes] if self.notes else [])])

    def _cell(self, run: str, name: str) -> str:
        around = self.intervals[run].get(name)
        return _printed(name, self.values[run][name]) + (f" [{around[0]:.3f}, {around[1]:.3f}]" if around else "")

    def to_json(self) -> str:
        """All fields, as JSON."""
        return json.dumps(asdict(self) | {"version": 1}, default=plain, allow_nan=False)


def _printed(name: str, value: float) -> str:
    """A number as trec_eval prints it."""
    return f"{value:.0f}" if name.startswith("num_") else f"{value:6.4f}"
