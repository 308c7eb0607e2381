"""One self-contained HTML page about a run: numbers before and after, curves, retrieved images, configuration.

The page is one file. It loads nothing (a content security policy in it says so), runs no script, follows the reader's
light or dark scheme, prints, and is worked by keyboard. Every image is stored once, however often it is shown.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import metrics, search
from .._version import __version__
from ..evaluation import DISTANCES

THUMBNAIL = 128  # longest side of a stored image in pixels; the page shows them at about 100
JPEG_FROM = 6000  # bytes of PNG from which JPEG is tried: photographs shrink tenfold, drawings never get here
CANDIDATES = 2000  # queries among which `retrieval_gallery` looks for the best and the worst
WORST_CLASSES = 15
LINE_POINTS = 240  # a curve of more points is drawn as its range, with a running mean over it

# What a reader is told about a metric. The first five are the table; the rest stands behind "all other metrics".
MEANING = {
    "R@1": "nearest item is right",
    "R@4": "a right item among the 4 nearest",
    "mAP@R": "average precision over the R nearest, R = number of right items",
    "AP": "average precision over the whole ranking",
    "NMI": "k-means clusters against classes",
    "R-precision": "right items among the R nearest",
    "MRR": "1 / rank of the first right item",
    "AUC_hardest": "a query's worst right item against any query's best wrong one",
    "dists_intra": "mean distance within a class, 0 to 2: lower is tighter",
    "dists_inter": "mean distance between classes, 0 to 2",
}
_FIRST = ("R@1", "R@4", "mAP@R", "AP", "NMI")
_TILES = ("R@1", "mAP@R", "AP")


class ReportLike(Protocol):
    """What the page reads of an evaluation report."""

    @property
    def values(self) -> Mapping[str, float]:
        """Metric -> fraction in 0 .. 1 (`dists_*`: a distance); NaN if it could not be computed."""
        ...

    @property
    def intervals(self) -> Mapping[str, tuple[float, float]]:
        """Metric -> interval; metrics without one are absent. Its confidence is `settings["confidence"]`."""
        ...

    @property
    def per_class(self) -> Sequence[Mapping[str, Any]]:
        """One row per class: name, queries, and the mean of each metric, None if it has no counted query."""
        ...

    @property
    def per_super_label(self) -> Sequence[Mapping[str, Any]]:
        """The same by super-label."""
        ...

    @property
    def counts(self) -> Mapping[str, int]:
        """Queries, items, queries without a relevant item, ..."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """How the numbers were computed."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the numbers should know."""
        ...


@dataclass(frozen=True)
class RetrievedItem:
    """One image that was found for a query.

    Attributes:
        image: uint8 [channel, height, width], grey or RGB.
        class_name: its class.
        score: similarity to the query.
        rank: 1 is the nearest.
        correct: it is relevant to the query.
    """

    image: Tensor
    class_name: str
    score: float
    rank: int
    correct: bool


@dataclass(frozen=True)
class QueryExample:
    """One query and what was found for it.

    Attributes:
        image: uint8 [channel, height, width], grey or RGB.
        name: what a person calls the image.
        class_name: its class.
        items: the nearest items, best first.
        average_precision: AP of the whole ranking, NaN if the query has no relevant item.
        group: heading under which the page shows the query; queries of a group follow one another.
        first_right: rank of the first relevant item in the whole ranking, None if there is none or it is not known.
    """

    image: Tensor
    name: str
    class_name: str
    items: tuple[RetrievedItem, ...]
    average_precision: float
    group: str = ""
    first_right: int | None = None


