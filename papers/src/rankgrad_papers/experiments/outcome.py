"""The results of the runs of a grid, line by line, with the printed numbers of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankgrad_workbench.runs.folder import Run

from ..values import difference
from . import measures
from .grid import Cell, Grid
from .measures import RELATIVE, measure, off_counts
from .numbers import Number, find, select


@dataclass(frozen=True, eq=False)
class ResultLine:
    """One line of the table: one cell at full size, one row of settings in a stand-in.

    Attributes:
        row: name of the method.
        labels: data set, batch size, value on an axis, ... of the line.
        cells: the cells of the line. In a stand-in, one data set replaces those of several cells.
        runs: seed -> run; empty if there are no runs.
        values: metric -> seed -> value, in the units of the paper's tables.
        paper: metric -> data set -> printed number.
        off_counts: a sentence if its data does not have the published counts, so that it is not compared with the
            paper. Empty in a stand-in, which is not compared either.
    """

    row: str
    labels: Mapping[str, str]
    cells: tuple[Cell, ...]
    runs: Mapping[int, Run]
    values: Mapping[str, Mapping[int, float]]
    paper: Mapping[str, Mapping[str, Number]]
    off_counts: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Identifies the column: equal for the lines of all methods in it."""
        return tuple(f"{name}={value}" for name, value in self.labels.items())


@dataclass(frozen=True)
class Comparison:
    """Paired t-test of two methods over seeds.

    Attributes:
        row, other: the methods.
        labels: the column.
        metric: the compared metric.
        difference: mean of row - other over the seeds.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval.
        p: two-sided p-value; None for fewer than six seeds, and if all differences are equal.
        n: number of seeds.
    """

    row: str
    other: str
    labels: Mapping[str, str]
    metric: str
    difference: float
    low: float
    high: float
    p: float | None
    n: int


@dataclass(frozen=True)
class Outcome:
    """The content of the pages of a table.

    Attributes:
        grid: the table.
        rule: one of `grid.RULES`.
        label: note that this is a stand-in, or None.
        data: data set of the stand-in, or None.
        settings: common to all runs.
        lines: in the order of the table.
        tests: paired t-tests of the row `grid.t_test` against all others.
        others: numbers of the paper's table without a run.
        missing: runs that are missing or failed, with the reason.
        seeds: requested seeds.
    """

    grid: Grid
    rule: str
    label: str | None
    data: str | None
    settings: tuple[str, ...]
    lines: tuple[ResultLine, ...]
    tests: tuple[Comparison, ...]
    others: tuple[Number, ...]
    seeds: tuple[int, ...]
    missing: tuple[str, ...] = field(default=())

    @property
    def labels(self) -> tuple[str, ...]:
        """Why numbers are not compared with the paper: the label of a stand-in, or data with other counts."""
        if self.label is not None:
            return (self.label,)
        return tuple(dict.fromkeys(line.off_counts for line in self.lines if line.off_counts))


def group(grid: Grid, settings: Mapping[int, Sequence[str]], stand_in: bool) -> list[tuple[int, ...]]:
    """Numbers of the cells of each line: one cell; or in a stand-in, all cells of a method with the same settings.

    Args:
        grid: the table.
        settings: number of a cell -> its settings.
        stand_in: whether one data set replaces all data sets of the table.
    """
    if not stand_in:
        return [(number,) for number in range(len(grid.cells))]
    lines: dict[tuple[object, ...], list[int]] = {}
    for number, cell in enumerate(grid.cells):
        rest = tuple((key, value) for key, value in cell.where.items() if key != "dataset")
        key = (cell.row, rest, tuple(cell.varies.items()), tuple(settings[number]))
        lines.setdefault(key, []).append(number)
    return [tuple(numbers) for numbers in lines.values()]


def outcome_line(grid: Grid, numbers: Sequence[int], runs: Mapping[int, Run], rule: str, stand_in: bool) -> ResultLine:
    """A line with the values of its finished runs."""
    cells = tuple(grid.cells[number] for number in numbers)
    first = cells[0]
    done = {seed: run for seed, run in runs.items() if run.finished}
    metrics = tuple(dict.fromkeys(metric for cell in cells for metric in cell.metrics))
    values: dict[str, dict[int, float]] = {}
    for metric in metrics:
        if metric in RELATIVE:  # needs two lines, see `relative`
            continue
        test = () if stand_in else first.test
        by_seed = {seed: measure(run, metric, rule, test) for seed, run in done.items()}
        values[metric] = {seed: value for seed, value in by_seed.items() if value is not None}
    paper: dict[str, dict[str, Number]] = {}
    if grid.table:
        for cell in cells:
            for metric in cell.metrics:
                number = find(grid.paper, grid.table, cell.row, metric, cell.where)
                if number is not None:
                    paper.setdefault(metric, {})[cell.dataset] = number
    labels = {key: value for key, value in first.where.items() if not (stand_in and key == "dataset")}
    labels |= {axis: f"{place:g}" for axis, place in first.varies.items()}
    off = "" if stand_in else next(filter(None, (off_counts(run, rule, first.test) for run in done.values())), "")
    return ResultLine(first.row, labels, cells, done, values, paper, off)


def relative(lines: Sequence[ResultLine]) -> list[ResultLine]:
    """Add the metrics that are relative to another line of the same column."""
    lines_made = []
    for line in lines:
        against, asked = line.cells[0].against, [m for m in line.cells[0].metrics if m in RELATIVE]
        if against is not None and asked:
            reference = next(other for other in lines if other.row == against and other.key == line.key)
            values = dict(line.values)
            for metric in asked:
                of = RELATIVE[metric][0]
                values[metric] = measures.relative(metric, line.values.get(of, {}), reference.values.get(of, {}))
            line = replace(line, values=values)
        lines_made.append(line)
    return lines_made


def t_tests(lines: Sequence[ResultLine], row: str, metrics: Sequence[str]) -> list[Comparison]:
    """Paired t-tests of one row against every other row of the same column, over their common seeds."""
    tests = []
    for line in lines:
        if line.row != row:
            continue
        for other in lines:
            if other.row == row or other.key != line.key:
                continue
            for metric in metrics:
                ours, theirs = (
                    {str(seed): value for seed, value in each.values.get(metric, {}).items()} for each in (line, other)
                )
                if test := difference(ours, theirs):
                    told = (test.mean, test.low, test.high, test.p, test.n)
                    tests.append(Comparison(row, other.row, line.labels, metric, *told))
    return tests


def not_run(grid: Grid, lines: Sequence[ResultLine]) -> tuple[Number, ...]:
    """Numbers of the paper's table without a cell."""
    if not grid.table:
        return ()
    ours = {id(number) for line in lines for numbers in line.paper.values() for number in numbers.values()}
    return tuple(number for number in select(grid.paper, grid.table) if number.text and id(number) not in ours)
