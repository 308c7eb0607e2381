"""Average precision as COCO measures it: the mean over ten thresholds of overlap, for each class over all images.

The rules are those of COCO's evaluation, which differ from VOC's (`voc_ap`):

* The thresholds of overlap are 0.50, 0.55, ..., 0.95. AP at a threshold is the mean over the recalls 0, 0.01, ..., 1 of
  the best precision at this recall or a higher one; 0 if the recall is not reached.
* Of each image and class, the 100 detections of highest score count.
* By falling score, each detection takes the free object with the largest overlap. So a second detection of an object is
  right if another free object is near enough.
* A crowd takes any number of detections, which are then neither right nor wrong. Its overlap is the part of the
  detection inside it. Other difficult objects take one detection each, which is neither right nor wrong. Objects that
  count come first.
* Detections of equal score are sorted by image, then in the given order.

Boxes are edges (see `scenes`), without an additional pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .scenes import Scene
from .voc_ap import BoolArray, Detections, FloatArray, overlaps, placed, scored

IOUS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # detections of an image and class

_Judged = tuple[FloatArray, BoolArray, BoolArray]  # scores; right and ignored, [threshold, detection]


def coco_ap(detections: Sequence[Detections], scenes: Sequence[Scene], class_names: Sequence[str]) -> dict[str, float]:
    """Class -> COCO's AP, 0 .. 1; NaN for a class without an object that counts.

    Args:
        detections: [image] detections, boxes in pixels of the image file.
        scenes: [image] annotated objects, in the same order.
        class_names: C names; labels are indices into it.

    Raises:
        ValueError: see `voc_ap.evaluate_voc`.

    >>> import torch
    >>> from pathlib import Path
    >>> box = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
    >>> scene = Scene("a", Path("a.jpg"), (20, 20), box, torch.tensor([0]), torch.tensor([False]))
    >>> near = Detections(torch.tensor([[0.0, 0.0, 10.0, 8.0]]), torch.tensor([0]), torch.tensor([0.9]))
    >>> coco_ap([near], [scene], ["cell"])  # an overlap of 0.8 is enough for seven of ten thresholds
    {'cell': 0.7}
    """
    classes = len(class_names)
    objects = np.zeros(classes, dtype=np.int64)
    judged: list[list[_Judged]] = [[] for _ in range(classes)]
    for detected, scene in zip(detections, scenes, strict=True):
        labels, boxes = placed(f"{scene.name}: detections", detected.labels, detected.boxes, classes)
        there, places = placed(f"{scene.name}: objects", scene.labels, scene.boxes, classes)
        scores, hard = scored(scene.name, detected.scores, len(labels)), scene.difficult.cpu().numpy()
        crowd = np.zeros_like(hard) if scene.crowd is None else scene.crowd.cpu().numpy()
        for label in np.union1d(labels, there):
            own, mine = np.flatnonzero(labels == label), np.flatnonzero(there == label)
            own = own[np.argsort(-scores[own], kind="stable")][:MOST]
            objects[label] += int((~hard[mine]).sum())
            overlap = _overlaps(boxes[own], places[mine], crowd[mine])
            judged[label].append((scores[own], *_matched(overlap, hard[mine], crowd[mine])))
    return {name: _average(judged[label], int(objects[label])) for label, name in enumerate(class_names)}


def _overlaps(boxes: FloatArray, objects: FloatArray, crowd: BoolArray) -> FloatArray:
    """[detection, object] overlap; for a crowd the part of the detection that is inside."""
    low, high = (
        np.maximum(boxes[:, None, :2], objects[None, :, :2]),
        np.minimum(boxes[:, None, 2:], objects[None, :, 2:]),
    )
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)[:, None]
    inside = np.clip(high - low, 0, None).prod(2) / np.where(area > 0, area, 1)
    return np.where(crowd, inside, overlaps(boxes, objects))


def _matched(overlap: FloatArray, hard: BoolArray, crowd: BoolArray) -> tuple[BoolArray, BoolArray]:
    """(right, ignored), each [threshold, detection], for the detections of an image and class by falling score."""
    found = np.zeros((2, len(IOUS), len(overlap)), dtype=bool)
    free = np.ones((len(IOUS), overlap.shape[1]), dtype=bool)
    for place in np.flatnonzero((overlap >= IOUS[0]).any(1)):
        for row, least in enumerate(np.minimum(IOUS, 1 - 1e-10)):
            for kind in (False, True):  # the objects that count, then the others
                candidates = np.flatnonzero(free[row] & (hard == kind) & (overlap[place] >= least))
                if len(candidates):
                    best = candidates[::-1][overlap[place, candidates[::-1]].argmax()]  # the last of equal ones
                    free[row, best] = crowd[best]
                    found[int(kind), row, place] = True
                    break
    return found[0], found[1]


def _average(judged: Sequence[_Judged], objects: int) -> float:
    """AP of a class from its detections in each image."""
    if not objects:
        return math.nan
    order = np.argsort(-np.concatenate([scores for scores, _, _ in judged]), kind="stable")
    right, ignored = (np.concatenate([each[part] for each in judged], axis=1)[:, order] for part in (1, 2))
    return float(np.mean([_at_recalls(row[~left], objects) for row, left in zip(right, ignored, strict=True)]))


def _at_recalls(hits: BoolArray, objects: int) -> float:
    """Mean over `RECALLS` of the best precision at this recall or a higher one, from hits by falling score."""
    right = np.cumsum(hits)
    best = np.maximum.accumulate((right / np.arange(1, len(hits) + 1))[::-1])[::-1]
    return float(np.append(best, 0.0)[np.searchsorted(right / objects, RECALLS)].mean())
