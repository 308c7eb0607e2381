"""Wrong labels on purpose: how many, which, the same each time, and only in training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_runs import make_photos, small, train

from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.datasets.folds import flip_labels, with_wrong_labels
from rankgrad_workbench.runs.compare import own_settings
from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.retrieval.building import load_table
from rankgrad_workbench.tasks.retrieval.settings import settings_of

pytestmark = pytest.mark.usefixtures("no_page")

LABELS = torch.arange(5).repeat_interleave(40)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.4, 1.0])
def test_just_this_share_is_wrong_and_a_larger_one_keeps_the_smaller(share):
    found = flip_labels(LABELS, share, seed=3)
    assert int((found != LABELS).sum()) == round(share * 200)
    half = flip_labels(LABELS, share / 2, seed=3)
    wrong = half != LABELS
    assert torch.equal(found[wrong], half[wrong])
    assert not torch.equal(found, flip_labels(LABELS, share, seed=4))


def test_every_other_class_is_drawn_alike():
    labels = torch.zeros(6000, dtype=torch.long)
    labels[-3:] = torch.tensor([2, 5, 9])  # classes in use need not be counted from 0 without a gap
    counts = torch.bincount(flip_labels(labels, 1.0)[:-3], minlength=10)
    assert counts[0] == 0 and counts[[1, 3, 4, 6, 7, 8]].sum() == 0
    assert (counts[[2, 5, 9]] - 1999).abs().max() < 150


@pytest.mark.parametrize(
    ("share", "message"), [(1.2, "label_noise"), (-0.1, "label_noise"), (float("nan"), "label_noise")]
)
def test_a_share_that_is_none_is_refused(share, message):
    with pytest.raises(ValueError, match=message):
        flip_labels(LABELS, share)


def test_one_class_has_no_other_label():
    assert torch.equal(flip_labels(LABELS * 0, 0.0), LABELS * 0)
    with pytest.raises(ValueError, match="two classes or more"):
        flip_labels(LABELS * 0, 0.5)


def test_the_test_keeps_its_labels_and_a_super_label_follows_its_class():
    rows = len(LABELS)
    split = tuple("train" if label < 3 else "test" for label in LABELS.tolist())
    table = Table("t", LABELS, tuple("abcde"), split, tuple(map(str, range(rows))), channels=1,
                  images=torch.zeros(rows, 1, 8, 8, dtype=torch.uint8))  # fmt: skip
    table = replace(table, super_label=(LABELS > 1).long(), super_names=("x", "y"))
    found = with_wrong_labels(table, 0.5)
    assert torch.equal(found.label[120:], LABELS[120:]) and int((found.label != LABELS).sum()) == 60
    assert found.label[:120].max() == 2 and torch.equal(found.super_label, (found.label > 1).long())
    assert "50% of labels wrong" in found.name and with_wrong_labels(table, 0.0) is table


def test_a_variant_of_a_comparison_can_have_its_own_share():
    assert own_settings("supap:tau=0.02+label_noise=0.2+optimizer.lr=1", [], "train") == [
        *("loss=supap", "loss.tau=0.02", "label_noise=0.2", "optimizer.lr=1"),
    ]


def test_a_run_trains_on_the_wrong_labels_of_its_seed(tmp_path):
    photos = make_photos(tmp_path / "photos")
    words = small(photos, "label_noise=0.5", "seed=7")
    tables = [load_table(settings_of(compose(each))) for each in (words, words, small(photos, "seed=7"))]
    assert torch.equal(tables[0].label, tables[1].label) and not torch.equal(tables[0].label, tables[2].label)
    assert train(*words, f"out={tmp_path / 'run'}").finished
