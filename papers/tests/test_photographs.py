"""Photographs of 64 pixels: their folders and archives, what is held out, their stand-in, and their studies."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rankgrad.batches.samplers import class_batches
from rankgrad_papers.datasets import load_photographs
from rankgrad_papers.experiments import standin
from rankgrad_papers.studies import photographs, pretraining
from rankgrad_workbench.datasets.folds import folds, with_fold
from rankgrad_workbench.settings import compose

CLASSES = (  # folder, split, group, words
    *(
        ("n1", "train", "cats", '"tabby, tabby cat"'),
        ("n2", "train", "cats", "cougar"),
        ("n3", "train", "birds", "goose"),
    ),
    *(("n4", "train", "fish", "goldfish"), ("n5", "test", "birds", "penguin"), ("n6", "test", "cats", "lion")),
    *(("n7", "pretrain", "", "abacus"), ("n8", "pretrain", "", "altar")),
)


def photos(root: Path, side: int = 64) -> Path:
    """Two images of each animal, twelve of each thing; the shade says which class."""
    lines = ["folder,split,group,words"]
    for shade, (folder, split, group, words) in enumerate(CLASSES):
        lines.append(f"{folder},{split},{group},{words}")
        (root / split / folder).mkdir(parents=True)
        for number in range(12 if split == "pretrain" else 2):
            image = Image.fromarray(np.full((side, side), 20 * shade, np.uint8))  # grey files are read as RGB
            image.save(root / split / folder / f"{folder}_{number}.jpg")
    (root / "classes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root


def test_animals_have_the_split_of_their_folder_and_their_group_as_super_label(tmp_path):
    table = load_photographs(photos(tmp_path))
    assert len(table) == 12 and table.images.shape == (12, 3, 64, 64)
    assert table.class_names == ("tabby", "cougar", "goose", "goldfish", "penguin", "lion")
    for row, label in enumerate(table.label.tolist()):
        folder, split, group, _ = CLASSES[label]
        assert table.names[row].split("/")[:2] == [split, folder] and table.split[row] == split
        assert table.super_names[table.super_label[row]] == group
        assert abs(float(table.images[row].float().mean()) - 20 * label) < 2


def test_one_image_of_ten_is_held_out_of_the_classes_to_pretrain_on(tmp_path):
    table = load_photographs(photos(tmp_path), part="pretrain")
    assert table.class_names == ("abacus", "altar") and table.super_label is None
    test = [name for name, split in zip(table.names, table.split, strict=True) if split == "test"]
    assert test == ["pretrain/n7/n7_9.jpg", "pretrain/n8/n8_9.jpg"] and len(table) == 24


def test_an_archive_is_read_as_what_it_unpacks_to(tmp_path):
    apart = load_photographs(photos(tmp_path))
    with tarfile.open(tmp_path / "animals.tar", "w") as archive:
        for name in reversed(("train", "test")):
            archive.add(tmp_path / name, name)
    (tmp_path / "train").rename(tmp_path / "elsewhere")
    packed = load_photographs(tmp_path)
    assert packed.names == apart.names and torch.equal(packed.images, apart.images)
    assert torch.equal(packed.label, apart.label) and packed.split == apart.split


def test_folds_of_the_animals_share_no_class_and_hold_no_test_class(tmp_path):
    table = load_photographs(photos(tmp_path))
    parts = folds(table, 2)
    assert sorted(label for part in parts for label in part) == [0, 1, 2, 3]
    for fold in ("1/2", "2/2"):
        inside = with_fold(table, fold)
        train, val = (set(inside.select(split).label.tolist()) for split in ("train", "val"))
        assert not train & val and train | val == {0, 1, 2, 3} and "test" not in inside.splits


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no classes.csv"):
        load_photographs(tmp_path)
    photos(tmp_path / "small", side=32)
    with pytest.raises(ValueError, match=r"n5_0.jpg must have 64 x 64 .*got 32 x 32"):
        load_photographs(tmp_path / "small")
    root = photos(tmp_path / "whole")
    with pytest.raises(ValueError, match="'animals' or 'pretrain'; got 'plants'"):
        load_photographs(root, part="plants")
    (root / "train" / "n1" / "n1_0.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match="n1_0.jpg is no readable image"):
        load_photographs(root)
    (root / "train" / "n1").rename(root / "train" / "n9")
    with pytest.raises(ValueError, match="no class n9"):
        load_photographs(root)
    (root / "test").rename(root / "tests")
    with pytest.raises(FileNotFoundError, match="neither animals.tar nor train/ and test/"):
        load_photographs(root)


def test_in_the_stand_in_sides_are_scaled_to_64_pixels_and_a_batch_has_at_most_29_classes(tmp_path):
    settings = ["loss=supap", "data.size=224", "sampler.classes_per_batch=96", "sampler.samples_per_class=4"]
    found = standin.translate(settings, "photographs")
    assert found == ["loss=supap", "data.size=64", "sampler.classes_per_batch=29", "sampler.samples_per_class=4"]
    assert standin.translate(["sampler.classes_per_batch=8"], "photographs") == ["sampler.classes_per_batch=8"]
    base = standin.base("photographs", tmp_path)
    assert {"data=photographs", "recipe=finetune_photographs", f"data.root={tmp_path}"} <= set(base)


@pytest.mark.parametrize("row", photographs.ROWS)
def test_what_the_study_trains_are_settings_that_there_are(row):
    compose([*photographs.SHARED, "data.root=.", "model.weights=model.pt", *photographs.ROWS[row]])


def test_the_network_that_is_pretrained_is_the_one_that_is_fine_tuned():
    before = compose([*pretraining.SHARED, "data.root=.", *pretraining.LOSS]).model
    after = compose([*photographs.SHARED, "data.root=.", "loss=supap"]).model
    assert before.residual and list(before.widths) == list(after.widths) and before.residual == after.residual
    assert after.freeze_batch_norm and not before.freeze_batch_norm


def test_top_1_is_the_share_of_images_whose_class_has_the_highest_score(tmp_path):
    from types import SimpleNamespace

    weight = torch.eye(3)
    state = {"loss.loss.classifier.weight": weight, "loss.loss.classifier.bias": torch.zeros(3), "model.x": weight}
    torch.save({"state_dict": state, "global_step": 1}, tmp_path / "state.ckpt")
    np.savez(
        tmp_path / "x.npz", embeddings=np.float32([[2, 1, 0], [0, 1, 0], [0, 3, 1], [0, 0, 1]]), labels=[0, 1, 2, 2]
    )
    run = SimpleNamespace(embeddings=tmp_path / "x.npz", state=tmp_path / "state.ckpt")
    assert pretraining.top_1(run) == 75


@pytest.mark.parametrize("loss", ["supap", "roadmap"])
def test_batches_of_two_groups_are_as_many_and_as_large_as_the_others(loss, tmp_path):
    shared = ["data=photographs", f"data.root={tmp_path}", "recipe=finetune_photographs"]
    any_four, pairs = (compose([*shared, *photographs.ROWS[f"{loss}, 4 classes{of}"]]) for of in ("", " of two groups"))
    assert pairs.sampler.batches_per_pair == 1 and any_four.sampler.batches_per_pair is None
    pairs.sampler.batches_per_pair = None
    assert pairs == any_four
    groups = np.repeat(np.arange(5), [4, 3, 2, 1, 1])
    labels, super_labels = np.repeat(np.arange(11), 32), np.repeat(groups, 32)
    sizes = [
        [len(batch) for batch in class_batches(labels, super_labels, **{**any_four.sampler, **own})]
        for own in ({"short_classes": "fewer"}, {"short_classes": "fewer", "batches_per_pair": 1})
    ]
    assert sizes[0] == sizes[1] == [128] * 28
