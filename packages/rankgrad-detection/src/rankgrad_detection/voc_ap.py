"""Average precision as in Pascal VOC: detections against annotated objects, for each class over all images.

The rules are those of VOC's development kit (Everingham et al., IJCV 2010), which differ from COCO's:

* A detection belongs to the object of its class and image with the largest overlap (the first of equal ones), even if
  another detection also belongs to that object. A detection is right if the overlap is at least the threshold, and if
  no detection of higher score belongs to the object. Otherwise it is wrong. So a second detection of an object is wrong
  even if another object is near.
* A detection of a difficult object is neither right nor wrong. Difficult objects do not count.
* Detections of equal score are sorted by image, then in the given order.

Boxes are edges here (see `scenes`). For edges the ordinary overlap is VOC's with "+ 1": (xmax - xmin + 1) is the
distance between the edges. Some toolkits subtract 1 from all four numbers, and then add 1 to widths and heights again.
`inclusive=True` does this second step for any boxes. It makes boxes larger. On small images this increases AP.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchvision.ops import box_iou

from rankgrad.common.checks import Numbers, number, tensor
from rankgrad.common.text import aligned, shown
from rankgrad.evaluation.json_report import fits
from rankgrad_workbench.files import read_json

from .scenes import Scene

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

IOUS = (0.5, 0.75)
LEARNED = "images of the training"  # name of a count
COCO = "AP50_95"  # name of the mean of COCO's AP, see `coco_ap`
CURVE_POINTS = 200  # largest number of points of a stored precision-recall curve
_NUMBER = (float, None)
_ROW = dict.fromkeys(("area", "eleven", "max_recall", "best_f1", "threshold"), _NUMBER)
# Shapes of the fields of `DetectionReport` in its file.
SHAPES: Mapping[str, Any] = {
    "values": {str: _NUMBER},
    "per_class": {str: {str: {**_ROW, "objects": int, "detections": int, "curve": [[float]]}}},
    "counts": {str: int},
    "inclusive": bool,
    "settings": {},
    "coco": {str: _NUMBER},
}


@dataclass(frozen=True, eq=False)
class Detections:
    """The detections in one image.

    Attributes:
        boxes: [detection, 4] float, edges (left, top, right, bottom) in pixels of the image file.
        labels: [detection] long, 0 .. C - 1.
        scores: [detection] float, higher is more certain; only their order matters.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor


@dataclass(frozen=True, eq=False)
class DetectionReport:
    """Average precision of all classes at several thresholds of overlap.

    Attributes:
        values: name -> mean over the classes that have objects, 0 .. 1: AP50, AP50_11 (eleven points), ..., AP50_95.
        per_class: class -> AP50, AP75, ... -> objects, without the difficult ones; detections, without those of
            difficult objects; area, AP as the area under the monotone curve (VOC 2010 and later); eleven, AP as the
            mean of the best precision at the recalls 0, 0.1, ..., 1 (VOC 2007); max_recall, the fraction of the objects
            that any detection finds; best_f1 and threshold, see `best_f1`; curve, see `curve_points`. None: not
            defined.
        counts: images, objects, difficult, detections, and of a run the images that it was trained on, if any.
        inclusive: whether a pixel was added to widths and heights.
        settings: settings of the evaluation, in a form that json can write.
        coco: class -> COCO's AP (see `coco_ap`), None without an object; empty: it was not measured.
    """

    values: Mapping[str, float]
    per_class: Mapping[str, Mapping[str, Mapping[str, Any]]]
    counts: Mapping[str, int]
    inclusive: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    coco: Mapping[str, float | None] = field(default_factory=dict)
    intervals: ClassVar[Mapping[str, Any]] = {}

    def with_coco(self, coco: Mapping[str, float]) -> DetectionReport:
        """The same with COCO's AP of each class."""
        values = {**self.values, COCO: mean(coco.values())}
        return replace(self, values=values, coco={name: _plain(value) for name, value in coco.items()})

    @property
    def overlaps(self) -> list[str]:
        """AP50, AP75, ...: without the eleven-point APs, and without COCO's."""
        return [name for name in self.values if "_" not in name]

    @property
    def thresholds(self) -> dict[str, float]:
        """Class -> lowest score of the detections to draw: the score with the best F1, infinite without a right one.

        A rank loss does not fix the scale of the scores, so a constant such as 0.5 would not work.
        """
        scores = {name: numbers[self.overlaps[0]]["threshold"] for name, numbers in self.per_class.items()}
        return {name: math.inf if score is None else score for name, score in scores.items()}

    def __str__(self) -> str:
        """A table for the terminal, in per cent."""
        names = self.overlaps
        heads = ["objects", "detections", *(f"{name}{end}" for name in names for end in ("", " 11pt"))]
        rows = [["", *heads, *(["AP50-95"] if self.coco else []), "recall"]]
        for name, numbers in self.per_class.items():
            first = numbers[names[0]]
            values = [numbers[ap][kind] for ap in names for kind in ("area", "eleven")]
            values += [*([self.coco[name]] if self.coco else []), first["max_recall"]]
            rows.append([shown(name), str(first["objects"]), str(first["detections"]), *map(_cell, values)])
        rows.append(["mean", "", "", *map(_cell, self.values.values()), ""])
        return "\n".join(filter(None, [aligned(rows), learned(self.counts)]))

    def to_json(self) -> str:
        """The report as JSON."""
        values = {name: _plain(value) for name, value in self.values.items()}
        return json.dumps({**vars(self), "values": values}, indent=1) + "\n"


