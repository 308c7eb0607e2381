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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
# Shapes of the content of `DetectionReport.to_dict`.
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
class ClassResult:
    """One class at one threshold of overlap.

    Attributes:
        name: name of the class.
        objects: number of objects, without the difficult ones.
        detections: number of detections, without those of difficult objects.
        hits: number of right detections.
        area: AP as the area under the monotone curve (VOC 2010 and later); NaN without an object.
        eleven: AP as the mean of the best precision at recalls 0, 0.1, ..., 1 (VOC 2007); NaN without an object.
        recall, precision: [detection] values after each detection, by descending score.
        scores: [detection] scores.
    """

    name: str
    objects: int
    detections: int
    hits: int
    area: float
    eleven: float
    recall: FloatArray
    precision: FloatArray
    scores: FloatArray

    @property
    def max_recall(self) -> float:
        """Fraction of the objects that any detection finds."""
        return self.hits / self.objects if self.objects else math.nan

    @property
    def best_f1(self) -> tuple[float, float]:
        """(threshold, F1): the score with the highest harmonic mean of precision and recall, and that mean.

        The threshold is chosen on the same images. So use it for display, and not as a result. Without a hit: (inf, 0).
        """
        total = self.recall + self.precision
        if not self.hits:
            return math.inf, 0.0
        f1 = 2 * self.recall * self.precision / np.where(total > 0, total, 1)
        # a threshold cannot separate detections of equal score
        last = np.append(self.scores[1:] != self.scores[:-1], True)
        best = int(np.argmax(np.where(last, f1, -1)))
        return float(self.scores[best]), float(f1[best])


