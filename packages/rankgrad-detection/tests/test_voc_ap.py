"""VOC's average precision against a slow copy of its rules in plain loops, against torchmetrics, and by hand."""

from __future__ import annotations

import json
import math
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageColor
from torch import Tensor
from voc_trees import write_image

from rankgrad_detection.pictures import COLOURS, Mark, draw, marks, tally, worth_seeing
from rankgrad_detection.scenes import Scene
from rankgrad_detection.voc_ap import (
    Detections,
    area_under,
    best_f1,
    curve_points,
    eleven_points,
    evaluate_voc,
    match,
    overlaps,
    percent,
    read_report,
)

Boxes = list[list[float]]


def scene(boxes: Boxes, labels: list[int] | None = None, difficult: list[bool] | None = None) -> Scene:
    n = len(boxes)
    return Scene(
        "image",
        Path("image.jpg"),
        (100, 100),
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        torch.tensor(labels if labels is not None else [0] * n),
        torch.tensor(difficult if difficult is not None else [False] * n, dtype=torch.bool),
    )


def found(boxes: Boxes, scores: list[float], labels: list[int] | None = None) -> Detections:
    return Detections(
        torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        torch.tensor(labels if labels is not None else [0] * len(boxes)),
        torch.tensor(scores),
    )


def problem(seed: int, images: int = 12, classes: int = 3, ties: bool = False) -> tuple[list[Detections], list[Scene]]:
    """Objects that crowd one another, some difficult, and detections near them, twice, and anywhere."""
    g = torch.Generator().manual_seed(seed)

    def boxes(n: int) -> Tensor:
        corner = torch.randint(0, 40, (n, 2), generator=g).float()
        return torch.cat([corner, corner + torch.randint(7, 30, (n, 2), generator=g)], 1)

    scenes, detections = [], []
    for _ in range(images):
        n = int(torch.randint(0, 7, (), generator=g))
        there = boxes(n)
        labels = torch.randint(0, classes, (n,), generator=g)
        difficult = torch.rand(n, generator=g) < 0.25
        scenes.append(Scene("image", Path("image.jpg"), (80, 80), there, labels, difficult))
        near = there.repeat(2, 1) + torch.randint(-3, 4, (2 * n, 4), generator=g)
        kept = torch.rand(2 * n, generator=g) < 0.7
        other = boxes(4)
        all_boxes = torch.cat([near[kept], other])
        all_labels = torch.cat([labels.repeat(2)[kept], torch.randint(0, classes, (4,), generator=g)])
        scores = torch.rand(len(all_boxes), generator=g)
        detections.append(Detections(all_boxes, all_labels, (scores * 6).round() / 6 if ties else scores))
    return detections, scenes


def slow(
    detections: list[Detections], scenes: list[Scene], label: int, iou: float, inclusive: bool
) -> tuple[list[bool], int]:
    """(right or wrong of each detection that counts, by falling score; objects): VOC's rules, one at a time."""
    extra = 1.0 if inclusive else 0.0

    def overlap(a: list[float], b: list[float]) -> float:
        width = min(a[2], b[2]) - max(a[0], b[0]) + extra
        height = min(a[3], b[3]) - max(a[1], b[1]) + extra
        if width <= 0 or height <= 0:
            return 0.0
        common = width * height
        areas = [(box[2] - box[0] + extra) * (box[3] - box[1] + extra) for box in (a, b)]
        return common / (areas[0] + areas[1] - common)

    rows = []
    for image, each in enumerate(detections):
        for place, score in enumerate(each.scores.tolist()):
            if int(each.labels[place]) == label:
                rows.append((-score, image, place))
    rows.sort()
    taken, hits = set(), []
    for _, image, place in rows:
        best, which = -1.0, None
        for number, box in enumerate(scenes[image].boxes.tolist()):
            if int(scenes[image].labels[number]) == label:
                value = overlap(detections[image].boxes[place].tolist(), box)
                if value > best:
                    best, which = value, number
        if which is not None and best >= iou:
            if bool(scenes[image].difficult[which]):
                continue
            hits.append((image, which) not in taken)
            taken.add((image, which))
        else:
            hits.append(False)
    objects = sum(int(((s.labels == label) & ~s.difficult).sum()) for s in scenes)
    return hits, objects


