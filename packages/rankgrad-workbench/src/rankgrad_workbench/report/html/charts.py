"""Charts as inline SVG: curves of runs, and histograms. chart.html draws them; colours are in sections.css."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from .templates import render
from .text import number

Points = Sequence[tuple[float, float]]

SMALL, WIDE = (360, 210), (540, 280)  # width and height; a row has three small or two wide charts
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 10, 34
LINE_POINTS = 240  # a curve with more points is drawn as its range and a running mean
MEAN_POINTS = 60
FEW_POINTS, FEW_LINES = 30, 3  # then each point has a dot


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        name: of the run; empty if there is only one.
        points: (x, y) in order; points that are not finite are left out and counted.
        kind: number of its colour and dashes.
        pale: drawn pale behind the others, e.g. a run with another seed.
    """

    name: str
    points: Points
    kind: int = 0
    pale: bool = False


@dataclass(frozen=True)
class Axis:
    """A scale between two coordinates of the drawing.

    Attributes:
        low, high: smallest and largest value.
        first, last: their coordinates.
        ticks: number of its ticks, about.
        log: whether the scale is logarithmic.
    """

    low: float
    high: float
    first: float
    last: float
    ticks: int
    log: bool = False

    def at(self, value: float) -> float:
        """Coordinate of a value."""
        low, high, value = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.first + (value - low) / (high - low) * (self.last - self.first)

    @property
    def marked(self) -> list[tuple[float, float]]:
        """(coordinate, value) of each tick."""
        found = ticks(self.low, self.high, self.ticks)
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if self.high <= 300 * self.low else (1,)
            found = [m * 10.0**p for p in powers for m in steps if self.low <= m * 10.0**p <= self.high]
        return [(self.at(value), value) for value in found]


def lines(
    title: str,
    series: Sequence[Series],
    x: str,
    *,
    summary: str | None = None,
    meaning: str = "",
    x_range: tuple[float, float] | None = None,
    y: tuple[float, float] | None = None,
    log_x: bool = False,
    size: tuple[int, int] = SMALL,
) -> Markup:
    """A figure with one line per series.

    Args:
        title: heading.
        series: at least one.
        x: label of the horizontal axis.
        summary: text beside the title; None: first and last value, for a single series.
        meaning: line below the title.
        x_range: range of the horizontal axis; None: that of the values.
        y: range of the vertical axis; None: that of the values.
        log_x: logarithmic horizontal axis; values must be > 0.
        size: width and height of the drawing.
    """
    finite = [[(float(a), float(b)) for a, b in one.points if math.isfinite(a) and math.isfinite(b)] for one in series]
    given, every = sum(len(one.points) for one in series), [point for points in finite for point in points]
    lost = given - len(every)
    below = f"{lost} of {given} values are not finite and are left out." if lost else ""
    if not every:
        return render("report/html/chart.html", title=title, summary="", meaning=meaning, below=below, paths=[])
    paths, dotted, spoken = [], [], []
    for one, points in sorted(zip(series, finite, strict=True), key=lambda pair: not pair[0].pale):
        if not points:
            continue
        long, of = len(points) > LINE_POINTS and not log_x, f"s{one.kind}"
        if long and len(series) == 1:
            paths.append((f"raw {of}", thinned(points, LINE_POINTS)))
        paths.append((f"{'raw' if one.pale else 'line'} {of}", running_mean(points, MEAN_POINTS) if long else points))
        if one.pale:
            continue
        if len(points) <= FEW_POINTS and len(series) <= FEW_LINES:
            dotted.append((of, points))
        (a, first), (b, last) = points[0], points[-1]
        name = f"{one.name}: " if one.name else ""
        spoken.append(f"{name}{number(first)} at {x} {a:g}, {number(last)} at {x} {b:g}")
    if summary is None:
        ends = dict.fromkeys((finite[0][0], finite[0][-1])) if len(series) == 1 else {}
        summary = " \N{RIGHTWARDS ARROW} ".join(number(value) for _, value in ends)
    across = x_range or (min(a for a, _ in every), max(a for a, _ in every))
    if log_x:
        across = (across[0], max(across[1], 2 * across[0]))
    elif across[0] == across[1]:
        across = (across[0] - 0.5, across[1] + 0.5)
    low, high = min(b for _, b in every), max(b for _, b in every)
    pad = 0.06 * (high - low) or max(abs(low) * 0.05, 1e-3)  # > 0 also for a constant curve
    words = {"title": title, "summary": summary, "meaning": meaning, "below": below, "spoken": "; ".join(spoken)}
    return _drawn(x, across, y or (low - pad, high + pad), paths, size, words, log_x=log_x, dotted=dotted)


