"""A detector that is killed at any moment, and resumed, ends as one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_runs import EVERY_STEP, Killed, same
from small_detectors import settings
from voc_trees import shapes

from rankgrad_detection.run import train
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import compose

pytestmark = pytest.mark.slow


def go(settings: list[str]) -> Run:
    return train(compose(settings, "detect"), quiet=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    voc = shapes(tmp_path_factory.mktemp("voc"))
    given = settings(voc, "loss=ap", "ranking.warmup=1", "evaluation.every=1")
    return Killed(go, [*given, EVERY_STEP], ["data.root=."])


@pytest.fixture(scope="module")
def whole(killed, tmp_path_factory) -> Run:
    return go([*killed.settings, f"out={tmp_path_factory.mktemp('whole') / 'run'}"])


def test_a_detector_survives_many_kills(killed, whole, tmp_path):
    hit, seed = 0, 0
    while hit < 18:
        hit += killed.at_random(tmp_path / str(seed), kills=6, seed=seed)
        same(Run(tmp_path / str(seed)), whole)
        seed += 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_detector_killed_at_every_rename_and_flush_ends_like_a_whole_one(
    killed, whole, tmp_path: Path, name: str, after: bool
):
    killed.at_every_call(name, after, tmp_path, whole)