def slow_area(hits: list[bool], objects: int) -> float:
    """VOC 2010's: pad the curve, make it monotone from the right, sum the rectangles."""
    right, recall, precision = 0, [0.0], [0.0]
    for number, hit in enumerate(hits, start=1):
        right += hit
        recall.append(right / objects)
        precision.append(right / number)
    recall.append(1.0)
    precision.append(0.0)
    for place in range(len(precision) - 2, -1, -1):
        precision[place] = max(precision[place], precision[place + 1])
    return sum((recall[i] - recall[i - 1]) * precision[i] for i in range(1, len(recall)))


def slow_eleven(hits: list[bool], objects: int) -> float:
    total = 0.0
    for tenth in range(11):
        right, best = 0, 0.0
        for number, hit in enumerate(hits, start=1):
            right += hit
            if right * 10 >= tenth * objects:
                best = max(best, right / number)
        total += best
    return total / 11


# ------------------------------------------------------------------------------------------- against the same in loops


@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_ap_is_that_of_the_rules_in_plain_loops(seed, ties, inclusive):
    detections, scenes = problem(seed, ties=ties)
    ious = (0.3, 0.5, 0.75)
    report = evaluate_voc(detections, scenes, ["a", "b", "c"], ious, inclusive)
    for iou in ious:
        for label in range(3):
            hits, objects = slow(detections, scenes, label, iou, inclusive)
            result = report.per_class["abc"[label]][f"AP{percent(iou)}"]
            assert (result["objects"], result["detections"]) == (objects, len(hits))
            assert result["max_recall"] == pytest.approx(sum(hits) / objects)
            assert result["area"] == pytest.approx(slow_area(hits, objects), abs=1e-12)
            assert result["eleven"] == pytest.approx(slow_eleven(hits, objects), abs=1e-12)
    assert 0.05 < report.values["AP50"] < 0.95


@pytest.mark.parametrize(("hits", "missed"), [(3, 1), (6, 1), (7, 1), (4, 0), (10, 0)])
def test_a_recall_that_is_reached_exactly_counts_where_a_grid_of_floats_misses_it(hits, missed):
    recall = np.arange(1, hits + 1) / 10  # all right, of 10 objects
    grid = sum(float(bool((recall >= point).any())) for point in np.arange(0, 1.1, 0.1)) / 11
    exact = eleven_points(np.ones(hits, dtype=bool), objects=10)
    assert exact == pytest.approx((hits + 1) / 11) and exact - grid == pytest.approx(missed / 11)


def test_the_plus_one_of_pixels_is_the_ordinary_overlap_of_edges():
    g = np.random.RandomState(0)
    low = g.randint(1, 50, (2, 40, 2)).astype(float)
    pixels = np.concatenate([low, low + g.randint(0, 30, (2, 40, 2))], 2)  # from 1, last pixel included
    edges = pixels - [1, 1, 0, 0]
    np.testing.assert_allclose(overlaps(*pixels, inclusive=True), overlaps(*edges), rtol=0, atol=1e-12)
    assert (overlaps(*pixels) != overlaps(*edges)).any()


