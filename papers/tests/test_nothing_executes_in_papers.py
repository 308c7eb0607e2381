"""Files of somebody else: the laboratory runs no code from what it reads."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from kept_runs import copied
from small_runs import make_photos, small

from rankgrad_papers.experiments.measures import measure
from rankgrad_papers.sodeep.store import read_sorter, sorter_file
from rankgrad_papers.sodeep.training import Recipe
from rankgrad_workbench.cli import main
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError, make


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that only code from a foreign file would make."""
    path = tmp_path / "ran"
    yield path
    assert not path.exists()


class Touch:
    """What a pickle can do: anything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_in_the_place_of_a_sorter_is_not_opened(capsys, tmp_path, canary, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = io.BytesIO()
    torch.save({"weights": Touch(canary)}, memory)
    path = sorter_file(Recipe(items=8, steps=60))
    path.parent.mkdir(parents=True)
    path.write_bytes(sha256(memory.getvalue()).digest() + memory.getvalue())
    with pytest.raises(ValueError, match="wants to run .*system.*Nothing was run"):
        read_sorter(path)
    settings = small(make_photos(tmp_path / "photos"), "loss=sodeep_ap", "loss.items=8", "loss.steps=60")
    assert main(["train", *settings, f"out={tmp_path / 'out'}"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("rankgrad: ") and "can be read safely" in told


def test_a_run_whose_settings_would_run_something_is_not_measured(tmp_path, canary):
    run = Run(copied("retrieval", tmp_path / "run"))
    config = yaml.safe_load(run.config.read_text())
    config["loss"] |= {"_target_": "os.system", "command": f"touch {canary}"}
    run.config.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match="'os.system'.*; nothing was run"):
        measure(run, "minutes_per_epoch", "last")


def test_settings_may_name_what_the_laboratory_registers_and_nothing_else_of_it():
    with pytest.raises(ConfigError, match="is no loss of rankgrad"):
        make({"_target_": "rankgrad_papers.sodeep.train_sorter"}, slot="loss")
