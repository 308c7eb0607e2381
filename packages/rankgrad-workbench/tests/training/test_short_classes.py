"""Runs on data with classes that have fewer images than a batch asks of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from marks import slow_unless
from small_runs import cut_off, make_photos, same_results, small, train

from rankgrad_workbench.settings import compose

pytestmark = pytest.mark.usefixtures("no_page")


@pytest.fixture(scope="module")
def tail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training classes of 1 to 6 images."""
    root = tmp_path_factory.mktemp("tail")
    make_photos(root / "train", classes=8, per_class=6)
    make_photos(root / "test", classes=4, per_class=4)
    for number, count in enumerate((1, 2, 2, 3, 4, 5, 6, 6)):
        for image in sorted((root / "train" / f"class {number}").iterdir())[count:]:
            image.unlink()
    return root


def settings(tail: Path, out: Path, *more: str) -> list[str]:
    return small(tail, f"out={out}", "sampler.samples_per_class=4", *more)


@pytest.mark.parametrize("loss", slow_unless({"rambo_recall"}, ["roadmap", "pnp", "rambo_recall", "cross_entropy"]))
@pytest.mark.parametrize("mode", ["repeat", "fewer"])
def test_a_run_uses_every_class(tail, tmp_path, mode, loss):
    run = train(*settings(tail, tmp_path / "run", f"sampler.short_classes={mode}", f"loss={loss}"))
    assert run.finished


@pytest.mark.parametrize("mode", slow_unless({"fewer"}, ["repeat", "fewer"]))
def test_a_run_with_short_classes_and_a_memory_resumes_exactly(tail, tmp_path, mode):
    more = (f"sampler.short_classes={mode}", "memory=sum", "memory.warmup=0", "memory.size=20")
    train(*settings(tail, tmp_path / "whole", *more))
    cut_off(settings(tail, tmp_path / "cut", *more), writes=4)
    train(f"resume={tmp_path / 'cut'}")
    assert same_results(tmp_path / "whole", tmp_path / "cut")


def test_a_run_brings_all_images_of_a_class_and_drops_none(tail, tmp_path):
    run = train(*settings(tail, tmp_path / "run", "sampler.samples_per_class=all", "loss=smooth_ap"))
    assert run.finished


def test_small_classes_that_are_dropped_are_announced(tail, tmp_path, capsys):
    train(*settings(tail, tmp_path / "run", "sampler.short_classes=drop"))
    assert "4 of 8 classes (8 of 29 rows) have fewer than sampler.samples_per_class=4" in capsys.readouterr().out


def test_a_word_that_is_no_number_of_samples_is_refused(tail, tmp_path):
    with pytest.raises(ValueError, match="counts rows, or is \"all\", .*; got 'some'"):
        train(*settings(tail, tmp_path / "run", "sampler.samples_per_class=some"))
    assert compose(["sampler.samples_per_class=all"]).sampler.samples_per_class == "all"


@pytest.mark.parametrize(
    "wrong", ["sampler.classes_per_batch=0", "sampler.short_classes=keep", "sampler.pair_order=up"]
)
def test_settings_of_the_batches_are_checked_before_any_file_is_read(tmp_path, wrong):
    with pytest.raises(ValueError, match=wrong.split(".")[1].split("=")[0]):
        train("data=folder", f"data.root={tmp_path / 'nowhere'}", f"out={tmp_path / 'run'}", wrong)
    assert not (tmp_path / "run").exists()