def test_ap_is_that_of_torchmetrics_where_the_rules_agree(monkeypatch):
    legacy: Any = pytest.importorskip("torchmetrics.detection._mean_ap")
    # its boxes need torch alone; what it asks of pycocotools is for masks
    monkeypatch.setitem(sys.modules, "pycocotools", types.ModuleType("pycocotools"))
    monkeypatch.setitem(sys.modules, "pycocotools.mask", types.ModuleType("pycocotools.mask"))
    monkeypatch.setattr(legacy, "_PYCOCOTOOLS_AVAILABLE", True)
    g = torch.Generator().manual_seed(0)
    detections, scenes = [], []
    for _ in range(20):  # objects far from one another: there COCO's matching is VOC's
        corner = torch.tensor([[x, y] for x in (0.0, 60.0, 120.0) for y in (0.0, 60.0)])
        boxes = torch.cat([corner, corner + 30 + 10 * torch.rand(6, 2, generator=g)], 1)
        labels = torch.randint(0, 2, (6,), generator=g)
        scenes.append(Scene("image", Path("i.jpg"), (200, 200), boxes, labels, torch.zeros(6, dtype=torch.bool)))
        near = boxes + 2.5 * torch.randn(6, 4, generator=g)
        wrong = torch.where(torch.rand(6, generator=g) < 0.2, 1 - labels, labels)
        detections.append(Detections(near, wrong, torch.rand(6, generator=g)))
    report = evaluate_voc(detections, scenes, ["a", "b"], (0.5, 0.75))
    for points, kind in ((1001, "area"), (11, "eleven")):
        metric = legacy.MeanAveragePrecision(
            iou_thresholds=[0.5, 0.75],
            rec_thresholds=torch.linspace(0, 1, points, dtype=torch.float64).tolist(),
            class_metrics=True,
        )
        metric.update(
            [{"boxes": d.boxes, "labels": d.labels, "scores": d.scores} for d in detections],
            [{"boxes": s.boxes, "labels": s.labels} for s in scenes],
        )
        theirs = metric.compute()
        both = [[rows[name][kind] for rows in report.per_class.values()] for name in ("AP50", "AP75")]
        torch.testing.assert_close(
            theirs["map_per_class"].double(), torch.tensor(both, dtype=torch.float64).mean(0), rtol=0, atol=1e-3
        )
        assert float(theirs["map_50"]) == pytest.approx(sum(both[0]) / 2, abs=1e-3)
    assert 0.1 < report.values["AP75"] < report.values["AP50"] < 0.9


# -------------------------------------------------------------------------------------------------------------- by hand


def values(detections: Detections, there: Scene, **options: Any) -> dict[str, float]:
    return evaluate_voc([detections], [there], ["a", "b"], **options).values


def test_a_second_detection_of_an_object_is_wrong_even_where_another_object_is_free():
    there = scene([[0, 0, 10, 10], [4, 0, 14, 10]])
    # both lie nearer to the first object; COCO's rules would give the second one to the free object
    both = found([[0, 0, 10, 10], [1, 0, 11, 10]], [0.9, 0.8])
    result = evaluate_voc([both], [there], ["a"], (0.5,)).per_class["a"]["AP50"]
    assert overlaps(both.boxes.double().numpy(), there.boxes.double().numpy())[1, 1] > 0.5
    assert (result["max_recall"], result["area"]) == (0.5, 0.5)


def test_detections_of_difficult_objects_count_neither_way_however_many():
    there = scene([[0, 0, 10, 10], [50, 50, 60, 60]], difficult=[True, False])
    many = found([[0, 0, 10, 10], [0, 0, 10, 9], [50, 50, 60, 60]], [0.9, 0.8, 0.7])
    result = evaluate_voc([many], [there], ["a"]).per_class["a"]["AP50"]
    assert [result[name] for name in ("objects", "detections", "max_recall", "area")] == [1, 1, 1, 1.0]


def test_an_overlap_equal_to_the_threshold_is_enough():
    there = scene([[0, 0, 10, 10]])
    assert values(found([[0, 0, 10, 5]], [1.0]), there)["AP50"] == 1.0
    assert values(found([[0, 0, 10, 4.99]], [1.0]), there)["AP50"] == 0.0


