"""Results as a picture: a line of dots for every method; or curves over a setting, for a figure that varies it."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..figure_style import BLUE, CYCLE, DASHES, GREY, MARKERS, ONE, TWO, VERMILION, figure, letters, save, styled
from .outcome import Outcome, ResultLine
from .page import NAMES, varying
from .sweep import Point, Sweep, drawn, from_outcome


@styled
def picture(outcome: Outcome, path: Path) -> None:
    """Draw our means with standard deviations, the value of each seed, and at full size the paper's number."""
    if any(cell.varies for line in outcome.lines for cell in line.cells):
        drawing = curves(from_outcome(outcome, drawn(outcome.grid)))
    else:
        drawing = _dots(outcome)
        _title(drawing, f"{outcome.grid.id}: {outcome.grid.title}", " ".join(outcome.labels))
    save(drawing, path)


def _title(drawing: Any, title: str, label: str | None) -> None:
    """Add a title above the figure, wrapped to its width."""
    width = int(drawing.get_figwidth() * 16)
    drawing.suptitle("\n".join(part for text in (title, label) if text for part in textwrap.wrap(text, width)))


def shown(outcome: Outcome) -> list[str]:
    """The metrics of the picture: the first metric with values, and mAP@R if the table has it."""
    metrics = [m for m in outcome.grid.metrics if any(line.values.get(m) for line in outcome.lines)]
    return list(dict.fromkeys([*(metrics or outcome.grid.metrics)[:1], *(m for m in metrics if m == "mAP@R")]))


def _dots(outcome: Outcome) -> Any:
    metrics = shown(outcome)
    panels: dict[str, list[ResultLine]] = {}
    for line in outcome.lines:
        panels.setdefault(_data(outcome, line), []).append(line)
    names = [name for name in varying(outcome.lines) if name != "dataset"]
    longest = max(len(_label(line, names)) for line in outcome.lines)
    heights = [len(lines) + 1 for lines in panels.values()]
    drawing = figure(1 + 0.06 * longest + 2.4 * len(metrics), 1.3 + 0.26 * sum(heights))
    axes = drawing.subplots(len(panels), len(metrics), squeeze=False, gridspec_kw={"height_ratios": heights})
    explained: dict[str, Any] = {}
    for row, (name, lines) in zip(axes, panels.items(), strict=True):
        for axis, metric in zip(row, metrics, strict=True):
            for place, line in enumerate(reversed(lines)):
                explained |= _dot(axis, place, line, metric, not (outcome.label or line.off_counts))
            first = axis is row[0]
            axis.set_yticks(range(len(lines)))
            axis.set_yticklabels([_label(line, names) if first else "" for line in reversed(lines)])
            axis.set_ylim(-0.6, len(lines) - 0.4)
            axis.set_xlabel(f"{_named(metric)}{', ' + name if name else ''}")
            axis.grid(axis="x")
    if explained:
        drawing.legend(explained.values(), explained.keys(), loc="outside lower center", ncols=len(explained))
    return drawing


def _dot(axis: Any, place: int, line: ResultLine, metric: str, with_paper: bool) -> dict[str, Any]:
    """Draw one line; returns its entries for the legend."""
    explained: dict[str, Any] = {}
    values = list(line.values.get(metric, {}).values())
    if len(values) == 1:
        explained["ours, one run"] = axis.scatter(values, [place], s=25, color=BLUE, zorder=3)
    elif values:
        explained["each seed"] = axis.scatter(values, [place] * len(values), s=14, color=GREY, zorder=2)
        mean, spread = statistics.mean(values), statistics.stdev(values)
        dots = axis.errorbar(mean, place, xerr=spread, fmt="o", color=BLUE, capsize=3, zorder=3)
        explained["ours, mean ± standard deviation"] = dots
    if with_paper:  # not for a stand-in, whose numbers are not comparable
        for number in line.paper.get(metric, {}).values():
            if number.value is not None:
                style = {"s": 44, "marker": "D", "facecolors": "none", "edgecolors": VERMILION, "zorder": 4}
                explained["paper"] = axis.scatter(number.value, place, **style)
    return explained


