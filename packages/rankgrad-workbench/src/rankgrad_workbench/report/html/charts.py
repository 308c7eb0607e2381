"""Charts as inline SVG: curves of runs, and histograms. chart.html draws them; colours are in sections.css."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
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
        points: (x, y) in order; points that are not finite are left out.
        kind: number of its colour and dashes.
        pale: drawn pale behind the others, e.g. a run with another seed.
    """

    name: str
    points: Points
    kind: int = 0
    pale: bool = False

    @property
    def finite(self) -> list[tuple[float, float]]:
        """The points that are finite."""
        return [(float(a), float(b)) for a, b in self.points if math.isfinite(a) and math.isfinite(b)]


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
    known = [(one, points) for one in sorted(series, key=lambda one: not one.pale) if (points := one.finite)]
    paths, dots, spoken, ends = [], [], [], dict[float, None]()
    for one, points in known:
        long, of = len(points) > LINE_POINTS and not log_x, f"s{one.kind}"
        if long and len(series) == 1:
            paths.append((f"raw {of}", thinned(points, LINE_POINTS)))
        paths.append((f"{'raw' if one.pale else 'line'} {of}", running_mean(points, MEAN_POINTS) if long else points))
        if not one.pale:
            if len(points) <= FEW_POINTS and len(series) <= FEW_LINES:
                dots.append((of, points))
            (a, first), (b, last) = points[0], points[-1]
            name = f"{one.name}: " if one.name else ""
            spoken.append(f"{name}{number(first)} at {x} {a:g}, {number(last)} at {x} {b:g}")
            ends = dict.fromkeys((first, last)) if len(series) == 1 else {}
    every = [point for _, points in known for point in points]
    xs, ys = zip(*every, strict=True) if every else ((0.0,), (0.0,))
    start, stop = x_range or (min(xs), max(xs))
    if start == stop:
        start, stop = (start, 2 * start) if log_x else (start - 0.5, stop + 0.5)
    low, high = min(ys), max(ys)
    pad = 0.06 * (high - low) or max(abs(low) * 0.05, 1e-3)  # > 0 also for a constant curve
    words = {
        "title": title,
        "summary": " \N{RIGHTWARDS ARROW} ".join(map(number, ends)) if summary is None else summary,
        "meaning": meaning,
        "spoken": "; ".join(spoken),
    }
    return _drawn(x, (start, stop), y or (low - pad, high + pad), paths, size, words, log_x=log_x, dots=dots)


def histogram(
    title: str,
    edges: Sequence[float],
    shares: Sequence[Sequence[float]],
    *,
    top: float,
    spoken: str,
    size: tuple[int, int] = SMALL,
) -> Markup:
    """Two histograms as outlines over the same bins: positive pairs solid, negative pairs dashed.

    Args:
        title: heading.
        edges: edges of the bins, one more than bins.
        shares: [bin] fraction of the positive pairs, and [bin] of the negative pairs.
        top: upper end of the vertical axis.
        spoken: description of the figure, for screen readers.
        size: width and height of the drawing.
    """
    paths = list[tuple[str, Points]]()
    for kind, heights in zip(("positive", "negative"), shares, strict=True):
        steps = [(at, height) for both, height in zip(pairwise(edges), heights, strict=True) for at in both]
        paths.insert(0, (f"area {kind}", [(edges[0], 0.0), *steps, (edges[-1], 0.0)]))
    words = {"title": title, "summary": "", "meaning": "", "spoken": spoken}
    return _drawn("similarity", (edges[0], edges[-1]), (0, top), paths, size, words, unit=100)


def _drawn(
    x: str,
    across: tuple[float, float],
    up: tuple[float, float],
    paths: Sequence[tuple[str, Points]],
    size: tuple[int, int],
    words: Mapping[str, str],
    *,
    log_x: bool = False,
    dots: Sequence[tuple[str, Points]] = (),
    unit: int = 1,
) -> Markup:
    """A figure with paths in a frame. `unit` is 100 if the numbers of the vertical axis are per cent."""
    left, right, top, bottom = LEFT, size[0] - RIGHT, TOP, size[1] - BOTTOM

    def placed(points: Points) -> list[tuple[float, float]]:
        (xs, ys), ends = np.array(points, dtype=np.float64).reshape(-1, 2).T, np.array(across)
        xs, ends = (np.log(xs), np.log(ends)) if log_x else (xs, ends)
        at = np.interp(xs, ends, (left, right)), np.interp(ys, up, (bottom, top))
        return list(zip(*(each.tolist() for each in at), strict=True))

    x_ticks, y_ticks = (powers if log_x else ticks)(*across, 6), ticks(*up, 5 if unit == 1 else 4)
    return render(
        "report/html/chart.html",
        x=x,
        width=size[0],
        height=size[1],
        frame=(left, right, top, bottom),
        across=[(placed([(tick, up[0])])[0][0], tick) for tick in x_ticks],
        up=[(placed([(across[0], tick)])[0][1], tick) for tick in y_ticks],
        unit=unit,
        paths=[(kind, placed(points)) for kind, points in paths],
        dots=[(kind, placed(points)) for kind, points in dots],
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


def powers(low: float, high: float, most: int) -> list[float]:
    """Powers of ten inside [low, high]; if these are few, also their double and fivefold."""
    steps = (1, 2, 5) if high <= 300 * low else (1,)
    found = (m * 10.0**p for p in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in steps)
    return [value for value in found if low <= value <= high]


def thinned(points: Points, buckets: int) -> list[tuple[float, float]]:
    """Lowest and highest point of each of `buckets` intervals, in order: fewer points, but the same drawing."""
    ends = [{min(part, key=itemgetter(1)), max(part, key=itemgetter(1))} for part in _parts(points, buckets)]
    return [point for both in ends for point in sorted(both)]


def running_mean(points: Points, buckets: int) -> list[tuple[float, float]]:
    """Mean point of each of `buckets` intervals."""
    return [tuple(np.mean(part, axis=0).tolist()) for part in _parts(points, buckets)]


def _parts(points: Points, buckets: int) -> list[Points]:
    size = math.ceil(len(points) / buckets)
    return [points[start : start + size] for start in range(0, len(points), size)]