def retrieval_gallery(
    image: Callable[[int], Tensor],
    embeddings: Tensor,
    labels: Tensor,
    class_names: Sequence[str],
    queries: Sequence[int] | None = None,
    k: int = 10,
    *,
    random: int = 12,
    worst: int = 10,
    best: int = 6,
    names: Sequence[str] | None = None,
    average_precision: Tensor | None = None,
    seed: int = 0,
) -> list[QueryExample]:
    """Queries with the k nearest other images, by cosine: random ones, then the worst and the best by AP.

    Args:
        image: index of a row of `embeddings` -> its image, uint8 [channel, height, width].
        embeddings: [image, dim] float, need not be normalised.
        labels: [image] long; relevant = same label.
        class_names: name of each label.
        queries: rows to show, instead of the choice below.
        k: items per query; as many as there are, if fewer.
        random: queries drawn by `seed` among those with a relevant item.
        worst: queries of lowest AP. With `average_precision` None they are looked for among 2000 drawn by `seed`.
        best: queries of highest AP, likewise. No query is shown twice; of equal AP the lower row comes first.
        names: what a person calls each image; its row if None.
        average_precision: [image] AP of each query, NaN where it has no relevant item, if already at hand.
        seed: of the random choice.

    Returns:
        One record per query, in the order random, worst, best (or that of `queries`). The AP in a record is over the
        whole ranking, query left out, ties pessimistic: as `metrics.average_precision`.

    Raises:
        ValueError: labels, names or `average_precision` out of step with the embeddings, fewer than two images, rows
            or labels out of range; from `search`, embeddings that are not finite.

    >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> blank = lambda row: torch.zeros(1, 4, 4, dtype=torch.uint8)
    >>> example = retrieval_gallery(blank, points, torch.tensor([0, 1, 0]), ["a", "b"], queries=[0], k=2)[0]
    >>> [(item.rank, item.class_name, item.correct) for item in example.items], example.average_precision
    ([(1, 'b', False), (2, 'a', True)], 0.5)
    """
    count = len(embeddings)
    if embeddings.ndim != 2 or count < 2:
        raise ValueError(
            f"a gallery needs embeddings [image, dim] of at least two images; got {list(embeddings.shape)}"
        )
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(f"labels must be [{count}] long, one class per image; got {list(labels.shape)} {labels.dtype}")
    if int(labels.min()) < 0 or int(labels.max()) >= len(class_names):
        raise ValueError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but there are {len(class_names)} class names"
        )
    if names is not None and len(names) != count:
        raise ValueError(f"names needs one entry per image ({count}); got {len(names)}")
    if average_precision is not None and average_precision.shape != (count,):
        raise ValueError(f"average_precision must be [{count}]; got {list(average_precision.shape)}")
    if k < 1:
        raise ValueError(f"k is a number of items and must be >= 1; got {k}")
    unit = F.normalize(embeddings.detach().float(), dim=1)
    labels = labels.to(unit.device)
    rows = torch.arange(count)

    def ranked(chosen: Tensor) -> tuple[Tensor, Tensor]:
        """AP and rank of the first relevant item of these rows, NaN where there is none."""
        ranks = search.rank_relevant(unit[chosen], labels[chosen], unit, labels, ids=chosen, ref_ids=rows)
        counted = ranks.pessimistic.counted
        ap, first = metrics.average_precision(ranks.pessimistic), 1 / metrics.reciprocal_rank(ranks.index)
        return torch.where(counted, ap, torch.nan).cpu(), torch.where(counted, first, torch.nan).cpu()

    groups: list[tuple[str, list[int]]]
    if queries is not None:
        if not all(0 <= query < count for query in queries):
            raise ValueError(f"queries must be rows 0 .. {count - 1}; got {sorted(queries)}")
        groups = [("", [int(query) for query in queries])]
    else:
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(count, generator=generator)
        if average_precision is None:
            candidates = drawn[:CANDIDATES]
            known, _ = ranked(candidates)
        else:
            candidates, known = drawn, average_precision.detach().double().cpu()[drawn]
        candidates, known = candidates[~known.isnan()], known[~known.isnan()]
        by_row = candidates.argsort()
        order = by_row[known[by_row].argsort(stable=True)]
        chosen_worst = candidates[order][:worst].tolist()
        top = by_row[known[by_row].argsort(stable=True, descending=True)]
        chosen_best = [row for row in candidates[top].tolist() if row not in chosen_worst][:best]
        rest = [row for row in candidates.tolist() if row not in chosen_worst and row not in chosen_best]
        groups = [("Random queries", rest[:random]), ("Lowest AP", chosen_worst), ("Highest AP", chosen_best)]

    shown = torch.tensor([row for _, group in groups for row in group], dtype=torch.long)
    if not len(shown):
        return []
    scores, items = search.topk(unit[shown], unit, min(k, count - 1), ids=shown, ref_ids=rows)
    columns = (shown, *ranked(shown), scores, items)
    found = {row[0]: row[1:] for row in zip(*(column.tolist() for column in columns), strict=True)}
    label = labels.tolist()

    def example(query: int, group: str) -> QueryExample:
        ap, first_right, row_scores, row_items = found[query]
        return QueryExample(
            image=image(query),
            name=f"#{query}" if names is None else names[query],
            class_name=class_names[label[query]],
            items=tuple(
                RetrievedItem(image(item), class_names[label[item]], score, rank, label[item] == label[query])
                for rank, (item, score) in enumerate(zip(row_items, row_scores, strict=True), 1)
            ),
            average_precision=ap,
            group=group,
            first_right=None if math.isnan(first_right) else round(first_right),
        )

    return [example(query, group) for group, members in groups for query in members]


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    config: Mapping[str, object],
    curves: Mapping[str, Sequence[tuple[float, float]]],
    before: ReportLike | None,
    after: ReportLike,
    gallery: Sequence[QueryExample],
    notes: Sequence[str] = (),
) -> Path:
    """Write the page of a run to one HTML file; replaced as a whole if it is there.

    Args:
        path: the file; its folder must exist.
        title: heading of the page.
        config: configuration of the run, plain and possibly nested. Its entries `data`, `loss`, `model` and `seed` (a
            text, or a mapping with `name` or `_target_`) stand under the heading.
        curves: name -> (step, value) pairs in order; values that are not finite are left out and counted.
        before: evaluation before training, None if there was none.
        after: evaluation after training.
        gallery: what `retrieval_gallery` gives; queries without items are allowed.
        notes: sentences the reader must see first (warnings, what is special about the run).

    Returns:
        The path written.

    Raises:
        ValueError: an image that is not uint8 [1 or 3, height, width].
        FileNotFoundError: no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into")
    images = _Images()
    parts = [
        ("results", "Results", _results(before, after)),
        ("curves", "Training", _curves(curves)),
        ("gallery", "Retrieved images", _gallery(gallery, images)),
        ("classes", "Hardest classes", _classes(after)),
        ("configuration", "Configuration", _configuration(config, after)),
    ]
    parts = [part for part in parts if part[2]]
    page = Template(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")).substitute(
        version=_text(__version__),
        title=_text(title),
        facts=_facts(config),
        links="".join(f'<a href="#{key}">{name}</a>' for key, name, _ in parts),
        notes=_notes(notes),
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-heading"><h2 id="{key}-heading">{name}</h2>\n{body}</section>'
            for key, name, body in parts
        ),
        images=images.definitions(),
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _text(value: object) -> str:
    # Control characters and lone surrogates (bad file names) have no place in HTML; keep their position visible.
    clean = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", str(value))
    return html.escape(clean)


def _breakable(value: object) -> str:
    """Text that may break after / _ - . as long names of classes do not fit a thumbnail."""
    return re.sub(r"([/_.\-])(?=[^\s/_.\-])", r"\1<wbr>", _text(value))


def _percent(value: float) -> str:
    return f"{100 * value:.1f}" if math.isfinite(value) else "\N{EN DASH}"


def _shown(metric: str, value: float) -> str:
    return _number(value) if metric in DISTANCES else _percent(value)


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "\N{EN DASH}"


# ------------------------------------------------------------------------------------------------------- heading


def _facts(config: Mapping[str, object]) -> str:
    facts = []
    for key, name in (("data", "data"), ("loss", "loss"), ("model", "model"), ("seed", "seed")):
        value = config.get(key)
        if isinstance(value, Mapping):
            value = value.get("name") or value.get("kind") or str(value.get("_target_", "")).rpartition(".")[2]
        if value is not None and value != "":
            facts.append(f"<li><span>{name}</span> {_text(value)}</li>")
    return f'<ul class="facts">{"".join(facts)}</ul>' if facts else ""


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return f'<div class="notes card" role="note"><ul>{"".join(f"<li>{_text(note)}</li>" for note in notes)}</ul></div>'


# ------------------------------------------------------------------------------------------------------- results


def _results(before: ReportLike | None, after: ReportLike) -> str:
    first = [name for name in _FIRST if name in after.values]
    others = [name for name in after.values if name not in _FIRST]
    if not first and not others:
        return ""
    tiles = "".join(_tile(name, before, after) for name in _TILES if name in after.values)
    notes = "".join(f'<p class="small">{_text(note)}</p>' for note in after.notes)
    more = ""
    if first and others:
        table = _metric_table(others, before, after, "Table of all other metrics")
        more = f'<details class="card more"><summary>All other metrics</summary>{table}</details>'
    sure = after.settings.get("confidence", 0.95)
    return f"""<p class="lead">In percent. The small range under a number is its {100 * sure:g} % interval.
