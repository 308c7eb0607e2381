"""An outcome as a picture: every method a line of dots, or, for a figure's sweep, curves over what it varies."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..analysis.style import BLUE, CYCLE, DASHES, GREY, MARKERS, VERMILION, figure, save, styled
from .outcome import Line, Outcome
from .page import NAMES, varying


@styled
def picture(outcome: Outcome, path: Path) -> None:
    """Draw our means with their spread, each seed, and at full size the paper's number."""
    swept = any(cell.varies for line in outcome.lines for cell in line.cells)
    drawing = _curves(outcome) if swept else _dots(outcome)
    width = int(drawing.get_figwidth() * 13)
    texts = [f"{outcome.grid.id}: {outcome.grid.title}", *([outcome.label] if outcome.label else [])]
    title = "\n".join(part for text in texts for part in textwrap.wrap(text, width))
    drawing.suptitle(title, fontsize=10)
    save(drawing, path)


def shown(outcome: Outcome) -> list[str]:
    """The metrics of the picture: the first that has values, and mAP@R where the table has it."""
    metrics = [m for m in outcome.grid.metrics if any(line.values.get(m) for line in outcome.lines)]
    return list(dict.fromkeys([*(metrics or outcome.grid.metrics)[:1], *(m for m in metrics if m == "mAP@R")]))


def _dots(outcome: Outcome) -> Any:
    metrics = shown(outcome)
    panels: dict[str, list[Line]] = {}
    for line in outcome.lines:
        panels.setdefault(_data(outcome, line), []).append(line)
    names = [name for name in varying(outcome.lines) if name != "dataset"]
    longest = max(len(_label(line, names)) for line in outcome.lines)
    heights = [len(lines) + 1 for lines in panels.values()]
    drawing = figure(1 + 0.075 * longest + 3.2 * len(metrics), 1.5 + 0.32 * sum(heights))
    axes = drawing.subplots(len(panels), len(metrics), squeeze=False, gridspec_kw={"height_ratios": heights})
    explained: dict[str, Any] = {}
    for row, (name, lines) in zip(axes, panels.items(), strict=True):
        for axis, metric in zip(row, metrics, strict=True):
            for place, line in enumerate(reversed(lines)):
                explained |= _dot(axis, place, line, metric, outcome.label is None)
            first = axis is row[0]
            axis.set_yticks(range(len(lines)))
            axis.set_yticklabels([_label(line, names) if first else "" for line in reversed(lines)])
            axis.set_ylim(-0.6, len(lines) - 0.4)
            axis.set_xlabel(f"{_named(metric)}{', ' + name if name else ''}")
            axis.grid(axis="x")
    if explained:
        drawing.legend(explained.values(), explained.keys(), loc="outside lower center", ncols=len(explained))
    return drawing


def _dot(axis: Any, place: int, line: Line, metric: str, with_paper: bool) -> dict[str, Any]:
    """One line; what the legend has to explain."""
    explained: dict[str, Any] = {}
    values = list(line.values.get(metric, {}).values())
    if len(values) == 1:
        explained["ours, one run"] = axis.scatter(values, [place], s=25, color=BLUE, zorder=3)
    elif values:
        explained["each seed"] = axis.scatter(values, [place] * len(values), s=14, color=GREY, zorder=2)
        mean, spread = statistics.mean(values), statistics.stdev(values)
        dots = axis.errorbar(mean, place, xerr=spread, fmt="o", color=BLUE, capsize=3, zorder=3)
        explained["ours, mean ± standard deviation"] = dots
    if with_paper:  # a stand-in's numbers and the paper's do not belong on one axis
        for number in line.paper.get(metric, {}).values():
            if number.value is not None:
                style = {"s": 44, "marker": "D", "facecolors": "none", "edgecolors": VERMILION, "zorder": 4}
                explained["paper"] = axis.scatter(number.value, place, **style)
    return explained


def _curves(outcome: Outcome) -> Any:
    metrics = shown(outcome)
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in outcome.lines:
        for axis_name in line.cells[0].varies:
            panels.setdefault((axis_name, _data(outcome, line)), []).append(line)
    drawing = figure(max(1 + 3.2 * len(panels), 5.5), 1.3 + 2.8 * len(metrics))
    axes = drawing.subplots(len(metrics), len(panels), squeeze=False)
    methods = list(dict.fromkeys(line.row for line in outcome.lines))
    explained: dict[str, Any] = {}
    for row, metric in zip(axes, metrics, strict=True):
        for axis, ((name, data), lines) in zip(row, panels.items(), strict=True):
            for number, method in enumerate(methods):
                explained |= _curve(axis, [line for line in lines if line.row == method], name, metric, number)
            places = [line.cells[0].varies[name] for line in lines]
            if min(places) > 0 and max(places) / min(places) > 20:
                axis.set_xscale("log")
            axis.set_xlabel(f"{name}{', ' + data if data else ''}")
            axis.set_ylabel(_named(metric))
            axis.grid()
    if explained:
        columns = min(len(explained), 3)
        drawing.legend(explained.values(), explained.keys(), loc="outside lower center", ncols=columns)
    return drawing


def _curve(axis: Any, lines: Sequence[Line], name: str, metric: str, style: int) -> dict[str, Any]:
    """One method over what is varied; what the legend has to explain."""
    points = []
    for line in lines:
        values = list(line.values.get(metric, {}).values())
        if values:
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            points.append((line.cells[0].varies[name], statistics.mean(values), spread))
    if not points:
        return {}
    x, y, error = zip(*sorted(points), strict=True)
    look = {"marker": MARKERS[style], "color": CYCLE[style], "linestyle": DASHES[style]}
    return {lines[0].row: axis.errorbar(x, y, error, capsize=3, **look)}


def _data(outcome: Outcome, line: Line) -> str:
    """What a panel is about: a data set of the paper; a stand-in has but one."""
    return "" if outcome.label else line.labels.get("dataset", "")


def _label(line: Line, names: Sequence[str]) -> str:
    rest = [f"{NAMES.get(name, name)} {line.labels[name]}" for name in names if name in line.labels]
    return ", ".join([line.row, *rest])


def _named(metric: str) -> str:
    unit = " (%)" if metric.startswith(("R@", "mAP", "NMI")) else ""
    return f"{NAMES.get(metric, metric)}{unit}"