def test_classes_without_objects_are_left_out_of_the_mean_and_shown_as_such():
    there = scene([[0, 0, 10, 10]])
    report = evaluate_voc([found([[0, 0, 10, 10], [0, 0, 10, 10]], [1.0, 1.0], [0, 1])], [there], ["a", "b"])
    assert report.values["AP50"] == 1.0 and report.per_class["b"]["AP50"]["area"] is None
    content = json.loads(report.to_json())
    assert content["per_class"]["b"]["AP50"]["area"] is None
    assert str(report).splitlines()[2].split() == ["b", "0", "1", "-", "-", "-", "-", "-"]


def test_a_report_that_is_damaged_anywhere_is_refused_by_name_or_can_be_shown(tmp_path):
    there = scene([[0, 0, 10, 10], [50, 50, 60, 60]])
    whole = json.loads(evaluate_voc([found([[0, 0, 10, 10]], [1.0])], [there], ["a", "b"]).to_json())
    file = tmp_path / "metrics.json"

    def places(node: Any) -> list[tuple[Any, ...]]:
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        return [path for key, value in inner for path in [(key,), *((key, *rest) for rest in places(value))]]

    refused = 0
    for path in places(whole):
        for value in ("gone", None, "x", [], {}, [[1]], 3):
            content = json.loads(json.dumps(whole))
            node = content
            for key in path[:-1]:
                node = node[key]
            if value == "gone":
                del node[path[-1]]
            else:
                node[path[-1]] = value
            file.write_text(json.dumps(content))
            try:
                read = read_report(file)
            except ValueError as error:
                assert str(file) in str(error)
                refused += 1
            else:
                str(read), read.thresholds  # both show it
    assert refused > 150
    file.write_text(json.dumps(whole))
    assert json.loads(read_report(file).to_json()) == whole


def test_without_detections_or_images_there_is_nothing_to_divide_by():
    there = scene([[0, 0, 10, 10]])
    nothing = found([], [])
    assert values(nothing, there) == {"AP50": 0.0, "AP50_11": 0.0, "AP75": 0.0, "AP75_11": 0.0}
    assert math.isnan(values(nothing, scene([]))["AP50"]) and math.isnan(
        values(found([[0, 0, 1, 1]], [1.0]), scene([]))["AP50"]
    )
    assert math.isnan(evaluate_voc([], [], ["a"]).values["AP50"])


def test_eleven_points_count_in_whole_objects():
    hits = np.array([True, True, True] + [False] * 97)
    # 3 of 10 reach a recall of exactly 0.3, which is less than 3 x 0.1 in binary
    assert eleven_points(hits, 10) == pytest.approx(4 / 11, abs=1e-15)
    assert area_under(hits, 10) == pytest.approx(0.3, abs=1e-15)


def test_only_the_order_of_scores_matters():
    detections, scenes = problem(5)
    squeezed = [Detections(d.boxes, d.labels, torch.exp(7 * d.scores) - 90) for d in detections]
    assert evaluate_voc(squeezed, scenes, "abc").values == evaluate_voc(detections, scenes, "abc").values


WRONG_PARTS = [
    ({"labels": torch.tensor([2])}, r"labels 0 \.\. 1, without background; got 2 \.\. 2"),
    ({"labels": torch.tensor([0.0])}, "integer labels.*float32"),
    ({"labels": torch.tensor([False])}, "integer labels.*bool"),
    ({"boxes": torch.tensor([[0.0, 0, math.inf, 9]])}, "finite boxes"),
    ({"boxes": torch.tensor([[30.0, 20, 10, 10]])}, r"\(left, top, right, bottom\).*\[30.0, 20.0, 10.0, 10.0\]"),
    ({"boxes": torch.zeros(2, 4)}, r"boxes \[n, 4\]; got int64 \(1,\) and \(2, 4\)"),
]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *WRONG_PARTS,
        ({"scores": torch.tensor([math.nan])}, "a score that is NaN; did training diverge"),
        ({"scores": torch.zeros(2)}, r"scores \[1\]; got \(2,\)"),
    ],
)
def test_detections_that_make_no_sense_are_refused(change, message):
    parts = {"boxes": torch.zeros(1, 4), "labels": torch.tensor([0]), "scores": torch.tensor([1.0]), **change}
    with pytest.raises(ValueError, match=f"^image: detections .*{message}"):
        values(Detections(**parts), scene([]))


