"""Runs of detectors of somebody else: no command runs code from what it reads, and each says what it refuses."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hostile import Touch, changed, fuzz, refused, system_call
from kept_detectors import copied
from voc_trees import shapes


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that only code from a foreign file would make."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


def test_settings_that_would_run_something_are_refused(capsys, tmp_path, canary):
    for name in ("detector", "detector-interrupted"):
        run = copied(name, tmp_path / name)
        changed(run, lambda config: config["loss"].update(system_call(canary)))
        commands = [["detect", "train", f"resume={run}"]] + (
            [["detect", "evaluate", run]] if name == "detector" else []
        )
        for words in commands:
            assert "loss._target_ is 'os.system', which is no loss of rankgrad" in refused(capsys, *words)


def test_pickles_in_the_place_of_weights_are_not_opened(capsys, tmp_path, canary):
    run, voc, out = copied("detector", tmp_path / "detector"), shapes(tmp_path / "voc"), f"out={tmp_path / 'out'}"
    torch.save({"state_dict": Touch(canary)}, tmp_path / "evil.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Touch(canary)))
    for evil in (tmp_path / "evil.pt", tmp_path / "plain.pt"):
        shutil.copy(evil, run / "model.pt")
        train = ["detect", "train", f"data.root={voc}", out]
        for words in (
            ["detect", "evaluate", run],
            [*train, f"init={run}"],
            [*train, "model=faster_rcnn", f"model.weights={evil}"],
        ):
            assert "is not a weights file that can be read safely" in refused(capsys, *words)
    assert not (tmp_path / "out").exists()


# What is damaged of a run, the command that reads it, and whether a checksum finds every damage of its content.
FUZZED = [
    ("model.pt", "detect evaluate RUN", True),
    ("config.yaml", "detect evaluate RUN", False),
    ("config.yaml", "detect train resume=RUN", False),
    ("metrics.json", "detect train resume=RUN", False),
    ("metrics.json", "report RUN -o TMP/page.html", False),
]


@pytest.mark.slow
@pytest.mark.parametrize("times", [6, 200])
def test_damaged_files_end_in_one_line(tmp_path, times):
    run = copied("detector", tmp_path / "run", shapes(tmp_path / "voc"))
    fuzz({"RUN": run, "TMP": tmp_path}, FUZZED, times)
