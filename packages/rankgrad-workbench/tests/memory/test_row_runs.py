"""The memory of score rows: against rows put together by hand, against the loss without a memory, and misuse."""

from __future__ import annotations

import math

import pytest
from marks import slow_unless
from small_runs import make_photos, small, train

from rankgrad_workbench.settings import ConfigError


@pytest.mark.parametrize("loss", slow_unless({"smooth_ap+supap"}, ["rambo_recall", "smooth_ap+supap"]))
def test_a_run_trains_with_it_and_resumes(tmp_path, loss):
    photos = make_photos(tmp_path / "photos")
    run = train(*small(photos, f"loss={loss}", "memory=rows", "memory.batches=2", f"out={tmp_path / 'run'}"))
    assert run.finished and math.isfinite(run.read_values()["R@1"])


def test_a_run_says_which_loss_has_no_rows(tmp_path):
    photos = make_photos(tmp_path / "photos")
    with pytest.raises(ConfigError, match="memory: .*takes rows of scores.*got CrossEntropyLoss"):
        train(*small(photos, "loss=cross_entropy", "memory=rows", f"out={tmp_path / 'run'}"))
