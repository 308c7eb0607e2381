"""Folds of the training classes: whole groups, every class once, and never a test class."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import make_photos, small, train

from rankgrad_workbench.datasets import Table, load_glyphs
from rankgrad_workbench.datasets.folds import folds, with_fold
from rankgrad_workbench.files import read_json
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.settings import load
from rankgrad_workbench.tasks.retrieval.page import read as read_run


def table(groups: int, seed: int, per_class: int = 2) -> Table:
    """Up to 40 classes in so many super-labels of different size; every fourth class is for the test."""
    g = np.random.RandomState(seed)
    of_class = g.randint(0, groups, 40)
    label = torch.arange(40).repeat_interleave(per_class)
    return Table(
        "made",
        label,
        tuple(f"c{i}" for i in range(40)),
        tuple("test" if i % 4 == 3 else "train" for i in label.tolist()),
        tuple(f"i{i}" for i in range(len(label))),
        channels=1,
        images=torch.zeros(len(label), 1, 8, 8, dtype=torch.uint8),
        super_label=torch.from_numpy(of_class)[label],
        super_names=tuple(f"g{i}" for i in range(groups)),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [2, 3, 5])
def test_every_training_class_is_in_one_fold_and_groups_stay_whole(count, seed):
    made = table(8, seed)
    found = folds(made, count)
    train_classes = [i for i in range(40) if i % 4 != 3]
    assert sorted(label for fold in found for label in fold) == train_classes and len(found) == count
    assert all(fold for fold in found) and folds(made, count) == found
    of_class = {int(a): int(b) for a, b in zip(made.label, made.super_label, strict=True)}
    fold_of = {label: number for number, fold in enumerate(found) for label in fold}
    for group in range(8):
        assert len({fold_of[label] for label in train_classes if of_class[label] == group}) <= 1
    largest = max(sum(of_class[label] == group for label in train_classes) for group in range(8))
    assert max(map(len, found)) - min(map(len, found)) <= largest


def test_with_fewer_groups_than_folds_and_without_groups_classes_are_drawn():
    for made in (table(2, 0), replace(table(2, 0), super_label=None, super_names=())):
        sizes = sorted(map(len, folds(made, 4)))
        assert sizes == [7, 7, 8, 8]
        assert folds(made, 4)[0] != sorted(range(0, 40, 5))[: len(folds(made, 4)[0])]


def test_a_class_of_several_super_labels_belongs_to_the_one_of_most_of_its_images():
    made = table(8, 0, per_class=3)
    alone = made.super_label.clone()
    alone[0] = (int(alone[1]) + 1) % 8  # one of three images of class 0
    assert folds(replace(made, super_label=alone), 3) == folds(made, 3)


@pytest.mark.parametrize("count", [2, 3])
def test_no_test_image_is_left_and_the_held_out_classes_are_val(count):
    glyphs = load_glyphs()
    train_names = {n for n, split in zip(glyphs.names, glyphs.split, strict=True) if split == "train"}
    held = []
    for number in range(1, count + 1):
        found = with_fold(glyphs, f"{number}/{count}")
        assert set(found.names) == train_names and found.splits == ("train", "val")
        parts = [set(found.select(split).label.tolist()) for split in ("train", "val")]
        assert not parts[0] & parts[1]
        held.append(parts[1])
    assert not held[0] & held[1] and len(set().union(*held)) == sum(map(len, held))
    assert with_fold(glyphs, None) is glyphs


def test_copies_of_a_held_out_class_are_neither_trained_on_nor_judged():
    made = table(8, 0)
    copied = replace(made, copies=torch.arange(len(made)) % 2 == 1)  # the second image of each class
    plain, found = with_fold(made, "1/3"), with_fold(copied, "1/3")
    for split, left_out in (("train", 0), ("val", 1)):
        names, expected = found.select(split).names, plain.select(split).names
        assert names == tuple(name for name in expected if not (left_out and int(name[1:]) % 2))
    with pytest.raises(ValueError, match=r"bool \[80\]; got torch.int64 \[80\]"):
        replace(made, copies=made.label)


def test_the_queries_and_the_gallery_of_a_test_are_not_those_of_a_fold():
    made = table(8, 0)
    roles = tuple("query" if split == "test" else "" for split in made.split)
    made = replace(made, role=roles, protocol="query_gallery")
    assert with_fold(made, "1/2").protocol == "leave_one_out"


@pytest.mark.parametrize(
    ("fold", "message"),
    [
        ("0/3", "fold must be like 1/3, the first of three folds; got '0/3'"),
        ("4/3", "got '4/3'"),
        ("1", "got '1'"),
        ("1/1", "folds of the training classes: their number and must be an integer >= 2; got 1"),
        ("1/16", "16 folds need at least 32 training classes, two in each; made has 30"),
    ],
)
def test_a_fold_that_does_not_exist_is_refused(fold, message):
    with pytest.raises(ValueError) as error:
        with_fold(table(8, 0), fold)
    assert message in str(error.value)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


def test_a_run_of_a_fold_is_evaluated_on_it_and_its_page_shows_it(photos, tmp_path):
    words = ("trainer.max_epochs=1", "sampler.batches_per_epoch=1", "sampler.classes_per_batch=2")
    run = train(*small(photos, *words, "fold=2/2", "evaluation.split=val", f"out={tmp_path / 'run'}"))
    assert read_json(run.facts)["data"]["images"] == 25 and load(run.config).fold == "2/2"
    page = write_report(tmp_path / "page.html", [read_run(run)]).read_text()
    assert "No pictures" not in page and "fold 2/2 held out" not in run.config.read_text()
    with pytest.raises(ValueError, match="no images of split 'test'"):
        train(*small(photos, *words, "fold=2/2", f"out={tmp_path / 'other'}"))


def test_a_lean_run_leaves_numbers_alone_and_those_of_a_whole_one(photos, tmp_path):
    words = ("trainer.max_epochs=1", "sampler.batches_per_epoch=2", "health=false", "loggers=[]")
    whole = train(*small(photos, *words, f"out={tmp_path / 'whole'}"))
    lean = train(*small(photos, *words, "lean=true", f"out={tmp_path / 'lean'}"))
    assert lean.read_values() == whole.read_values() and lean.finished
    names = {path.name for path in lean.folder.iterdir()}
    assert names == {"config.yaml", "facts.json", "after.json", "checksums.sha256"}
