"""VOC's layout: what is read from it, what is refused, and what a check of a folder says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_detectors import TINY
from voc_trees import annotation, shapes, write_tree

from rankgrad.batches.samplers import EpochList, ShuffledBatches
from rankgrad_detection import check
from rankgrad_detection.check import inspect_boxes
from rankgrad_detection.data import DetectionSet, read_resized
from rankgrad_detection.run import build
from rankgrad_detection.voc import CLASSES, load_voc
from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import CountWarning
from rankgrad_workbench.settings import compose

BCCD = Path(os.environ.get("RANKGRAD_DATA", "")) / "bccd"
real = pytest.mark.skipif(not os.environ.get("RANKGRAD_DATA") or not BCCD.is_dir(), reason="needs RANKGRAD_DATA/bccd")


def one(tmp_path: Path, xml: str, classes: object = "data", name: str = "a") -> Path:
    """A folder with one image and this annotation."""
    home = write_tree(tmp_path / "one", {"test": [name]})
    (home / "Annotations" / f"{name}.xml").write_text(xml)
    return home


# ------------------------------------------------------------------------------------------------------- what is read


def test_a_box_from_1_with_its_last_pixel_becomes_edges_from_0(tmp_path):
    home = one(tmp_path, annotation([("disc", (1, 1, 64, 48), 0), ("square", (5, 7, 5.5, 8.25), 1)]))
    [scene] = load_voc(home, "test", "data").scenes
    assert scene.boxes.tolist() == [[0, 0, 64, 48], [4, 6, 5.5, 8.25]]
    assert scene.labels.tolist() == [0, 1] and scene.difficult.tolist() == [False, True]
    assert scene.size == (64, 48) and scene.path == home / "JPEGImages" / "a.jpg"


def test_classes_are_those_of_the_data_sorted_or_as_given(tmp_path):
    home = shapes(tmp_path)
    assert load_voc(home, "test", "data").class_names == ("disc", "square")
    given = load_voc(home, "test", ["square", "disc", "nowhere"])
    assert given.class_names == ("square", "disc", "nowhere")
    assert given.objects() == {"square": 3, "disc": 3, "nowhere": 0}


def test_a_box_of_one_pixel_counts_since_its_last_pixel_is_included(tmp_path):
    flat = [("disc", (5, 5, 5, 5), 0), ("disc", (9, 4, 9, 12), 0), ("square", (3, 7, 8, 7), 1)]
    found = load_voc(one(tmp_path, annotation(flat)), "test", "data")
    assert found.scenes[0].boxes.tolist() == [[4, 4, 5, 5], [8, 3, 9, 12], [2, 6, 8, 7]]
    assert found.left_out == () and found.objects(difficult=True) == {"disc": 2, "square": 1}
    boxes = DetectionSet(found.scenes, 48, 64, difficult=True).sample(0, 0).target["boxes"]
    assert len(boxes) == 3 and bool((boxes[:, 2:] > boxes[:, :2]).all())


def test_boxes_that_end_before_they_begin_are_left_out_and_named(tmp_path):
    flat = [("disc", (5, 5, 4, 5), 0), ("disc", (9, 4, 6, 12), 0), ("disc", (2, 2, 3, 3), 0)]
    found = load_voc(one(tmp_path, annotation(flat)), "test", "data")
    assert found.scenes[0].boxes.tolist() == [[1, 1, 3, 3]]
    assert found.left_out == (
        "a.xml, disc: box 4, 4, 4, 5 without area",
        "a.xml, disc: box 8, 3, 6, 12 without area",
    )
    assert "1 images, 1 objects (disc 1)" in found.summary() and "2 objects" in found.summary()


def test_parts_of_objects_are_not_objects_and_a_missing_difficult_means_no(tmp_path):
    box = "<bndbox><xmin>3</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    part = f"<part><name>head</name>{box}</part>"
    home = one(tmp_path, f"<annotation><object><name>person</name>{box}{part}</object></annotation>")
    found = load_voc(home, "test")
    assert found.class_names == CLASSES and found.objects()["person"] == 1
    assert found.scenes[0].difficult.tolist() == [False]


@pytest.mark.parametrize("size", [None, (0, 0), (9.5, 9), (10**400, 9)])
def test_a_size_that_is_not_annotated_is_that_of_the_file(tmp_path, size):
    home = one(tmp_path, annotation([("disc", (2, 2, 9, 9), 0)], size))
    assert load_voc(home, "test", "data").scenes[0].size == (64, 48)


def test_an_image_without_objects_is_an_image(tmp_path):
    home = write_tree(tmp_path, {"test": ["a", "b"]}, {"a": []})
    scene = load_voc(home, "test", "data").scenes[0]
    assert scene.boxes.shape == (0, 4) and scene.labels.shape == scene.difficult.shape == (0,)


def test_years_are_joined_and_found_from_the_devkit_its_parent_and_the_year_itself(tmp_path):
    kit = tmp_path / "VOCdevkit"
    objects = {name: [("person", (3, 3, 20, 20), 0)] for name in ("a", "b", "c")}
    write_tree(kit / "VOC2007", {"trainval": ["a", "b"], "test": ["c"]}, objects)
    write_tree(kit / "VOC2012", {"trainval": ["a"]}, objects)
    both = load_voc(kit, "2007/trainval+2012/trainval")
    assert [scene.path.parent.parent.name for scene in both.scenes] == ["VOC2007", "VOC2007", "VOC2012"]
    assert [len(load_voc(root, "2007/test")) for root in (kit, tmp_path, kit / "VOC2007")] == [1, 1, 1]
    assert len(load_voc(kit / "VOC2007", "test")) == 1  # as any folder


def test_lists_may_have_a_second_column_windows_line_ends_and_a_byte_order_mark(tmp_path):
    home = shapes(tmp_path)
    path = home / "ImageSets" / "Main" / "odd.txt"
    path.write_bytes(b"\xef\xbb\xbf000  1\r\n\r\n002 -1\r\n")
    assert [scene.name for scene in load_voc(home, "odd", "data").scenes] == ["000", "002"]


@pytest.mark.parametrize("ending", ["png", "JPG", "jpeg"])
def test_images_may_have_other_endings(tmp_path, ending):
    home = write_tree(tmp_path, {"test": ["a.b"]})
    path = home / "JPEGImages" / "a.b.jpg"
    path.rename(path.with_suffix(f".{ending}"))
    assert load_voc(home, "test", "data").scenes[0].path.name == f"a.b.{ending}"


@pytest.mark.parametrize(
    ("text", "difficult"), [("1", True), (" true\n", True), ("True", True), ("0", False), ("false", False), ("", False)]
)
def test_difficult_may_be_a_number_a_word_or_empty(tmp_path, text, difficult):
    xml = annotation([("disc", (3, 3, 9, 9), 0)]).replace("<difficult>0", f"<difficult>{text}")
    [scene] = load_voc(one(tmp_path, xml), "test", ["disc"]).scenes
    assert scene.difficult.tolist() == [difficult]


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("xml", "error", "message"),
    [
        ("<annotation>", ValueError, "a.xml is not a readable annotation"),
        ("<annotation><object></object></annotation>", ValueError, "an object has no name"),
        (
            "<annotation><object><name>disc</name></object></annotation>",
            ValueError,
            "an object (disc) must have a box of four finite numbers",
        ),
        (
            "<annotation><object><name>disc</name><bndbox><xmin>a</xmin></bndbox></object></annotation>",
            ValueError,
            "must have a box of four finite numbers; got ['a', None",
        ),
        (annotation([("disc", (3, 3, 9, 9), 2)]), ValueError, "difficult must be 0 or 1; got 2"),
        (annotation([("disc", (3, 3, float("inf"), 9), 0)]), ValueError, "four finite numbers; got ['3', '3', 'inf'"),
        (annotation([("disc", (3, float("nan"), 9, 9), 0)]), ValueError, "four finite numbers; got ['3', 'nan'"),
        # infinite in float32
        (annotation([("disc", (3, 3, 1e39, 9), 0)]), ValueError, "four finite numbers; got ['3', '3', '1e+39'"),
        ('<?xml version="1.0" encoding="no"?><annotation/>', ValueError, "unknown encoding: no"),
        ("<svg><path/></svg>", ValueError, "its root is 'svg', not annotation"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_named(tmp_path, xml, error, message):
    with pytest.raises(error) as raised:
        load_voc(one(tmp_path, xml), "test", ["disc"])
    assert message in str(raised.value) and "a.xml" in str(raised.value)


def test_a_class_that_is_not_known_is_named_with_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="'square'.*aeroplane.*classes=data"):
        load_voc(shapes(tmp_path), "test")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("tset", "tset.txt does not exist; lists there: test, train, trainval"),
        (
            "2007/test",
            "VOC2007 does not exist: pass a folder with Annotations, ImageSets/Main, JPEGImages, or VOCdevkit",
        ),
        ("7/test", "a split must be SET or YEAR/SET"),
        ("", "a split must be SET or YEAR/SET"),
        ("test+", "a split must be SET or YEAR/SET"),
    ],
)
def test_a_split_that_does_not_exist_is_answered_with_those_that_do(tmp_path, split, message):
    with pytest.raises((FileNotFoundError, ValueError)) as raised:
        load_voc(shapes(tmp_path), split, "data")
    assert message in str(raised.value)


def test_missing_images_and_annotations_are_named(tmp_path):
    home = shapes(tmp_path)
    (home / "Annotations" / "009.xml").unlink()
    with pytest.raises(FileNotFoundError, match="009.xml .*VOC 2012"):
        load_voc(home, "test", "data")
    for name in ("008", "010"):
        (home / "JPEGImages" / f"{name}.jpg").unlink()
    with pytest.raises(FileNotFoundError, match="2 of the 3 images of test: 008, 010$"):
        load_voc(home, "test", "data")


def test_a_class_that_is_a_number_must_be_quoted(tmp_path):
    home = one(tmp_path, annotation([("1", (3, 3, 9, 9), 0)]))
    with pytest.raises(ValueError, match="list of different texts; got .1, 2"):
        load_voc(home, "test", [1, 2])
    assert load_voc(home, "test", ["1", "2"]).objects() == {"1": 1, "2": 0}


@pytest.mark.parametrize(("text", "message"), [("\n", "has no image"), ("000\n000\n", "has 1 images more than once")])
def test_a_list_without_images_or_with_repeated_ones_is_refused(tmp_path, text, message):
    home = shapes(tmp_path)
    (home / "ImageSets" / "Main" / "test.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_voc(home, "test", "data")


def test_a_list_in_another_encoding_is_named(tmp_path):
    home = shapes(tmp_path)
    (home / "ImageSets" / "Main" / "test.txt").write_text("000\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"test\.txt is not UTF-8 .* save it as UTF-8"):
        load_voc(home, "test", "data")


@pytest.mark.parametrize("place", ["Annotations/008.xml", "ImageSets/Main/test.txt"])
def test_a_pipe_instead_of_a_file_is_an_error_and_no_endless_wait(tmp_path, place):
    home = shapes(tmp_path)
    (home / place).unlink()
    os.mkfifo(home / place)
    with pytest.raises(OSError, match=Path(place).name):
        load_voc(home, "test", ["disc", "square"])


def test_a_folder_that_is_none_is_told_what_is_needed(tmp_path):
    (tmp_path / "Annotations").mkdir()
    with pytest.raises(FileNotFoundError, match="ImageSets/Main, JPEGImages.*2007/trainval"):
        load_voc(tmp_path, "trainval")


# ----------------------------------------------------------------------------------------------------------- the check


def test_a_complete_folder_is_complete_and_a_command_says_so(tmp_path, capsys):
    home = shapes(tmp_path)
    assert main(["detect", "check", "--root", str(home), "--images"]) == 0
    shown = capsys.readouterr().out
    assert "2 classes: disc, square" in shown and "trainval: 8 images, 16 objects (disc 8, square 8)" in shown
    assert "test: every image decodes and has the annotated size" in shown and shown.endswith("complete\n")


def test_a_folder_with_mistakes_is_told_each_of_them(tmp_path, capsys):
    home = shapes(tmp_path)
    (home / "ImageSets" / "Main" / "test.txt").write_text("000\n008\n")
    (home / "JPEGImages" / "001.jpg").write_bytes(b"no image")
    (home / "Annotations" / "000.xml").write_text(annotation([("disc", (3, 3, 90, 20), 0), ("disc", (3, 3, 1, 3), 0)]))
    (home / "Annotations" / "008.xml").write_text(annotation([("disc", (3, 3, 9, 9), 0)], (60, 48)))
    found = inspect_boxes(home, images=True)
    text = str(found)
    assert "1 images are in test and in trainval, e.g. 000" in text
    assert "1 images can't be decoded, e.g. 001" in text
    assert "1 images have boxes that reach outside, e.g. 000" in text
    assert "000.xml, disc: box 2, 2, 1, 3" in text
    assert "1 images have another size than annotated, and the size of the file is used, e.g. 008 (64 x 48, " in text
    # 001 is in train and trainval, 000 in both and in test
    assert found.wrong == 4
    assert main(["detect", "check", "--root", str(home), "--images"]) == 2
    assert "has 4 problem(s), listed above" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("box", "status"),
    [
        ((3, 3, 9, 9), None),
        ((-3, 3, 9, 50), "note"),
        ((70, 3, 90, 20), "wrong"),  # nothing of it is in the image of 64 x 48
        ((3, -30, 20, 0), "wrong"),
        ((3, 3, 1e9, 20), "wrong"),
    ],
)
def test_a_box_far_outside_of_its_image_is_wrong_and_one_that_reaches_out_is_noted(tmp_path, box, status):
    home = shapes(tmp_path)
    (home / "Annotations" / "008.xml").write_text(annotation([("disc", box, 0), ("square", (3, 3, 9, 9), 0)]))
    found = [each for each in inspect_boxes(home).findings if "outside" in each.text and each.status != "ok"]
    assert [each.status for each in found] == ([] if status is None else [status])
    assert all("test: 1 images have boxes" in each.text and "e.g. 008" in each.text for each in found)


def test_an_infinite_box_fails_at_the_check_and_when_training_begins(tmp_path, capsys):
    home = shapes(tmp_path)
    (home / "Annotations" / "008.xml").write_text(annotation([("disc", (3, 3, float("inf"), 9), 0)]))
    assert main(["detect", "check", "--root", str(home)]) != 0
    assert "008.xml: an object (disc) must have a box of four finite numbers" in capsys.readouterr().out
    with pytest.raises(ValueError, match="four finite numbers"):
        load_voc(home, "test", "data")


def test_the_check_lists_every_annotation_and_list_that_cannot_be_used(tmp_path, capsys):
    home = shapes(tmp_path)
    for name in ("000", "008", "009"):
        (home / "Annotations" / f"{name}.xml").write_text("")
    (home / "Annotations" / "001.xml").write_text(annotation([("only here", (3, 3, 9, 9), 0), ("", (3, 3, 9, 9), 0)]))
    (home / "Annotations" / "002.xml").unlink()
    (home / "ImageSets" / "Main" / "train.txt").write_bytes(b"\xff\xfe")
    assert main(["detect", "check", "--root", str(home)]) == 2
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  wrong")]
    assert len(lines) == 4
    for words in (
        ("3 annotations, e.g. 000.xml, 008.xml, 009.xml: ", "no element found"),
        ("1 annotations, e.g. 001.xml: ", "has no name"),
        ("1 annotations, e.g. 002.xml: ", "does not exist"),
        ("train.txt", "is not UTF-8"),
    ):
        assert any(all(word in line for word in words) for line in lines), words
    for path in (home / "Annotations").iterdir():
        path.write_text("")
    assert inspect_boxes(home).wrong == 1 and "10 annotations" in str(inspect_boxes(home))


def test_the_check_of_an_official_year_lists_every_annotation_that_cannot_be_used(tmp_path):
    home = write_tree(tmp_path / "VOC2007", {"test": ["a", "b", "c"]})
    (home / "Annotations" / "a.xml").write_text("")
    text = str(inspect_boxes(tmp_path))
    assert "2 annotations, e.g. b.xml, c.xml: " in text and "1 annotations, e.g. a.xml: " in text


def test_official_counts_are_compared(tmp_path, monkeypatch):
    objects = {"a": [("person", (3, 3, 20, 20), 0), ("dog", (3, 3, 20, 20), 1)], "b": [("cat", (3, 3, 20, 20), 0)]}
    write_tree(tmp_path / "VOC2007", {"trainval": ["a"], "test": ["b"]}, objects)
    write_tree(tmp_path / "VOC2012", {"trainval": ["a"]}, objects)
    found = inspect_boxes(tmp_path)
    assert found.wrong == 3
    assert (
        "2007/trainval does not have the published counts: 1 images, 1 objects (2 with the difficult ones) instead of "
        "5011 images, 12608" in str(found)
    )
    counts = {"2007/trainval": (1, 1, 2), "2007/test": (1, 1, 1), "2012/trainval": (1, 1, 2)}
    monkeypatch.setattr(check, "COUNTS", counts)
    assert inspect_boxes(tmp_path).wrong == 0
    (tmp_path / "VOC2007" / "ImageSets" / "Main" / "test.txt").unlink()
    assert "2007/test" in str(inspect_boxes(tmp_path)) and inspect_boxes(tmp_path).wrong == 1


def test_a_training_on_other_counts_than_the_published_says_so(tmp_path, monkeypatch):
    objects = {name: [("person", (3, 3, 20, 20), 0)] for name in ("a", "b", "c")}
    write_tree(tmp_path / "VOC2007", {"trainval": ["a", "b"], "test": ["c"], "val": ["b"]}, objects)
    write_tree(tmp_path / "VOC2012", {"trainval": ["a"]}, objects)

    def task(train="2007/trainval+2012/trainval"):
        words = ["data=voc", f"data.root={tmp_path}", f"data.train={train}", "sampler.batch_size=1", *TINY]
        return build(compose(words, "detect"), quiet=True)

    with pytest.warns(CountWarning) as caught:
        told = task().off_counts
    assert told == " ".join(str(each.message) for each in caught) and len(caught) == 2
    assert "3 images, 3 objects (3 with the difficult ones) instead of 16551 images, 40058 objects (47223" in told
    counts = {"2007/trainval": (2, 2, 2), "2007/test": (1, 1, 1), "2012/trainval": (1, 1, 1)}
    monkeypatch.setattr(check, "COUNTS", counts)
    assert task().off_counts == task("2007/val").off_counts == ""  # of 2007/val no counts are published


def test_a_folder_of_something_else_is_told_what_to_give(tmp_path):
    with pytest.raises(FileNotFoundError, match="pass a folder with one of these"):
        inspect_boxes(tmp_path)


# ------------------------------------------------------------------------------------------------ as training sees it


def test_resizing_keeps_the_aspect_within_both_sides_and_boxes_move_along(tmp_path):
    home = write_tree(tmp_path, {"test": ["a", "b"]}, {"a": [("disc", (9, 5, 40, 24), 0)]}, size=(64, 48))
    scenes = load_voc(home, "test", "data").scenes
    sample = DetectionSet(scenes, shorter=24, longer=64).sample(0, 0)
    assert sample.image.shape == (3, 24, 32) and sample.size == (64, 48)
    assert sample.target["boxes"].tolist() == [[4, 2, 20, 12]] and sample.target["labels"].tolist() == [1]
    assert DetectionSet(scenes, shorter=48, longer=48).sample(0, 0).image.shape == (3, 36, 48)
    assert read_resized(scenes[0], 96, 200)[0].shape == (3, 96, 128)


def turned_tree(tmp_path: Path, annotated: tuple[int, int]) -> Path:
    """An image stored as 64 x 48 that its EXIF tag turns to 48 x 64; red where the box of the annotation is."""
    home = write_tree(tmp_path, {"test": ["a"]}, {"a": [("square", (5, 3, 20, 14), 0)]}, size=(64, 48))
    path, exif = home / "JPEGImages" / "a.jpg", Image.Exif()
    exif[0x0112] = 6
    Image.open(path).save(path, exif=exif, quality=95)
    # turned by a quarter clockwise, x becomes 48 - y
    box = (5, 3, 20, 14) if annotated == (64, 48) else (48 - 14 + 1, 5, 48 - 3 + 1, 20)
    (home / "Annotations" / "a.xml").write_text(annotation([("square", box, 0)], annotated))
    return home


@pytest.mark.parametrize("annotated", [(64, 48), (48, 64)])
def test_a_photograph_is_turned_as_its_boxes_were_drawn(tmp_path, annotated):
    [scene] = load_voc(turned_tree(tmp_path, annotated), "test", "data").scenes
    assert scene.image().size == scene.size == annotated
    example = DetectionSet([scene], 48, 64).sample(0, 0)
    left, top, right, bottom = (int(side) for side in example.target["boxes"][0])
    inside = example.image[:, top + 2 : bottom - 2, left + 2 : right - 2]
    assert bool((inside[0] - inside[2] > 0.4).all())


def test_the_check_says_which_photographs_were_annotated_as_they_are_stored(tmp_path):
    text = str(inspect_boxes(turned_tree(tmp_path, (64, 48)), images=True))
    assert (
        "1 images have an EXIF tag that turns them, but were annotated as stored: they are not turned, e.g. a" in text
    )


def test_sixteen_bits_and_transparency_are_read_as_everywhere_else(tmp_path):
    home = write_tree(tmp_path, {"test": ["a", "b"]}, size=(64, 48))
    deep = np.full((48, 64), 200 * 256, dtype=np.uint16)
    clear = np.zeros((48, 64, 4), dtype=np.uint8)
    for name, pixels in (("a", deep), ("b", clear)):
        (home / "JPEGImages" / f"{name}.jpg").unlink()
        Image.fromarray(pixels).save(home / "JPEGImages" / f"{name}.png")
    data = DetectionSet(load_voc(home, "test", "data").scenes, 48, 64)
    assert (data.sample(0, 0).image * 255).round().unique().tolist() == [200]
    assert data.sample(1, 0).image.unique().tolist() == [1]  # transparent is white


def test_a_flip_moves_pixels_and_boxes_together(tmp_path):
    home = write_tree(tmp_path, {"test": ["a", "b"]}, {"a": [("square", (5, 3, 20, 14), 0)]})
    scenes = load_voc(home, "test", "data").scenes
    plain = DetectionSet(scenes, 48, 64).sample(0, 0)
    for options, expected in (({"flip": 1.0}, [44, 2, 60, 14]), ({"vertical_flip": 1.0}, [4, 34, 20, 46])):
        turned = DetectionSet(scenes, 48, 64, **options).sample(0, 0)
        assert turned.target["boxes"].tolist() == [expected]
        for each in (plain, turned):
            left, top, right, bottom = (int(side) for side in each.target["boxes"][0])
            inside = each.image[:, top + 2 : bottom - 2, left + 2 : right - 2]
            assert bool((inside[0] - inside[2] > 0.4).all())  # red, and only there
            assert float((each.image[0] - each.image[2] > 0.4).float().mean()) < 1.2 * 16 * 12 / (48 * 64)


def test_flips_depend_on_seed_epoch_and_image_alone(tmp_path):
    scenes = load_voc(shapes(tmp_path), "trainval", "data").scenes

    def flips(seed: int, epoch: int) -> list[bool]:
        data = DetectionSet(scenes, 48, 64, flip=0.5, seed=seed, cache=True)
        plain = DetectionSet(scenes, 48, 64, cache=True)
        rows = EpochList(range(8), epoch)
        return [
            not torch.equal(a.image, b.image)
            for a, b in zip(data.__getitems__(rows), plain.__getitems__(rows), strict=True)
        ]

    assert flips(0, 0) == flips(0, 0) and 0 < sum(flips(0, 0)) < 8
    assert len({tuple(flips(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_difficult_objects_are_targets_only_if_asked_for_and_boxes_are_cut_off_at_the_border(tmp_path):
    objects = [("disc", (60, 40, 70, 60), 0), ("disc", (66, 2, 70, 9), 0), ("square", (3, 3, 9, 9), 1)]
    scenes = load_voc(one(tmp_path, annotation(objects)), "test", "data").scenes
    assert DetectionSet(scenes, 48, 64).sample(0, 0).target["boxes"].tolist() == [[59, 39, 64, 48]]
    found = DetectionSet(scenes, 48, 64, difficult=True).sample(0, 0).target
    assert found["boxes"].tolist() == [[59, 39, 64, 48], [2, 2, 9, 9]] and found["labels"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shorter": 0, "longer": 9}, "shorter is a side in pixels"),
        ({"shorter": 9, "longer": 8}, "longer must be at least shorter"),
        ({"shorter": 8, "longer": 8, "flip": 2}, "flip is a probability"),
    ],
)
def test_sides_and_probabilities_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DetectionSet((), **options)


def test_settings_of_a_run_are_checked_before_its_files_are_read():
    settings = ["data=voc", "data.root=a folder that does not exist"]
    for wrong, message in (
        ("vertical_flip=2", "vertical_flip is a prob"),
        ("data.sides=[9,8]", "longer must be"),
        ("loss.margin=-1", "margin"),
        ("optimizer.lr=-1", r"optimizer\.lr"),
        ("model.rois=0", "model: rois counts boxes"),
        ("model.anchors=[[8]]", "model: anchors must be 2 lists"),
        ("evaluation.pictures=-1", "evaluation.pictures counts"),
        ("data.workers=-1", "data.workers counts"),
        ("data.format=pascal", "data.format must be"),
        ("init=nowhere.pt", "no weights file at nowhere.pt"),
    ):
        with pytest.raises((OSError, ValueError), match=message):
            build(compose([*settings, wrong], "detect"), quiet=True)
    for wrong, message in (
        ("model.backbone=vgg", "model: unknown backbone 'vgg'"),
        ("model.norm=frozen", "model: frozen layers need weights"),
        ("model.weights=nowhere.pt", "model.weights=nowhere.pt does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            build(compose([*settings, "model=faster_rcnn", wrong], "detect"), quiet=True)


def test_batches_hold_every_image_at_most_once_and_go_on_where_they_stopped():
    batches = ShuffledBatches(images=11, batch_size=3, seed=4)
    whole = [*batches]
    assert len(batches) == len(whole) == 3 and all(len(batch) == 3 for batch in whole)
    assert len({image for batch in whole for image in batch}) == 9
    batches.set_epoch(0)
    assert [*batches] == whole
    batches.set_epoch(1)
    later = [*batches]
    assert later != whole and all(batch.epoch == 1 for batch in later)
    other = ShuffledBatches(images=11, batch_size=3, seed=4)
    other.load_state_dict(batches.state_dict(batches_done=2))
    assert [*other] == later[2:] and [*other] == other.batches(2)
    with pytest.raises(ValueError, match="images: saved 11, now 12"):
        ShuffledBatches(images=12, batch_size=3, seed=4).load_state_dict(batches.state_dict(0))
    with pytest.raises(ValueError, match=r"batch_size .* in 1 \.\. 2"):
        ShuffledBatches(images=2, batch_size=3)


# --------------------------------------------------------------------------------------------------------------- BCCD


@real
def test_bccd_has_its_images_classes_and_two_boxes_of_a_pixel():
    train, test = (load_voc(BCCD, split, "data") for split in ("trainval", "test"))
    assert (len(train), len(test)) == (292, 72) and train.class_names == ("Platelets", "RBC", "WBC")
    assert sum(train.objects().values()) + sum(test.objects().values()) == 4155 + 372 + 361
    small = [scene.name for scene in train.scenes if bool((scene.boxes[:, 2:] - scene.boxes[:, :2] == 1).all(1).any())]
    assert small == ["BloodImage_00338", "BloodImage_00343"]
    assert train.left_out == test.left_out == ()


@real
def test_bccd_is_complete():
    found = inspect_boxes(BCCD)
    assert found.wrong == 0 and "not VOC's own: read the folder with data.classes=data" in str(found)
