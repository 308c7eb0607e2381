"""The letters of a figure: where they stand, and what is wrong with that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from matplotlib.text import Text
from matplotlib.transforms import Bbox

from rankgrad_papers import figure_style as style

SLACK = 1.0  # pixels that boxes may share: letters do not fill theirs


def drawn_texts(figure: Any) -> Iterator[Text]:
    """Every text that is drawn, of a figure or a part of one."""
    yield from figure.texts  # its title among them
    for legend in figure.legends:
        yield from legend.get_texts()
    for part in figure.subfigs:
        yield from drawn_texts(part)
    for axes in figure._localaxes:
        yield from _of(axes)


def _of(axes: Any) -> Iterator[Text]:
    if not axes.get_visible():
        return
    yield from (axes.title, axes._left_title, axes._right_title)
    yield from axes.texts
    if axes.get_legend():
        yield axes.get_legend().get_title()
        yield from axes.get_legend().get_texts()
    if axes.axison:
        for axis in (axes.xaxis, axes.yaxis):
            yield from (axis.label, axis.offsetText)
            for tick in axis._update_ticks():
                yield from (label for label in (tick.label1, tick.label2) if label.get_visible())
    for child in axes.child_axes:
        yield from _of(child)


def boxes(figure: Any) -> list[tuple[str, Bbox]]:
    """Text and box in pixels of what is drawn; of an annotation without its arrow."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    shown = [text for text in drawn_texts(figure) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), Text.get_window_extent(text, renderer)) for text in shown]


def faults(figure: Any) -> list[str]:
    """Texts that overlap one another or leave the canvas, in words."""
    found = boxes(figure)
    canvas = figure.bbox
    wrong = [
        f"{name!r} leaves the canvas"
        for name, box in found
        if box.x0 < -SLACK or box.y0 < -SLACK or box.x1 > canvas.x1 + SLACK or box.y1 > canvas.y1 + SLACK
    ]
    for (one, a), (other, b) in itertools.combinations(found, 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if width > SLACK and height > SLACK:
            wrong.append(f"{one!r} overlaps {other!r} by {width:.0f} x {height:.0f} pixels")
    return wrong


def smallest(figure: Any) -> float:
    """Points of the smallest letters."""
    return min(text.get_fontsize() for text in drawn_texts(figure) if text.get_visible() and text.get_text().strip())


def well_drawn(drawing: Any) -> None:
    """Assert that a figure can be read at the width it is printed at."""
    assert drawing.get_figwidth() in (style.ONE, style.TWO)
    assert faults(drawing) == []
    assert smallest(drawing) >= style.SMALL
    panels = [axes for axes in drawing.axes if axes.get_visible() and axes.axison]
    assert all(axes.has_data() for axes in panels)
