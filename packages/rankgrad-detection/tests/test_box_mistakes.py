"""Files of boxes that are those of another task, that name images elsewhere, or that only look right."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from box_files import write_coco, write_yolo
from PIL import Image
from voc_trees import shapes, write_tree

from rankgrad_detection.formats import format_of, load_scenes
from rankgrad_workbench.cli import main

SPLITS = ("train", "test")


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("voc"))


def own_files(root: Path) -> Path:
    """The folder with files in place of links."""
    for path in (path for path in root.rglob("*.jpg") if path.is_symlink()):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    return root


@pytest.fixture
def coco(voc: Path, tmp_path: Path) -> Path:
    return own_files(write_coco(voc, tmp_path / "coco", SPLITS, ("square", "disc")))


@pytest.fixture
def yolo(voc: Path, tmp_path: Path) -> Path:
    return own_files(write_yolo(voc, tmp_path / "yolo", SPLITS, ("square", "disc")))


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """An image that is not in the folder of the data."""
    (tmp_path / "private").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "private" / "p.jpg")
    return tmp_path / "private" / "p.jpg"


def changed(root: Path, change: Callable[[dict[str, Any]], object], split: str = "test") -> Path:
    path = root / "annotations" / f"instances_{split}.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def refused(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What loading raises, once it was shown that `detect check` does not pass either."""
    assert main(["detect", "check", "--root", str(root)]) == 2
    shown = capsys.readouterr().out
    assert all(word in shown for word in words), shown
    with pytest.raises((OSError, ValueError)) as raised:
        load_scenes(root, "test")
    message = str(raised.value)
    assert all(word in message for word in words) and "\n" not in message, message
    return message


