"""Omniglot: its protocol, its files, its turned and its few classes; and what is made of real drawings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from html_pages import Page
from marks import slow
from PIL import Image
from torch.nn import functional as F

from rankgrad.evaluation import METRICS, evaluate
from rankgrad_papers.datasets import load_omniglot
from rankgrad_workbench.datasets.folds import with_fold
from rankgrad_workbench.models.convnet import convnet
from rankgrad_workbench.models.embedding_model import extract_features, parameter_groups
from rankgrad_workbench.report.writing import write_report
from rankgrad_workbench.tasks.retrieval.page import Content, Pictures, Space

DATA = os.environ.get("RANKGRAD_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="RANKGRAD_DATA names no folder with omniglot/")


@needs_data
def test_omniglot_has_the_counts_of_its_protocol():
    table = load_omniglot(Path(DATA, "omniglot"))
    train, test = table.select("train"), table.select("test")
    assert (len(train), len(test)) == (2720, 2120) and len(table.class_names) == 242
    assert (len(train.label.unique()), len(test.label.unique())) == (136, 106)
    assert not set(train.label.tolist()) & set(test.label.tolist())
    assert {table.super_names[i] for i in test.super_label.unique().tolist()} == {
        "Japanese_(katakana)",
        "Sanskrit",
        "Tagalog",
    }


@needs_data
@pytest.mark.slow
def test_omniglot_agrees_with_the_columns_of_the_packed_file():
    table = load_omniglot(Path(DATA, "omniglot", "omniglot_small.npz"), size=105)
    with np.load(Path(DATA, "omniglot", "omniglot_small.npz")) as packed:
        assert np.array_equal(table.label.numpy(), packed["label"])
        assert list(table.class_names) == packed["class_names"].tolist()
        assert np.array_equal(table.super_label.numpy(), packed["superlabel"])
        assert [split == "test" for split in table.split] == packed["is_test"].tolist()
        ink = np.unpackbits(packed["images"], axis=1)[:, : 105 * 105]
        assert np.array_equal(table.images.flatten(1).numpy(), ink * 255)
    pooled = F.adaptive_avg_pool2d(torch.from_numpy(ink[::100].reshape(-1, 1, 105, 105)).float(), 28)
    small = load_omniglot(Path(DATA, "omniglot")).images[::100].float() / 255
    torch.testing.assert_close(small, pooled, rtol=0, atol=0.5 / 255 + 1e-6)


@needs_data
@pytest.mark.parametrize(("holdout", "turns"), [("latin", 1), *slow(("latin4", 4))])
def test_the_latin_holdouts_leave_latin_out_of_training_and_have_no_test_alphabet(holdout, turns):
    whole, table = load_omniglot(Path(DATA, "omniglot")), load_omniglot(Path(DATA, "omniglot"), holdout=holdout)
    assert table.splits == ("train", "val")
    train, val = table.select("train"), table.select("val")
    assert (len(train), len(train.label.unique())) == (2200, 110)
    assert (len(val), len(val.label.unique())) == (520 * turns, 26 * turns)
    assert table.label.unique().tolist() == list(range(110 + 26 * turns))
    assert not any(name.startswith("Latin") for name in train.names)
    assert all(name.startswith("Latin/") for name in val.names)
    latin = whole.images[whole.super_label == whole.super_names.index("Latin")]
    for turn in range(turns):
        part = val.images[520 * turn : 520 * (turn + 1)]
        assert torch.equal(part, latin.rot90(turn, (2, 3)))
        assert val.names[520 * turn].endswith(f"turned {90 * turn}" if turn else ".png")
    assert (torch.bincount(val.label)[110:] == 20).all()


@needs_data
@pytest.mark.slow
def test_any_alphabets_can_be_the_test_set_and_the_others_are_trained_on():
    table = load_omniglot(Path(DATA, "omniglot"), test_alphabets=["Greek", "Latin"])
    assert {name.partition("/")[0] for name in table.select("test").names} == {"Greek", "Latin"}
    assert {name.partition("/")[0] for name in table.select("train").names} == {*table.super_names} - {"Greek", "Latin"}
    for wrong in (["Elvish"], "Greek", table.super_names):
        with pytest.raises(ValueError, match="Balinese"):
            load_omniglot(Path(DATA, "omniglot"), test_alphabets=wrong)


def test_omniglot_reads_the_official_archives(tmp_path):
    drawings = {}
    contents = (["Latin/character01", "Greek/character02"], ["Latin/character01", "Sanskrit/character01"])
    for number, classes in enumerate(contents, start=1):
        root = f"images_background_small{number}"
        with ZipFile(tmp_path / f"{root}.zip", "w") as archive:
            archive.writestr(f"__MACOSX/{root}/Latin/character01/._0001_01.png", b"")
            archive.writestr(f"{root}/", b"")
            for folder in classes:
                for drawer in (1, 2):
                    name = f"{folder}/0001_{drawer:02}.png"
                    ink = np.random.RandomState(len(folder) + drawer).rand(105, 105) > 0.8
                    drawings[name] = ink
                    Image.fromarray(~ink).save(tmp_path / "one.png")  # ink is black in the archives
                    archive.write(tmp_path / "one.png", f"{root}/{name}")
    table = load_omniglot(tmp_path, size=105)
    assert table.names == tuple(sorted(drawings))  # the class in both archives counts once
    assert table.class_names == ("Greek/character02", "Latin/character01", "Sanskrit/character01")
    assert table.split == ("train",) * 4 + ("test",) * 2
    for name, image in zip(table.names, table.images, strict=True):
        assert np.array_equal(image[0].numpy(), drawings[name] * 255)


def test_omniglot_says_which_file_it_looked_for_and_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_omniglot(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere" / "omniglot_small.npz") in str(caught.value)
    assert "github.com/brendenlake/omniglot" in str(caught.value)
    np.savez(tmp_path / "omniglot_small.npz", images=np.zeros(1))
    with pytest.raises(ValueError, match="'images', 'label', .*; it has images"):
        load_omniglot(tmp_path)
    with pytest.raises(ValueError, match="size must be 1 .. 105"):
        load_omniglot(tmp_path, size=0)
    with pytest.raises(ValueError, match="holdout must be"):
        load_omniglot(tmp_path, holdout="greek")


@needs_data
@pytest.mark.slow
def test_a_long_tail_leaves_training_classes_20_images_down_to_1_and_the_test_as_it_is():
    whole, cut = (load_omniglot(Path(DATA, "omniglot"), long_tail=cut) for cut in (False, True))
    assert torch.equal(cut.select("test").images, whole.select("test").images)
    counts = torch.unique(cut.select("train").label, return_counts=True)[1].sort().values
    assert len(counts) == 136 and counts[0] == 1 and counts[-1] == 20
    assert 6 < counts.double().mean() < 7 and (counts < 4).double().mean() > 0.4
    assert set(cut.names) < set(whole.names)
    turned = load_omniglot(Path(DATA, "omniglot"), long_tail=True, turns=4)
    assert len(turned.select("train")) == 4 * len(cut.select("train"))


@needs_data
@pytest.mark.slow
def test_turned_training_classes_are_classes_of_their_own_and_the_test_stays_as_it_is():
    root = Path(DATA or "", "omniglot")
    drawn, turned = load_omniglot(root), load_omniglot(root, turns=4)
    train, test = turned.select("train"), turned.select("test")
    assert len(train) == 4 * 2720 and len(torch.unique(train.label)) == 4 * 136
    assert torch.equal(test.images, drawn.select("test").images) and torch.equal(test.label, drawn.select("test").label)
    row = train.names.index(drawn.select("train").names[5] + " turned 90")
    assert torch.equal(train.images[row], drawn.select("train").images[5].rot90(1, (1, 2)))
    with pytest.raises(ValueError, match="turns must be 1 or 4"):
        load_omniglot(root, turns=2)


@needs_data
@pytest.mark.slow
def test_letters_of_a_fold_stand_upright_as_those_of_the_test_and_the_others_are_turned():
    root = Path(DATA or "", "omniglot")
    upright, turned = (with_fold(load_omniglot(root, turns=turns), "1/3") for turns in (1, 4))
    assert turned.select("val").names == upright.select("val").names
    assert torch.equal(turned.select("val").images, upright.select("val").images)
    assert len(turned.select("train")) == 4 * len(upright.select("train"))


# --- real drawings ---------------------------------------------------------------------------------------------------


@needs_data
def test_raw_pixels_of_the_test_alphabets_give_the_published_anchor():
    table = load_omniglot(Path(DATA, "omniglot")).select("test")
    pixels = table.images.float().flatten(1) / 255
    report = evaluate(pixels, table.label, metrics=[*METRICS, "NMI"], super_labels=table.super_label, intervals=100)
    anchor = {"R@1": 34.2, "R@2": 45.6, "R@4": 57.3, "R@8": 68.4, "mAP@R": 5.9, "AP": 8.5}
    for name, value in anchor.items():  # the anchors were rounded twice
        assert 100 * report.values[name] == pytest.approx(value, abs=0.06), name
    assert 100 * report.values["NMI"] == pytest.approx(48.9, abs=1.0)  # another k-means start
    assert report.counts["classes"] == 106 and len(report.per_super_label) == 3 and not len(report.without_relevant)


@needs_data
@pytest.mark.slow
def test_network_tells_real_characters_apart_after_seconds_of_training():
    table = load_omniglot(Path(DATA, "omniglot"))
    rows = table.label < 10
    x, labels = table.images[rows].float() / 255, table.label[rows]
    model = convnet(widths=(8, 16, 32, 32), embedding_size=10)
    optimizer = torch.optim.AdamW(parameter_groups(model, 1e-2))
    for _ in range(25):
        value = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    batches = zip(x.split(64), labels.split(64), strict=True)
    features = extract_features(model, batches)
    unit = F.normalize(features, dim=1)
    scores = (unit @ unit.T).fill_diagonal_(-2)
    assert (labels[scores.argmax(1)] == labels).float().mean() > 0.5  # chance is .1; rounding moves it between .8 and 1


@needs_data
@pytest.mark.slow
def test_report_of_real_drawings_stays_under_two_megabytes(tmp_path):
    table = load_omniglot(Path(DATA, "omniglot")).select("test")
    pixels = table.images.float().flatten(1) / 255
    table = replace(table, images=255 - table.images)  # ink is black on the page
    of = Space(F.normalize(pixels), table.label, table.names, table.class_names)
    names = dict(enumerate(table.class_names))
    after = evaluate(pixels, table.label, class_names=names, intervals=20)
    page = Page(
        write_report(tmp_path / "report.html", [Content("pixels", after=after, space=of, pictures=Pictures(table))])
    )
    assert len(page.source) < 2_000_000 and 60 < len(page.all("details", class_="query")) <= 84
    assert "34.2" in page.text  # R@1 of raw pixels in this protocol, published with the data's anchors
