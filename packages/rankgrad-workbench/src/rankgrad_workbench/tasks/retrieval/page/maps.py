"""The map of the embeddings: points in two dimensions, one drawing per run, with the same images in each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from torch import Tensor, tensor

from ....report.content import Extent, Section
from ....report.html.images import Images
from ....report.html.templates import render
from ....report.html.text import percent
from . import numbers
from .measured import SideBySide

SIDE = 1000  # side of a drawing, in SVG units
EDGE = 30
GROUPS = 20  # ten colours, each as dots and as squares
METHODS = {
    "tsne": "t-SNE: neighbours stay neighbours; distances between groups have no meaning.",
    "pca": "PCA: the two directions of largest variance. Points that are far apart here are far apart in the "
    "embeddings; points that are close here may not be.",
}


def section(measured: SideBySide, images: Images, extent: Extent, budget: int, seed: int) -> Section | None:
    """The drawings, and the data with which a script colours them and names their points.

    Args:
        measured: the runs and their queries.
        images: the pictures of the page.
        extent: number of points and method.
        budget: bytes of pictures on the page; points beyond it have no picture.
        seed: of the sample.

    Returns:
        None without embeddings.
    """
    if not measured.runs:
        return None
    first, *_ = measured.runs
    chosen = numbers.sample(len(first.rows), extent.points, seed)
    rows, space = first.rows[chosen], first.space
    given: dict[str, Any] = {"text": [space.text(row) for row in rows.tolist()] if space.texts else None}
    given["name"] = [space.names[row] for row in rows.tolist()]
    given["classes"], given["class"] = _numbered(space.classes_of(space.labels[rows]))
    given["supers"] = given["super"] = None
    if space.super_labels is not None:
        supers = [space.super_names[label] for label in space.super_labels[rows].tolist()]
        given["supers"], given["super"] = _numbered(supers)
    pictures = first.run.pictures if not space.texts else None
    shown = [None if pictures is None else pictures.show(images, name, budget) for name in given["name"]]
    given["picture"] = [None if picture is None else int(picture[1:]) for picture in shown]
    given["runs"], drawn = [], []
    for of in measured.runs:
        placed, share = numbers.flatten(of.space, of.rows[chosen], extent.projection, seed)
        x, y = _fitted(placed)
        given["runs"].append({"x": x, "y": y, "ok": of.correct[chosen, 0].long().tolist()})
        words = "" if math.isnan(share) else f"{percent(share)} % of the variance"
        paths = _paths(x, y, given["super"] or given["class"])
        drawn.append({"kind": of.kind, "run": of.run.name, "paths": paths, "share": words})
    groups, without = given["supers"] or given["classes"], given["picture"].count(None)
    body = render(
        "tasks/retrieval/page/map.html",
        how=METHODS[extent.projection],
        method={"tsne": "t-SNE", "pca": "PCA"}[extent.projection],
        points=len(rows),
        queries=measured.queries,
        groups=groups[:GROUPS],
        others=max(len(groups) - GROUPS, 0),
        without=without if without < len(rows) else 0,
        shown="text" if space.texts else "image",
        supers=bool(given["supers"]),
        drawn=drawn,
        side=SIDE,
    )
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
