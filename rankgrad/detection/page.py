"""One self-contained HTML page about a detector: AP per class, curves, what it gets wrong, and pictures of that."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._version import __version__
from .pictures import HIT, MISSED, WRONG, Mark, draw, jpeg, tally, thresholds, worth_seeing
from .voc import Scene
from .voc_ap import ClassResult, DetectionReport, curve_points, percent

Points = Sequence[tuple[float, float]]

# What a training curve shows; others go by their own name.
CURVES = {
    "loss": "sum of all losses",
    "loss_classifier": "classes of the proposals",
    "ranking/loss": "1 − AP over the proposals",
    "ranking/cross_entropy": "cross-entropy, for comparison",
    "ranking/share": "share of cross-entropy",
    "loss_box_reg": "boxes of the proposals",
    "loss_objectness": "proposals: object or not",
    "loss_rpn_box_reg": "proposals: boxes",
    "test/AP50": "AP50 on the test images",
    "test/AP75": "AP75 on the test images",
}
SMOOTH = 40  # a curve of more points is drawn pale, with a running mean over it

STYLE = """
:root { --page: #f7f7f5; --card: #fff; --text: #1c1e22; --muted: #5d626b; --line: #dfdfda; --soft: #efefeb;
  --blue: #1f5fbf; --blue-soft: #c5d7f2; --right: #009e73; --wrong: #d55e00; --missed: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --page: #121417; --card: #1a1d21; --text: #e8e9eb; --muted: #a2a8b1;
  --line: #31353b; --soft: #23272c; --blue: #7fb0ff; --blue-soft: #2c4770; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font-variant-numeric: tabular-nums;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main, header, footer { max-width: 1120px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 40px; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 0 0 4px; }
h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: 0 0 12px; max-width: 76ch; }
section { margin: 40px 0; }
.lead, .muted { color: var(--muted); }
.small { font-size: .8125rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; }
.tile { padding: 14px 18px; }
.tile b { display: block; font-size: 2.25rem; font-weight: 650; line-height: 1.15; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9375rem; }
th, td { padding: 8px 14px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
tr:last-child > * { border-bottom: 0; }
thead th { color: var(--muted); font-weight: 500; font-size: .8125rem; }
tbody th { font-weight: 600; }
th:first-child, td:first-child, .text { text-align: left; }
.text { white-space: normal; overflow-wrap: anywhere; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 290px), 1fr)); gap: 14px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: 14px; }
figure { margin: 0; padding: 12px 14px 8px; break-inside: avoid; }
figcaption { display: flex; justify-content: space-between; gap: 12px; align-items: baseline; margin-bottom: 6px; }
figure svg { display: block; width: 100%; max-width: 480px; height: auto; }
figure img { display: block; width: 100%; height: auto; border-radius: 6px; }
svg text { fill: var(--muted); font-size: 12px; font-family: inherit; }
.rule { stroke: var(--line); stroke-width: 1; }
.raw { fill: none; stroke: var(--blue-soft); stroke-width: 1; }
.curve { fill: none; stroke: var(--blue); stroke-width: 2; stroke-linejoin: round; }
.key { display: inline-block; width: 14px; height: 11px; margin: 0 5px 0 14px; border: 2px solid; border-radius: 2px; }
details summary { cursor: pointer; padding: 12px 18px; font-weight: 600; }
details td, details th { padding: 4px 18px; text-align: left; font-size: .875rem; }
details th { font-weight: 400; color: var(--muted); }
footer { padding-bottom: 48px; color: var(--muted); font-size: .8125rem; }
@media (max-width: 640px) { main, header, footer { padding-left: 14px; padding-right: 14px; } }
@media print { body { font-size: 11pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


def write_page(
    path: Path,
    *,
    title: str,
    report: DetectionReport,
    scenes: Sequence[Scene],
    marked: Sequence[Sequence[Mark]],
    curves: Mapping[str, Points],
    settings: Mapping[str, object],
    notes: Sequence[str] = (),
    pictures: int = 8,
    seed: int = 0,
) -> None:
    """Write the page.

    Args:
        path: file.
        title: its heading.
        report: AP.
        scenes: the images.
        marked: [image] what `pictures.marks` found.
        curves: name -> (step, value), of training; none for an evaluation.
        settings: name -> value, dotted.
        notes: sentences for the reader.
        pictures: how many images are shown.
        seed: of their choice.
    """
    sections = [_tiles(report), _classes(report), _precision_recall(report), _mistakes(marked)]
    sections.append(_pictures(report, scenes, marked, pictures, seed))
    if curves:
        sections.append(_training(curves))
    sections.append(_settings(settings))
    lead = "".join(f"<p class='lead'>{html.escape(note)}</p>" for note in notes)
    counts = report.counts
    facts = f"{counts['images']} images, {counts['objects']} objects"
    facts += f", {counts['difficult']} difficult ones that do not count" if counts["difficult"] else ""
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><meta name="generator" content="rankgrad {__version__}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{html.escape(title)}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head><body>
<header><h1>{html.escape(title)}</h1><p class="lead">{html.escape(facts)}</p>{lead}</header>
<main>{"".join(f"<section>{section}</section>" for section in sections)}</main>
<footer>Made by rankgrad {__version__}. This page is one file: it loads nothing and runs no script.</footer>
</body></html>
"""
    path.write_text(text, encoding="utf-8")


def _tiles(report: DetectionReport) -> str:
    values = report.values
    tiles = []
    for iou in report.by_iou:
        name = f"AP{percent(iou)}"
        tiles.append((name, values[name], "area under the curve"))
        tiles.append((f"{name}, 11 points", values[f"{name}_11"], "as VOC 2007 had it"))
    shown = "".join(
        f"<div class='card tile'><span class='muted'>{name}</span><b>{_cell(value)}</b>"
        f"<span class='small muted'>{what}</span></div>"
        for name, value, what in tiles
    )
    lead = "<p class='lead'>Mean over the classes, per cent.</p>"
    return f"<h2>Average precision</h2>{lead}<div class='tiles'>{shown}</div>"


def _classes(report: DetectionReport) -> str:
    ious = list(report.by_iou)
    heads = ["class", "objects", "detections"]
    heads += [f"AP{percent(iou)}{end}" for iou in ious for end in ("", ", 11 points")]
    heads += ["found at all", "best F1", "at score"]
    rows = []
    for number, name in enumerate(report.class_names):
        results = [report.by_iou[iou][number] for iou in ious]
        first = results[0]
        threshold, f1 = first.best_f1
        cells = [str(first.objects), str(first.detections)]
        cells += [_cell(value) for result in results for value in (result.area, result.eleven)]
        cells += [_cell(first.max_recall), _cell(f1), "-" if math.isinf(threshold) else f"{threshold:.3f}"]
        rows.append(f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th>{text}</th>" for text in heads)
    note = (
        f"Found at all: share of the objects that some detection overlaps by {ious[0]:g}, however low its score. Best "
        "F1 and its score are chosen on these images."
    )
    return (
        f"<h2>Classes</h2><p class='lead'>{note}</p><div class='card scroll'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _precision_recall(report: DetectionReport) -> str:
    iou = next(iter(report.by_iou))
    figures = []
    for result in report.by_iou[iou]:
        if result.objects:
            plot = chart(_curve(result), (0, 1), (0, 1), "recall", "precision")
            figures.append(_figure(result.name, f"AP {_cell(result.area)}", plot))
    return (
        f"<h2>Precision and recall</h2><p class='lead'>Overlap of at least {iou:g}; a point after every detection, by "
        f"falling score.</p><div class='grid'>{''.join(figures)}</div>"
    )


def _curve(result: ClassResult) -> Points:
    return curve_points(result)


def _mistakes(marked: Sequence[Sequence[Mark]]) -> str:
    count = tally(marked)
    meaning = {HIT: "right", **{kind: f"wrong: {text}" for kind, text in WRONG.items()}, MISSED: "objects missed"}
    rows = "".join(f"<tr><td>{meaning[kind]}</td><td>{count[kind]}</td></tr>" for kind in meaning)
    return (
        "<h2>What is right and wrong</h2><p class='lead'>Detections from the score of their class's best F1 on.</p>"
        f"<div class='card scroll'><table><tbody>{rows}</tbody></table></div>"
    )


def _pictures(
    report: DetectionReport, scenes: Sequence[Scene], marked: Sequence[Sequence[Mark]], most: int, seed: int
) -> str:
    figures = []
    for image in worth_seeing(marked, most, seed):
        data = base64.b64encode(jpeg(draw(scenes[image], marked[image]))).decode()
        count = tally([marked[image]])
        wrong = sum(count[kind] for kind in WRONG)
        text = f"{count[HIT]} right, {wrong} wrong, {count[MISSED]} missed"
        name = html.escape(scenes[image].name)
        figures.append(
            _figure(scenes[image].name, text, f"<img alt='{name}: {text}' src='data:image/jpeg;base64,{data}'>")
        )
    above = ", ".join(f"{name} {score:.3f}" for name, score in thresholds(report).items() if math.isfinite(score))
    keys = "".join(
        f"<span class='key' style='border-color: var(--{colour}); border-style: {line}'></span>{text}"
        for text, colour, line in (
            ("right", "right", "solid"),
            ("wrong", "wrong", "solid"),
            ("missed", "missed", "dashed"),
        )
    )
    return (
        f"<h2>Pictures</h2><p class='lead'>Half of them have the most mistakes, the others are drawn at random. Shown "
        f"are detections from these scores on: {html.escape(above) or 'none'}.</p><p class='small'>{keys}</p>"
        f"<div class='pictures'>{''.join(figures)}</div>"
    )


def _training(curves: Mapping[str, Points]) -> str:
    figures = []
    for name in [
        *(n for n in CURVES if n in curves),
        *(n for n in curves if n.startswith("ranking/") and n not in CURVES),
    ]:
        points = curves[name]
        if len(points) > 1:
            last = max(step for step, _ in points)
            values = [value for _, value in points]
            high = max(values)
            low = min(0.0, min(values))
            plot = chart(points, (0, last), (low, high if high > low else low + 1), "step", "")
            figures.append(_figure(CURVES.get(name, name), name, plot))
    return f"<h2>Training</h2><div class='grid'>{''.join(figures)}</div>"


def _settings(settings: Mapping[str, object]) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th><td class='text'>{html.escape(str(value))}</td></tr>"
        for name, value in settings.items()
    )
    return f"<details class='card'><summary>Settings</summary><table><tbody>{rows}</tbody></table></details>"


def _figure(title: str, beside: str, content: str) -> str:
    caption = (
        f"<figcaption><h3>{html.escape(title)}</h3><span class='small muted'>{html.escape(beside)}</span></figcaption>"
    )
    return f"<figure class='card'>{caption}{content}</figure>"


def chart(points: Points, x: tuple[float, float], y: tuple[float, float], x_name: str, y_name: str) -> str:
    """A curve as svg, with its range on both axes.

    Args:
        points: (x, y).
        x: range.
        y: range.
        x_name: of the axis.
        y_name: of the axis; none: a curve over steps, smoothed if it is long.
    """
    left, right, top, bottom = 44.0, 312.0, 10.0, 168.0

    def place(point: tuple[float, float]) -> str:
        across = left + (right - left) * (point[0] - x[0]) / ((x[1] - x[0]) or 1)
        down = bottom - (bottom - top) * (point[1] - y[0]) / ((y[1] - y[0]) or 1)
        return f"{across:.1f},{down:.1f}"

    lines = []
    for share in (0, 0.5, 1):
        height = bottom - (bottom - top) * share
        lines.append(f"<line class='rule' x1='{left}' x2='{right}' y1='{height}' y2='{height}'/>")
        lines.append(
            f"<text x='{left - 6}' y='{height + 4}' text-anchor='end'>{y[0] + share * (y[1] - y[0]):.2g}</text>"
        )
    lines.append(f"<text x='{left}' y='{bottom + 18}'>{x[0]:g}</text>")
    lines.append(f"<text x='{right}' y='{bottom + 18}' text-anchor='end'>{x[1]:g}</text>")
    lines.append(f"<text x='{(left + right) / 2}' y='{bottom + 18}' text-anchor='middle'>{x_name}</text>")
    if len(points) > SMOOTH and not y_name:
        lines.append(f"<polyline class='raw' points='{' '.join(map(place, points))}'/>")
        points = _smoothed(points)
    lines.append(f"<polyline class='curve' points='{' '.join(map(place, points))}'/>")
    label = html.escape(f"{y_name} over {x_name}" if y_name else f"curve over {x_name}")
    return f"<svg viewBox='0 0 320 192' role='img' aria-label='{label}'>{''.join(lines)}</svg>"


def _smoothed(points: Points) -> Points:
    """Running mean over a twentieth of the curve to either side."""
    reach = max(len(points) // 20, 1)
    found = []
    for place, (step, _) in enumerate(points):
        part = points[max(place - reach, 0) : place + reach + 1]
        found.append((step, sum(value for _, value in part) / len(part)))
    return found


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Nested settings as dotted names."""
    found: dict[str, object] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"