def evaluate_voc(
    detections: Sequence[Detections],
    scenes: Sequence[Scene],
    class_names: Sequence[str],
    ious: Sequence[float] = IOUS,
    inclusive: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> DetectionReport:
    """Average precision of detections, one record per image. Records may hold tensors, numpy arrays or lists.

    Args:
        detections: [image] detections, boxes in pixels of the image file.
        scenes: [image] annotated objects, in the same order.
        class_names: C names; labels are indices into it.
        ious: thresholds of overlap, each in (0, 1].
        inclusive: whether to add a pixel to widths and heights (see the top of this file).
        settings: settings to store in the report.

    Raises:
        ValueError: lengths, shapes or labels do not fit, a threshold is out of range, a score is NaN, or a box ends
            before it begins.

    >>> import torch
    >>> from pathlib import Path
    >>> box = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    >>> scene = Scene("a", Path("a.jpg"), (20, 20), box, torch.tensor([0]), torch.tensor([False]))
    >>> found = Detections(torch.cat([box, box + 10]), torch.tensor([0, 0]), torch.tensor([0.4, 0.6]))
    >>> evaluate_voc([found], [scene], ["cell"]).values["AP50"]   # the wrong one is surer
    0.5
    """
    if len(detections) != len(scenes):
        raise ValueError(f"detections must have one record per image; got {len(detections)} for {len(scenes)} images")
    check_ious(ious)
    classes = len(class_names)
    if not classes or len(set(class_names)) < classes:
        raise ValueError(f"class_names must be different names, at least one; got {list(class_names)}")
    matches = match(detections, scenes, classes, inclusive)
    counted = np.concatenate([_labels(scene)[~_difficult(scene)] for scene in scenes] or [np.zeros(0, np.int64)])
    objects = np.bincount(counted, minlength=classes).tolist()
    columns = [of_class(matches, number) for number in range(classes)]
    per_class = {
        name: {f"AP{percent(iou)}": _row(own, count, iou) for iou in ious}
        for name, own, count in zip(class_names, columns, objects, strict=True)
    }
    values = {
        f"{name}{end}": mean(math.nan if each[name][kind] is None else each[name][kind] for each in per_class.values())
        for name in next(iter(per_class.values()))
        for end, kind in (("", "area"), ("_11", "eleven"))
    }
    counts = {"images": len(scenes), "objects": int(sum(objects))}
    counts["difficult"] = int(sum(_difficult(scene).sum() for scene in scenes))
    counts["detections"] = len(matches)
    return DetectionReport(values, per_class, counts, inclusive, dict(settings or {}))


def check_ious(ious: Sequence[float]) -> None:
    """Raise unless these are thresholds of overlap, at least one.

    Raises:
        ValueError: there is none, or one is not in (0, 1].
    """
    if not len(ious):
        raise ValueError("ious is empty; there must be at least one threshold of overlap")
    for iou in ious:
        number(iou, "each entry of ious is a threshold of overlap", above=0, high=1)


#: Columns of `match`: index of the image, and within it; class; score; largest overlap with an object of its class and
#: image (0: there is none); that object over all images (-1: there is none), and whether it is difficult; the largest
#: overlap with an object of another class.
MATCH = [
    *((name, np.int64) for name in ("image", "place", "label", "object")),
    *((name, np.float64) for name in ("score", "overlap", "elsewhere")),
    ("difficult", np.bool_),
]
Matches = Any  # a record array [detection] of the columns of `MATCH`


def match(detections: Sequence[Detections], scenes: Sequence[Scene], classes: int, inclusive: bool = False) -> Matches:
    """[detection] each detection with the object of its class that it overlaps most, see `MATCH`."""
    parts = [np.zeros(0, MATCH)]
    before = 0  # number of objects in earlier images
    for image, (detected, scene) in enumerate(zip(detections, scenes, strict=True)):
        labels, boxes = placed(f"{scene.name}: detections", detected.labels, detected.boxes, classes)
        there, places = placed(f"{scene.name}: objects", scene.labels, scene.boxes, classes)
        overlap, own = overlaps(boxes, places, inclusive), labels[:, None] == there[None]
        # an additional empty column, so that an image without objects needs no special case
        mine = np.concatenate([np.where(own, overlap, -1.0), np.full((len(labels), 1), -0.5)], 1)
        best = mine.argmax(1)
        part = np.zeros(len(labels), MATCH)
        part["image"], part["place"], part["label"] = image, np.arange(len(labels)), labels
        part["score"] = scored(scene.name, detected.scores, len(labels))
        part["overlap"] = np.maximum(mine.max(1), 0)
        part["elsewhere"] = np.where(own, 0.0, overlap).max(1, initial=0.0)
        part["object"] = np.where(best == len(there), -1, best + before)
        part["difficult"] = np.append(_difficult(scene), False)[best]
        parts.append(part)
        before += len(there)
    return np.concatenate(parts).view(np.recarray)


def of_class(matches: Matches, label: int) -> Matches:
    """The detections of a class, by descending score."""
    own = matches[matches.label == label]
    return own[np.argsort(-own.score, kind="stable")]


def judged(own: Matches, iou: float) -> tuple[BoolArray, BoolArray]:
    """(hit, ignored) of each detection at a threshold, for the detections of one class by descending score.

    A detection is a hit if it is the first one that belongs to an object that is not difficult.
    """
    belongs = own.overlap >= iou
    claims = np.flatnonzero(belongs & ~own.difficult)
    hit = np.zeros(len(own), dtype=bool)
    hit[claims[np.unique(own.object[claims], return_index=True)[1]]] = True
    return hit, belongs & own.difficult


def overlaps(one: FloatArray, other: FloatArray, inclusive: bool = False) -> FloatArray:
    """[one, other] area of the intersection divided by the area of the union; 0 if both are empty.

    Args:
        one: [one, 4] left, top, right, bottom.
        other: [other, 4] left, top, right, bottom.
        inclusive: whether right and bottom are the last pixel; then widths and heights are larger by 1.

    >>> overlaps(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[1.0, 0.0, 3.0, 2.0]])).round(3)
    array([[0.333]])
    """
    edges = [torch.from_numpy(boxes + [0.0, 0.0, inclusive, inclusive]) for boxes in (one, other)]
    share: FloatArray = box_iou(*edges).nan_to_num(0).numpy()
    return share


def _row(own: Matches, objects: int, iou: float) -> dict[str, Any]:
    """A class at a threshold of overlap, see `DetectionReport.per_class`."""
    hit, ignored = judged(own, iou)
    hits, scores = hit[~ignored], own.score[~ignored]
    right = np.cumsum(hits)
    recall, precision = right / max(objects, 1), right / np.arange(1, len(hits) + 1)
    threshold, f1 = best_f1(recall, precision, scores)
    return {
        "objects": objects,
        "detections": len(hits),
        "area": _plain(area_under(hits, objects)),
        "eleven": _plain(eleven_points(hits, objects)),
        "max_recall": int(hits.sum()) / objects if objects else None,
        "best_f1": f1,
        "threshold": _plain(threshold),
        "curve": curve_points(recall, precision),
    }


def best_f1(recall: FloatArray, precision: FloatArray, scores: FloatArray) -> tuple[float, float]:
    """(threshold, F1): the score with the highest harmonic mean of precision and recall, and that mean.

    The threshold is chosen on the same images. So use it for display, and not as a result. Without a hit: (inf, 0).
    """
    total = recall + precision
    if not total.any():
        return math.inf, 0.0
    f1 = 2 * recall * precision / np.where(total > 0, total, 1)
    # a threshold cannot separate detections of equal score
    best = int(np.argmax(np.where(np.append(scores[1:] != scores[:-1], True), f1, -1)))
    return float(scores[best]), float(f1[best])


def area_under(hits: BoolArray, objects: int) -> float:
    """Area under the curve of precision over recall. Precision is replaced by the best one at this or a higher recall.

    Args:
        hits: [detection] bool, whether it is right, by descending score.
        objects: number of objects.

    >>> round(area_under(np.array([True, False, True, False]), objects=4), 4)   # (1 + 2/3) / 4
    0.4167
    """
    if not objects:
        return math.nan
    best = _envelope(hits)
    # recall grows by 1 / objects at each hit
    return float(best[hits].sum() / objects)


def eleven_points(hits: BoolArray, objects: int) -> float:
    """Mean over the recalls 0, 0.1, ..., 1 of the best precision at this or a higher recall; 0 if it is not reached.

    A recall that is reached exactly counts: 3 of 10 objects are the recall 0.3. Some code compares with a grid of
    floats (`np.arange(0, 1.1, 0.1)`), in which 3 * 0.1 is a little more than 0.3. It misses the recalls 0.3, 0.6 and
    0.7. For each of them its value is lower by up to 1/11.

    >>> round(eleven_points(np.array([True, False, True, False]), objects=4), 4)   # (3 x 1 + 3 x 2/3) / 11
    0.4545
    """
    if not objects:
        return math.nan
    best, right = _envelope(hits), np.cumsum(hits)
    total = 0.0
    for tenth in range(11):
        there = np.flatnonzero(10 * right >= tenth * objects)  # integers, because 3 x 0.1 is not 0.3
        total += float(best[there[0]]) if there.size else 0.0
    return total / 11


def _envelope(hits: BoolArray) -> FloatArray:
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    envelope: FloatArray = np.maximum.accumulate(precision[::-1])[::-1]
    return envelope


def mean(values: Any) -> float:
    """Mean of the values that are not NaN; NaN if all are NaN."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def curve_points(recall: FloatArray, precision: FloatArray, most: int = CURVE_POINTS) -> list[tuple[float, float]]:
    """(recall, precision) from high scores to low: after every hit, and after the first and last detection.

    Args:
        recall: [detection] value after each detection, by descending score.
        precision: [detection] the same.
        most: largest number of points; more are thinned evenly.
    """
    if not len(recall):
        return []
    rises = np.flatnonzero(np.diff(recall, prepend=0.0) > 0)
    rows = np.unique(np.concatenate([[0], rises, [len(recall) - 1]]))
    if len(rows) > most:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, most).round().astype(np.int64))]
    return [(round(float(recall[row]), 5), round(float(precision[row]), 5)) for row in rows]


def read_report(path: Path) -> DetectionReport:
    """Read a file of `DetectionReport.to_json`.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a report, or it is damaged; the message has the name of the file.
    """
    content = {"coco": {}, **read_json(path, *(name for name in SHAPES if name != "coco"))}
    if all(fits(content[name], shape) for name, shape in SHAPES.items()):
        values = {name: math.nan if value is None else value for name, value in content["values"].items()}
        report = DetectionReport(**{name: content[name] for name in SHAPES} | {"values": values})
        ends = {f"{name}{end}" for name in report.overlaps for end in ("", "_11")} | ({COCO} if report.coco else set())
        rows = all({*each} == {*report.overlaps} for each in report.per_class.values())
        rows &= {*report.coco} in (set(), {*report.per_class})
        if ends == {*values} and report.overlaps and report.per_class and rows:
            return report
    raise ValueError(f"{path} is damaged: it is not a report of a detector")


def learned(counts: Mapping[str, int]) -> str:
    """A warning if the evaluated images were training images of the run."""
    if not counts.get(LEARNED):
        return ""
    return (
        f"The run was trained on {counts[LEARNED]} of these {counts['images']} images. Expect lower numbers on others."
    )


def _array(values: Numbers, name: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor(values, name).detach().cpu().numpy()
    return array


def _labels(scene: Scene) -> IntArray:
    return _array(scene.labels, "labels").astype(np.int64)


def _difficult(scene: Scene) -> BoolArray:
    return _array(scene.difficult, "difficult").astype(np.bool_)


def placed(what: str, labels: Numbers, boxes: Numbers, classes: int) -> tuple[IntArray, FloatArray]:
    """Checked labels and boxes of the detections or objects of an image."""
    numbers, corners = _array(labels, "labels"), _array(boxes, "boxes").astype(np.float64)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu") or corners.shape != (len(numbers), 4):
        raise ValueError(
            f"{what} must have integer labels [n] and boxes [n, 4]; got {numbers.dtype} {numbers.shape} and "
            f"{corners.shape}"
        )
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
        raise ValueError(
            f"{what} must have labels 0 .. {classes - 1}, without background; got {numbers.min()} .. {numbers.max()}"
        )
    wrong = ~(np.isfinite(corners).all(1) & (corners[:, 2:] >= corners[:, :2]).all(1))
    if wrong.any():
        raise ValueError(
            f"{what} must have finite boxes (left, top, right, bottom), but one is {corners[wrong.argmax()].tolist()}; "
            "torchvision.ops.box_convert converts other forms"
        )
    return numbers.astype(np.int64), corners


def scored(image: str, scores: Numbers, detections: int) -> FloatArray:
    """Checked scores of the detections of an image."""
    found: FloatArray = _array(scores, "scores").astype(np.float64)
    if found.shape != (detections,):
        raise ValueError(f"{image}: detections must have scores [{detections}]; got {found.shape}")
    if np.isnan(found).any():
        raise ValueError(f"{image}: detections have a score that is NaN; did training diverge?")
    return found


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def percent(iou: float) -> str:
    """A threshold as part of a name.

    >>> f"AP{percent(0.5)}"
    'AP50'
    """
    return f"{100 * iou:.10g}"  # 10 digits: more would show the rounding of 100 * 0.55
