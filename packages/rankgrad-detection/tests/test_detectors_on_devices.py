"""Whole runs of detectors on a device that is only pretended, and on a GPU where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_runs import begins_as_on_the_cpu
from pretended_training import training_there
from small_detectors import settings
from voc_trees import shapes

from rankgrad_detection import run as detectors
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("voc"))


@pytest.mark.slow
def test_a_run_there_ends_as_one_on_the_cpu(voc, tmp_path, monkeypatch):
    def train(out: Path) -> Run:
        given = settings(voc, "loss=ap", "ranking.warmup=3", f"out={out}")
        return detectors.train(compose(given, "detect"), quiet=True)

    here = train(tmp_path / "cpu")
    with training_there(monkeypatch):
        run = train(tmp_path / "there")
    assert run.read_values() == pytest.approx(here.read_values(), rel=1e-5)


def test_a_run_on_a_gpu_begins_as_on_the_cpu_and_goes_on_after_its_end(voc, gpu, tmp_path):
    begins_as_on_the_cpu(detectors.train, ["detect", "train"], settings(voc, "checkpoint_minutes=0"), tmp_path)