@pytest.mark.parametrize(("change", "message"), WRONG_PARTS)
def test_objects_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^image: objects .*{message}"):
        values(found([], []), replace(scene([[0, 0, 1, 1]]), **change))


def test_records_may_hold_arrays_and_lists():
    detections, scenes = problem(1)
    arrays = [Detections(d.boxes.numpy(), d.labels.tolist(), d.scores.numpy()) for d in detections]
    others = [
        replace(s, boxes=s.boxes.numpy(), labels=s.labels.numpy(), difficult=s.difficult.tolist()) for s in scenes
    ]
    assert evaluate_voc(arrays, others, "abc").to_json() == evaluate_voc(detections, scenes, "abc").to_json()


def test_as_many_records_as_images_and_thresholds_in_range_are_needed():
    with pytest.raises(ValueError, match="got 0 for 1 images"):
        evaluate_voc([], [scene([])], ["a"])
    with pytest.raises(ValueError, match="ious .* > 0 and <= 1; got 50"):
        values(found([], []), scene([]), ious=(50,))
    with pytest.raises(ValueError, match="ious is empty"):
        values(found([], []), scene([]), ious=())
    for names in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="class_names must be different"):
            evaluate_voc([], [], names)


# -------------------------------------------------------------------------------------------------- curves, thresholds


def test_the_threshold_of_the_best_f1_is_that_of_trying_all():
    for seed in range(3):
        detections, scenes = problem(seed, ties=True)
        for label, rows in enumerate(evaluate_voc(detections, scenes, "abc").per_class.values()):
            best = 0.0
            for threshold in sorted({float(s) for d in detections for s in d.scores}):
                kept = [
                    Detections(*(part[d.scores >= threshold] for part in (d.boxes, d.labels, d.scores)))
                    for d in detections
                ]
                hits, objects = slow(kept, scenes, label, 0.5, False)
                best = max(best, 2 * sum(hits) / (len(hits) + objects)) if hits else best
            assert rows["AP50"]["best_f1"] == pytest.approx(best, abs=1e-12)
            kept = [
                Detections(*(part[d.scores >= rows["AP50"]["threshold"]] for part in (d.boxes, d.labels, d.scores)))
                for d in detections
            ]
            hits, objects = slow(kept, scenes, label, 0.5, False)
            assert 2 * sum(hits) / (len(hits) + objects) == pytest.approx(best)
    assert best_f1(np.zeros(1), np.zeros(1), np.ones(1)) == (math.inf, 0.0)


def test_a_curve_keeps_its_ends_and_every_rise_and_is_thinned_only_if_long():
    hits = [True, False, False, True, False]
    there = scene([[20.0 * n, 0, 20.0 * n + 10, 10] for n in range(4)])
    boxes = [[0, 0, 10, 10], [90, 90, 99, 99], [90, 90, 99, 99], [20, 0, 30, 10], [90, 90, 99, 99]]
    report = evaluate_voc([found(boxes, [0.9, 0.8, 0.7, 0.6, 0.5])], [there], ["a"])
    assert report.per_class["a"]["AP50"]["curve"] == [(0.25, 1.0), (0.5, 0.5), (0.5, 0.4)]
    right = np.cumsum(hits)
    assert len(curve_points(right / 4, right / np.arange(1, 6), most=2)) == 2


# ------------------------------------------------------------------------------------------------------------ pictures


