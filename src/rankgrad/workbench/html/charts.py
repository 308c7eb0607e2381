"""Charts as inline SVG: curves of one or several runs, and histograms. Colours and dashes: sections.css."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .text import escaped, number, shortened

Points = Sequence[tuple[float, float]]

SMALL, WIDE = (360, 210), (540, 280)  # width and height; a row has three small or two wide charts
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 10, 34
LINE_POINTS = 240  # a curve with more points is drawn as its range and a running mean
MEAN_POINTS = 60


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
    """A scale.

    Attributes:
        name: label.
        low: smallest value.
        high: largest value.
        log: whether the scale is logarithmic.
        ticks: values with a number.
    """

    name: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    def share(self, value: float) -> float:
        """Position of a value on the axis: 0 at low, 1 at high."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Frame:
    """A drawing with two axes.

    Attributes:
        across: horizontal axis.
        up: vertical axis.
        width: of the drawing, including the numbers at its axes.
        height: likewise.
    """

    across: Axis
    up: Axis
    width: int
    height: int

    def place(self, point: tuple[float, float]) -> tuple[str, str]:
        """Coordinates of a point in the drawing; y points down."""
        x = LEFT + self.across.share(point[0]) * (self.width - LEFT - RIGHT)
        y = self.height - BOTTOM - self.up.share(point[1]) * (self.height - TOP - BOTTOM)
        return f"{x:.1f}", f"{y:.1f}"

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """A line."""
        return f'<polyline class="{kind}" points="{" ".join(",".join(self.place(point)) for point in points)}" />'

    def grid(self, written: Callable[[float], str] = "{:.6g}".format) -> str:
        """Lines, numbers and the name of the horizontal axis."""
        drawn = []
        for tick in self.up.ticks:
            y = self.place((self.across.low, tick))[1]
            drawn.append(f'<path class="grid" d="M{LEFT} {y}H{self.width - RIGHT}" />')
            drawn.append(f'<text x="{LEFT - 8}" y="{y}" dy=".35em" text-anchor="end">{written(tick)}</text>')
        foot = self.height - BOTTOM + 17
        for tick in self.across.ticks:
            x = float(self.place((tick, self.up.low))[0])
            # a label at the right edge would reach into the margin
            anchor = "end" if x > self.width - RIGHT - 12 else "middle"
            drawn.append(f'<text x="{x:.1f}" y="{foot}" text-anchor="{anchor}">{tick:.6g}</text>')
        end = f'x="{self.width - RIGHT}" y="{self.height - 3}" text-anchor="end"'
        return "".join([*drawn, f"<text {end}>{escaped(self.across.name)}</text>"])

    def drawing(self, spoken: str, body: str) -> str:
        """The SVG element.

        Args:
            spoken: description of the drawing, for screen readers.
            body: its content.
        """
        box = f'viewBox="0 0 {self.width} {self.height}"'
        return f'<svg {box} role="img" aria-label="{escaped(spoken)}">{body}</svg>'


def figure(title: str, summary: str, body: str, meaning: str = "") -> Markup:
    """A card with a chart.

    Args:
        title: heading.
        summary: text beside the title.
        body: the drawing, as HTML.
        meaning: line below the title.
    """
    said = f'<p class="small muted">{escaped(meaning)}</p>' if meaning else ""
    beside = f'<span class="muted small">{escaped(summary)}</span>'
    caption = f"<figcaption><h3>{shortened(title)}</h3>{beside}{said}</figcaption>"
    return Markup(f'<figure class="card">{caption}\n{body}</figure>')


def key(kind: int) -> Markup:
    """The line of a series in a legend."""
    path = f'<path class="line s{kind}" d="M0 4H28" />'
    return Markup(f'<svg class="key" viewBox="0 0 28 8" aria-hidden="true">{path}</svg>')


def square(kind: str) -> Markup:
    """A filled square for a legend, with the colour of a CSS class."""
    path = f'<rect class="at {kind}" width="10" height="10" />'
    return Markup(f'<svg class="square" viewBox="0 0 10 10" aria-hidden="true">{path}</svg>')


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
    given, kept = sum(len(one.points) for one in series), sum(map(len, finite))
    warning = ""
    if given > kept:
        warning = f'<p class="small">{given - kept} of {given} values are not finite and are left out.</p>'
    if not kept:
        return figure(title, "", warning, meaning)
    every = [point for points in finite for point in points]
    up = _axis("", [b for _, b in every]) if y is None else Axis("", *y, ticks=tuple(ticks(*y, 5)))
    across = _axis(x, [a for a, _ in every] if x_range is None else x_range, log_x)
    frame = Frame(across, up, *size)
    drawn, spoken = [], []
    for one, points in sorted(zip(series, finite, strict=True), key=lambda pair: not pair[0].pale):
        if not points:
            continue
        if one.pale:
            few = running_mean(points, MEAN_POINTS) if len(points) > LINE_POINTS else points
            drawn.append(frame.path(few, f"raw s{one.kind}"))
            continue
        if len(points) > LINE_POINTS and not log_x:
            if len(series) == 1:
                drawn.append(frame.path(thinned(points, LINE_POINTS), f"raw s{one.kind}"))
            drawn.append(frame.path(running_mean(points, MEAN_POINTS), f"line s{one.kind}"))
        else:
            drawn.append(frame.path(points, f"line s{one.kind}"))
            if len(points) <= 30 and len(series) <= 3:
                dots = "".join(f"M{' '.join(frame.place(point))}h0" for point in points)
                drawn.append(f'<path class="dots s{one.kind}" d="{dots}" />')
        first, last = points[0], points[-1]
        name = f"{one.name}: " if one.name else ""
        spoken.append(f"{name}{number(first[1])} at {x} {first[0]:g}, {number(last[1])} at {x} {last[0]:g}")
    if summary is None:
        ends = [number(value) for _, value in (finite[0][0], finite[0][-1])] if len(series) == 1 else []
        summary = " \N{RIGHTWARDS ARROW} ".join(ends if len(finite[0]) > 1 else ends[:1])
    drawing = frame.drawing(f"{title}: {'; '.join(spoken)}", frame.grid() + "".join(drawn))
    return figure(title, summary, drawing + warning, meaning)