<br><span class="small">{_counts_sentence(after.counts)}</span></p>{notes}
<div class="tiles">{tiles}</div>
<div class="card">{_metric_table(first or others, before, after, "Table of metrics")}</div>{more}"""


def _metric_table(names: Sequence[str], before: ReportLike | None, after: ReportLike, label: str) -> str:
    head, key, change = "", "", ""
    if before is not None:
        head, change = "<th scope=col>before</th>", "<th scope=col>change</th>"
        key = '<span class="key"></span>before'
    rows = "".join(_result_row(name, before, after) for name in names)
    return f"""<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>
<thead><tr><th scope=col>metric</th>{head}<th scope=col>after</th>{change}
<th scope=col class="plot text">0 to 100 {key}<span class="key after"></span>after</th></tr></thead>
<tbody>{rows}</tbody></table></div>"""


def _counts_sentence(counts: Mapping[str, int]) -> str:
    return _text(" · ".join(f"{name.replace('_', ' ')}: {value:,}" for name, value in counts.items()))


def _tile(name: str, before: ReportLike | None, after: ReportLike) -> str:
    value = after.values[name]
    was = (
        f"{_percent(before.values[name])} before" if before is not None and name in before.values else "after training"
    )
    big = f"<b>{_percent(value)}<small> %</small></b>"
    return f'<div class="tile card">{_text(name)}{big}<span class="muted">{was}</span></div>'


def _cell(report: ReportLike, name: str) -> str:
    if name not in report.values:
        return "<td>\N{EN DASH}</td>"
    interval = report.intervals.get(name)
    around = ""
    if interval is not None:
        around = f'<span class="muted">{_shown(name, interval[0])} to {_shown(name, interval[1])}</span>'
    return f"<td>{_shown(name, report.values[name])}{around}</td>"


def _result_row(name: str, before: ReportLike | None, after: ReportLike) -> str:
    meaning = f'<span class="muted small">{MEANING[name]}</span>' if name in MEANING else ""
    cells = _cell(after, name)
    if before is not None:
        gain = after.values[name] - before.values.get(name, math.nan)
        sign = "+" if gain > 0 else "\N{MINUS SIGN}" if gain < 0 else ""
        cells = _cell(before, name) + cells + f"<td>{sign}{_shown(name, abs(gain))}</td>"
    marks = [] if before is None else [_interval_mark(before, name, "before")]
    marks.append(_interval_mark(after, name, "after"))
    plot = (
        '<svg viewBox="0 0 200 30" preserveAspectRatio="none" aria-hidden="true">'
        + "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="1" y2="29" />' for x in (0.5, 50, 100, 150, 199.5))
        + "".join(marks)
        + "</svg>"
    )
    return f'<tr><th scope=row>{_text(name)}{meaning}</th>{cells}<td class="plot">{plot}</td></tr>'


def _interval_mark(report: ReportLike, name: str, kind: str) -> str:
    value = report.values.get(name, math.nan)
    if name in DISTANCES or not 0 <= value <= 1:  # NaN, or no fraction
        return ""
    y = 4 if kind == "before" else 17
    bar = ""
    if name in report.intervals:
        low, high = (min(max(bound, 0.0), 1.0) for bound in report.intervals[name])
        bar = f'<rect class="ci-{kind}" x="{200 * low:.1f}" y="{y}" width="{200 * (high - low):.1f}" height="9" />'
    return f'{bar}<rect class="at-{kind}" x="{200 * value - 0.7:.1f}" y="{y}" width="1.4" height="9" />'


# -------------------------------------------------------------------------------------------------------- curves


def _curves(curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    drawn = [_curve(name, points) for name, points in curves.items() if points]
    if not drawn:
        return ""
    return f"""<p class="lead">Measured during training, against the number of steps.</p>