@styled
def curves(sweep: Sweep) -> Any:
    """Mean and standard deviation over seeds against the varied setting; one panel per metric, axis and data set.

    Args:
        sweep: with at least one point.
    """
    metrics = list(dict.fromkeys(point.metric for point in sweep.points))
    panels = list(dict.fromkeys((point.axis, point.data) for point in sweep.points if point.axis))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns) * len(metrics)
    methods = list(dict.fromkeys(point.row for point in sweep.points))
    longest = max(map(len, methods))
    width = ONE if columns == 1 and longest < 40 else TWO
    beside = max(min(len(methods), 3, int(width / (0.5 + 0.06 * longest))), 1)  # names in a row of the legend
    drawing = figure(width, 0.8 + 1.75 * rows + 0.17 * -(-len(methods) // beside))
    grid = drawing.subplots(rows, columns, squeeze=False).flatten()
    explained: dict[str, Any] = {}
    places = [(metric, panel) for metric in metrics for panel in panels]
    for axis, (metric, (name, data)) in zip(grid, places, strict=False):
        here = [point for point in sweep.points if (point.axis, point.data, point.metric) == (name, data, metric)]
        for number, method in enumerate(methods):
            explained |= _curve(axis, [point for point in here if point.row == method], number)
        for level in (
            point for point in sweep.points if not point.axis and (point.data, point.metric) == (data, metric)
        ):
            explained |= _level(axis, level, methods.index(level.row))
        values = sorted(point.place for point in here)
        positive = [value for value in values if value > 0]
        if positive and positive[-1] / positive[0] > 20:
            if values[0] > 0:
                axis.set_xscale("log")
            elif values[0] == 0 and positive[-1] / positive[0] > 200:  # a logarithmic axis that contains 0
                axis.set_xscale("symlog", linthresh=positive[0])
        axis.set_xlabel(f"{name}{', ' + data if data else ''}")
        axis.set_ylabel(_named(metric))
        axis.grid()
    if len({data for _, data in panels}) == 1:  # the values are comparable, so use one scale
        for metric in metrics:
            together = [axis for axis, (name, _) in zip(grid, places, strict=False) if name == metric]
            low, high = (bound(axis.get_ylim()[end] for axis in together) for end, bound in ((0, min), (1, max)))
            for axis in together:
                axis.set_ylim(low, high)
    for axis in grid[len(places) :]:
        axis.set_visible(False)
    if len(places) > 1:
        letters(list(grid[: len(places)]))
    if explained:
        drawing.legend(explained.values(), explained.keys(), loc="outside lower center", ncols=beside)
    _title(drawing, sweep.title, sweep.label)
    return drawing


def _curve(axis: Any, points: Sequence[Point], style: int) -> dict[str, Any]:
    """Draw one method over the varied setting; returns its entries for the legend."""
    ordered = sorted((point for point in points if point.values), key=lambda point: point.place)
    if not ordered:
        return {}
    values = [list(point.values.values()) for point in ordered]
    spread = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
    look = {
        "marker": MARKERS[(style + style // len(CYCLE)) % len(MARKERS)],  # a repeated colour gets another marker
        "color": CYCLE[style % len(CYCLE)],
        "linestyle": DASHES[style % len(DASHES)],
    }
    means = [statistics.mean(each) for each in values]
    return {points[0].row: axis.errorbar([point.place for point in ordered], means, spread, capsize=3, **look)}


def _level(axis: Any, point: Point, style: int) -> dict[str, Any]:
    """Draw a baseline as a horizontal line; returns its entries for the legend."""
    if not point.values:
        return {}
    mean = statistics.mean(point.values.values())
    return {point.row: axis.axhline(mean, color=CYCLE[style % len(CYCLE)], linestyle=":", linewidth=1.2)}


def _data(outcome: Outcome, line: ResultLine) -> str:
    """The data set of a panel; empty for a stand-in, which has only one."""
    return "" if outcome.label else line.labels.get("dataset", "")


def _label(line: ResultLine, names: Sequence[str]) -> str:
    rest = [f"{NAMES.get(name, name)} {line.labels[name]}" for name in names if name in line.labels]
    return ", ".join([line.row, *rest])


def _named(metric: str) -> str:
    name = NAMES.get(metric, metric)
    return name if "%" in name or not metric.startswith(("R@", "mAP", "NMI")) else f"{name} (%)"
