"""Sections of a page about retrieval runs: similarities, retrieved images, confused classes, tables, a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from ....evaluation import Report
from ....workbench.html import charts
from ....workbench.html.images import Images
from ....workbench.html.neighbours import Asked, Neighbour
from ....workbench.html.page import render
from ....workbench.html.text import enumeration, percent
from ....workbench.report import tables
from ....workbench.report.content import Extent, Section
from . import maps, numbers
from .measured import Answers, SideBySide, compare
from .paired import Paired, paired_difference
from .retrieved import RetrievalRun
from .shelf import Shelf

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


def sections(runs: Sequence[RetrievalRun], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
    """(all sections of a page about retrieval runs, notes on the queries and the pictures)."""
    seed = int(runs[0].config.get("seed") or 0)
    measured = compare(runs, extent.queries, extent.items, seed)
    shelf = Shelf(runs, images)
    kept = gallery(runs, measured, shelf)
    confused = confusions(runs, measured, shelf)
    placed = maps.section(runs, measured, shelf, extent, PICTURE_BYTES, seed)
    rows = paired(runs, measured, seed)
    of_seeds = any(run.variant for run in runs)  # then the comparison over seeds decides, which the page shows before
    found = [] if of_seeds else [(name, metric, each.low, each.high, None) for _, name, metric, each in rows]
    made = [
        tables.results(runs, _paired_table(runs, rows), tables.verdicts(runs[0].name, found)),
        ranking(runs, measured),
        confused,
        kept,
        classes(runs),
        *([] if placed is None else [placed]),
    ]
    return made, [*measured.matching.notes, *_other_galleries(runs), *_lost(runs, len(images))]


def _other_galleries(runs: Sequence[RetrievalRun]) -> list[str]:
    """A note on each run that searches among other items than the first run."""
    spaces = [(run.name, run.space) for run in runs if run.space is not None]
    return [
        f"{name} searches among other {space.noun} than {spaces[0][0]}: {len(space.gallery[2]):,}, not "
        f"{len(spaces[0][1].gallery[2]):,}. Metrics depend on the gallery, so these two runs are not compared."
        for name, space in spaces[1:]
        if not space.same_gallery(spaces[0][1])
    ]


def _lost(runs: Sequence[RetrievalRun], shown: int) -> list[str]:
    """A note on the images that could not be read."""
    failed = {name: why for run in runs if run.pictures is not None for name, why in run.pictures.failed.items()}
    if not failed:
        return []
    name, why = next(iter(failed.items()))
    if not shown:
        return [f"No pictures: the images of the data set cannot be read (the first, {name}: {why})."]
    return [f"{len(failed):,} images could not be read and are not shown (the first, {name}: {why})."]


# ------------------------------------------------------------------------------------------------- paired differences


def paired(runs: Sequence[RetrievalRun], measured: SideBySide, seed: int = 0) -> list[tuple[int, str, str, Paired]]:
    """(number of the run, its name, metric, its difference from the first run, query by query)."""
    first, *others = runs
    rows = []
    for place, other in enumerate(others, 1):
        one, two = measured.runs[0], measured.runs[place]
        if one is None or two is None or not two.space.same_gallery(one.space):
            continue
        for name in other.headline:
            difference = _paired(first, other, measured.matching.rows[0], measured.matching.rows[place], name, seed)
            if difference is not None:
                rows.append((place, other.name, name, difference))
    return rows


def _paired_table(runs: Sequence[RetrievalRun], rows: Sequence[tuple[int, str, str, Paired]]) -> Markup:
    if not rows:
        return Markup()
    seeds = {run.config.get("seed") for run in runs}
    return render(
        "tasks/retrieval/page/paired.html",
        first=runs[0],
        rows=rows,
        queries={difference.queries for *_, difference in rows},
        tested=any(difference.p is not None for *_, difference in rows),
        seed=seeds.pop() if len(seeds) == 1 else None,
        several=any(run.siblings for run in runs),
    )


def _paired(first: RetrievalRun, other: RetrievalRun, rows: Any, others: Any, name: str, seed: int) -> Paired | None:
    """The difference in one metric; None if a run lacks it for the queries of its embeddings."""
    values, keep = [], np.ones(len(rows), dtype=bool)
    for run, own in ((first, rows), (other, others)):
        per_query = run.after.per_query.get(name) if run.after is not None else None
        if run.after is None or run.space is None or per_query is None or len(per_query) != len(run.space.queries):
            return None
        if run.after.settings.get("weights"):  # its metrics are weighted means
            return None
        counted = np.ones(len(per_query), dtype=bool)
        if run.after.settings.get("query_without_relevant") != "miss":
            counted[run.after.uncounted] = False
        values.append(per_query[own.numpy()])
        keep &= counted[own.numpy()]
    if not keep.any():
        return None
    assert first.space is not None
    return paired_difference(values[1][keep], values[0][keep], first.space.labels[rows].numpy()[keep], seed=seed)


# -------------------------------------------------------------------------------------------------------------- ranking


def ranking(runs: Sequence[RetrievalRun], measured: SideBySide) -> Section:
    """Histograms of similarities, the precision-recall curve, and the R@K curve."""
    several = len(runs) > 1
    known = [(i, run) for i, run in enumerate(measured.runs) if run is not None]
    drawn = []
    if any(run.ranked.precision.isfinite().all() for _, run in known):
        grid = [(level + 0.5) / numbers.LEVELS for level in range(numbers.LEVELS)]
        curves = [(i, list(zip(grid, run.ranked.precision.tolist(), strict=True))) for i, run in known]
        series = [charts.Series(runs[i].name if several else "", points, i) for i, points in curves]
        areas = [float(run.ranked.ap.nanmean()) for _, run in known]
        summary = "" if several else f"area = AP {percent(areas[0])}"
        drawn.append(charts.lines("Precision at recall", series, "recall", summary=summary, y=(0, 1), size=charts.WIDE))
    hits = {i: numbers.recall_curve(run.after) for i, run in enumerate(runs) if run.after is not None}
    level = max((_level_from(points) for points in hits.values()), default=0)  # all curves are constant beyond it
    series = [
        charts.Series(runs[i].name if several else "", [(k, share) for k, share in points if k <= level], i)
        for i, points in hits.items()
        if points
    ]
    if series:
        drawn.append(
            charts.lines("R@K", series, "K, length of the list", log_x=True, summary="", y=(0, 1), size=charts.WIDE)
        )
    body = render(
        "tasks/retrieval/page/ranking.html",
        runs=runs,
        histograms=_histograms(runs, measured),
        thresholds=_whose_thresholds(runs),
        asked=len(measured.sampled),
        queries=len(measured.matching),
        curves=drawn,
    )
    return Section("ranking", "Ranking", body if known or drawn else Markup())


def _level_from(points: Sequence[tuple[int, float]]) -> int:
    """K from which on a curve is constant; 0 without points."""
    return next((k for k, share in points if share >= points[-1][1]), 0)


def _whose_thresholds(runs: Sequence[RetrievalRun]) -> str:
    own = [run.name for run in runs if run.thresholds is not None]
    if not own:
        return ""
    whose = "the loss" if len(own) == len(runs) else f"the loss of {enumeration(own, 8)}"
    return (
        f" Vertical lines: the thresholds of the calibration in {whose}. It pulls pairs of the same class above \u03b1 "
        "and pushes other pairs below \u03b2."
    )


def _histograms(runs: Sequence[RetrievalRun], measured: SideBySide) -> list[Markup]:
    """One histogram per run, all with the same axes, whose range covers the pairs and the thresholds."""
    known = [(i, run.similarities) for i, run in enumerate(measured.runs) if run is not None]
    shares = [both for _, similarities in known for both in similarities.shares]
    used = [place for share in shares for place in (share > 5e-4).nonzero().flatten().tolist()]
    if not used:
        return []
    width = 2 / numbers.BINS
    marked = [int((min(max(bound, -1.0), 1.0) + 1) / width) for i, _ in known for bound in runs[i].thresholds or ()]
    first, last = min(*used, *marked), min(numbers.BINS - 1, max(*used, *marked))
    edges = [-1 + width * place for place in range(first, last + 2)]
    top = 1.08 * max(float(share.max()) for share in shares)
    drawn = []
    for i, similarities in known:
        pairs = int(similarities.positive.sum()), int(similarities.negative.sum())
        marks: list[tuple[str, float]] = []
        words = ""
        if (thresholds := runs[i].thresholds) is not None:
            marks = [(f"{sign} = {at:.3g}", at) for sign, at in zip("\u03b1\u03b2", thresholds, strict=True)]
            words = (
                f"{percent(1 - similarities.below_alpha / max(1, pairs[0]))} % of same-class pairs above \u03b1, "
                f"{percent(1 - similarities.above_beta / max(1, pairs[1]))} % of the others below \u03b2"
            )
        spoken = f"Similarities of {pairs[0]:,} same-class and {pairs[1]:,} other pairs"
        positive, negative = (share[first : last + 1].tolist() for share in similarities.shares)
        drawn.append(
            charts.histogram(
                runs[i].name if len(runs) > 1 else "Share of pairs",
                edges,
                positive,
                negative,
                marks,
                top=top,
                spoken=f"{spoken}: {words}" if words else spoken,
                below=words,
                size=charts.SMALL if len(runs) > 1 else charts.WIDE,
            )
        )
    return drawn


# ----------------------------------------------------------------------------------------------------- retrieved images


def gallery(runs: Sequence[RetrievalRun], compared: SideBySide, shelf: Shelf) -> Section:
    """One card per query with a strip of items per run, and filters."""
    places: list[int] = []
    cards: list[dict[str, Any]] = []
    for place in _in_turn(compared.shown):
        if shelf.images.size > CARD_BYTES:
            break
        cards.append(_card(runs, compared, place, shelf))
        places.append(place)
    reasons = {reason: sum(place in places for place in chosen) for reason, chosen in compared.shown.items()}
    measured = [run for run in compared.runs if run is not None]
    alone = ", in every run" if len(measured) == 1 else ""
    body = render(
        "tasks/retrieval/page/gallery.html",
        cards=cards,
        reasons=[(reason, REASONS[reason].removesuffix(alone), count) for reason, count in reasons.items() if count],
        asked=len(compared.sampled),
        queries=len(compared.matching),
        several=len(measured) > 1,
        strips=len(measured),
        open=OPEN,
    )
    classes = sorted({run.space.class_names[label] for run in measured for label in set(run.space.labels.tolist())})
    data = {"classes": classes, "queries": len(compared.matching)}
    title = f"Retrieved {measured[0].space.noun if measured else 'images'}"
    return Section("gallery", title, body if cards else Markup(), {"gallery": data} if cards else {})


def _in_turn(shown: dict[str, list[int]]) -> list[int]:
    """Each query once, reasons in turn, so that every reason is present if the end is cut off."""
    longest = max(map(len, shown.values()), default=0)
    order = [places[turn] for turn in range(longest) for places in shown.values() if turn < len(places)]
    return list(dict.fromkeys(order))


def _card(runs: Sequence[RetrievalRun], measured: SideBySide, place: int, shelf: Shelf) -> dict[str, Any]:
    known = [(i, run) for i, run in enumerate(measured.runs) if run is not None]
    (index, first), several = known[0], len(runs) > 1
    row = int(first.rows[place])
    name, kind = first.space.names[row], first.space.class_names[int(first.space.labels[row])]
    strips = [
        {"kind": i, "run": runs[i].name, "quality": _quality(run, place), "items": _items(i, run, place, shelf)}
        for i, run in known
    ]
    text = first.space.text(row)
    spoken, quality = f"query of class {kind}", "" if several else _quality(first, place)
    return {
        "query": Asked(_picture(shelf, index, text, name), spoken, kind, name, quality, text),
        "why": " ".join(reason for reason, places in measured.shown.items() if place in places),
        "because": ", ".join(
            REASONS[reason].partition(":")[0] for reason, places in measured.shown.items() if place in places
        ),
        "first": "right" if all(bool(run.correct[place, 0]) for _, run in known) else "wrong",
        "strips": strips,
        "several": several,
    }


def _quality(run: Answers, place: int) -> str:
    ap, first = float(run.ranked.ap[place]), float(run.ranked.first[place])
    if math.isnan(ap):
        return "no relevant item"
    late = f", first right item at rank {first:,.0f}" if first > run.items.shape[1] else ""
    return f"AP {percent(ap)}{late}"


def _items(index: int, run: Answers, place: int, shelf: Shelf) -> list[Neighbour]:
    _, labels, names = run.space.gallery
    columns = (run.items[place].tolist(), run.scores[place].tolist(), run.correct[place].tolist())
    neighbours = []
    for rank, (item, score, right) in enumerate(zip(*columns, strict=True), 1):
        kind, name = run.space.class_names[int(labels[item])], names[item]
        text = run.space.item_text(item)
        shown = _picture(shelf, index, text, name)
        neighbours.append(Neighbour(shown, rank, score, kind, f"{kind}: {name}", right, text=text))
    return neighbours


def _picture(shelf: Shelf, index: int, text: str | None, name: str) -> str | None:
    """The picture of a row; None if the row has a text instead."""
    return shelf.show(index, name) if text is None else None


# ----------------------------------------------------------------------------------------------------- confused classes


def confusions(runs: Sequence[RetrievalRun], measured: SideBySide, shelf: Shelf) -> Section:
    """Table of the most often confused pairs of classes, each with its most similar pair of images."""
    known = [(i, run) for i, run in enumerate(measured.runs) if run is not None]
    counts: dict[tuple[str, str], dict[int, int]] = {}
    for i, run in known:
        for pair in run.confusions:
            counts.setdefault((pair.first, pair.second), {})[i] = pair.count
    order = sorted(counts, key=lambda pair: (-sum(counts[pair].values()), pair))[:CONFUSED]
    several = len(known) > 1
    rows = []
    for names in order:
        i, space, pair = next(
            (i, run.space, p) for i, run in known for p in run.confusions if (p.first, p.second) == names
        )
        query, item = pair.example
        shown = [
            (_picture(shelf, i, text, name), text)
            for text, name in (
                (space.text(query), space.names[query]),
                (space.item_text(item), space.gallery[2][item]),
            )
        ]
        if space.class_names[int(space.labels[query])] != pair.first:
            shown.reverse()
        single = [pair.count, pair.forward, pair.backward]
        cells = [counts[names].get(j, 0) for j, _ in known] if several else single
        rows.append(([(*both, name) for both, name in zip(shown, names, strict=True)], cells))
    wrong = [(runs[i].name, sum(pair.count for pair in run.confusions), len(run.rows)) for i, run in known]
    heads = [(i, runs[i].name) for i, _ in known]
    body = render("tasks/retrieval/page/confusions.html", rows=rows, wrong=wrong, several=several, heads=heads)
    return Section("confusions", "Confused classes", body if known else Markup())


# -------------------------------------------------------------------------------------------------------------- classes


def classes(runs: Sequence[RetrievalRun]) -> Section:
    """Metrics by super-label and by class."""
    data, parts = {}, []
    metrics = runs[0].main

    def rows_of(report: Report | None, kind: str) -> Any:
        return () if report is None else report.per_class if kind == "class" else report.per_super_label

    for kind in ("super-label", "class"):
        made = tables.class_table(runs, kind, [rows_of(run.after, kind) for run in runs], metrics, "AP", ["R@1"])
        if made is not None:
            parts.append(made[0])
            data[kind] = made[1]
    lead = "Each number is the mean over the queries of the class, in per cent. The hardest classes come first."
    leads = "; if a class has examples above, its name links to them"
    body = render("workbench/report/tables_of_classes.html", lead=lead, leads=leads, tables=parts)
    return Section("classes", "Classes", body if parts else Markup(), {"tables": data} if parts else {})