<div class="curves">{"".join(drawn)}</div>"""


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers inside [low, high], `most` of them at most but at least one."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= most)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _thinned(points: Sequence[tuple[float, float]], buckets: int) -> list[tuple[float, float]]:
    """Lowest and highest point of each of `buckets` runs, in their order: the same picture from fewer points."""
    size = math.ceil(len(points) / buckets)
    kept = []
    for start in range(0, len(points), size):
        run = points[start : start + size]
        kept += sorted({min(run, key=lambda point: point[1]), max(run, key=lambda point: point[1])})
    return kept


def _running_mean(points: Sequence[tuple[float, float]], buckets: int) -> list[tuple[float, float]]:
    size = math.ceil(len(points) / buckets)
    runs = [points[start : start + size] for start in range(0, len(points), size)]
    return [(math.fsum(x for x, _ in run) / len(run), math.fsum(y for _, y in run) / len(run)) for run in runs]


def _curve(name: str, given: Sequence[tuple[float, float]]) -> str:
    points = [(float(x), float(y)) for x, y in given if math.isfinite(x) and math.isfinite(y)]
    lost = len(given) - len(points)
    warning = f'<p class="small">{lost} of {len(given)} values are not finite and left out.</p>' if lost else ""
    if not points:
        return f'<figure class="card"><figcaption><h3>{_breakable(name)}</h3></figcaption>{warning}</figure>'
    width, height, left, right, top, bottom = 360, 190, 48, 10, 8, 34
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(ys), max(ys)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    pad = 0.06 * (y_high - y_low) or max(abs(y_low) * 0.05, 1e-3)  # a constant curve still needs a scale
    y_low, y_high = y_low - pad, y_high + pad

    def place(point: tuple[float, float]) -> str:
        x = left + (point[0] - x_low) / (x_high - x_low) * (width - left - right)
        y = height - bottom - (point[1] - y_low) / (y_high - y_low) * (height - top - bottom)
        return f"{x:.1f},{y:.1f}"

    def line(path: Iterable[tuple[float, float]], kind: str) -> str:
        return f'<polyline class="{kind}" points="{" ".join(map(place, path))}" />'

    grid = []
    for tick in _ticks(y_low, y_high, 5):
        y = place((x_low, tick)).split(",")[1]
        grid.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y}" y2="{y}" />')
        grid.append(f'<text x="{left - 8}" y="{y}" dy=".35em" text-anchor="end">{tick:.6g}</text>')
    for tick in _ticks(x_low, x_high, 6):
        x = float(place((tick, y_low)).split(",")[0])
        # the last label would reach into the margin where it stands at the very edge
        anchor = "end" if x > width - right - 12 else "middle"
        grid.append(f'<text x="{x:.1f}" y="{height - bottom + 17}" text-anchor="{anchor}">{tick:.6g}</text>')
    grid.append(f'<text x="{width - right}" y="{height - 3}" text-anchor="end">step</text>')
    if len(points) > LINE_POINTS:
        drawn = line(_thinned(points, LINE_POINTS), "raw") + line(_running_mean(points, 60), "curve")
    else:
        drawn = line(points, "curve")
        if len(points) <= 30:
            places = (place(point).split(",") for point in points)
            drawn += "".join(f'<circle class="dot" cx="{x}" cy="{y}" r="3" />' for x, y in places)
    first, last = _number(ys[0]), _number(ys[-1])
    summary = f"{first} \N{RIGHTWARDS ARROW} {last}" if len(points) > 1 else first
    spoken = f"{_text(name)}: {first} at step {xs[0]:g}, {last} at step {xs[-1]:g}"
    caption = f'<h3>{_breakable(name)}</h3><span class="muted small">{summary}</span>'
    return f"""<figure class="card"><figcaption>{caption}</figcaption>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="{spoken}">{"".join(grid)}{drawn}</svg>{warning}</figure>"""


# ------------------------------------------------------------------------------------------------------- gallery


class _Images:
    """The images of a page: each stored once, shown by reference."""

    def __init__(self) -> None:
        self._ids: dict[bytes, str] = {}
        self._definitions: list[str] = []

    def show(self, image: Tensor, label: str = "") -> str:
        """An <svg> that shows the image; without a label it is hidden from screen readers."""
        if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
            raise ValueError(
                f"an image of a report must be uint8 [1 or 3, height, width]; got {image.dtype} {list(image.shape)}"
            )
        height, width = image.shape[1:]
        pixels = image.cpu().permute(1, 2, 0).contiguous().numpy()
        key = hashlib.sha256(str(image.shape).encode() + pixels.tobytes()).digest()
        if key not in self._ids:
            self._ids[key] = f"i{len(self._ids)}"
            self._definitions.append(
                f'<image id="{self._ids[key]}" width="{width}" height="{height}" href="{_data_uri(image)}" />'
            )
        spoken = f'role="img" aria-label="{_text(label)}"' if label else 'aria-hidden="true"'
        return f'<svg class="pic" viewBox="0 0 {width} {height}" {spoken}><use href="#{self._ids[key]}" /></svg>'

    def definitions(self) -> str:
        """The stored images."""
        return "\n".join(self._definitions)


def _data_uri(image: Tensor) -> str:
    from PIL import Image

    array = image.cpu().permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    kind, buffer = "png", io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    if buffer.tell() > JPEG_FROM:
        smaller = io.BytesIO()
        picture.save(smaller, "JPEG", quality=88)
        if smaller.tell() < buffer.tell():
            kind, buffer = "jpeg", smaller
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _gallery(gallery: Sequence[QueryExample], images: _Images) -> str:
    if not gallery:
        return ""
    rows = []
    group = ""
    for example in gallery:
        if example.group != group:
            group = example.group
            rows.append(f'<h3 class="group">{_text(group)}</h3>')
        rows.append(_query(example, images))
    return f"""<p class="lead">Each row: a query, then the items nearest to it.