def histogram(
    title: str,
    edges: Sequence[float],
    positive: Sequence[float],
    negative: Sequence[float],
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
        positive: [bin] fraction of the positive pairs.
        negative: [bin] fraction of the negative pairs.
        marks: (name, value) of each vertical line.
        top: upper end of the vertical axis.
        spoken: description of the figure, for screen readers.
        below: text below the drawing; may be empty.
        size: width and height of the drawing.
    """
    across = Axis("similarity", edges[0], edges[-1], ticks=tuple(ticks(edges[0], edges[-1], 6)))
    frame = Frame(across, Axis("", 0, top, ticks=tuple(ticks(0, top, 4))), *size)

    def outline(heights: Sequence[float], kind: str) -> str:
        points = [(edges[0], 0.0)]
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            points += [(left, height), (right, height)]
        return frame.path([*points, (edges[-1], 0.0)], kind)

    upright, names = [], []
    for place, (name, value) in enumerate(marks):
        if edges[0] <= value <= edges[-1]:
            x = float(frame.place((value, 0))[0])
            anchor, shift = ("end", -5) if x > frame.width / 2 else ("start", 5)
            at = f'x="{x + shift:.1f}" y="{TOP + 10 + 16 * place}" text-anchor="{anchor}"'
            upright.append(f'<path class="mark" d="M{x:.1f} {TOP}V{frame.height - BOTTOM}" />')
            names.append(f'<text class="strong" {at}>{escaped(name)}</text>')  # drawn last, above all lines
    body = [frame.grid(lambda share: f"{100 * share:.6g} %"), outline(negative, "area negative")]
    body += [outline(positive, "area positive"), *upright, *names]
    words = f'<p class="small muted">{escaped(below)}</p>' if below else ""
    return figure(title, "", frame.drawing(spoken, "".join(body)) + words)


def bar(share: float) -> Markup:
    """A horizontal bar for a cell of a table; its length is a value from 0 to 1."""
    width = 100 * min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{width:.1f}" height="8" /></svg>'
    )


def intervals(marks: Sequence[tuple[str, float, tuple[float, float] | None]]) -> Markup:
    """Values from 0 to 1 with their intervals, one below the other.

    Args:
        marks: (CSS class, value, interval) of each.
    """
    height = 13 * len(marks) + 4
    drawn = [f'<path class="grid" d="M{x} 1V{height - 1}" />' for x in (0.5, 50, 100, 150, 199.5)]
    for place, (kind, value, around) in enumerate(marks):
        if not 0 <= value <= 1:  # NaN, or a metric with another range
            continue
        y = 4 + 13 * place
        if around is not None:
            low, high = (min(max(bound, 0.0), 1.0) for bound in around)
            span = f'x="{200 * low:.1f}" width="{200 * (high - low):.1f}"'
            drawn.append(f'<rect class="ci {kind}" {span} y="{y}" height="9" />')
        drawn.append(f'<rect class="at {kind}" x="{200 * value - 0.7:.1f}" y="{y}" width="1.4" height="9" />')
    frame = f'class="rows{min(len(marks), 8)}" viewBox="0 0 200 {height}" preserveAspectRatio="none"'
    return Markup(f'<svg {frame} aria-hidden="true">{"".join(drawn)}</svg>')


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
    size = math.ceil(len(points) / buckets)
    kept = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return kept


def running_mean(points: Points, buckets: int) -> list[tuple[float, float]]:
    """Mean point of each of `buckets` intervals."""
    size = math.ceil(len(points) / buckets)
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [(math.fsum(x for x, _ in s) / len(s), math.fsum(y for _, y in s) / len(s)) for s in stretches]


def _axis(name: str, values: Sequence[float], log: bool = False) -> Axis:
    low, high = min(values), max(values)
    if log:
        high = max(high, 2 * low)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        written = [m * 10.0**p for p in powers for m in ((1, 2, 5) if high <= 300 * low else (1,))]
        return Axis(name, low, high, True, tuple(value for value in written if low <= value <= high))
    if name:  # a horizontal axis: from the first to the last value
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        return Axis(name, low, high, ticks=tuple(ticks(low, high, 6)))
    pad = 0.06 * (high - low) or max(abs(low) * 0.05, 1e-3)  # > 0 also for a constant curve
    return Axis(name, low - pad, high + pad, ticks=tuple(ticks(low - pad, high + pad, 5)))