@dataclass(frozen=True, eq=False)
class DetectionReport:
    """Average precision of all classes at several thresholds of overlap.

    Attributes:
        class_names: C names.
        by_iou: threshold -> one result per class.
        counts: images, objects, difficult, detections, and of a run the images that it was trained on, if any.
        inclusive: whether a pixel was added to widths and heights.
        settings: settings of the evaluation, in a form that json can write.
        coco: class -> COCO's AP (see `coco_ap`), NaN without an object; empty: it was not measured.
    """

    class_names: tuple[str, ...]
    by_iou: Mapping[float, tuple[ClassResult, ...]]
    counts: Mapping[str, int]
    inclusive: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    coco: Mapping[str, float] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, float]:
        """Name -> mean over the classes that have objects, 0 .. 1: AP50, AP50_11 (eleven points), ..., AP50_95."""
        by_name = {}
        for iou, results in self.by_iou.items():
            by_name[f"AP{percent(iou)}"] = mean(result.area for result in results)
            by_name[f"AP{percent(iou)}_11"] = mean(result.eleven for result in results)
        return by_name | ({COCO: mean(self.coco.values())} if self.coco else {})

    def __str__(self) -> str:
        """A table for the terminal, in per cent."""
        return table(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The report in a form that json can write; curves have at most `CURVE_POINTS` points."""
        return {
            "values": {name: _plain(value) for name, value in self.values.items()},
            "per_class": {
                name: {f"AP{percent(iou)}": _row(results[number]) for iou, results in self.by_iou.items()}
                for number, name in enumerate(self.class_names)
            },
            "counts": dict(self.counts),
            "inclusive": self.inclusive,
            "settings": dict(self.settings),
            "coco": {name: _plain(value) for name, value in self.coco.items()},
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


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
    by_iou = {
        float(iou): tuple(
            _of_class(name, objects[number], matches.of(number), iou) for number, name in enumerate(class_names)
        )
        for iou in ious
    }
    difficult = int(sum(_difficult(scene).sum() for scene in scenes))
    counts = {
        "images": len(scenes),
        "objects": int(sum(objects)),
        "difficult": difficult,
        "detections": len(matches.score),
    }
    return DetectionReport(tuple(class_names), by_iou, counts, inclusive, dict(settings or {}))


def check_ious(ious: Sequence[float]) -> None:
    """Raise unless these are thresholds of overlap, at least one.

    Raises:
        ValueError: there is none, or one is not in (0, 1].
    """
    if not len(ious):
        raise ValueError("ious is empty; there must be at least one threshold of overlap")
    for iou in ious:
        number(iou, "each entry of ious is a threshold of overlap", above=0, high=1)


@dataclass(frozen=True, eq=False)
class Matches:
    """All detections of all images, each with the object that it belongs to.

    Attributes:
        image: [detection] index of the image.
        place: [detection] index within its image.
        label: [detection] class.
        score: [detection] score.
        overlap: [detection] largest overlap with an object of its class and image; 0 if there is none.
        object: [detection] index of that object over all images; -1 if there is none.
        difficult: [detection] whether that object is difficult.
        elsewhere: [detection] largest overlap with an object of another class.
    """

    image: IntArray
    place: IntArray
    label: IntArray
    score: FloatArray
    overlap: FloatArray
    object: IntArray
    difficult: BoolArray
    elsewhere: FloatArray

    def of(self, label: int) -> Matches:
        """The detections of a class, by descending score."""
        rows = np.flatnonzero(self.label == label)
        rows = rows[np.argsort(-self.score[rows], kind="stable")]
        return Matches(*(getattr(self, name)[rows] for name in Matches.__dataclass_fields__))

    def judged(self, iou: float) -> tuple[BoolArray, BoolArray]:
        """(hit, ignored) of each detection at a threshold, for the detections of one class by descending score.

        A detection is a hit if it is the first one that belongs to an object that is not difficult.
        """
        belongs = self.overlap >= iou
        ignored = belongs & self.difficult
        claims = np.flatnonzero(belongs & ~self.difficult)
        hit = np.zeros(len(self.score), dtype=bool)
        hit[claims[np.unique(self.object[claims], return_index=True)[1]]] = True
        return hit, ignored


def match(detections: Sequence[Detections], scenes: Sequence[Scene], classes: int, inclusive: bool = False) -> Matches:
    """The object with the largest overlap for each detection; see `Matches`."""
    columns: list[tuple[npt.NDArray[Any], ...]] = []
    before = 0  # number of objects in earlier images
    for image, (detected, scene) in enumerate(zip(detections, scenes, strict=True)):
        labels, boxes = placed(f"{scene.name}: detections", detected.labels, detected.boxes, classes)
        there, places = placed(f"{scene.name}: objects", scene.labels, scene.boxes, classes)
        scores = scored(scene.name, detected.scores, len(labels))
        overlap = overlaps(boxes, places, inclusive)
        own = labels[:, None] == there[None]
        # an additional empty column, so that an image without objects needs no special case
        mine = np.concatenate([np.where(own, overlap, -1.0), np.full((len(labels), 1), -0.5)], 1)
        best, elsewhere = mine.argmax(1), np.where(own, 0.0, overlap).max(1, initial=0.0)
        most, none = mine[np.arange(len(labels)), best], best == len(there)
        hard = np.append(_difficult(scene), False)[best]
        columns.append(
            (
                np.full(len(labels), image),
                np.arange(len(labels)),
                labels,
                scores,
                np.maximum(most, 0),
                np.where(none, -1, best + before),
                hard,
                elsewhere,
            )
        )
        before += len(there)
    kinds = (np.int64, np.int64, np.int64, np.float64, np.float64, np.int64, np.bool_, np.float64)
    joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)] if columns else [np.zeros(0)] * len(kinds)
    return Matches(*(column.astype(kind) for column, kind in zip(joined, kinds, strict=True)))


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


def _of_class(name: str, objects: int, matches: Matches, iou: float) -> ClassResult:
    hit, ignored = matches.judged(iou)
    hits, scores = hit[~ignored], matches.score[~ignored]
    right = np.cumsum(hits)
    precision = right / np.arange(1, len(hits) + 1)
    return ClassResult(
        name=name,
        objects=objects,
        detections=len(hits),
        hits=int(hits.sum()),
        area=area_under(hits, objects),
        eleven=eleven_points(hits, objects),
        recall=right / max(objects, 1),
        precision=precision,
        scores=scores,
    )


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


def curve_points(result: ClassResult, most: int = CURVE_POINTS) -> list[tuple[float, float]]:
    """(recall, precision) from high scores to low: after every hit, and after the first and last detection.

    Args:
        result: result of a class.
        most: largest number of points; more are thinned evenly.
    """
    if not result.detections:
        return []
    rises = np.flatnonzero(np.diff(result.recall, prepend=0.0) > 0)
    rows = np.unique(np.concatenate([[0], rises, [result.detections - 1]]))
    if len(rows) > most:
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, most).round().astype(np.int64))]
    return [(round(float(result.recall[row]), 5), round(float(result.precision[row]), 5)) for row in rows]


def read_content(path: Path) -> dict[str, Any]:
    """Read a file of `DetectionReport.to_json`, as a dict for `table`.

    Args:
        path: the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a report, or it is damaged; the message has the name of the file.
    """
    content = read_json(path, "values", "per_class", "counts", "inclusive", "settings")
    content.setdefault("coco", {})
    wrong = [name for name, shape in SHAPES.items() if not fits(content[name], shape)]
    if not wrong:
        values, classes = set(content["values"]), content["per_class"]
        names = {name for name in values if "_" not in name}
        paired = {f"{name}{end}" for name in names for end in ("", "_11")} == values - {COCO}
        paired &= set(content["coco"]) == set(classes if COCO in values else ())
        rows = [row for entry in classes.values() if set(entry) == names for row in entry.values()]
        points = all(len(point) == 2 for row in rows for point in row["curve"])
        if paired and points and rows and len(rows) == len(names) * len(classes):
            return content
    raise ValueError(f"{path} is damaged: it is not a report of a detector")


def table(content: Mapping[str, Any]) -> str:
    """The content of `DetectionReport.to_dict` as a table for the terminal, in per cent."""
    per_class: Mapping[str, Mapping[str, Any]] = content["per_class"]
    names = list(next(iter(per_class.values())))
    heads = ["objects", "detections", *(f"{name}{end}" for name in names for end in ("", " 11pt"))]
    heads += ["AP50-95", "recall"] if content["coco"] else ["recall"]
    rows = [["", *heads]]
    for name, numbers in per_class.items():
        first = numbers[names[0]]
        values = [numbers[ap][kind] for ap in names for kind in ("area", "eleven")]
        values += [content["coco"][name]] if content["coco"] else []
        cells = [str(first["objects"]), str(first["detections"]), *map(_cell, values), _cell(first["max_recall"])]
        rows.append([shown(name), *cells])
    rows.append(["mean", "", "", *map(_cell, content["values"].values()), ""])
    note = learned(content["counts"])
    return aligned(rows) + (f"\n{note}" if note else "")


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
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"{what} must have integer labels [n]; got {numbers.dtype} {numbers.shape}")
    if corners.shape != (len(numbers), 4):
        raise ValueError(f"{what} must have boxes [n, 4] and labels [n]; got {corners.shape} and {numbers.shape}")
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
        raise ValueError(
            f"{what} must have labels 0 .. {classes - 1}, without background; got {numbers.min()} .. {numbers.max()}"
        )
    if not np.isfinite(corners).all():
        raise ValueError(f"{what} have a box that is not finite")
    wrong = (corners[:, 2:] < corners[:, :2]).any(1)
    if wrong.any():
        raise ValueError(
            f"{what} must have boxes (left, top, right, bottom), but one is {corners[wrong.argmax()].tolist()}; "
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


def _row(result: ClassResult) -> dict[str, Any]:
    threshold, f1 = result.best_f1
    return {
        "objects": result.objects,
        "detections": result.detections,
        "area": _plain(result.area),
        "eleven": _plain(result.eleven),
        "max_recall": _plain(result.max_recall),
        "best_f1": f1,
        "threshold": _plain(threshold),
        "curve": curve_points(result),
    }


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
