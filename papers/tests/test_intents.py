"""CLINC150 and BANKING77: divided by intents, and the sentences out of scope."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from rankgrad_papers.datasets import load_banking77, load_clinc150

needs_data = pytest.mark.skipif(
    not Path(os.environ.get("RANKGRAD_DATA", ""), "clinc150").is_dir() or not os.environ.get("RANKGRAD_DATA"),
    reason="RANKGRAD_DATA names no folder with clinc150 and banking77",
)


@needs_data
def test_clinc150_is_divided_by_intents_within_each_domain():
    root = Path(os.environ["RANKGRAD_DATA"], "clinc150")
    table = load_clinc150(root)
    assert len(table) == 22_500 and len(table.class_names) == 150 and len(table.super_names) == 10
    for split, intents in (("train", 75), ("val", 25), ("test", 50)):
        part = table.select(split)
        assert (
            len(part) == 150 * intents and len(part.label.unique()) == intents and len(part.super_label.unique()) == 10
        )
    # the first domain by name is auto_and_commute: its third intent by name is of the test
    domains = json.loads((root / "domains.json").read_text())
    third = sorted(domains[min(domains)])[2]
    assert table.class_names.index(third) in table.select("test").label.tolist()
    final = load_clinc150(root, validation="train")
    assert final.splits == ("train", "test") and len(final.select("train")) == 15_000
    assert torch.equal(final.select("test").label, table.select("test").label)
    with pytest.raises(ValueError, match="'apart' or 'train'; got 'none'"):
        load_clinc150(root, validation="none")


@needs_data
def test_banking77_is_divided_by_intents():
    root = Path(os.environ["RANKGRAD_DATA"], "banking77")
    table = load_banking77(root)
    assert len(table) == 13_083 and len(table.class_names) == 77
    assert [len(table.select(split).label.unique()) for split in ("train", "val", "test")] == [39, 13, 25]
    assert {number % 3 for number in table.select("test").label.tolist()} == {2}
    assert load_banking77(root, "train").splits == ("train", "test")


def test_folders_without_the_files_are_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match="no data_full.json.*CLINC150"):
        load_clinc150(tmp_path)
    with pytest.raises(FileNotFoundError, match="has no train.csv: BANKING77 is a folder"):
        load_banking77(tmp_path)
    (tmp_path / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match="line 2 .*BANKING77.*text and category"):
        load_banking77(tmp_path)
    empty = {part: [] for part in ("train", "val", "test", "oos_train", "oos_val", "oos_test")}
    (tmp_path / "data_full.json").write_text(json.dumps({**empty, "train": [["a", "b"]]}))
    (tmp_path / "domains.json").write_text("{}")
    with pytest.raises(ValueError, match="intent 'b'"):
        load_clinc150(tmp_path)
    (tmp_path / "domains.json").write_text("{")
    with pytest.raises(ValueError, match="domains.json is not JSON"):
        load_clinc150(tmp_path)


def make_clinc(folder: Path) -> Path:
    folder.mkdir()
    intents = {f"domain {d}": [f"intent {d}{i}" for i in range(6)] for d in range(2)}
    rows = [[f"say {intent} {row}", intent] for names in intents.values() for intent in names for row in range(4)]
    parts = {"train": rows, "val": [], "test": []}
    out = {f"oos_{part}": [[f"nothing {part} {row}", "oos"] for row in range(5)] for part in parts}
    (folder / "data_full.json").write_text(json.dumps({**parts, **out}), encoding="utf-8")
    (folder / "domains.json").write_text(json.dumps(intents), encoding="utf-8")
    return folder
