"""One self-contained HTML page about one run or several: numbers, curves, pictures, classes, a map, settings.

The page is one file and loads nothing. A content security policy in it lets only its own script and style sheets act,
by their hashes. Everything that matters can be read without the script, which sorts, filters and enlarges; the page is
worked by keyboard, follows the reader's light or dark scheme, and prints.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from .._version import __version__
from ..files import write_text
from . import cards, charts, maps, numbers, tables
from .content import Content
from .images import Images
from .measured import Comparison, compare
from .text import as_json, enumeration, escaped, percent

MOST_RUNS = 8  # colours and dashes that can be told apart
QUERIES = 4000  # that are asked, of more
POINTS = 2000  # of the map
ITEMS = 10  # per query
# Bytes of pictures: cards stop at the first, points of the map have none after the second. With what a set of 60 000
# images needs besides (a few MB of tables) a page stays under 20 MB.
CARD_BYTES, PICTURE_BYTES = 9_000_000, 14_000_000

Section = tuple[str, str, str]  # key, heading, body


def write_report(
    path: str | os.PathLike[str],
    runs: Sequence[Content],
    *,
    title: str | None = None,
    projection: maps.Method = "pca",
    queries: int = QUERIES,
    points: int = POINTS,
    items: int = ITEMS,
) -> Path:
    """Write the page of one run, or of several side by side; replaced as a whole if it is there.

    Args:
        path: the file; its folder must exist.
        runs: 1 to 8, as `read_runs` gives them.
        title: heading; None: data and losses.
        projection: of the map: "pca", or "tsne" (needs scikit-learn, seconds per thousand points).
        queries: asked at most for histograms, curve, confusions and pictures; of more, a sample is drawn.
        points: of the map, at most.
        items: shown per query.

    Returns:
        The path written.

    Raises:
        ValueError: no run or more than 8; numbers out of range; embeddings that are not finite.
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ValueError(f"a report is of 1 to {MOST_RUNS} runs; got {len(runs)}")
    if min(queries, points, items) < 1:
        raise ValueError(f"queries, points and items must be >= 1; got {queries}, {points} and {items}")
    if projection not in ("pca", "tsne"):
        raise ValueError(f"projection must be 'pca' or 'tsne'; got {projection!r}")
    page = _page(list(runs), title, projection, queries, points, items)
    write_text(path, page)
    return path


def _page(
    runs: list[Content], title: str | None, projection: maps.Method, queries: int, points: int, items: int
) -> str:
    seed = int(runs[0].config.get("seed") or 0)
    found = compare(runs, queries, items, seed)
    images = Images()
    shelf = cards.Shelf(runs, images)
    data: dict[str, Any] = {"tables": {}}
    pictured = cards.gallery(runs, found, shelf, CARD_BYTES)
    confused = cards.confusions(runs, found, shelf)
    placed = maps.section(runs, found, shelf, points, projection, PICTURE_BYTES, seed)
    if placed is not None:
        data["map"] = placed[1]
    sections: list[Section] = [
        ("results", "Results", _results(runs)),
        ("curves", "Training", _curves(runs)),
        ("ranking", "Ranking", _ranking(runs, found)),
        ("gallery", "Retrieved images", pictured),
        ("confusions", "Confused classes", confused),
        ("classes", "Classes", _classes(runs, data["tables"])),
        ("map", "Map", "" if placed is None else placed[0]),
        ("configuration", "Configuration", tables.configuration(runs)),
    ]
    sections = [section for section in sections if section[2]]
    style, script, pictures = _own("page.css"), _own("page.js"), images.css()
    return Template(_own("page.html")).substitute(
        version=escaped(__version__),
        title=escaped(title or _title(runs)),
        policy=_policy(script, [style, pictures]),
        style=style,
        pictures=pictures,
        facts=_facts(runs),
        links="".join(f'<a href="#{key}">{name}</a>' for key, name, _ in sections),
        notes=_notes([*_about(runs), *found.matching.notes, *_lost(runs, len(images))]),
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-heading"><h2 id="{key}-heading">{name}</h2>\n{body}</section>'
            for key, name, body in sections
        ),
        data=as_json(data),
        script=script,
    )