def noted(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """`detect check` passes with a note, and the line of a training has it, too."""
    assert main(["detect", "check", "--root", str(root)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  note")]
    assert any(all(word in line for word in words) for line in lines), lines
    summary = load_scenes(root, "test", "data").summary()
    assert all(word in summary for word in words), summary


# ------------------------------------------------------------------------------------------ lines of YOLO's other tasks


def pose(points: int, numbers: int, visible: int = 2) -> str:
    """A line of a box from 0.2 to 0.3, and key points inside it."""
    rest = []
    for point in range(points):
        rest += [f"{0.21 + 0.08 * point / points:.4f}", f"{0.29 - 0.08 * point / points:.4f}"]
        rest += [str(visible)] * (numbers - 2)
    return " ".join(["0 0.25 0.25 0.1 0.1", *rest])


@pytest.mark.parametrize("visible", [0, 1, 2])
@pytest.mark.parametrize(("points", "numbers"), [(4, 3), (7, 2), (24, 3), (17, 3), (2, 2), (1, 3)])
def test_boxes_of_key_points_are_read_with_their_shape(yolo, points, numbers, visible):
    with (yolo / "data.yaml").open("a") as file:
        file.write(f"\nkpt_shape: [{points}, {numbers}]\n")
    for path in (yolo / "labels" / "test").iterdir():
        path.write_text(f"{pose(points, numbers, visible)}\n1 .5 .5 .2 .2\n")
    found = load_scenes(yolo, "test").scenes[0].boxes.tolist()
    assert found[0] == pytest.approx([0.2 * 64, 0.2 * 48, 0.3 * 64, 0.3 * 48], abs=1e-4) and len(found) == 2


@pytest.mark.parametrize("visible", [0, 1, 2])
@pytest.mark.parametrize(("points", "numbers"), [(4, 3), (7, 2), (24, 3), (17, 3), (5, 2), (2, 3)])
def test_key_points_without_their_shape_are_no_polygon(yolo, capsys, points, numbers, visible):
    for path in (yolo / "labels" / "test").iterdir():
        path.write_text(f"{pose(points, numbers, visible)}\n")
    refused(yolo, capsys, "kpt_shape: [17, 3]")


@pytest.mark.parametrize("shape", ["17", "[17]", "[0, 3]", "[17, 4]", "[a, 3]"])
def test_a_shape_of_key_points_that_is_none_is_said(yolo, shape):
    with (yolo / "data.yaml").open("a") as file:
        file.write(f"\nkpt_shape: {shape}\n")
    with pytest.raises(ValueError, match=r"data\.yaml: kpt_shape must be the number of key points"):
        load_scenes(yolo, "test")


def test_a_line_that_does_not_have_the_key_points_of_the_shape_is_named(yolo):
    with (yolo / "data.yaml").open("a") as file:
        file.write("\nkpt_shape: [4, 3]\n")
    for line, remedy in ((pose(5, 3), ""), (pose(4, 3) + " .9", r".*To leave a confidence out: cut -d' ' -f1-17")):
        (yolo / "labels" / "test" / "009.txt").write_text(line)
        message = r"009\.txt, line 1 must be .* or a box and 4 key points \(kpt_shape\)"
        with pytest.raises(ValueError, match=message + remedy):
            load_scenes(yolo, "test")


@pytest.mark.parametrize(
    ("line", "edges"),
    [
        ("0 .1 .1 .4 .1 .4 .3 .1 .3", (0.1, 0.1, 0.4, 0.3)),  # four corners
        ("0 .7 .7 .75 .72 .74 .78 .7 .76 .68 .72", (0.68, 0.7, 0.75, 0.78)),  # a small polygon
        ("0 0 0 1 0 1 1 0 1 0 0", (0, 0, 1, 1)),
    ],
)
def test_polygons_and_oriented_boxes_are_the_boxes_around_them_and_counted(yolo, capsys, line, edges):
    for path in (yolo / "labels" / "test").iterdir():
        path.write_text(line)
    [box] = load_scenes(yolo, "test").scenes[0].boxes.tolist()
    assert box == pytest.approx([edges[0] * 64, edges[1] * 48, edges[2] * 64, edges[3] * 48], abs=1e-4)
    noted(yolo, capsys, "3 objects are polygons or oriented boxes: the box around each is used")


def test_circles_with_the_same_number_of_corners_are_polygons(yolo):
    from math import cos, sin, tau

    corners = [(0.6 + 0.05 * cos(tau * n / 12), 0.7 + 0.05 * sin(tau * n / 12)) for n in range(12)]
    for path in (yolo / "labels" / "test").iterdir():
        path.write_text(" ".join(["0", *(f"{side:.5f}" for corner in corners for side in corner)]))
    assert load_scenes(yolo, "test").scenes[0].boxes.tolist()[0] == pytest.approx([35.2, 31.2, 41.6, 36], abs=1e-2)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("0 .5 .5 .2 .2 .93", "confidence of a detection"),
        ("0 .1 .1 .4 .1 .4 .3 .1 .3 .87", "To leave a confidence out: cut -d' ' -f1-9"),
        ("0 .1 .1 2 .1 1 .3 .1 .3 .2 .2 2", "Key points after a box need their shape"),
        ("0 .5 .5 .2 .2 .4 .4 2 .6 .6 2", "Key points after a box need their shape"),
    ],
)
def test_lines_with_more_numbers_are_refused_with_the_remedy(yolo, capsys, line, remedy):
    (yolo / "labels" / "test" / "009.txt").write_text(line)
    refused(yolo, capsys, "line 1", remedy)


# ----------------------------------------------------------------------------------------- files of COCO's other tasks


def test_fractions_in_place_of_pixels_are_refused(coco, voc, tmp_path, capsys):
    def shrink(content: dict[str, Any]) -> None:
        for entry in content["annotations"]:
            x, y, width, height = entry["bbox"]
            entry["bbox"] = [x / 64, y / 48, width / 64, height / 48]

    changed(coco, shrink)
    refused(coco, capsys, "fractions of the image, and must be pixels")
    objects = {name: [("disc", (0.2, 0.3, 0.5, 0.8), 0)] for name in ("a", "b")}
    refused(write_tree(tmp_path / "tree", {"test": ["a", "b"]}, objects), capsys, "fractions of the image")


def test_a_few_boxes_in_the_first_pixel_are_noted(coco, capsys):
    changed(coco, lambda content: content["annotations"][0].update(bbox=[0.1, 0.2, 0.3, 0.4]))
    noted(coco, capsys, "1 boxes lie in the first pixel of their image, e.g. in 008; are they fractions?")


def test_corners_in_place_of_width_and_height_are_asked_about(coco, capsys):
    def corners(content: dict[str, Any]) -> None:
        for entry in content["annotations"]:
            x, y, width, height = entry["bbox"]
            entry["bbox"] = [x, y, x + width, y + height]

    changed(coco, corners)
    assert main(["detect", "check", "--root", str(coco)]) == 0
    assert "Are they corners" in capsys.readouterr().out


def test_an_object_that_is_annotated_twice_is_noted(coco, voc, tmp_path, capsys):
    def again(content: dict[str, Any]) -> None:
        content["annotations"].append({**content["annotations"][0], "id": 99})

    changed(coco, again)
    noted(coco, capsys, "1 objects are annotated twice", "e.g. in 008")
    twice = [("disc", (3, 3, 20, 20), 0)] * 2
    noted(write_tree(tmp_path / "tree", {"test": ["a"]}, {"a": twice}), capsys, "1 objects are annotated twice")


def test_an_iscrowd_of_null_is_no_crowd(coco):
    changed(coco, lambda content: [entry.update(iscrowd=None) for entry in content["annotations"]])
    assert load_scenes(coco, "test").objects() == {"square": 3, "disc": 3}


@pytest.mark.parametrize("place", ["test\\{}", ".\\test\\{}", "../test/{}", "test/../test/{}", "./{}"])
def test_names_of_images_are_read_with_backslashes_and_within_the_folder(coco, place):
    def rename(content: dict[str, Any]) -> None:
        for image in content["images"]:
            image["file_name"] = place.format(image["file_name"])

    changed(coco, rename)
    assert [scene.path.name for scene in load_scenes(coco, "test").scenes] == ["008.jpg", "009.jpg", "010.jpg"]


def test_one_image_under_two_names_is_refused(coco, capsys):
    changed(coco, lambda content: content["images"][1].update(file_name="./008.jpg"))
    refused(coco, capsys, "2 images are the same file", "008.jpg")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c.update(annotations=[{"id": 1, "image_id": 1, "caption": "a cell"}]),
            "captions, panoptic segments",
        ),
        (lambda c: c.update(annotations=[{"image_id": 1, "segments_info": []}]), "captions, panoptic segments"),
        (lambda c: c.pop("annotations"), "test sets without annotations"),
        (
            lambda c: [entry.update(keypoints=[1, 2, 2], bbox=None) for entry in c["annotations"]],
            "must have a box of four finite numbers",
        ),
    ],
)
def test_a_file_of_another_task_of_coco_is_said(coco, capsys, change, message):
    changed(coco, change)
    refused(coco, capsys, message)


