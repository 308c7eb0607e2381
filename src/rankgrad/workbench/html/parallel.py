"""Parallel coordinates as inline SVG: one vertical axis for each setting, one line across the axes for each trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .charts import figure
from .text import escaped

WIDTH, HEIGHT, SIDE, TOP, BOTTOM = 1080, 330, 70, 44, 24


@dataclass(frozen=True)
class Upright:
    """A vertical axis.

    Attributes:
        name: label above it.
        marks: (text, position) of the labels beside it; the position is 0 at the lower end and 1 at the upper end.
    """

    name: str
    marks: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Across:
    """A line across the axes.

    Attributes:
        places: [axis] position, 0 .. 1; None: the line skips this axis.
        strength: opacity, 0 .. 1.
        kind: CSS class of its colour, such as "best".
        told: its description, under the pointer and for screen readers.
    """

    places: tuple[float | None, ...]
    strength: float
    kind: str
    told: str


def parallel(title: str, axes: Sequence[Upright], lines: Sequence[Across], *, summary: str, meaning: str) -> Markup:
    """A figure with one line per trial.

    Args:
        title: heading.
        axes: from left to right.
        lines: later ones are drawn above earlier ones.
        summary: text beside the title.
        meaning: line below the title.

    >>> drawn = parallel("one", [Upright("tau", (("0.1", 0.0),))], [Across((0.5,), 1, "best", "first")],
    ...                  summary="", meaning="")
    >>> "first" in drawn and "tau" in drawn
    True
    """
    step = (WIDTH - 2 * SIDE) / max(len(axes) - 1, 1)
    drawn, above = [], []  # labels beside the axes are drawn last, above all lines
    for place, axis in enumerate(axes):
        x = SIDE + place * step
        drawn.append(f'<path class="grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" />')
        short = axis.name if len(axis.name) <= 22 else f"\N{HORIZONTAL ELLIPSIS}{axis.name[-21:]}"
        # names of adjacent axes are on two levels, since they may be wider than the space between the axes
        head = f'x="{x:.1f}" y="{14 + 16 * (place % 2)}" text-anchor="middle"'
        drawn.append(f"<text {head}><title>{escaped(axis.name)}</title>{escaped(short)}</text>")
        for text, share in axis.marks:
            at = f'class="strong" x="{x + 5:.1f}" y="{_height(share):.1f}" dy=".35em"'
            cut = text if len(text) <= 16 else f"{text[:15]}\N{HORIZONTAL ELLIPSIS}"
            above.append(f"<text {at}><title>{escaped(text)}</title>{escaped(cut)}</text>")
    for line in lines:
        points = " ".join(
            f"{SIDE + place * step:.1f},{_height(share):.1f}"
            for place, share in enumerate(line.places)
            if share is not None
        )
        look = f'class="trial {escaped(line.kind)}" stroke-opacity="{line.strength:.2f}"'
        drawn.append(f'<polyline {look} points="{points}"><title>{escaped(line.told)}</title></polyline>')
    spoken = escaped(f"{title}: {len(lines)} trials over {', '.join(axis.name for axis in axes)}")
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{spoken}">{"".join([*drawn, *above])}</svg>'
    return figure(title, summary, f'<div class="scroll parallel">{svg}</div>', meaning)


def _height(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


__all__ = ["Across", "Upright", "parallel"]
