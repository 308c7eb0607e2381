"""COCO's average precision against pycocotools, on made-up and on real boxes, and by hand."""

from __future__ import annotations

import contextlib
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankgrad_detection.coco_ap import coco_ap
from rankgrad_detection.formats import load_scenes
from rankgrad_detection.scenes import Scene
from rankgrad_detection.voc_ap import Detections

BCCD = Path(os.environ.get("RANKGRAD_DATA", "")) / "bccd"
real = pytest.mark.skipif(not os.environ.get("RANKGRAD_DATA") or not BCCD.is_dir(), reason="needs RANKGRAD_DATA/bccd")


def by_pycocotools(detections: list[Detections], scenes: list[Scene], classes: int) -> list[float]:
    """AP of each class."""
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def wide(box: list[float]) -> list[float]:
        return [box[0], box[1], box[2] - box[0], box[3] - box[1]]

    truth, found = COCO(), []
    truth.dataset = {"images": [{"id": n + 1} for n in range(len(scenes))], "annotations": []}
    truth.dataset["categories"] = [{"id": n + 1, "name": str(n)} for n in range(classes)]
    for image, (detected, scene) in enumerate(zip(detections, scenes, strict=True), 1):
        crowd = [False] * len(scene.labels) if scene.crowd is None else scene.crowd.tolist()
        for label, box, crowded in zip(scene.labels.tolist(), scene.boxes.tolist(), crowd, strict=True):
            entry = {"id": len(truth.dataset["annotations"]) + 1, "image_id": image, "category_id": label + 1}
            area = wide(box)[2] * wide(box)[3]
            truth.dataset["annotations"].append({**entry, "bbox": wide(box), "area": area, "iscrowd": int(crowded)})
        for label, box, score in zip(
            detected.labels.tolist(), detected.boxes.tolist(), detected.scores.tolist(), strict=True
        ):
            found.append({"image_id": image, "category_id": label + 1, "bbox": wide(box), "score": score})
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        measured = COCOeval(truth, truth.loadRes(found), "bbox")
        measured.evaluate()
        measured.accumulate()
    precision = measured.eval["precision"][:, :, :, 0, 2]  # all areas, 100 detections
    return [float(precision[:, :, n].mean()) if (precision[:, :, n] > -1).all() else math.nan for n in range(classes)]


def scene_of(
    name: str, boxes: list[list[float]], labels: list[int], difficult: list[bool] | None = None, crowd: Any = None
) -> Scene:
    hard, crowds = (torch.tensor(each or [False] * len(labels), dtype=torch.bool) for each in (difficult, crowd))
    edges = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return Scene(name, Path("a.jpg"), (90, 90), edges, torch.tensor(labels).long(), hard | crowds, crowds)


def near(scenes: list[Scene], classes: int, seed: int, ties: bool, many: int = 4) -> list[Detections]:
    """Detections near the objects, near them again, and anywhere."""
    g = torch.Generator().manual_seed(seed)
    found = []
    for scene in scenes:
        kept = torch.rand(2 * len(scene.boxes), generator=g) < 0.7
        sides = (scene.boxes[:, 2:] - scene.boxes[:, :2]).repeat(2, 2)
        moved = scene.boxes.repeat(2, 1) + 0.1 * sides * torch.randn(2 * len(scene.boxes), 4, generator=g)
        low = torch.rand(many, 2, generator=g) * 50
        boxes = torch.cat([moved[kept], torch.cat([low, low + 5 + torch.rand(many, 2, generator=g) * 40], 1)])
        boxes = torch.cat([torch.minimum(boxes[:, :2], boxes[:, 2:]), torch.maximum(boxes[:, :2], boxes[:, 2:])], 1)
        labels = torch.cat([scene.labels.repeat(2)[kept], torch.randint(0, classes, (many,), generator=g)])
        scores = torch.rand(len(boxes), generator=g)
        found.append(Detections(boxes, labels, (8 * scores).round() / 8 if ties else scores))
    return found


def made_up(seed: int, images: int = 15, classes: int = 3) -> list[Scene]:
    """Objects that crowd one another, and some crowds."""
    g = np.random.RandomState(seed)
    scenes = []
    for image in range(images):
        n = int(g.randint(0, 8))
        low = g.randint(0, 50, (n, 2))
        boxes = np.concatenate([low, low + g.randint(6, 40, (n, 2))], 1).tolist()
        crowd = (g.rand(n) < 0.15).tolist()
        scenes.append(scene_of(str(image), boxes, g.randint(0, classes, n).tolist(), crowd=crowd))
    return scenes


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_ap_is_that_of_pycocotools(seed, ties):
    scenes = made_up(seed)
    detections = near(scenes, 4, seed, ties)
    wanted = by_pycocotools(detections, scenes, 4)
    found = coco_ap(detections, scenes, ["a", "b", "c", "none of it"])
    assert list(found.values()) == pytest.approx(wanted, abs=1e-12, nan_ok=True)
    assert math.isnan(found["none of it"])


def test_a_hundred_detections_of_an_image_and_class_count():
    scenes = made_up(9, images=2, classes=1)
    detections = near(scenes, 1, 3, False, many=150)
    assert list(coco_ap(detections, scenes, ["a"]).values()) == pytest.approx(by_pycocotools(detections, scenes, 1))


@real
def test_ap_on_blood_cells_is_that_of_pycocotools():
    test = load_scenes(BCCD, "test")
    scenes = list(test.scenes)
    detections = near(scenes, 3, 0, False)
    found = coco_ap(detections, scenes, test.class_names)
    assert list(found.values()) == pytest.approx(by_pycocotools(detections, scenes, 3), abs=1e-12)


def test_a_second_detection_is_right_if_another_object_is_near_enough():
    boxes = [[0, 0, 10, 10], [0, 0, 10, 9]]
    scene = scene_of("a", boxes, [0, 0])
    twice = Detections(torch.tensor([[0.0, 0, 10, 10]] * 2), torch.tensor([0, 0]), torch.tensor([0.9, 0.8]))
    # the overlap with the second object is 0.9: from 0.5 to 0.9 both are found; at 0.95 one, for 51 of 101 recalls
    assert coco_ap([twice], [scene], ["a"])["a"] == pytest.approx(0.9 + 0.1 * 51 / 101)


def test_a_difficult_object_takes_one_detection_and_a_crowd_any_number():
    box = [0.0, 0.0, 10.0, 10.0]
    found = Detections(
        torch.tensor([box, box, [20.0, 20, 30, 30]]), torch.zeros(3, dtype=torch.long), torch.tensor([0.9, 0.8, 0.7])
    )
    own = [[20, 20, 30, 30], box]
    hard = scene_of("a", own, [0, 0], difficult=[False, True])
    crowd = scene_of("a", own, [0, 0], crowd=[False, True])
    assert coco_ap([found], [hard], ["a"])["a"] == pytest.approx(0.5)
    assert coco_ap([found], [crowd], ["a"])["a"] == pytest.approx(1)