def test_a_list_of_results_is_said(coco, capsys):
    path = coco / "annotations" / "instances_test.json"
    path.write_text(json.dumps([{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "score": 0.9}]))
    refused(coco, capsys, "has no list of images", "results")


def test_boxes_beside_key_points_are_boxes(coco):
    changed(coco, lambda c: [entry.update(keypoints=[5, 5, 2], num_keypoints=1) for entry in c["annotations"]])
    assert load_scenes(coco, "test").objects() == {"square": 3, "disc": 3}


def test_categories_that_look_alike_are_noted_or_named(coco, capsys):
    def name(first: str, second: str) -> Callable[[dict[str, Any]], object]:
        return lambda c: [entry.update(name=name) for entry, name in zip(c["categories"], (first, second), strict=True)]

    changed(coco, name("caf\u00e9", "cafe\u0301"))
    changed(coco, name("caf\u00e9", "cafe\u0301"), "train")
    noted(coco, capsys, "caf\\xe9", "cafe\\u0301", "look alike")
    changed(coco, name("square ", "disc"))
    assert load_scenes(coco, "test").class_names == ("square", "disc")
    changed(coco, name("square", "square "))
    refused(coco, capsys, "number 2 of its categories has id 10 and name square")
    changed(coco, name("Square", "disc"))
    with pytest.raises(ValueError, match="class 'Square', which is not among square, disc"):
        load_scenes(coco, "test", ["square", "disc"])


# ------------------------------------------------------------------------------------------------- other tasks' folders