<span class="ok"><b>\N{CHECK MARK}</b> solid frame: same class.</span>
<span class="no"><b>\N{BALLOT X}</b> dashed frame: another class.</span> Under an item: rank and similarity.</p>
<fieldset class="filter"><legend class="sr">Show queries</legend>
<label><input type="radio" name="show" id="show-all" checked>all {len(gallery)} queries</label>
<label><input type="radio" name="show" id="show-wrong">first item wrong</label>
<label><input type="radio" name="show" id="show-right">first item right</label></fieldset>
{"".join(rows)}"""


def _query(example: QueryExample, images: _Images) -> str:
    kind = "first-right" if example.items and example.items[0].correct else "first-wrong"
    quality = f"AP {_percent(example.average_precision)}"
    if not math.isfinite(example.average_precision):
        quality = "no relevant item"
    elif example.first_right is not None and example.first_right > len(example.items):
        quality += f'<span class="muted">first right item at rank {example.first_right:,}</span>'
    items = "".join(_item(item, images) for item in example.items)
    return f"""<article class="query card {kind}"><div class="asked">
{images.show(example.image, f"query of class {example.class_name}")}
<div><strong>{_breakable(example.class_name)}</strong>
<span class="muted">{_breakable(example.name)}</span>{quality}</div></div>
<ol>{items}</ol></article>
"""


def _item(item: RetrievedItem, images: _Images) -> str:
    kind, mark, word = ("ok", "\N{CHECK MARK}", "right") if item.correct else ("no", "\N{BALLOT X}", "wrong")
    return (
        f'<li class="{kind}">{images.show(item.image)}<div><b><span aria-hidden="true">{mark}</span>'
        f'<span class="sr">{word}, rank</span> {item.rank}</b><span>{item.score:.3f}</span></div>'
        f'<p title="{_text(item.class_name)}">{_breakable(item.class_name)}</p></li>'
    )


# ------------------------------------------------------------------------------------------------------- classes


def _classes(after: ReportLike) -> str:
    worst = _class_table(after.per_class, "class", WORST_CLASSES)
    groups = _class_table(after.per_super_label, "super-label", len(after.per_super_label))
    if not worst:
        return ""
    rows = len(after.per_class)
    shown = f"The {WORST_CLASSES} of {rows} classes" if rows > WORST_CLASSES else "The classes"
    more = f'<h3 class="group">By super-label</h3>{groups}' if groups else ""
    return f"""<p class="lead">{shown} that are found least well after training, the hardest first.
