"""COCO's json files and YOLO's text files: the scenes of VOC's layout, and what is said about files with mistakes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from box_files import write_coco, write_yolo
from marks import slow_unless
from PIL import Image
from small_detectors import settings
from voc_trees import shapes

from rankgrad_detection.data import DetectionSet
from rankgrad_detection.formats import format_of, load_scenes
from rankgrad_detection.run import build
from rankgrad_detection.run import train as train_run
from rankgrad_detection.scenes import Scenes
from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import compose

BCCD = Path(os.environ.get("RANKGRAD_DATA", "")) / "bccd"
real = pytest.mark.skipif(not os.environ.get("RANKGRAD_DATA") or not BCCD.is_dir(), reason="needs RANKGRAD_DATA/bccd")
SPLITS = ("train", "test")
WRITERS = {"coco": write_coco, "yolo": write_yolo}


def same(found: Scenes, wanted: Scenes) -> bool:
    """Whether these have the same images, classes and boxes, in any order of images and objects."""

    def rows(scenes: Scenes) -> dict[str, list[tuple[Any, ...]]]:
        return {
            scene.path.name: sorted(
                (scenes.class_names[label], *(round(side, 3) for side in box))
                for label, box in zip(scene.labels.tolist(), scene.boxes.tolist(), strict=True)
            )
            for scene in scenes.scenes
        }

    sizes = [{scene.path.name: scene.size for scene in scenes.scenes} for scenes in (found, wanted)]
    return rows(found) == rows(wanted) and sizes[0] == sizes[1] and set(found.class_names) == set(wanted.class_names)


@real
@pytest.mark.parametrize("kind", WRITERS)
def test_blood_cells_are_the_same_in_each_format(tmp_path, kind):
    root = WRITERS[kind](BCCD, tmp_path / kind, ("val", "test"), ("WBC", "RBC", "Platelets"))
    assert format_of(root) == kind and format_of(BCCD) == "voc"
    for split in ("val", "test"):
        found = load_scenes(root, split)
        assert found.class_names == ("WBC", "RBC", "Platelets") and not found.left_out
        assert same(found, load_scenes(BCCD, split))
    joined = load_scenes(root, "val+test", ["Platelets", "RBC", "WBC"])
    assert joined.objects() == load_scenes(BCCD, "val+test").objects()


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("voc"))


@pytest.fixture
def coco(voc: Path, tmp_path: Path) -> Path:
    return write_coco(voc, tmp_path / "coco", SPLITS, ("square", "disc"))


@pytest.fixture
def yolo(voc: Path, tmp_path: Path) -> Path:
    return write_yolo(voc, tmp_path / "yolo", SPLITS, ("square", "disc"))


def changed(root: Path, change: Any, split: str = "test") -> Path:
    """The json file of a split, after `change(content)`."""
    path = root / "annotations" / f"instances_{split}.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("kind", slow_unless({"yolo"}, WRITERS))
def test_a_detector_learns_from_each_format_and_its_page_has_pictures(voc, tmp_path, capsys, kind):
    root = WRITERS[kind](voc, tmp_path / kind, SPLITS, ("square", "disc"))
    words = settings(root, "data.train=train", "data.test=test", "trainer.max_epochs=1", f"out={tmp_path / 'run'}")
    said: list[str] = []
    assert build(compose(words, "detect"), True, said.append).test.class_names == ("square", "disc")
    assert f"files of {kind}" in said[0] and "4 images, 8 objects" in said[0]
    run = train_run(compose(words, "detect"), quiet=True)
    numbers = json.loads(run.after.read_text())
    assert numbers["counts"]["images"] == 3 and set(numbers["coco"]) == {"square", "disc"}
    assert "AP50_95" in numbers["values"] and "<img" in run.page.read_text()
    capsys.readouterr()
    assert main(["report", str(run.folder), "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().count("<img") == run.page.read_text().count("<img") > 0
    assert main(["detect", "evaluate", str(run.folder), "--split", "train"]) == 0
    shown = capsys.readouterr().out
    assert "AP50-95" in shown and "trained on 4 of these 4 images" in shown
    assert main(["detect", "evaluate", str(run.folder), "--root", str(voc), "--split", "test"]) == 0


@pytest.mark.parametrize("kind", WRITERS)
def test_a_complete_folder_is_complete_in_each_format(voc, tmp_path, capsys, kind):
    root = WRITERS[kind](voc, tmp_path / kind, SPLITS, ("square", "disc"))
    assert main(["detect", "check", "--root", str(root), "--images"]) == 0
    shown = capsys.readouterr().out
    assert "2 classes: square, disc" in shown and "test: 3 images, 6 objects (square 3, disc 3)" in shown
    for name in ("008", "009"):
        if kind == "yolo":
            (root / "labels" / "test" / f"{name}.txt").write_text("5 .5 .5 .1 .1\n")
    if kind == "coco":
        changed(root, lambda content: [each.update(bbox=[1, 2]) for each in content["annotations"][1::2]])
    assert main(["detect", "check", "--root", str(root)]) == 2
    wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  wrong")]
    rows = ["annotation 2", "annotation 4", "annotation 6"] if kind == "coco" else ["008.txt", "009.txt"]
    assert all(any(row in line for line in wrong) for row in rows)


def test_a_folder_of_no_format_or_of_several_is_said(coco, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist.*voc: .*coco: .*yolo: "):
        format_of(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty has no boxes"):
        format_of(tmp_path / "empty")
    (coco / "labels").mkdir()
    with pytest.raises(ValueError, match=r"files of coco and yolo.*data\.format=coco"):
        format_of(coco)
    assert format_of(coco, "coco") == "coco"
    with pytest.raises(ValueError, match=r"data\.format must be 'auto', 'voc', 'coco' or 'yolo'; got 'json'"):
        format_of(coco, "json")


# ---------------------------------------------------------------------------------------------------------------- COCO


def test_a_crowd_is_never_learned_and_masks_are_not_needed(coco):
    def change(content: dict[str, Any]) -> None:
        content["annotations"][0].update(iscrowd=1, segmentation={"counts": [1, 2], "size": [48, 64]})

    changed(coco, change)
    found = load_scenes(coco, "test")
    crowds = [scene for scene in found.scenes if scene.crowd is not None]
    assert len(crowds) == 1 and crowds[0].crowd.tolist() == crowds[0].difficult.tolist() == [True, False]  # type: ignore[union-attr]
    assert "5 objects" in found.summary() and "1 crowds" in found.summary() and "difficult" not in found.summary()
    assert len(DetectionSet(found.scenes, 48, 64, difficult=True).sample(0, 0).target["boxes"]) == 1


def test_images_without_objects_and_unused_categories_stay(coco):
    def change(content: dict[str, Any]) -> None:
        content["annotations"] = content["annotations"][2:]
        content["categories"].append({"id": 1, "name": "first by its id"})
        for image in content["images"]:
            del image["width"], image["height"]

    changed(coco, change)
    found = load_scenes(coco, "test")
    assert found.class_names == ("first by its id", "square", "disc") and len(found) == 3
    assert found.scenes[0].boxes.shape == (0, 4) and found.scenes[0].size == (64, 48)


def test_a_box_without_area_is_left_out_and_one_outside_of_its_image_is_counted(coco):
    def change(content: dict[str, Any]) -> None:
        content["annotations"][1]["bbox"] = [3, 3, 0, 9]
        content["annotations"][3]["bbox"] = [70, 3, 9, 9]

    changed(coco, change)
    found = load_scenes(coco, "test")
    assert found.left_out == ("instances_test.json: annotation 2 (number 2), disc: box 3, 3, 3, 12 without area",)
    assert "1 objects left out" in found.summary() and "1 boxes are outside" in found.summary()


def test_a_byte_order_mark_and_an_export_beside_the_images_are_read(coco):
    path = coco / "annotations" / "instances_test.json"
    (coco / "test" / "_annotations.coco.json").write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    path.unlink()
    assert len(load_scenes(coco, "test")) == 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda c: c["images"][1].update(id=1), "number 2 images id 1"),
        (lambda c: c["images"][1].update(id=None), "number 2 images"),
        (lambda c: c["images"][1].update(file_name="008.jpg"), "images 008.jpg"),
        (lambda c: c["images"][1].update(file_name="gone.jpg"), "gone.jpg"),
        (lambda c: c["images"][1].pop("file_name"), "images file_name"),
        (lambda c: c["categories"][1].update(id=3), "number 2 categories id 3"),
        (lambda c: c["categories"][1].update(name="square"), "categories square"),
        (lambda c: c["annotations"][2].update(image_id=9), "annotation 3 image_id 9"),
        (lambda c: c["annotations"][2].update(category_id=4), "annotation 3 category_id 4"),
        (lambda c: c["annotations"][2].update(bbox=[1, 2, float("nan"), 3]), "annotation 3 box nan"),
        (lambda c: c["annotations"][2].update(bbox=[], segmentation=[[1, 2]]), "annotation 3 box"),
        (lambda c: c["annotations"][2].update(iscrowd=2), "annotation 3 iscrowd 2"),
        (lambda c: c.pop("categories"), "categories"),
        (lambda c: c.update(images=[], annotations=[]), "images"),
    ],
)
def test_a_mistake_in_a_json_file_is_one_line_with_the_file_and_the_row(coco, change, named):
    path = changed(coco, change)
    with pytest.raises((OSError, ValueError)) as raised:
        load_scenes(coco, "test")
    assert all(word in str(raised.value) for word in (str(path), *named.split())) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "has no list of images"), ("{", "not a readable json file"), ("[" * 10**5, "not a readable json")],
)
def test_a_file_that_is_no_json_of_coco_is_named(coco, text, message):
    (coco / "annotations" / "instances_test.json").write_text(text)
    with pytest.raises(ValueError, match=rf"instances_test\.json .*{message}"):
        load_scenes(coco, "test")


def test_a_split_that_is_not_there_is_answered_with_those_that_are(coco, yolo):
    with pytest.raises(FileNotFoundError, match="splits there: test, train"):
        load_scenes(coco, "val")
    with pytest.raises(FileNotFoundError, match="splits there: train, test"):
        load_scenes(yolo, "val")


# ---------------------------------------------------------------------------------------------------------------- YOLO


def test_a_polygon_is_the_box_around_it_and_an_empty_text_is_an_image_without_objects(yolo):
    labels = yolo / "labels" / "test"
    (labels / "008.txt").write_bytes(b"\xef\xbb\xbf1.0 .25 .5 .5 .25 .375 .75\r\n\r\n")
    (labels / "009.txt").write_text("")
    (labels / "010.txt").unlink()
    found = load_scenes(yolo, "test")
    assert found.scenes[0].boxes.tolist() == [[16, 12, 32, 36]] and found.scenes[0].labels.tolist() == [1]
    assert [len(scene.boxes) for scene in found.scenes] == [1, 0, 0]
    assert "1 images have no text file" in found.summary()
    for path in labels.iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"none of the 3 images of test has a text file such as .*008\.txt"):
        load_scenes(yolo, "test")


def test_lines_twice_and_boxes_without_area_are_left_out_and_named(yolo):
    (yolo / "labels" / "test" / "008.txt").write_text("0 .5 .5 .2 .2\n0 .5 .5 .2 .2\n1 .5 .5 0 .2\n1 1.2 .5 .1 .1\n")
    found = load_scenes(yolo, "test")
    assert found.left_out == (
        "008.txt, line 2, square: the same as an earlier one",
        "008.txt, line 3, disc: box 32, 19.2, 32, 28.8 without area",
    )
    assert "2 objects left out" in found.summary() and "1 boxes are outside" in found.summary()


@pytest.mark.parametrize(
    "line",
    [
        *("0 .5 .5 .2", "0 .5 .5 .2 .2 .9", "square .5 .5 .2 .2", "0 .5 nan .2 .2"),
        *("2 .5 .5 .2 .2", "-1 .5 .5 .2 .2", "0.5 .5 .5 .2 .2", "0 320 240 50 50"),
    ],
)
def test_a_mistake_in_a_text_file_is_one_line_with_the_file_and_the_row(yolo, line):
    path = yolo / "labels" / "test" / "009.txt"
    path.write_text(f"0 .5 .5 .2 .2\n{line}\n")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}, line 2 ") as raised:
        load_scenes(yolo, "test")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [square]\nnc: 2\n", "a list of nc texts"),
        ("names: {0: square, 2: disc}\n", "have the numbers 0, 1"),
        ("names: [square, no]\n", "Quote yes, no and null"),
        ("names: square\n", "must be a list of nc texts"),
        ("names: [square, square]\n", "different texts"),
        ("names: [\n", "data.yaml"),
        ("names: &a [square, disc]\nother: *a\n", "alias"),
        ("names: [square, disc]\ntest: nowhere\n", r"says test: nowhere, which is not below"),
    ],
)
def test_names_that_do_not_fit_are_said(yolo, text, message):
    (yolo / "data.yaml").write_text(text)
    with pytest.raises((OSError, ValueError), match=message):
        load_scenes(yolo, "test")


def test_names_may_be_lines_numbers_or_given_by_hand(yolo):
    (yolo / "data.yaml").write_text("names: [0, 01]\n")
    assert load_scenes(yolo, "test").class_names == ("0", "1")
    (yolo / "data.yaml").unlink()
    assert format_of(yolo) == "yolo"
    with pytest.raises(FileNotFoundError, match=r"neither data\.yaml nor classes\.txt .*data\.classes="):
        load_scenes(yolo, "test")
    assert load_scenes(yolo, "test", ["square", "disc"]).objects() == {"square": 3, "disc": 3}
    (yolo / "classes.txt").write_bytes(b"\xef\xbb\xbfsquare\r\ndisc\r\n")
    assert load_scenes(yolo, "test").class_names == ("square", "disc")
    assert load_scenes(yolo, "test", ["disc", "square"]).scenes[0].labels.tolist() == [1, 0]


@pytest.mark.parametrize("layout", ["exported", "list"])
def test_other_places_of_images_are_found(yolo, layout):
    if layout == "exported":  # valid/images beside valid/labels, and a yaml that means another folder
        for folder in ("images", "labels"):
            (yolo / "valid").mkdir(exist_ok=True)
            (yolo / folder / "test").rename(yolo / "valid" / folder)
        (yolo / "data.yaml").write_text("names: [square, disc]\nval: ../valid/images\n")
    else:
        names = sorted(path.name for path in (yolo / "images" / "test").iterdir())
        (yolo / "val.txt").write_text("".join(f"./images/test/{name}\n" for name in names))
    found = load_scenes(yolo, "val")
    assert len(found) == 3 and found.objects() == {"square": 3, "disc": 3}
    (yolo / "images" / "@eaDir").mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(yolo / "images" / "@eaDir" / "008.jpg")
    assert len(load_scenes(yolo, "train")) == 4


def test_the_same_images_in_two_splits_are_wrong(yolo, capsys):
    (yolo / "data.yaml").write_text("names: [square, disc]\ntrain: images\nval: images/test\n")
    assert main(["detect", "check", "--root", str(yolo)]) == 2
    assert "3 images are in train and in val, e.g. 008.jpg" in capsys.readouterr().out


def test_scenes_of_yolo_are_in_pixels(yolo):
    (yolo / "labels" / "test" / "008.txt").write_text("0 0.5 0.5 1 1\n")
    torch.testing.assert_close(load_scenes(yolo, "test").scenes[0].boxes, torch.tensor([[0.0, 0.0, 64.0, 48.0]]))
