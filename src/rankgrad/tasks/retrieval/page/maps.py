"""The map of the embeddings: points in two dimensions, one drawing per run, with the same images in each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup
from torch import Tensor, tensor

from ....workbench.html.page import render
from ....workbench.html.text import percent
from ....workbench.report.content import Extent, Section
from . import numbers
from .measured import SideBySide
from .retrieved import RetrievalRun
from .shelf import Shelf

SIDE = 1000  # side of a drawing, in SVG units
EDGE = 30
GROUPS = 20  # ten colours, each as dots and as squares
METHODS = {
    "tsne": "t-SNE: neighbours stay neighbours; distances between groups have no meaning.",
    "pca": "PCA: the two directions of largest variance. Points that are far apart here are far apart in the "
    "embeddings; points that are close here may not be.",
}


def section(
    runs: Sequence[RetrievalRun], measured: SideBySide, shelf: Shelf, extent: Extent, budget: int, seed: int
) -> Section | None:
    """The drawings, and the data with which a script colours them and names their points.

    Args:
        runs: the runs.
        measured: their queries.
        shelf: source of the pictures.
        extent: number of points and method.
        budget: bytes of pictures on the page; points beyond it have no picture.
        seed: of the sample.

    Returns:
        None without embeddings.
    """
    known = [(i, run) for i, run in enumerate(measured.runs) if run is not None]
    if not known:
        return None
    index, first = known[0]
    chosen = numbers.sample(len(first.rows), extent.points, seed)
    rows, space = first.rows[chosen], first.space
    classes, class_of = _numbered([space.class_names[label] for label in space.labels[rows].tolist()])
    supers: list[str] = []
    super_of: list[int] = []
    if space.super_labels is not None:
        supers, super_of = _numbered([space.super_names[label] for label in space.super_labels[rows].tolist()])
    names = [space.names[row] for row in rows.tolist()]
    texts = [space.text(row) for row in rows.tolist()]
    is_text = any(text is not None for text in texts)
    pictures = [None if is_text else shelf.show(index, name, budget) for name in names]
    drawn, data = [], []
    for i, run in known:
        placed, share = numbers.flatten(run.space, run.rows[chosen], extent.projection, seed)
        x, y = _fitted(placed)
        data.append({"x": x, "y": y, "ok": [int(right) for right in run.correct[chosen, 0].tolist()]})
        shown = "" if math.isnan(share) else f"{percent(share)} % of the variance"
        drawn.append({"kind": i, "run": runs[i].name, "paths": _paths(x, y, super_of or class_of), "share": shown})
    groups, by = (supers, "super-label") if supers else (classes, "class")
    without = sum(picture is None for picture in pictures)
    body = render(
        "tasks/retrieval/page/map.html",
        how=METHODS[extent.projection],
        method={"tsne": "t-SNE", "pca": "PCA"}[extent.projection],
        points=len(rows),
        queries=len(measured.matching),
        by=by,
        groups=groups[:GROUPS],
        others=max(len(groups) - GROUPS, 0),
        without=without if without < len(rows) else 0,
        shown="text" if is_text else "image",
        supers=bool(supers),
        drawn=drawn,
        side=SIDE,
    )
    given = {
        "runs": data,
        "class": class_of,
        "super": super_of or None,
        "classes": classes,
        "supers": supers or None,
        "name": names,
        "text": texts if is_text else None,
        "picture": [None if picture is None else int(picture[1:]) for picture in pictures],
    }
    return Section("map", "Map", body, {"map": given})


def _numbered(words: Sequence[str]) -> tuple[list[str], list[int]]:
    """(different words, most frequent first; the index of each word among them)."""
    times = Counter(words)
    order = sorted(times, key=lambda word: (-times[word], word))
    place = {word: number for number, word in enumerate(order)}
    return order, [place[word] for word in words]


def _fitted(placed: Tensor) -> tuple[list[int], list[int]]:
    """Integer coordinates inside the drawing, with the same scale in x and y; y points down."""
    low, high = placed.amin(0), placed.amax(0)
    size = float((high - low).max()) or 1.0
    scaled = (placed - (low + high) / 2) / size * (SIDE - 2 * EDGE)
    x, y = (scaled * tensor([1.0, -1.0]) + SIDE / 2).round().long().T.tolist()
    return x, y


def _paths(x: Sequence[int], y: Sequence[int], group: Sequence[int]) -> Markup:
    """A path of dots for each group."""
    marks: dict[int, list[str]] = {}
    for a, b, g in zip(x, y, group, strict=True):
        marks.setdefault(min(g, GROUPS), []).append(f"M{a} {b}h0")
    # groups without their own colour are drawn first, below the others
    return Markup("").join(
        Markup(f'<path class="g{g}" d="{"".join(marks[g])}" />') for g in sorted(marks, reverse=True)
    )