Each number is the mean over the queries of the class, in percent.</p>
{worst}{more}"""


def _class_table(table: Sequence[Mapping[str, Any]], kind: str, most: int) -> str:
    """The rows of lowest AP (or the first metric of `_FIRST` there is); empty if no row has it."""
    columns = [name for name in _FIRST if any(row.get(name) is not None for row in table)]
    if not columns:
        return ""
    by = "AP" if "AP" in columns else columns[0]
    others = [column for column in columns if column != by]
    ranked = sorted((row for row in table if row.get(by) is not None), key=lambda row: float(row[by]))
    rows = []
    for row in ranked[:most]:
        cells = "".join(f"<td>{_percent(row[column])}</td>" for column in others)
        bar = f'<span class="bar"><i style="width:{100 * row[by]:.0f}%"></i></span>'
        rows.append(
            f"<tr><th scope=row>{_breakable(row['name'])}</th><td>{row['queries']}</td>{cells}"
            f"<td>{_percent(row[by])}{bar}</td></tr>"
        )
    head = "".join(f"<th scope=col>{_text(column)}</th>" for column in ("queries", *others, by))
    return f"""<div class="card scroll" role="region" aria-label="Table by {kind}" tabindex="0"><table>
<thead><tr><th scope=col>{kind}</th>{head}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>"""


# ------------------------------------------------------------------------------------------------- configuration


def _flat(config: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in config.items():
        name = f"{prefix}{key}"
        rows += _flat(value, f"{name}.") if isinstance(value, Mapping) and value else [(name, value)]
    return rows


def _configuration(config: Mapping[str, object], after: ReportLike) -> str:
    tables = []
    for title, mapping in (("Run", config), ("Evaluation", after.settings)):
        if mapping:
            rows = "".join(
                f'<tr><th scope=row class="mono">{_breakable(key)}</th><td class="mono">{_text(value)}</td></tr>'
                for key, value in _flat(mapping)
            )
            tables.append(f"<h3>{title}</h3><table><tbody>{rows}</tbody></table>")
    if not tables:
        return ""
    return f'<details class="card"><summary>Every setting of this run</summary>{"".join(tables)}</details>'
