"""The map of the embeddings: points in two dimensions, one drawing per run, the same images in each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from . import charts, numbers
from .cards import Shelf
from .content import Content
from .measured import Comparison
from .text import breakable, escaped, percent

SIDE = 1000  # of a drawing, in its own units
EDGE = 30
GROUPS = 20  # ten colours, as dots and as squares

Method = Literal["pca", "tsne"]


def section(
    runs: Sequence[Content], found: Comparison, shelf: Shelf, points: int, method: Method, budget: int, seed: int
) -> tuple[str, dict[str, Any]] | None:
    """The drawings, and what a script needs to colour them and to name their points.

    Args:
        runs: the runs.
        found: their queries.
        shelf: of the pictures.
        points: at most so many are drawn.
        method: of `numbers.flatten`.
        budget: bytes of pictures after which points have none.
        seed: of the sample.

    Returns:
        (HTML, data); None without embeddings.
    """
    known = [(i, run) for i, run in enumerate(found.runs) if run is not None]
    if not known:
        return None
    index, first = known[0]
    chosen = numbers.sample(len(first.rows), points, seed)
    rows = first.rows[chosen]
    space = first.space
    labels = space.labels[rows].tolist()
    classes, class_of = _numbered([space.class_names[label] for label in labels])
    supers: list[str] = []
    super_of: list[int] = []
    if space.super_labels is not None:
        supers, super_of = _numbered([space.super_names[label] for label in space.super_labels[rows].tolist()])
    names = [space.names[row] for row in rows.tolist()]
    pictures: list[int | None] = []
    for name in names:
        shown = shelf.named(index, name, budget)
        pictures.append(None if shown is None else int(shown[1:]))
    without = sum(picture is None for picture in pictures)
    drawn, data = [], []
    for i, run in known:
        placed, share = numbers.flatten(run.space, run.rows[chosen], method, seed)
        x, y = _fitted(placed)
        right = run.correct[chosen, 0].tolist()
        data.append({"x": x, "y": y, "ok": [int(value) for value in right]})
        drawn.append(_drawing(runs[i], i, len(known) > 1, x, y, super_of or class_of, share, method))
    groups, by = (supers, "super-label") if supers else (classes, "class")
    how = (
        "t-SNE: neighbours stay neighbours, distances between groups mean nothing."
        if method == "tsne"
        else (
            "PCA: the two directions in which the embeddings differ most, so what is far apart here is far apart; "
            "what looks close may not be."
        )
    )
    total = f"{len(found.matching):,} queries"
    how_many = f"{len(rows):,} of {total}" if len(rows) < len(found.matching) else f"All {total}"
    lacking = f" {without:,} of the points have no picture." if without and without < len(rows) else ""
    choices = [("super", "super-label")] if supers else []
    choices.append(("class", "class"))
    for place, (i, _) in enumerate(known):
        choices.append((f"ok{place}", "right or wrong" + (f", {runs[i].name}" if len(known) > 1 else "")))
    options = "".join(f'<option value="{key}">{escaped(text)}</option>' for key, text in choices)
    html = f"""<p class="lead">{how} {how_many}, coloured by <span id="map-by">{by}</span>.{lacking}
<span class="script">Point at a dot, or move with the arrow keys, to see its image.</span></p>
<div class="controls script"><label>Colour by <select id="map-colour">{options}</select></label>
<label>Class <input type="search" id="map-class" list="map-classes" placeholder="all" spellcheck="false"></label>
<datalist id="map-classes"></datalist></div>
<div class="mapped {"several" if len(known) > 1 else "alone"}"><div class="maps">{"".join(drawn)}</div>
<ul class="legend" id="map-legend">{_legend(groups)}</ul></div>"""
    return html, {
        "runs": data,
        "class": class_of,
        "super": super_of or None,
        "classes": classes,
        "supers": supers or None,
        "name": names,
        "picture": pictures,
    }


def _numbered(words: Sequence[str]) -> tuple[list[str], list[int]]:
    """Different words, the most frequent first, and the place of each word among them."""
    times = Counter(words)
    order = sorted(times, key=lambda word: (-times[word], word))
    place = {word: number for number, word in enumerate(order)}
    return order, [place[word] for word in words]


def _fitted(placed: Tensor) -> tuple[list[int], list[int]]:
    """Whole numbers inside the drawing, the same scale both ways; y counts downwards."""
    low, high = placed.amin(0), placed.amax(0)
    size = float((high - low).max()) or 1.0
    scaled = (placed - (low + high) / 2) / size * (SIDE - 2 * EDGE)
    x, y = (scaled * torch.tensor([1.0, -1.0]) + SIDE / 2).round().long().T.tolist()
    return x, y


def _drawing(
    run: Content,
    kind: int,
    several: bool,
    x: Sequence[int],
    y: Sequence[int],
    group: Sequence[int],
    share: float,
    method: Method,
) -> str:
    shown = "" if math.isnan(share) else f"{percent(share)} % of the variance"
    title = f"{charts.key(kind)} {breakable(run.name)}" if several else method.upper().replace("TSNE", "t-SNE")
    marks: dict[int, list[str]] = {}
    for a, b, g in zip(x, y, group, strict=True):
        marks.setdefault(g if g < GROUPS else GROUPS, []).append(f"M{a} {b}h0")
    # those without a colour of their own first, below the others
    paths = "".join(f'<path class="g{g}" d="{"".join(marks[g])}" />' for g in sorted(marks, reverse=True))
    label = f"Map of {len(x)} embeddings" + (f" of {run.name}" if several else "")
    caption = f'<h3>{title}</h3><span class="muted small">{shown}</span>'
    return f"""<figure class="card map"><figcaption>{caption}</figcaption>
<svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-label="{escaped(label)}">{paths}</svg></figure>"""


def _legend(groups: Sequence[str]) -> str:
    named = [(place, breakable(name)) for place, name in enumerate(groups[:GROUPS])]
    if len(groups) > GROUPS:
        named.append((GROUPS, f"{len(groups) - GROUPS:,} others"))
    dot = '<svg class="dot" viewBox="0 0 10 10" aria-hidden="true">'
    return "".join(f'<li>{dot}<path class="g{place}" d="M5 5h0" /></svg>{name}</li>' for place, name in named)
