"""Folders are read alike, whatever is done with their images: the same classes, and the same things left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from rankgrad_workbench.cli import main
from rankgrad_workbench.datasets import load_folder
from rankgrad_workbench.datasets.folder import read_folder
from rankgrad_workbench.files import read_npz
from rankgrad_workbench.index.embed import embed_folder


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), sum(map(ord, path.name)) % 256).save(path)
    return path


def embedded(weights: Path, root: Path, out: Path) -> tuple[dict[str, str], dict[str, str]]:
    """(name -> class, what was left out -> reason) of the npz of a folder."""
    _, skipped, _ = embed_folder(weights, root, out)
    columns = read_npz(out)
    classes = {
        name: str(columns["class_names"][label])
        for name, label in zip(columns["names"].tolist(), columns["labels"].tolist(), strict=True)
    }
    return classes, dict(skipped)


LAYOUTS = {
    "classes": [f"{name}/{row}.png" for name in "abcd" for row in range(2)],
    "a division": [
        f"{split}/{name}/{row}.png" for split in ("Train", "test", "valid") for name in "ab" for row in "01"
    ],
    "folders in classes": [f"{name}/{year}/{row}.png" for name in "abcd" for year in (2020, 2021) for row in range(2)],
    "images beside": [*(f"{name}/{row}.png" for name in "abcd" for row in range(2)), "stray.png"],
    "left out": [f"{split}/{name}/0.png" for split in ("train", "test") for name in "ab"] + ["unlabelled/0.png"],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_embedding_gives_each_image_the_class_that_training_gives_it(layout, weights, tmp_path):
    for name in LAYOUTS[layout]:
        picture(tmp_path / "set" / name)
    (tmp_path / "set" / next(iter(LAYOUTS[layout]))).with_name("gone.png").symlink_to("nowhere")
    table = load_folder(tmp_path / "set")
    trained = {name: table.class_names[label] for name, label in zip(table.names, table.label.tolist(), strict=True)}
    classes, left = embedded(weights, tmp_path / "set", tmp_path / "set.npz")
    assert classes == trained and left == dict(table.skipped) and len(trained) >= 4


def test_images_without_class_folders_are_embedded_without_a_class(weights, tmp_path):
    for row in range(3):
        picture(tmp_path / "flat" / f"{row}.png")
    out = tmp_path / "flat.npz"
    assert set(embedded(weights, tmp_path / "flat", out)[0].values()) == {""}
    assert main(["evaluate", str(out)]) == 2


def test_one_part_of_a_division_is_enough_to_be_embedded_and_not_to_train(weights, tmp_path):
    for name in "ab":
        picture(tmp_path / "set" / "train" / name / "0.png")
    assert set(embedded(weights, tmp_path / "set", tmp_path / "set.npz")[0].values()) == {"a", "b"}
    with pytest.raises(ValueError, match="no test/"):
        load_folder(tmp_path / "set")


def test_links_that_lead_nowhere_or_back_are_named_and_not_followed(tmp_path):
    for name in "ab":
        picture(tmp_path / "set" / name / "deep" / "0.png")
    back, up, nowhere, other = (tmp_path / "set" / name for name in ("a/deep/back", "b/up", "a/gone.png", "a/other"))
    back.symlink_to(tmp_path / "set")
    up.symlink_to(tmp_path)
    nowhere.symlink_to("nothing.png")
    other.symlink_to(tmp_path / "set" / "b")  # which is no way back
    (tmp_path / "set" / "b" / "to a").symlink_to(tmp_path / "set" / "a")
    (tmp_path / "set" / "whole").symlink_to(tmp_path / "set")
    folder = read_folder(tmp_path / "set")
    names = [(name, path.relative_to(tmp_path / "set").as_posix()) for _, name, path in folder.images]
    assert names == [
        ("a", "a/deep/0.png"),
        ("a", "a/other/deep/0.png"),
        ("b", "b/deep/0.png"),
        ("b", "b/to a/deep/0.png"),
    ]
    left = {Path(path).relative_to(tmp_path / "set").as_posix(): reason for path, reason in folder.skipped}
    assert {"a/deep/back", "b/up", "a/gone.png", "a/other/to a", "b/to a/other", "whole"} <= set(left)
    assert str(tmp_path / "set") in left["whole"] and "broken link" in left["a/gone.png"]


def test_a_folder_that_two_links_of_a_class_lead_to_is_read_once(tmp_path):
    picture(tmp_path / "elsewhere" / "0.png")
    (tmp_path / "set" / "a").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "set" / "a" / name).symlink_to(tmp_path / "elsewhere")
    folder = read_folder(tmp_path / "set")
    assert [path.parent.name for _, _, path in folder.images] == ["one"]
    assert [Path(path).name for path, _ in folder.skipped] == ["two"]


def test_the_command_says_how_it_understood_the_folder_and_what_it_left_out(weights, tmp_path, capsys):
    for name in ("train/a/0.png", "test/a/1.png"):
        picture(tmp_path / "set" / name)
    (tmp_path / "set" / "test" / "a" / "gone.png").symlink_to("nowhere")
    assert main(["embed", str(weights), str(tmp_path / "set"), "-o", str(tmp_path / "set.npz")]) == 0
    said = capsys.readouterr().out
    assert "test/ = test" in said and "2 images" in said and "gone.png" in said
