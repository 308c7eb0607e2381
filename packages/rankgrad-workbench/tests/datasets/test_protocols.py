"""What is asked against what: leave one out, query and gallery, drawn galleries. Boxes that images are cut to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from rankgrad.evaluation import evaluate
from rankgrad_workbench.datasets import Table, over_draws, read_image, trials


def some_table(protocol: str, label: list[int], role: tuple[str, ...] | None = None) -> Table:
    rows = len(label)
    return Table(
        "some",
        torch.tensor(label),
        tuple(map(str, range(max(label) + 1))),
        ("test",) * rows,
        tuple(map(str, range(rows))),
        channels=1,
        images=torch.zeros(rows, 1, 2, 2, dtype=torch.uint8),
        protocol=protocol,
        role=role,
    )


def test_leave_one_out_asks_every_image_against_all_others():
    (trial,) = trials(some_table("leave_one_out", [0, 1, 0]))
    assert trial.query.tolist() == [0, 1, 2] and trial.gallery is None


def test_query_gallery_is_the_division_that_came_with_the_data():
    table = some_table("query_gallery", [0, 1, 0, 1], ("query", "gallery", "gallery", "query"))
    (trial,) = trials(table)
    assert trial.query.tolist() == [0, 3] and trial.gallery.tolist() == [1, 2]
    with pytest.raises(ValueError, match="needs queries and a gallery .* 0 and 2 images"):
        trials(table.take([1, 2]))


def test_one_gallery_has_one_image_of_each_class_and_asks_all_others():
    label = [3, 0, 0, 1, 3, 3, 1, 0, 2]
    found = trials(some_table("one_gallery", label), draws=7, seed=5)
    assert len(found) == 7
    for trial in found:
        assert sorted(trial.query.tolist() + trial.gallery.tolist()) == list(range(9))
        assert sorted(label[row] for row in trial.gallery) == [0, 1, 2, 3]
        assert trial.query.tolist() == sorted(trial.query) and trial.gallery.tolist() == sorted(trial.gallery)
    assert len({tuple(trial.gallery.tolist()) for trial in found}) > 1


def test_draws_come_again_with_the_seed_and_do_not_depend_on_how_many_there_are():
    table = some_table("one_gallery", [0, 1, 2, 3, 4] * 6)
    state = torch.get_rng_state()
    galleries = [
        [trial.gallery.tolist() for trial in trials(table, draws, seed)] for draws, seed in ((10, 0), (3, 0), (3, 1))
    ]
    assert galleries[0][:3] == galleries[1] != galleries[2]
    assert len(trials(table)) == 10 and torch.equal(torch.get_rng_state(), state)


def test_every_image_of_a_class_is_drawn_as_often_as_the_others():
    counts = np.zeros(7)
    for trial in trials(some_table("one_gallery", [0, 0, 0, 0, 1, 1, 1]), draws=600):
        counts[trial.gallery.numpy()] += 1
    expected = np.array([150.0] * 4 + [200.0] * 3)
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws must be >= 1 and seed >= 0; got 0 and 0"),
        ({"seed": -1}, "draws must be >= 1 and seed >= 0; got 10 and -1"),
    ],
)
def test_draws_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        trials(some_table("one_gallery", [0, 0, 1]), **options)


def test_classes_of_one_image_alone_leave_no_queries():
    with pytest.raises(ValueError, match="some has only one image of each class"):
        trials(some_table("one_gallery", [0, 1, 2]))


def test_a_result_is_the_mean_over_the_draws_with_its_spread():
    found = over_draws([{"R@1": 0.5, "AP": 0.25}, {"R@1": 1.0, "AP": 0.25}, {"R@1": 0.75, "AP": 0.25}])
    assert found == {"R@1": (0.75, 0.25), "AP": (0.25, 0.0)}
    assert over_draws([{"R@1": 0.5}]) == {"R@1": (0.5, 0.0)}


@pytest.mark.parametrize("protocol", ["query_gallery", "one_gallery"])
def test_the_rows_of_a_trial_make_the_report_that_loops_make(protocol):
    g = torch.Generator().manual_seed(3)
    label = torch.arange(30).remainder(6)
    embeddings = F.normalize(torch.randn(30, 4, generator=g, dtype=torch.float64) + F.one_hot(label, 6)[:, :4])
    role = tuple("query" if row % 5 == 0 or row % 7 == 0 else "gallery" for row in range(30))
    table = some_table(protocol, label.tolist(), role if protocol == "query_gallery" else None)
    for trial in trials(table, draws=3):
        report = evaluate(
            embeddings[trial.query],
            label[trial.query],
            ref_embeddings=embeddings[trial.gallery],
            ref_labels=label[trial.gallery],
            intervals=0,
        )
        hits = {1: [], 2: []}
        for row in trial.query.tolist():
            ranked = sorted(trial.gallery.tolist(), key=lambda item: -float(embeddings[row] @ embeddings[item]))
            for k in hits:
                hits[k].append(any(label[item] == label[row] for item in ranked[:k]))
        for k, found in hits.items():
            assert report.values[f"R@{k}"] == pytest.approx(np.mean(found), abs=1e-12)
        assert report.settings["protocol"] == "query-gallery" and report.counts["gallery"] == len(trial.gallery)


# --- boxes -----------------------------------------------------------------------------------------------------------


def test_a_box_cuts_out_its_pixels_rounded_and_cut_off_at_the_border(tmp_path):
    path = tmp_path / "a.jpg"
    pixels = np.random.RandomState(0).randint(0, 256, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    whole = read_image(path, 3)
    for box, (rows, columns) in {
        (2.0, 3.0, 12.0, 11.0): (slice(3, 11), slice(2, 12)),
        (-4.0, 5.0, 8.0, 45.0): (slice(5, 16), slice(0, 8)),
        (1.6, 2.4, 300.0, 9.7): (slice(2, 10), slice(2, 24)),
    }.items():
        assert torch.equal(read_image(path, 3, box=box), whole[:, rows, columns])
        small = read_image(path, 3, shorter_side=4, box=box)
        assert min(small.shape[1:]) == 4
    for outside in ((24.0, 0.0, 30.0, 9.0), (3.0, -9.0, 9.0, 0.2)):
        with pytest.raises(OSError, match="a.jpg: its box .* 24 x 16"):
            read_image(path, 3, box=outside)


def test_a_box_is_of_the_upright_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    pixels = np.arange(32, dtype=np.uint8)[None].repeat(16, 0) * 8
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    shown = read_image(tmp_path / "turned.png", 1)
    assert shown.shape == (1, 32, 16)
    box = (0.0, 20.0, 16.0, 32.0)
    assert torch.equal(read_image(tmp_path / "turned.png", 1, box=box), shown[:, 20:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": torch.zeros(2, 3)}, r"box must be numbers \[2, 4\]; got torch.float32 \[2, 3\]"),
        ({"role": ("query",)}, r"role needs one entry per image \(2\); got 1"),
        ({"role": ("query", "probe")}, r"role must be one of .*; got \['probe'\]"),
        ({"protocol": "leave-one-out"}, "protocol must be 'leave_one_out'"),
        ({"protocol": "query_gallery"}, "queries .* of the images: give role="),
    ],
)
def test_boxes_roles_and_protocols_that_do_not_fit_are_named(change, message):
    columns = {"label": torch.tensor([0, 1]), "class_names": ("a", "b"), "split": ("test",) * 2, "names": ("x", "y")}
    with pytest.raises(ValueError, match=message):
        Table("two", **columns, channels=3, paths=(Path("x"), Path("y")), **change)


def test_images_in_memory_have_no_boxes():
    with pytest.raises(ValueError, match="box needs images as files"):
        Table("one", torch.tensor([0]), ("a",), ("test",), ("x",), 1, torch.zeros(1, 1, 2, 2, dtype=torch.uint8),
              box=torch.tensor([[0.0, 0.0, 1.0, 1.0]]))  # fmt: skip