def _own(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(script: str, styles: Sequence[str]) -> str:
    """Nothing but the page's own script, style sheets and pictures."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {' '.join(map(digest, styles))}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


# ------------------------------------------------------------------------------------------------------- heading


def _title(runs: Sequence[Content]) -> str:
    data = list(dict.fromkeys(_named(run.config.get("data")) or "run" for run in runs))
    if len(runs) == 1:
        return f"{data[0]}: {runs[0].loss}" if runs[0].loss else runs[0].name
    return f"{enumeration(data)}: {enumeration([run.name for run in runs], 4)}"


def _named(value: object) -> str:
    """Name of a part of a configuration: data, model."""
    if isinstance(value, dict):
        value = value.get("name") or value.get("kind") or ""
    return "" if value is None else str(value)


def _facts(runs: Sequence[Content]) -> str:
    """What was trained on what; of several runs a legend."""
    if len(runs) > 1:
        entries = []
        for kind, run in enumerate(runs):
            where = f'<span class="muted">{escaped(run.loss)}</span>' if run.loss else ""
            entries.append(f"<li>{charts.key(kind)} <strong>{escaped(run.name)}</strong> {where}</li>")
        return f'<ul class="facts" aria-label="Runs">{"".join(entries)}</ul>'
    (run,) = runs
    known = {"data": _named(run.config.get("data")), "loss": run.loss, "model": _named(run.config.get("model"))}
    known["seed"] = str(run.config.get("seed", ""))
    if "steps" in run.facts:
        known["steps"] = f"{run.facts['steps']:,}"
    if run.facts.get("train_seconds") is not None:
        known["training"] = _duration(run.facts["train_seconds"])
    facts = [f"<li><span>{name}</span> {escaped(value)}</li>" for name, value in known.items() if value]
    return f'<ul class="facts">{"".join(facts)}</ul>' if facts else ""


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    entries = "".join(f"<li>{escaped(note)}</li>" for note in notes)
    return f'<div class="notes card" role="note"><ul>{entries}</ul></div>'


def _about(runs: Sequence[Content]) -> list[str]:
    """The notes of the runs and of their evaluations; with several runs, whose they are."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for note in (*run.notes, *(run.after.notes if run.after is not None else ())):
            found.setdefault(note, []).append(run.name)
    if len(runs) == 1:
        return list(found)
    return [note if len(names) == len(runs) else f"{enumeration(names)}: {note}" for note, names in found.items()]


def _lost(runs: Sequence[Content], shown: int) -> list[str]:
    """Images that were wanted and could not be read."""
    failed = {name: why for run in runs if run.pictures is not None for name, why in run.pictures.failed.items()}
    if not failed:
        return []
    name, why = next(iter(failed.items()))
    if not shown:
        return [f"No pictures: the images of the data set cannot be read any more (the first, {name}: {why})."]
    return [f"{len(failed):,} images could not be read and are not shown (the first, {name}: {why})."]


# ------------------------------------------------------------------------------------------------------ sections


def _results(runs: Sequence[Content]) -> str:
    table = tables.metrics_table(runs)
    if not table:
        return ""
    sure = next((run.after.settings.get("confidence", 0.95) for run in runs if run.after is not None), 0.95)
    counts = list(dict.fromkeys(tables.counted(run.after) for run in runs if run.after is not None))
    below = "".join(f'<br><span class="small">{count}</span>' for count in counts[:1])
    if len(counts) > 1:
        below = '<br><span class="small">The runs were evaluated on different sets.</span>'
    return f"""<p class="lead">In per cent. The small range at a number is its {100 * sure:g} % interval.{below}</p>
{tables.tiles(runs)}{table}"""


def _curves(runs: Sequence[Content]) -> str:
    names = list(dict.fromkeys(name for run in runs for name, points in run.curves.items() if points))
    if not names:
        return ""
    drawn = []
    for name in names:
        series = [
            charts.Series(run.name if len(runs) > 1 else "", run.curves[name], kind)
            for kind, run in enumerate(runs)
            if run.curves.get(name)
        ]
        drawn.append(charts.lines(name, series, "step"))
    return f"""<p class="lead">Measured during training, against the number of steps.{_colours(runs)}</p>
<div class="curves">{"".join(drawn)}</div>"""


def _colours(runs: Sequence[Content]) -> str:
    if len(runs) == 1:
        return ""
    names = (f"{charts.key(kind)} {escaped(run.name)}" for kind, run in enumerate(runs))
    return "".join(f' <span class="whose">{name}</span>' for name in names)


def _ranking(runs: Sequence[Content], found: Comparison) -> str:
    """Similarities of pairs, precision and recall, R@K."""
    parts = []
    several = len(runs) > 1
    known = [(i, run) for i, run in enumerate(found.runs) if run is not None]
    if known:
        among = "all" if len(found.sampled) == len(found.matching) else f"{len(found.sampled):,} of"
        parts.append(
            f'<h3 class="group">Similarities of pairs</h3><p class="lead">Cosines between {among} '
            f"{len(found.matching):,} queries and every item. "
            '<span class="ok">Solid: pairs of the same class.</span> '
            '<span class="no">Dashed: pairs of different classes.</span> Each outline is a distribution of its own: '
            f"there are many more pairs of different classes.{_whose_thresholds(runs)}</p>"
            f'<div class="curves{"" if several else " wide"}">{_histograms(runs, found)}</div>'
        )
    drawn = []
    if any(run.ranked.precision.isfinite().all() for _, run in known):
        grid = [(level + 0.5) / numbers.LEVELS for level in range(numbers.LEVELS)]
        curves = [(i, list(zip(grid, run.ranked.precision.tolist(), strict=True))) for i, run in known]
        series = [charts.Series(runs[i].name if several else "", points, i) for i, points in curves]
        areas = [float(run.ranked.ap.nanmean()) for _, run in known]
        summary = "" if several else f"area = AP {percent(areas[0])}"
        drawn.append(charts.lines("Precision at recall", series, "recall", summary=summary, y=(0, 1), size=charts.WIDE))
    hits = {i: numbers.recall_curve(run.after) for i, run in enumerate(runs) if run.after is not None}
    level = max((_level_from(points) for points in hits.values()), default=0)  # nothing is seen beyond it
    series = [
        charts.Series(runs[i].name if several else "", [(k, share) for k, share in points if k <= level], i)
        for i, points in hits.items()
        if points
    ]
    if series:
        drawn.append(
            charts.lines("R@K", series, "K, length of the list", log_x=True, summary="", y=(0, 1), size=charts.WIDE)
        )
    if drawn:
        parts.append(
            f'<h3 class="group">Precision, recall and R@K</h3><p class="lead">Left: precision of the list that is just '
            "long enough for a share of the relevant items, mean over the queries; the area under it is the mean AP. "
            f"Right: share of all queries with a relevant item among the K nearest.{_colours(runs)}</p>"
            f'<div class="curves wide">{"".join(drawn)}</div>'
        )
    return "".join(parts)


def _level_from(points: Sequence[tuple[int, float]]) -> int:
    """K from which a curve stays as it is; 0 without points."""
    return next((k for k, share in points if share >= points[-1][1]), 0)


def _whose_thresholds(runs: Sequence[Content]) -> str:
    own = [run for run in runs if run.thresholds[2]]
    if len(own) == len(runs):
        return " Upright lines: where the calibration of the loss pulls them, above \u03b1 and below \u03b2."
    if not own:
        return (
            " Upright lines: ROADMAP's default thresholds, above \u03b1 and below \u03b2, for orientation; "
            "the loss does not know them."
        )
    names = escaped(enumeration([run.name for run in own], 8))
    return (
        f" Upright lines: where the calibration in the loss of {names} pulls them, above \u03b1 and below \u03b2; "
        "for the others ROADMAP's default thresholds, for orientation."
    )


def _histograms(runs: Sequence[Content], found: Comparison) -> str:
    """One per run, on the same axes: as wide as the pairs and the thresholds need."""
    known = [(i, run.similarities) for i, run in enumerate(found.runs) if run is not None]
    shares = [both for _, similarities in known for both in similarities.shares]
    used = [place for share in shares for place in (share > 5e-4).nonzero().flatten().tolist()]
    if not used:
        return ""
    width = 2 / numbers.BINS
    marked = [int((min(max(bound, -1.0), 1.0) + 1) / width) for i, _ in known for bound in runs[i].thresholds[:2]]
    first, last = min(*used, *marked), min(numbers.BINS - 1, max(*used, *marked))
    edges = [-1 + width * place for place in range(first, last + 2)]
    top = 1.08 * max(float(share.max()) for share in shares)
    drawn = []
    for i, similarities in known:
        alpha, beta, own = runs[i].thresholds
        default = "" if own else ", default"
        pairs = int(similarities.positive.sum()), int(similarities.negative.sum())
        words = (
            f"{percent(1 - similarities.below_alpha / max(1, pairs[0]))} % of same-class pairs above \u03b1, "
            f"{percent(1 - similarities.above_beta / max(1, pairs[1]))} % of the others below \u03b2"
        )
        positive, negative = (share[first : last + 1].tolist() for share in similarities.shares)
        drawn.append(
            charts.histogram(
                runs[i].name if len(runs) > 1 else "Share of pairs",
                edges,
                positive,
                negative,
                [(f"\u03b1 = {alpha:g}{default}", alpha), (f"\u03b2 = {beta:g}{default}", beta)],
                top=top,
                spoken=f"Similarities of {pairs[0]:,} same-class and {pairs[1]:,} other pairs: {words}",
                below=words,
                size=charts.SMALL if len(runs) > 1 else charts.WIDE,
            )
        )
    return "".join(drawn)


def _classes(runs: Sequence[Content], data: dict[str, Any]) -> str:
    parts = []
    for kind, rows in (
        ("super-label", [run.after.per_super_label if run.after else () for run in runs]),
        ("class", [run.after.per_class if run.after else () for run in runs]),
    ):
        made = tables.class_table(runs, kind, rows)
        if made is not None:
            parts.append(f'<h3 class="group">By {kind}</h3>{made[0]}')
            data[kind] = made[1]
    if not parts:
        return ""
    return (
        '<p class="lead">Each number is the mean over the queries of the class, in per cent; hardest first. '
        '<span class="script">A heading sorts, arrow keys move between rows; a class that is among the retrieved '
        "images leads to them.</span></p>" + "".join(parts)
    )