def crowded() -> tuple[Detections, Scene]:
    there = scene(
        [[0, 0, 20, 20], [40, 0, 60, 20], [0, 40, 20, 60], [40, 40, 60, 60]], [0, 0, 1, 0], [False, False, False, True]
    )
    detections = found(
        [
            [0, 0, 20, 20],
            [0, 0, 20, 19],
            [45, 8, 65, 28],
            [0, 40, 20, 60],
            [80, 80, 90, 90],
            [40, 40, 60, 60],
            [40, 0, 60, 20],
        ],
        [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.1],
        [0, 0, 0, 0, 0, 0, 0],
    )
    return detections, there


def test_each_detection_is_right_or_wrong_for_a_reason_and_what_is_below_the_threshold_is_missed():
    detections, there = crowded()
    [drawn] = marks([detections], [there], ["a", "b"], {"a": 0.3, "b": 0.3})
    kinds = [mark.kind for mark in drawn]
    assert kinds == ["hit", "twice", "place", "class", "nothing", "difficult", "missed", "missed"]
    assert [mark.text for mark in drawn[-2:]] == ["a", "b"] and drawn[0].text == "a 0.90"
    assert tally([drawn, drawn]) == {"hit": 2, "place": 2, "twice": 2, "class": 2, "nothing": 2, "missed": 4}


def test_hits_and_misses_of_the_pictures_are_those_of_the_report():
    detections, scenes = problem(2)
    report = evaluate_voc(detections, scenes, "abc")
    count = tally(marks(detections, scenes, "abc", dict.fromkeys("abc", 0.0)))
    results = [rows["AP50"] for rows in report.per_class.values()]
    assert count["hit"] == round(sum(row["max_recall"] * row["objects"] for row in results))
    assert count["missed"] == report.counts["objects"] - count["hit"]
    assert sum(count.values()) - count["missed"] == sum(row["detections"] for row in results)
    assert report.thresholds == {name: row["threshold"] for name, row in zip("abc", results, strict=True)}


def test_pictures_show_the_worst_images_and_some_others():
    wrong = Mark((0, 0, 1, 1), "nothing", "a")
    marked = [[], [wrong], [], [wrong] * 3, [], [Mark((0, 0, 1, 1), "missed", "a")] * 2]
    assert set(worth_seeing(marked, most=4)) >= {3, 5} and len(worth_seeing(marked, most=4)) == 4
    assert worth_seeing(marked, most=20) == list(range(6))
    assert len({tuple(worth_seeing(marked, most=4, seed=seed)) for seed in range(6)}) > 1


def test_boxes_are_drawn_where_they_are_in_the_colour_of_their_kind(tmp_path):
    path = tmp_path / "image.jpg"
    write_image(path, [], (100, 100), 0)
    there = Scene("image", path, (100, 100), torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), torch.zeros(0) > 0)
    picture = draw(there, [Mark((10, 30, 60, 90), "hit", "a 0.90"), Mark((70, 50, 95, 95), "missed", "b")], width=200)
    assert picture.size == (200, 200)
    green, blue = (ImageColor.getrgb(COLOURS[kind]) for kind in ("hit", "missed"))
    assert picture.getpixel((20, 150)) == green and picture.getpixel((140, 102)) == blue
    pixels = np.asarray(picture).reshape(-1, 3).tolist()
    assert pixels.count(list(green)) > 300 and picture.getpixel((70, 120)) != green


def test_matches_hold_every_detection_once_and_remember_its_image():
    detections, scenes = problem(3)
    matches = match(detections, scenes, 3)
    assert len(matches.score) == sum(len(d.scores) for d in detections)
    for row in range(0, len(matches.score), 7):
        image, place = int(matches.image[row]), int(matches.place[row])
        assert matches.score[row] == pytest.approx(float(detections[image].scores[place]))


def test_thresholds_that_agree_in_seven_digits_have_names_of_their_own():
    names = set(values(found([], []), scene([]), ious=(0.55, 0.55000001)))
    assert {"AP55", "AP55.000001"} <= names
