"""Sections of a page about retrieval runs: similarities, retrieved images, confused classes, tables, a map."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from markupsafe import Markup
from torch import Tensor, tensor

from rankgrad.evaluation.statistics import PairedDifference, paired_over_groups

from ....report import tables
from ....report.content import Extent, Section
from ....report.html import charts
from ....report.html.images import Asked, Images, Neighbour
from ....report.html.templates import render
from ....report.html.text import percent
from . import measured as numbers
from .measured import Answers, SideBySide, compare
from .reading import Content, Space

TEMPLATES = "tasks/retrieval/page"
CONFUSED = 30  # pairs of classes
OPEN = 5  # cards; the others are folded, so that what follows them is near
# Bytes of pictures on a page: no card is added beyond the first number, no picture of a map point beyond the second.
# With the tables of a set of 60 000 images (a few MB), a page stays under 20 MB.
CARD_BYTES, PICTURE_BYTES = 9_000_000, 14_000_000
SIDE, EDGE = 1000, 30  # of the drawing of a map, in SVG units
GROUPS = 20  # of a map: ten colours, each as dots and as squares


def sections(runs: Sequence[Content], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
    """(all sections of a page about retrieval runs, notes on the queries and the pictures)."""
    seed = int(runs[0].config.get("seed") or 0)
    measured = compare(runs, extent.queries, extent.items, seed)
    kept = gallery(measured, images, len(runs) > 1)
    confused = confusions(measured, images)
    placed = projected(measured, images, extent, seed)
    rows = paired(measured, seed)
    of_seeds = any(run.variant for run in runs)  # then the comparison over seeds decides, which the page shows before
    found = [] if of_seeds else [(of.run.name, name, each.low, each.high, None) for of, name, each in rows]
    seeds = {run.config.get("seed") for run in runs}
    differences = render(f"{TEMPLATES}/paired.html", runs=runs, rows=rows, seeds=seeds) if rows else None
    results = tables.results(runs, differences, tables.verdicts(runs[0].name, found))
    made = [results, ranking(runs, measured), confused, kept, classes(runs), placed]
    return made, [*measured.notes, *_other_galleries(runs), *_lost(runs, len(images))]


def _other_galleries(runs: Sequence[Content]) -> list[str]:
    """A note on each run that searches among other items than the first run."""
    spaces = [(run.name, run.space) for run in runs if run.space is not None]
    return [
        f"{name} searches among other {space.noun} than {spaces[0][0]}: {len(space.items):,}, not "
        f"{len(spaces[0][1].items):,}. Metrics depend on the gallery, so these two runs are not compared."
        for name, space in spaces[1:]
        if not space.same_gallery(spaces[0][1])
    ]


def _lost(runs: Sequence[Content], shown: int) -> list[str]:
    """A note on the images that could not be read."""
    failed = {name: why for run in runs if run.pictures is not None for name, why in run.pictures.failed.items()}
    what = f"{len(failed):,} images could not be read and are not shown"
    what = what if shown else "No pictures: the images of the data set cannot be read"
    return [f"{what} (the first, {name}: {why})." for name, why in [*failed.items()][:1]]


# ------------------------------------------------------------------------------------------------- paired differences


def paired(measured: SideBySide, seed: int = 0) -> list[tuple[Answers, str, PairedDifference]]:
    """(run, metric, its difference from the first run, query by query)."""
    if not measured.runs or measured.runs[0].kind:
        return []
    first, *others = measured.runs
    rows = []
    for other in others:
        for name in other.run.headline if other.space.same_gallery(first.space) else ():
            own, its = _per_query(first, name), _per_query(other, name)
            keep = ~np.isnan(own + its)
            if keep.any():
                group = first.space.labels[first.matched].numpy()[keep]
                rows.append((other, name, paired_over_groups(its[keep], own[keep], group, seed=seed)))
    return rows


def _per_query(of: Answers, name: str) -> Any:
    """[query] values of the common queries; NaN for those that do not count, and where the run has no such values."""
    report = of.run.after
    values = np.array([]) if report is None else report.per_query.get(name, np.array([])).copy()
    if report is None or report.settings.get("weights") or len(values) != len(of.space):
        return np.full(len(of.matched), np.nan)
    if report.settings.get("without_relevant") != "zero":
        values[report.without_relevant] = np.nan
    return values[of.matched.numpy()]


# -------------------------------------------------------------------------------------------------------------- ranking


def ranking(runs: Sequence[Content], measured: SideBySide) -> Section:
    """Histograms of similarities, the precision-recall curve, and the R@K curve."""
    several, drawn = len(runs) > 1, []
    grid = [(level + 0.5) / numbers.LEVELS for level in range(numbers.LEVELS)]
    precision = {of.kind: [*zip(grid, of.ranked.precision.tolist(), strict=True)] for of in measured.runs}
    recall = {kind: numbers.recall_curve(run.after) for kind, run in enumerate(runs) if run.after is not None}
    ends = [next(k for k, share in curve if share >= curve[-1][1]) for curve in recall.values() if curve]
    # all curves are constant from the last of these K on
    recall = {kind: [(k, share) for k, share in curve if k <= max(ends)] for kind, curve in recall.items()}
    area = "" if several or not measured.runs else f"area = AP {percent(float(measured.runs[0].ranked.ap.nanmean()))}"
    for title, curves, x, summary in (
        ("Precision at recall", precision, "recall", area),
        ("R@K", recall, "K, length of the list", ""),
    ):
        series = [charts.Series(runs[n].name if several else "", curve, n) for n, curve in curves.items() if curve]
        if any(one.finite for one in series):
            drawn.append(
                charts.lines(title, series, x, log_x=curves is recall, summary=summary, y=(0, 1), size=charts.WIDE)
            )
    body = render(
        f"{TEMPLATES}/ranking.html",
        runs=runs,
        histograms=_histograms(measured, several),
        asked=measured.asked,
        queries=measured.queries,
        curves=drawn,
    )
    return Section("ranking", "Ranking", body if measured.runs or drawn else Markup())


def _histograms(measured: SideBySide, several: bool) -> list[Markup]:
    """One histogram per run, all with the same axes, whose range covers the pairs."""
    if not measured.runs:
        return []
    shares = np.stack([share.numpy() for of in measured.runs for share in of.similarities.shares])
    used = np.flatnonzero((shares > 5e-4).any(0)).tolist()
    first, last = used[0], used[-1]
    drawn = []
    for of in measured.runs:
        same, other = (int(counts.sum()) for counts in of.similarities[:2])
        drawn.append(
            charts.histogram(
                of.run.name if several else "Share of pairs",
                [-1 + 2 / numbers.BINS * place for place in range(first, last + 2)],
                [share[first : last + 1].tolist() for share in of.similarities.shares],
                top=1.08 * float(shares.max()),
                spoken=f"Similarities of {same:,} same-class and {other:,} other pairs",
                size=charts.SMALL if several else charts.WIDE,
            )
        )
    return drawn


# ----------------------------------------------------------------------------------------------------- retrieved images


def gallery(measured: SideBySide, images: Images, several: bool) -> Section:
    """One card per query with a strip of items per run, and filters."""
    cards: dict[int, dict[str, Any]] = {}
    # reasons in turn, so that every reason is present if the end is cut off
    for place in (place for turn in zip_longest(*measured.shown.values()) for place in turn if place is not None):
        if images.size > CARD_BYTES:
            break
        if place not in cards:
            cards[place] = _card(measured, place, images, several)
    if not cards:
        return Section("gallery", "", Markup())
    body = render(
        f"{TEMPLATES}/gallery.html",
        cards=list(cards.values()),
        counts=Counter(reason for card in cards.values() for reason in card["reasons"]),
        asked=measured.asked,
        queries=measured.queries,
        several=several,
        strips=len(measured.runs),
        open=OPEN,
    )
    known = sorted({name for of in measured.runs for name in of.space.classes})
    data = {"classes": known, "queries": measured.queries}
    return Section("gallery", f"Retrieved {measured.runs[0].space.noun}", body, {"gallery": data})


def _card(measured: SideBySide, place: int, images: Images, several: bool) -> dict[str, Any]:
    first, row = measured.runs[0], int(measured.runs[0].rows[place])
    kind, (picture, text) = first.space.class_of(row), _seen(first, first.space, row, images)
    strips = [(of, _quality(of, place), _items(of, place, images)) for of in measured.runs]
    quality = "" if several else strips[0][1]
    return {
        "query": Asked(picture, f"query of class {kind}", kind, first.space.names[row], quality, text),
        "reasons": [reason for reason, places in measured.shown.items() if place in places],
        "first": "right" if all(bool(of.correct[place, 0]) for of in measured.runs) else "wrong",
        "strips": strips,
    }


def _quality(of: Answers, place: int) -> str:
    ap, first = float(of.ranked.ap[place]), float(of.ranked.first[place])
    if math.isnan(ap):
        return "no relevant item"
    late = f", first right item at rank {first:,.0f}" if first > of.correct.shape[1] else ""
    return f"AP {percent(ap)}{late}"


def _items(of: Answers, place: int, images: Images) -> list[Neighbour]:
    items, neighbours = of.space.items, []
    columns = (each[place].tolist() for each in (*of.nearest, of.correct))
    for rank, (score, row, right) in enumerate(zip(*columns, strict=True), 1):
        kind, (picture, text) = items.class_of(row), _seen(of, items, row, images)
        neighbours.append(Neighbour(picture, rank, score, kind, f"{kind}: {items.names[row]}", right, text=text))
    return neighbours


def _seen(of: Answers, space: Space, row: int, images: Images) -> tuple[str | None, str | None]:
    """(CSS class of the picture of a row, its text); a row with a text has no picture."""
    if space.texts:
        return None, space.texts[row]
    return None if of.run.pictures is None else of.run.pictures.show(images, space.names[row]), None


# ----------------------------------------------------------------------------------------------------- confused classes


def confusions(measured: SideBySide, images: Images) -> Section:
    """Table of the most often confused pairs of classes, each with its most similar pair of images."""
    found: dict[tuple[str, str], dict[int, tuple[Answers, numbers.Confusion]]] = {}
    for of in measured.runs:
        for pair in of.confusions:
            found.setdefault(pair.classes, {})[of.kind] = of, pair
    order = sorted(found, key=lambda names: (-sum(pair.queries for _, pair in found[names].values()), names))
    rows = []
    for names in order[:CONFUSED]:
        of, pair = next(iter(found[names].values()))
        sides = zip((of.space, of.space.items), pair.example, strict=True)
        shown = {space.class_of(row): _seen(of, space, row, images) for space, row in sides}
        counts = {kind: pair.queries for kind, (_, pair) in found[names].items()}
        rows.append(([(*shown[name], name) for name in names], [counts.get(each.kind, 0) for each in measured.runs]))
    body = render(f"{TEMPLATES}/confusions.html", rows=rows, runs=measured.runs)
    return Section("confusions", "Confused classes", body if measured.runs else Markup())


# -------------------------------------------------------------------------------------------------------------- classes


def classes(runs: Sequence[Content]) -> Section:
    """Metrics by super-label and by class."""
    data, parts = {}, []
    for kind, name in (("super-label", "per_super_label"), ("class", "per_class")):
        rows = [getattr(run.after, name, ()) for run in runs]
        if made := tables.class_table(runs, kind, rows, runs[0].main, "AP", ["R@1"]):
            parts.append(made[0])
            data[kind] = made[1]
    lead = "Each number is the mean over the queries of the class, in per cent. The hardest classes come first."
    leads = "; if a class has examples above, its name links to them"
    body = render("report/tables_of_classes.html", lead=lead, leads=leads, tables=parts)
    return Section("classes", "Classes", body if parts else Markup(), {"tables": data} if parts else {})


# ------------------------------------------------------------------------------------------------------------------ map


def projected(measured: SideBySide, images: Images, extent: Extent, seed: int) -> Section:
    """The embeddings in two dimensions, one drawing per run, and the data with which a script colours the points."""
    if not measured.runs:
        return Section("map", "Map", Markup())
    first, *_ = measured.runs
    chosen = numbers.sample(len(first.rows), extent.points, seed)
    rows, space = first.rows[chosen].tolist(), first.space
    given: dict[str, Any] = {"name": [space.names[row] for row in rows], "supers": None, "super": None}
    given["text"] = [space.texts[row] for row in rows] if space.texts else None
    given["classes"], given["class"] = _numbered([space.class_of(row) for row in rows])
    if space.super_labels is not None:
        supers = [space.super_names[label] for label in space.super_labels[rows].tolist()]
        given["supers"], given["super"] = _numbered(supers)
    pictures = None if space.texts else first.run.pictures
    shown = [None if pictures is None else pictures.show(images, name, PICTURE_BYTES) for name in given["name"]]
    given["picture"] = [None if picture is None else int(picture[1:]) for picture in shown]
    given["runs"], drawn = [], []
    for of in measured.runs:
        placed, share = numbers.flatten(of.space, of.rows[chosen], extent.projection, seed)
        x, y = _fitted(placed)
        given["runs"].append({"x": x, "y": y, "ok": of.correct[chosen, 0].long().tolist()})
        groups = [min(group, GROUPS) for group in given["super"] or given["class"]]
        drawn.append((of, list(zip(x, y, groups, strict=True)), share))
    names, without = given["supers"] or given["classes"], given["picture"].count(None)
    body = render(
        f"{TEMPLATES}/map.html",
        method=extent.projection,
        points=len(rows),
        queries=measured.queries,
        groups=names[:GROUPS],
        others=max(len(names) - GROUPS, 0),
        without=without if without < len(rows) else 0,
        texts=bool(space.texts),
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