def test_masks_of_voc_and_folders_of_classes_are_said(tmp_path):
    for name in ("Annotations", "JPEGImages", "ImageSets/Segmentation", "SegmentationClass"):
        (tmp_path / "masks" / name).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="no ImageSets/Main .*ImageSets/Segmentation lists images with masks"):
        load_scenes(tmp_path / "masks", "train")
    (tmp_path / "classes" / "train" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "classes" / "train" / "cat" / "a.jpg")
    with pytest.raises(FileNotFoundError, match="has no boxes.* folders of classes: rankgrad train data=folder"):
        format_of(tmp_path / "classes")
    (tmp_path / "classes" / "classes.txt").write_text("cat")
    with pytest.raises(FileNotFoundError, match=r"none of the 1 images .* rankgrad train data=folder"):
        load_scenes(tmp_path / "classes", "train")


# ----------------------------------------------------------------------------------------------------- images elsewhere


@pytest.mark.parametrize("name", ["../private/p.jpg", "../../private/p.jpg", "{}", "..\\private\\p.jpg", "C:\\p.jpg"])
def test_an_image_of_coco_outside_of_the_folder_is_not_opened(coco, private, capsys, name):
    changed(coco, lambda content: content["images"][1].update(file_name=name.format(private)))
    refused(coco, capsys, "1 of them are not below", "Only what lies below data.root is opened", "ln -s")


@pytest.mark.parametrize("key", ["test", "path", "list", "list of lists"])
@pytest.mark.parametrize("absolute", [True, False])
def test_an_image_of_yolo_outside_of_the_folder_is_not_opened(yolo, private, capsys, key, absolute):
    (private.parent / "p.txt").write_text("0 .5 .5 .2 .2")
    place = str(private.parent) if absolute else "../private"
    values = {"test": f"test: {place}", "path": f"path: {place}\ntest: .", "list": "test: test.txt"}
    values["list of lists"] = f"test: [images/test, {place}]"
    (yolo / "data.yaml").write_text(f"names: [square, disc]\ntrain: images/train\n{values[key]}\n")
    (yolo / "test.txt").write_text(f"images/test/008.jpg\n{place}/p.jpg\n")
    if key == "path":  # `.` of the folder itself is there, and is what is read
        assert all(scene.path.is_relative_to(yolo) for scene in load_scenes(yolo, "test").scenes)
    else:
        refused(yolo, capsys, "below", "Only what lies below data.root is opened", "ln -s")


def test_an_absolute_path_into_the_folder_is_read(yolo, tmp_path):
    (yolo / "data.yaml").write_text(f"path: {yolo}\nnames: [square, disc]\ntest: {yolo}/images/test\n")
    assert len(load_scenes(yolo, "test")) == 3
    os.symlink(yolo, tmp_path / "link")
    assert len(load_scenes(tmp_path / "link", "test")) == 3


@pytest.mark.parametrize("name", ["../private", "../../etc"])
def test_the_name_of_a_split_does_not_lead_out(yolo, coco, private, name):
    for root in (yolo, coco):
        with pytest.raises(FileNotFoundError, match="has none of"):
            load_scenes(root, name)


def test_a_folder_named_images_above_the_data_does_not_move_its_texts(yolo, tmp_path):
    (tmp_path / "images").mkdir()
    for path in yolo.rglob("*.txt"):
        (yolo / "images" / "test" / path.name).write_bytes(path.read_bytes())
    root = tmp_path / "images" / "cells"
    (yolo / "images" / "test").rename(root)
    (root / "classes.txt").write_text("square\ndisc\n")
    (tmp_path / "labels" / "cells").mkdir(parents=True)
    (tmp_path / "labels" / "cells" / "008.txt").write_text("")
    assert len(load_scenes(root, ".").scenes[0].boxes) == 2


@pytest.mark.parametrize("kind", ["coco", "yolo", "voc"])
def test_links_are_followed_and_those_that_lead_out_are_noted(kind, coco, yolo, voc, private, tmp_path, capsys):
    root = {"coco": coco, "yolo": yolo, "voc": shapes(tmp_path / "tree")}[kind]
    path = next(root.rglob("008.jpg"))
    path.unlink()
    os.symlink(private, path)
    noted(root, capsys, "1 images are links out of the folder, and are opened, e.g. 008.jpg -> ", str(private))
    path.unlink()
    path.with_name("real.jpg").write_bytes(private.read_bytes())
    os.symlink("real.jpg", path)
    if kind == "coco":  # elsewhere the second file is an image, too
        assert not load_scenes(root, "test").notes
