"""Sections of a page about retrieval runs: similarities, retrieved images, confused classes, tables, a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from markupsafe import Markup

from rankgrad.evaluation.statistics import PairedDifference, paired_over_groups

from ....report import tables
from ....report.content import Extent, Section
from ....report.html import charts
from ....report.html.images import Images
from ....report.html.neighbours import Asked, Neighbour
from ....report.html.templates import render
from ....report.html.text import percent
from . import maps, numbers
from .measured import Answers, SideBySide, compare
from .reading import Content

REASONS = {
    "random": "drawn at random",
    "worst": "lowest AP",
    "best": "highest AP",
    "failures": "hardest failures: in every run a wrong item is far nearer than any right one",
    "disagree": "the runs disagree most",
}
CONFUSED = 30  # pairs of classes
OPEN = 5  # cards; the others are folded, so that what follows them is near
# Bytes of pictures on a page: no card is added beyond the first number, no picture of a map point beyond the second.
# With the tables of a set of 60 000 images (a few MB), a page stays under 20 MB.
CARD_BYTES, PICTURE_BYTES = 9_000_000, 14_000_000


def sections(runs: Sequence[Content], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
    """(all sections of a page about retrieval runs, notes on the queries and the pictures)."""
    seed = int(runs[0].config.get("seed") or 0)
    measured = compare(runs, extent.queries, extent.items, seed)
    kept = gallery(measured, images, several=len(runs) > 1)
    confused = confusions(measured, images)
    placed = maps.section(measured, images, extent, PICTURE_BYTES, seed)
    rows = paired(runs, measured, seed)
    of_seeds = any(run.variant for run in runs)  # then the comparison over seeds decides, which the page shows before
    found = [] if of_seeds else [(of.run.name, name, each.low, each.high, None) for of, name, each in rows]
    made = [
        tables.results(runs, _paired_table(runs, rows), tables.verdicts(runs[0].name, found)),
        ranking(runs, measured),
        confused,
        kept,
        classes(runs),
        *([] if placed is None else [placed]),
    ]
    return made, [*measured.notes, *_other_galleries(runs), *_lost(runs, len(images))]


def _other_galleries(runs: Sequence[Content]) -> list[str]:
    """A note on each run that searches among other items than the first run."""
    spaces = [(run.name, run.space) for run in runs if run.space is not None]
    return [
        f"{name} searches among other {space.noun} than {spaces[0][0]}: {len(space.gallery[2]):,}, not "
        f"{len(spaces[0][1].gallery[2]):,}. Metrics depend on the gallery, so these two runs are not compared."
        for name, space in spaces[1:]
        if not space.same_gallery(spaces[0][1])
    ]


def _lost(runs: Sequence[Content], shown: int) -> list[str]:
    """A note on the images that could not be read."""
    failed = {name: why for run in runs if run.pictures is not None for name, why in run.pictures.failed.items()}
    if not failed:
        return []
    what = f"{len(failed):,} images could not be read and are not shown"
    what = what if shown else "No pictures: the images of the data set cannot be read"
    return ["{} (the first, {}: {}).".format(what, *next(iter(failed.items())))]


# ------------------------------------------------------------------------------------------------- paired differences


def paired(runs: Sequence[Content], measured: SideBySide, seed: int = 0) -> list[tuple[Answers, str, PairedDifference]]:
    """(run, metric, its difference from the first run, query by query)."""
    if not measured.runs or measured.runs[0].kind:
        return []
    first, *others = measured.runs
    rows = []
    for other in others:
        for name in other.run.headline if other.space.same_gallery(first.space) else ():
            values = [_per_query(of, name) for of in (other, first)]
            keep = np.logical_and(*(~np.isnan(each) for each in values))
            if keep.any():
                group = first.space.labels[first.matched].numpy()[keep]
                rows.append((other, name, paired_over_groups(values[0][keep], values[1][keep], group, seed=seed)))
    return rows


def _per_query(of: Answers, name: str) -> Any:
    """[query] values of the common queries; NaN for those that do not count, and where the run has no such values."""
    report = of.run.after
    values = None if report is None or report.settings.get("weights") else report.per_query.get(name)
    if report is None or values is None or len(values) != len(of.space.queries):
        return np.full(len(of.matched), np.nan)
    if report.settings.get("query_without_relevant") != "miss":
        values = values.copy()
        values[report.uncounted] = np.nan
    return values[of.matched.numpy()]


def _paired_table(runs: Sequence[Content], rows: Sequence[tuple[Answers, str, PairedDifference]]) -> Markup:
    if not rows:
        return Markup()
    seeds = {run.config.get("seed") for run in runs}
    return render(
        "tasks/retrieval/page/paired.html",
        first=runs[0],
        rows=rows,
        queries={difference.n for *_, difference in rows},
        tested=any(difference.p is not None for *_, difference in rows),
        seed=seeds.pop() if len(seeds) == 1 else None,
        several=any(run.siblings for run in runs),
    )


# -------------------------------------------------------------------------------------------------------------- ranking


def ranking(runs: Sequence[Content], measured: SideBySide) -> Section:
    """Histograms of similarities, the precision-recall curve, and the R@K curve."""
    several = len(runs) > 1
    drawn = []
    if any(of.ranked.precision.isfinite().all() for of in measured.runs):
        grid = [(level + 0.5) / numbers.LEVELS for level in range(numbers.LEVELS)]
        curves = {of.kind: list(zip(grid, of.ranked.precision.tolist(), strict=True)) for of in measured.runs}
        area = "" if several else f"area = AP {percent(float(measured.runs[0].ranked.ap.nanmean()))}"
        series = [charts.Series(runs[kind].name if several else "", points, kind) for kind, points in curves.items()]
        drawn.append(charts.lines("Precision at recall", series, "recall", summary=area, y=(0, 1), size=charts.WIDE))
    hits = {i: numbers.recall_curve(run.after) for i, run in enumerate(runs) if run.after is not None}
    # all curves are constant from this K on
    most = max(
        (next(k for k, share in points if share >= points[-1][1]) for points in hits.values() if points), default=0
    )
    series = [
        charts.Series(runs[i].name if several else "", [(k, share) for k, share in points if k <= most], i)
        for i, points in hits.items()
        if points
    ]
    if series:
        across = "K, length of the list"
        drawn.append(charts.lines("R@K", series, across, log_x=True, summary="", y=(0, 1), size=charts.WIDE))
    body = render(
        "tasks/retrieval/page/ranking.html",
        runs=runs,
        histograms=_histograms(measured, several),
        calibrated=[run.name for run in runs if run.thresholds],
        asked=measured.asked,
        queries=measured.queries,
        curves=drawn,
    )
    return Section("ranking", "Ranking", body if measured.runs or drawn else Markup())


def _histograms(measured: SideBySide, several: bool) -> list[Markup]:
    """One histogram per run, all with the same axes, whose range covers the pairs and the thresholds."""
    shares = [both for of in measured.runs for both in of.similarities.shares]
    used = [place for share in shares for place in (share > 5e-4).nonzero().flatten().tolist()]
    if not used:
        return []
    width = 2 / numbers.BINS
    marked = [int((min(max(at, -1.0), 1.0) + 1) / width) for of in measured.runs for at in of.run.thresholds.values()]
    first, last = min(*used, *marked), min(numbers.BINS - 1, max(*used, *marked))
    edges = [-1 + width * place for place in range(first, last + 2)]
    top = 1.08 * max(float(share.max()) for share in shares)
    drawn = []
    for of in measured.runs:
        pairs = int(of.similarities.positive.sum()), int(of.similarities.negative.sum())
        words = ""
        if of.run.thresholds:
            alpha, beta = map(of.similarities.below, of.run.thresholds.values())
            words = f"{1 - alpha[0]:.0%} of same-class pairs above \u03b1, {beta[1]:.0%} of the others below \u03b2"
            words = words.replace("%", " %")
        spoken = f"Similarities of {pairs[0]:,} same-class and {pairs[1]:,} other pairs"
        drawn.append(
            charts.histogram(
                of.run.name if several else "Share of pairs",
                edges,
                [share[first : last + 1].tolist() for share in of.similarities.shares],
                [(f"{sign} = {at:.3g}", at) for sign, at in of.run.thresholds.items()],
                top=top,
                spoken=f"{spoken}: {words}" if words else spoken,
                below=words,
                size=charts.SMALL if several else charts.WIDE,
            )
        )
    return drawn


# ----------------------------------------------------------------------------------------------------- retrieved images


def gallery(measured: SideBySide, images: Images, several: bool) -> Section:
    """One card per query with a strip of items per run, and filters."""
    longest = max(map(len, measured.shown.values()), default=0)
    # reasons in turn, so that every reason is present if the end is cut off
    order = [of[turn] for turn in range(longest) for of in measured.shown.values() if turn < len(of)]
    cards: dict[int, dict[str, Any]] = {}
    for place in dict.fromkeys(order):
        if images.size > CARD_BYTES:
            break
        cards[place] = _card(measured, place, images, several)
    if not cards:
        return Section("gallery", "", Markup())
    alone = ", in every run" if len(measured.runs) == 1 else ""
    counts = {reason: sum(place in cards for place in chosen) for reason, chosen in measured.shown.items()}
    body = render(
        "tasks/retrieval/page/gallery.html",
        cards=list(cards.values()),
        reasons=[(reason, REASONS[reason].removesuffix(alone), count) for reason, count in counts.items() if count],
        asked=measured.asked,
        queries=measured.queries,
        several=len(measured.runs) > 1,
        strips=len(measured.runs),
        open=OPEN,
    )
    known = sorted({name for of in measured.runs for name in of.space.classes_of(torch.unique(of.space.labels))})
    data = {"classes": known, "queries": measured.queries}
    return Section("gallery", f"Retrieved {measured.runs[0].space.noun}", body, {"gallery": data})


def _card(measured: SideBySide, place: int, images: Images, several: bool) -> dict[str, Any]:
    first, space = measured.runs[0], measured.runs[0].space
    row = int(first.rows[place])
    kind = space.class_names[int(space.labels[row])]
    picture, text = _seen(first, row, images)
    quality = "" if several else _quality(first, place)
    reasons = [reason for reason, places in measured.shown.items() if place in places]
    return {
        "query": Asked(picture, f"query of class {kind}", kind, space.names[row], quality, text),
        "why": " ".join(reasons),
        "because": ", ".join(REASONS[reason].partition(":")[0] for reason in reasons),
        "first": "right" if all(bool(of.correct[place, 0]) for of in measured.runs) else "wrong",
        "strips": [
            {"kind": of.kind, "run": of.run.name, "quality": _quality(of, place), "items": _items(of, place, images)}
            for of in measured.runs
        ],
        "several": several,
    }


def _quality(of: Answers, place: int) -> str:
    ap, first = float(of.ranked.ap[place]), float(of.ranked.first[place])
    if math.isnan(ap):
        return "no relevant item"
    late = f", first right item at rank {first:,.0f}" if first > of.items.shape[1] else ""
    return f"AP {percent(ap)}{late}"


def _items(of: Answers, place: int, images: Images) -> list[Neighbour]:
    _, labels, names = of.space.gallery
    columns = (of.items[place].tolist(), of.scores[place].tolist(), of.correct[place].tolist())
    neighbours = []
    for rank, (item, score, right) in enumerate(zip(*columns, strict=True), 1):
        kind, (picture, text) = of.space.class_names[int(labels[item])], _seen(of, item, images, item=True)
        neighbours.append(Neighbour(picture, rank, score, kind, f"{kind}: {names[item]}", right, text=text))
    return neighbours


def _seen(of: Answers, row: int, images: Images, *, item: bool = False) -> tuple[str | None, str | None]:
    """(CSS class of the picture of a query or an item, its text); a row with a text has no picture."""
    text, name = of.space.text(row, item=item), (of.space.gallery[2] if item else of.space.names)[row]
    return of.run.pictures.show(images, name) if text is None and of.run.pictures is not None else None, text


# ----------------------------------------------------------------------------------------------------- confused classes


def confusions(measured: SideBySide, images: Images) -> Section:
    """Table of the most often confused pairs of classes, each with its most similar pair of images."""
    found: dict[tuple[str, str], list[tuple[Answers, numbers.Confusion]]] = {}
    for of in measured.runs:
        for pair in of.confusions:
            found.setdefault((pair.first, pair.second), []).append((of, pair))
    order = sorted(found, key=lambda names: (-sum(pair.count for _, pair in found[names]), names))[:CONFUSED]
    several = len(measured.runs) > 1
    rows = []
    for names in order:
        (of, pair), counts = found[names][0], {of.kind: pair.count for of, pair in found[names]}
        query, item = pair.example
        shown = [_seen(of, query, images), _seen(of, item, images, item=True)]
        if of.space.class_names[int(of.space.labels[query])] != pair.first:
            shown.reverse()
        single = [pair.count, pair.forward, pair.backward]
        cells = [counts.get(each.kind, 0) for each in measured.runs] if several else single
        rows.append(([(*both, name) for both, name in zip(shown, names, strict=True)], cells))
    wrong = [(of.run.name, sum(pair.count for pair in of.confusions), len(of.rows)) for of in measured.runs]
    heads = [(of.kind, of.run.name) for of in measured.runs]
    body = render("tasks/retrieval/page/confusions.html", rows=rows, wrong=wrong, several=several, heads=heads)
    return Section("confusions", "Confused classes", body if measured.runs else Markup())


# -------------------------------------------------------------------------------------------------------------- classes


def classes(runs: Sequence[Content]) -> Section:
    """Metrics by super-label and by class."""
    data, parts = {}, []
    for kind, name in (("super-label", "per_super_label"), ("class", "per_class")):
        made = tables.class_table(
            runs, kind, [getattr(run.after, name, ()) for run in runs], runs[0].main, "AP", ["R@1"]
        )
        if made is not None:
            parts.append(made[0])
            data[kind] = made[1]
    lead = "Each number is the mean over the queries of the class, in per cent. The hardest classes come first."
    leads = "; if a class has examples above, its name links to them"
    body = render("report/tables_of_classes.html", lead=lead, leads=leads, tables=parts)
    return Section("classes", "Classes", body if parts else Markup(), {"tables": data} if parts else {})
