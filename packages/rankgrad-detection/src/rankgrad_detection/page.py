"""The page of a detector: AP, precision and recall by class, kinds of mistakes, and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from rankgrad_workbench.files import read_npz
from rankgrad_workbench.report import glossary, tables
from rankgrad_workbench.report.content import Extent, RunContent, Section, read_common
from rankgrad_workbench.report.html import charts
from rankgrad_workbench.report.html.images import Images, data_uri
from rankgrad_workbench.report.html.templates import render
from rankgrad_workbench.report.html.text import percent
from rankgrad_workbench.runs.folder import Run

from .formats import load_scenes
from .pictures import COLOURS, HIT, MISSED, WRONG, Mark, draw, marks, tally, worth_seeing
from .scenes import Scenes
from .task import DETECTIONS
from .voc_ap import COCO, DetectionReport, Detections, learned, read_report

FORMATS = {"detections": "count", "at score": "score"}  # columns of the table of classes that are not in per cent
QUALITY = 82  # JPEG quality of a picture, at which its texts are readable
MEANING = {HIT: "right", **{kind: f"wrong: {text}" for kind, text in WRONG.items()}, MISSED: "objects missed"}

glossary.explain(Path(__file__).with_name("words.yaml"))


@dataclass(frozen=True, eq=False)
class DetectorContent(RunContent):
    """A run of a detector, for a page.

    Attributes:
        name, config, facts, curves, before, latest, notes, siblings: see `RunContent`.
        after: AP of the trained detector; None: the run is not finished.
        test: the images of the evaluation, or None.
        marked: [image] boxes of right, wrong and missed detections.
    """

    after: DetectionReport | None = None
    test: Scenes | None = None
    marked: tuple[Sequence[Mark], ...] = ()

    kind = "detection"

    @property
    def headline(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(self.values)

    main = headline

    @classmethod
    def sections(
        cls, runs: Sequence[DetectorContent], images: Images, extent: Extent
    ) -> tuple[list[Section], list[str]]:
        """Precision and recall, tables of classes, kinds of mistakes, pictures."""
        if extent != Extent():
            raise ValueError("projection, queries, points and items are for retrieval runs; these are detectors")
        evaluated = [run.after for run in runs]
        pictures = _pictures(runs)
        made = [tables.results(runs), _curves(runs, evaluated), _classes(runs, evaluated), _mistakes(runs), pictures]
        several = not pictures.body and sum(run.test is not None for run in runs) > 1
        return made, ["No image is in all runs, so there are no pictures."] if several else []


def read(
    run: Run, *, known: dict[str, Any] | None = None, pictures: bool = True, trust: Sequence[str] = ()
) -> DetectorContent:
    """The content of a run, finished or not. Notes say what is missing.

    Args:
        run: the folder.
        known: not used by detectors.
        pictures: False: only numbers and curves.
        trust: packages whose classes its settings may name.
    """
    after = read_report(run.after) if run.finished else None
    common = read_common(run, after, trust)
    if after is None or not pictures:
        return DetectorContent(**common)
    data = common["config"]["data"]
    try:
        test = load_scenes(data["root"], data["test"], tuple(after.per_class), data["format"])
        detections = _detections(run.folder / DETECTIONS, test)
    except (OSError, ValueError) as error:
        why = f"No pictures: the images or the detections of the run cannot be read ({error})."
        return DetectorContent(**{**common, "notes": (*common["notes"], why)})
    return described(detections, test, common)


def described(detections: Sequence[Detections], test: Scenes, common: Mapping[str, Any]) -> DetectorContent:
    """The content of a page about an evaluation.

    Args:
        detections: [image] detections.
        test: the images.
        common: attributes of `RunContent`; `after` is the AP.
    """
    numbers: DetectionReport = common["after"]
    iou = float(numbers.overlaps[0].removeprefix("AP")) / 100
    marked = marks(detections, test.scenes, test.class_names, numbers.thresholds, iou, numbers.inclusive)
    notes = [*common.get("notes", ()), *(f"Test images: {note}." for note in test.notes)]
    if test.left_out:
        notes.append(f"{len(test.left_out)} objects of the test images were left out, such as boxes without area.")
    if note := learned(numbers.counts):
        notes.append(note)
    if numbers.inclusive:
        notes.append("A pixel was added to widths and heights before overlaps were computed.")
    return DetectorContent(**{**common, "notes": tuple(notes)}, test=test, marked=tuple(marked))


def _detections(path: Path, test: Scenes) -> list[Detections]:
    """The detections of a run in the images of a test set, from its file."""
    columns = read_npz(path, "names", "image", "boxes", "labels", "scores")
    names = [scene.name for scene in test.scenes]
    if columns["names"].tolist() != names:
        raise ValueError(f"{path.name} has other images than the {len(names)} of {test.name}")
    parts = [columns["image"] == image for image in range(len(names))]
    boxes, labels, scores = (torch.from_numpy(columns[name]) for name in ("boxes", "labels", "scores"))
    return [Detections(boxes[part], labels[part], scores[part]) for part in parts]


# ------------------------------------------------------------------------------------------------------------ sections


def _curves(runs: Sequence[DetectorContent], each_run: Sequence[DetectionReport | None]) -> Section:
    """Precision over recall of each class, one line per run."""
    classes = dict.fromkeys(name for numbers in each_run if numbers is not None for name in numbers.per_class)
    overlap = next((numbers.overlaps[0] for numbers in each_run if numbers is not None), "")
    drawn = []
    for name in classes:
        results = [None if n is None else n.per_class.get(name, {}).get(overlap) for n in each_run]
        series = [
            charts.Series(runs[kind].name if len(runs) > 1 else "", [(x, y) for x, y in result["curve"]], kind)
            for kind, result in enumerate(results)
            if result is not None and result["objects"] and result["curve"]
        ]
        if series:
            area = f"AP {percent((results[0] or {}).get('area'))}" if len(runs) == 1 else ""
            drawn.append(charts.lines(name, series, "recall", summary=area, x_range=(0, 1), y=(0, 1)))
    body = render("rankgrad_detection:curves.html", runs=runs, curves=drawn, overlap=overlap.removeprefix("AP"))
    return Section("precision", "Precision and recall", body if drawn else Markup())


def _classes(runs: Sequence[DetectorContent], each_run: Sequence[DetectionReport | None]) -> Section:
    known = next((numbers for numbers in each_run if numbers is not None), None)
    if known is None:
        return Section("classes", "Classes", Markup())
    first, *others = known.overlaps
    metrics = ["detections", *(name for name in known.values if name != first), "found at all", "best F1", "at score"]
    rows = [
        () if numbers is None else [_row(name, of, numbers.coco) for name, of in numbers.per_class.items()]
        for numbers in each_run
    ]
    made = tables.class_table(runs, "class", rows, metrics, first, beside=others[:1], count="objects", formats=FORMATS)
    lead = "Each number is of all images, in per cent; lowest AP first."
    body = render("report/tables_of_classes.html", lead=lead, leads="", tables=[made[0]] if made else [])
    return Section("classes", "Classes", body if made else Markup(), {"tables": {"class": made[1]}} if made else {})


def _row(name: str, results: Mapping[str, Mapping[str, Any]], coco: Mapping[str, float | None]) -> dict[str, Any]:
    first = next(iter(results.values()))
    row = {"name": name, "objects": first["objects"], "detections": first["detections"]}
    row |= {
        f"{ap}{end}": result[kind] for ap, result in results.items() for end, kind in (("", "area"), ("_11", "eleven"))
    }
    row |= {COCO: coco[name]} if coco else {}
    return row | {"found at all": first["max_recall"], "best F1": first["best_f1"], "at score": first["threshold"]}


def _mistakes(runs: Sequence[DetectorContent]) -> Section:
    """Number of mistakes of each kind."""
    counts = [tally(run.marked) if run.test is not None else None for run in runs]
    body = render(
        "rankgrad_detection:mistakes.html",
        runs=runs,
        rows=[(text, [None if count is None else count[kind] for count in counts]) for kind, text in MEANING.items()],
    )
    return Section("mistakes", "What is right and wrong", body if any(counts) else Markup())


def _pictures(runs: Sequence[DetectorContent]) -> Section:
    """The same images for every run, with right, wrong and missed detections."""
    known = [(kind, run, run.test) for kind, run in enumerate(runs) if run.test is not None]
    if not known:
        return Section("pictures", "Pictures", Markup())
    places = [{scene.name: place for place, scene in enumerate(test.scenes)} for _, _, test in known]
    common = [name for name in places[0] if all(name in place for place in places)]
    marked = [
        [mark for (_, run, _), of in zip(known, places, strict=True) for mark in run.marked[of[n]]] for n in common
    ]
    config = runs[0].config
    most = int(config.get("evaluation", {}).get("pictures", 8))
    shown = []
    for image in worth_seeing(marked, most, int(config.get("seed") or 0)):
        name, figures = common[image], []
        for (kind, run, test), place in zip(known, places, strict=True):
            own = run.marked[place[name]]
            count = tally([own])
            wrong = sum(count[mistake] for mistake in WRONG)
            text = f"{count[HIT]} right, {wrong} wrong, {count[MISSED]} missed"
            source = data_uri(draw(test.scenes[place[name]], own), QUALITY)
            figures.append({"kind": kind, "run": run.name, "text": text, "source": Markup(source)})
        shown.append((name, figures))
    scores = [
        (run.name, [(name, score) for name, score in run.after.thresholds.items() if math.isfinite(score)])
        for _, run, _ in known
        if run.after is not None
    ]
    colours = [("right", COLOURS[HIT]), ("wrong", COLOURS["nothing"]), ("missed", COLOURS[MISSED])]
    body = render("rankgrad_detection:pictures.html", runs=runs, shown=shown, scores=scores, colours=colours)
    return Section("pictures", "Pictures", body if shown else Markup())
