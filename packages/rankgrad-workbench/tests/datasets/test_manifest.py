"""Images that a file lists become a table like that of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import make_photos, small, train

from rankgrad_workbench.datasets import load_folder, load_manifest


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    photos = make_photos(tmp_path / "photos", classes=4, per_class=3)
    rows = [
        f"{path.relative_to(photos).as_posix()},{path.parent.name},{'train' if number < 6 else 'test'},cam{number % 2}"
        for number, path in enumerate(sorted(photos.rglob("*.png")))
    ]
    file = photos / "list.csv"
    file.write_text("\n".join(["path,label,split,group", *rows]) + "\n")
    return file


def test_a_list_gives_what_the_folder_gives(listed):
    table, folder = load_manifest(listed), load_folder(listed.parent)
    assert table.class_names == folder.class_names and table.names == folder.names and table.paths == folder.paths
    assert table.label.tolist() == folder.label.tolist()
    assert table.split == ("train",) * 6 + ("test",) * 6 and table.group == ("cam0", "cam1") * 6
    assert "list.csv is understood as path = path, label = label, split = split, group = group" in table.summary()
    moved = listed.parent.parent / "elsewhere.csv"
    listed.rename(moved)
    assert load_manifest(moved, images=listed.parent).paths == folder.paths
    assert load_manifest(moved, images=listed.parent, split=None).split == folder.split  # the same division of classes


BAD = {
    "a class without a name": ("path,label\na.png,\n", "line 2: 'label' is empty"),
    "a column that is not there": ("file,label\na.png,x\n", "a.csv has no column 'path'"),
    "a path that leads out": ("path,label\n../a.png,x\n", "line 2: .*a.png"),
    "a path twice": ("path,label\na.png,x\na.png,y\n", "line 3 lists 'a.png' again, after .*line 2"),
    "a path twice in two spellings": (
        "path,label\na.png,x\n./a.png,y\n",
        "line 3 lists './a.png' again, after .*line 2",
    ),
    "no image": ("path,label\na.png,x\n", "none of the 1 images of .* can be read below .*images='DIR'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_list_is_named_with_its_row(case, tmp_path):
    content, told = BAD[case]
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(ValueError, match=told):
        load_manifest(tmp_path / "a.csv")


def test_listed_files_that_are_broken_are_left_out_and_said(listed):
    (listed.parent / "class 0" / "0.png").write_bytes(b"x")
    table = load_manifest(listed)
    assert len(table) == 11 and len(table.skipped) == 1 and "skipped 1 file" in table.summary()


def test_listed_files_that_are_identical_are_named(listed):
    (listed.parent / "class 1" / "0.png").write_bytes((listed.parent / "class 0" / "0.png").read_bytes())
    assert "in two classes: 1 (class 0/0.png = class 1/0.png)" in load_manifest(listed).summary()
    assert load_manifest(listed, check=False).remarks == ()


def test_a_list_trains_a_run_whose_items_share_no_group_with_their_query(listed, tmp_path):
    settings = small(listed, "data=manifest", "sampler.classes_per_batch=2", "trainer.max_epochs=1")
    run = train(*settings, f"out={tmp_path / 'run'}")
    assert run.finished and "data:image/" in run.page.read_text()
