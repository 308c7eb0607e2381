"""Icons: the arrays of their file, their families and styles; and drawings, which are glyphs, icons and letters."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rankgrad_papers.datasets import load_drawings, load_icons, load_omniglot
from rankgrad_workbench.datasets import load_glyphs, trials

DATA = os.environ.get("RANKGRAD_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="RANKGRAD_DATA names no folder with icons/ and omniglot/")


def packed_icons(folder: Path, **change) -> Path:
    """Six names in five styles; the first of each is drawn by its number."""
    names = np.array(["arrow_back", "arrow_down", "bell", "car_a", "car_b", "door"])
    arrays = {
        "images": np.arange(30, dtype=np.uint8).repeat(48 * 48).reshape(30, 48, 48),
        "name": np.arange(6, dtype=np.int16).repeat(5),
        "names": names,
        "style": np.tile(np.arange(5, dtype=np.int8), 6),
        "styles": np.array(["filled", "outlined", "round", "sharp", "two-tone"]),
        "split": np.array([0, 2, 0, 1, 2, 2], dtype=np.int8),
    }
    np.savez(folder / "icons48.npz", **{**arrays, **change})
    return folder


def test_icons_are_the_arrays_of_their_file_with_first_words_as_super_labels(tmp_path):
    table = load_icons(packed_icons(tmp_path))
    assert len(table) == 30 and table.class_names[0] == "arrow_back" and table.names[6] == "arrow_down/outlined"
    assert table.super_names == ("arrow", "bell", "car", "door")
    assert table.super_label[::5].tolist() == [0, 0, 1, 2, 2, 3]
    assert table.split[::5] == ("train", "test", "train", "val", "test", "test")
    assert table.images[7].unique().tolist() == [7] and table.protocol == "leave_one_out" and table.role is None
    small = load_icons(tmp_path / "icons48.npz", size=28)
    assert small.images.shape == (30, 1, 28, 28) and small.images[7].unique().tolist() == [7]


def test_icons_may_be_asked_with_the_outlined_style(tmp_path):
    test = load_icons(packed_icons(tmp_path), protocol="query_gallery").select("test")
    assert test.role.count("query") == 3 and test.role.count("gallery") == 12
    (trial,) = trials(test)
    assert {test.names[row].split("/")[1] for row in trial.query.tolist()} == {"outlined"}
    assert not set(trial.query.tolist()) & set(trial.gallery.tolist())


def test_families_apart_never_stand_on_both_sides(tmp_path):
    table = load_icons(packed_icons(tmp_path), families="apart")
    sides: dict[int, set[str]] = {}
    for word, split in zip(table.super_label.tolist(), table.split, strict=True):
        sides.setdefault(word, set()).add(split)
    assert all(len(found) == 1 for found in sides.values())


def test_drawings_are_the_glyphs_and_the_training_classes_of_other_sets_apart(tmp_path):
    glyphs, icons = load_glyphs(), load_icons(packed_icons(tmp_path), size=28)
    both = load_drawings(icons=tmp_path)
    training = icons.select("train")
    assert len(both) == len(glyphs) + len(training) and torch.equal(both.images[len(glyphs) :], training.images)
    assert {both.split[row] for row in range(len(glyphs), len(both))} == {"train"}
    assert both.class_names[-2:] == ("icons: arrow_back", "icons: bell") and both.super_names[-1] == "icons: bell"
    assert both.label[-10:].unique().tolist() == [len(both.class_names) - 2, len(both.class_names) - 1]
    assert torch.equal(both.label[: len(glyphs)], glyphs.label)
    assert not any("car" in name for name in both.class_names)  # no class that the icons are tested on
    assert load_drawings().class_names[0] == f"glyphs: {glyphs.class_names[0]}"


@needs_data
def test_drawings_hold_no_test_letter_of_omniglot():
    table, letters = load_drawings(omniglot=Path(DATA, "omniglot")), load_omniglot(Path(DATA, "omniglot"))
    there = {name for name in table.names if name.startswith("omniglot")}
    assert there == {f"omniglot: {name}" for name in letters.select("train").names}


@needs_data
def test_icons_have_the_counts_of_their_protocol():
    table = load_icons(Path(DATA, "icons"))
    counts = {split: len(table.select(split).label.unique()) for split in table.splits}
    assert counts == {"train": 1032, "val": 367, "test": 723} and (torch.bincount(table.label) == 5).all()
    apart = load_icons(Path(DATA, "icons"), families="apart")
    train, test = (set(apart.select(split).super_label.tolist()) for split in ("train", "test"))
    assert not train & test and len(train | test) > 800


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 49}, "size must be 1 .. 48"),
        ({"protocol": "one_gallery"}, "'leave_one_out' and 'query_gallery'; got 'one_gallery'"),
        ({"families": "both"}, "families must be 'mixed' or 'apart'"),
    ],
)
def test_settings_of_icons_are_checked_before_the_file_is_read(settings, message):
    with pytest.raises(ValueError, match=message):
        load_icons("nowhere", **settings)


def test_a_damaged_file_of_icons_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="icons48.npz, .*root=.DIR"):
        load_icons(tmp_path)
    file = packed_icons(tmp_path) / "icons48.npz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="icons48.npz is (not an npz file|damaged)"):
        load_icons(tmp_path)
    packed_icons(tmp_path, images=np.zeros((30, 9, 9), np.uint8))
    with pytest.raises(ValueError, match=r"\[30, 48, 48\]; got uint8 \(30, 9, 9\)"):
        load_icons(tmp_path)
