"""What should not be trained or tested on: folders that a system made, and one picture in two splits."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rankgrad_workbench.datasets.folder import find_images, load_folder, read_folder
from rankgrad_workbench.datasets.images import SYSTEM, SkippedWarning
from rankgrad_workbench.datasets.manifest import load_manifest
from rankgrad_workbench.datasets.text import load_text
from rankgrad_workbench.index.query import query_files


def photograph(seed: int, side: int = 96) -> Image.Image:
    """Smooth areas of colour with an edge, different for each seed."""
    noise = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((side, side * 3 // 4), Image.Resampling.BICUBIC)


def put(picture: Image.Image, path: Path, **how: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **how)


def photos(root: Path, splits: tuple[str, ...] = ("",)) -> Path:
    for number in range(12):
        split = splits[number % len(splits)]
        put(photograph(number), root / split / "abcd"[number % 4] / f"{number}.png")
    return root


@pytest.mark.parametrize(
    "name",
    ["@eaDir", "#recycle", "$RECYCLE.BIN", "__MACOSX", "_thumbs", "@__thumb", "System Volume Information", "FOUND.001"]
    + ["@Recycle", "#snapshot", "lost+found", "RECYCLER", "Network Trash Folder", "_Thumbnails", "~snapshot"]
    + ["@__qini", "@Transcode", "DfsrPrivate", "Config.Msi", "THMBNL", "Photos Previews.lrdata"],
)
@pytest.mark.parametrize("place", ["", "a", "a/deep"])
def test_folders_that_a_system_made_are_left_out_and_counted(tmp_path, name, place):
    root = photos(tmp_path)
    before = [path for _, _, path in read_folder(root).images]
    put(photograph(0, 32), root / place / name / "0.png" / "SYNOPHOTO_THUMB_XL.jpg")
    put(photograph(1, 32), root / place / name / "1.jpg")
    folder = root / place / name
    assert [path for _, _, path in read_folder(root).images] == before
    table = load_folder(root)
    assert table.class_names == ("a", "b", "c", "d") and (str(folder), SYSTEM) in table.skipped
    assert "skipped 1 folder:" in table.summary()
    assert find_images(root) == (tuple(sorted(before)), ((str(folder), SYSTEM),))
    with pytest.warns(SkippedWarning, match="a system made"):
        assert query_files([root]) == sorted(before)


def test_such_a_folder_beside_train_and_test_is_no_class(tmp_path):
    root = photos(tmp_path, ("train", "test"))
    put(photograph(0, 32), root / "@eaDir" / "0.jpg")
    assert load_folder(root).splits == ("train", "test")


def test_one_picture_in_two_splits_is_named_whatever_its_size_and_format(tmp_path):
    root = photos(tmp_path, ("train", "test"))
    assert load_folder(root).remarks == ()
    put(photograph(0).resize((40, 30)), root / "test" / "b" / "small.jpg", quality=60)
    put(photograph(2).convert("L").resize((192, 144)), root / "test" / "b" / "grey.webp", quality=70)
    put(Image.new("RGB", (64, 48), "white"), root / "train" / "a" / "plain.png")
    put(Image.new("RGB", (32, 24), "white"), root / "test" / "d" / "plain.jpg")
    told = (
        "2 image(s) look like an image of another split, in another size or format "
        "(test/b/small.jpg ~ train/a/0.png, test/b/grey.webp ~ train/c/2.png)"
    )
    assert sorted(load_folder(root).remarks[0]) == sorted(told)
    listed = [f"{path.relative_to(root)},{path.parent.name},{path.parts[-3]}" for path in sorted(root.rglob("*.*"))]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,split", *listed]))
    assert load_manifest(tmp_path / "list.csv").remarks[0].startswith("2 image(s) look like")


@pytest.mark.parametrize("name", ["small/0.jpg", "0-150x150.png", "thumb_0.gif", "previews/SYNOPHOTO_THUMB_M.webp"])
def test_a_picture_that_is_twice_in_a_class_is_named(tmp_path, name):
    root = photos(tmp_path)
    put(photograph(0).resize((48, 36)), root / "a" / name)
    put(photograph(50), root / "a" / "x.png")
    put(photograph(50).point(lambda value: min(value + 1, 255)), root / "a" / "y.png")  # another shot: the same size
    (line,) = load_folder(root).remarks
    assert line.startswith("1 image(s) look like another image of the same class, in another size or format (a/")
    assert f"a/{name}" in line


def test_a_picture_that_is_copied_as_a_file_is_told_once(tmp_path):
    root = photos(tmp_path, ("train", "test"))
    put(photograph(0), root / "test" / "b" / "copy.png")
    assert not any("look" in line for line in load_folder(root).remarks)


@pytest.mark.parametrize(
    "names",
    [
        ("caf\u00e9", "cafe\u0301"),
        ("cat", "ca\u200bt"),
        ("cat", "\ufeffcat"),
        ("cat", "c\u00adat"),
        ("CAT", "\uff23\uff21\uff34"),
        ("a b", "a\u00a0b"),
        ("Cat", "cat"),
        ("1", "1.0"),
        ("cat", "cat "),
    ],
    ids=ascii,
)
def test_classes_whose_names_look_alike_are_named(tmp_path, names):
    for at, name in enumerate((*names, "dog", "sun")):
        for number in range(2):
            put(photograph(10 * at + number), tmp_path / name / f"{number}.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines = load_folder(tmp_path).summary().splitlines()
    (line,) = (line for line in lines if "look alike" in line)
    first, second = line.rpartition(": ")[2].split(" / ")
    assert first != second and first.isascii() and second.isascii()


@pytest.mark.parametrize("role", ["label", "super_label", "group"])
@pytest.mark.parametrize("names", [("caf\u00e9", "cafe\u0301"), ("7", "7.0"), ("cat", "cat ")], ids=ascii)
def test_names_that_look_alike_are_named_in_each_column(role, names, tmp_path):
    rows = [{"text": f"text {row}", "label": f"class {row % 4}", role: names[row % 2]} for row in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    what = {"label": "classes", "super_label": "super-labels", "group": "groups"}[role]
    assert f"{what} whose names look alike, and count as different: " in load_text(tmp_path / "rows.jsonl").summary()