def histogram(
    title: str,
    edges: Sequence[float],
    shares: Sequence[Sequence[float]],
    marks: Sequence[tuple[str, float]],
    *,
    top: float,
    spoken: str,
    below: str,
    size: tuple[int, int] = SMALL,
) -> Markup:
    """Two histograms as outlines over the same bins: positive pairs solid, negative pairs dashed.

    Args:
        title: heading.
        edges: edges of the bins, one more than bins.
        shares: [bin] fraction of the positive pairs, and [bin] of the negative pairs.
        marks: (name, value) of each vertical line.
        top: upper end of the vertical axis.
        spoken: description of the figure, for screen readers.
        below: text below the drawing; may be empty.
        size: width and height of the drawing.
    """
    paths = list[tuple[str, Points]]()
    for kind, heights in zip(("positive", "negative"), shares, strict=True):
        steps = [(at, height) for both, height in zip(pairwise(edges), heights, strict=True) for at in both]
        paths.insert(0, (f"area {kind}", [(edges[0], 0.0), *steps, (edges[-1], 0.0)]))
    words = {"title": title, "summary": "", "meaning": "", "below": below, "spoken": spoken}
    return _drawn("similarity", (edges[0], edges[-1]), (0, top), paths, size, words, marks=marks, unit=100)


def _drawn(
    x: str,
    across: tuple[float, float],
    up: tuple[float, float],
    paths: Sequence[tuple[str, Points]],
    size: tuple[int, int],
    words: Mapping[str, str],
    *,
    log_x: bool = False,
    dotted: Sequence[tuple[str, Points]] = (),
    marks: Sequence[tuple[str, float]] = (),
    unit: int = 1,
) -> Markup:
    """A figure with paths in a frame. `unit` is 100 if the numbers of the vertical axis are per cent."""
    width, height = size
    x_axis = Axis(*across, LEFT, width - RIGHT, 6, log_x)
    y_axis = Axis(*up, height - BOTTOM, TOP, 5 if unit == 1 else 4)
    placed, dots = (
        [(kind, [(x_axis.at(a), y_axis.at(b)) for a, b in points]) for kind, points in each] for each in (paths, dotted)
    )
    return render(
        "report/html/chart.html",
        x=x,
        width=width,
        height=height,
        frame=(LEFT, width - RIGHT, TOP, height - BOTTOM),
        across=x_axis.marked,
        up=y_axis.marked,
        unit=unit,
        paths=placed,
        dots=dots,
        marks=[(name, x_axis.at(value)) for name, value in marks if across[0] <= value <= across[1]],
        **words,
    )


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers inside [low, high], about `most` of them, at least one.

    >>> ticks(0, 10, 5), ticks(3, 17, 4)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [5.0, 10.0, 15.0])
    """
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= most)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def thinned(points: Points, buckets: int) -> list[tuple[float, float]]:
    """Lowest and highest point of each of `buckets` intervals, in order: fewer points, but the same drawing."""
    ends = [
        (min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1]))
        for part in _parts(points, buckets)
    ]
    return [point for both in ends for point in sorted({*both})]


def running_mean(points: Points, buckets: int) -> list[tuple[float, float]]:
    """Mean point of each of `buckets` intervals."""
    return [
        (math.fsum(x for x, _ in part) / len(part), math.fsum(y for _, y in part) / len(part))
        for part in _parts(points, buckets)
    ]


def _parts(points: Points, buckets: int) -> list[Points]:
    size = math.ceil(len(points) / buckets)
    return [points[start : start + size] for start in range(0, len(points), size)]
