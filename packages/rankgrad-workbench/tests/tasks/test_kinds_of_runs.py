"""Every kind of run is in each of the places that docs/design.md lists."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import rankgrad_workbench
from rankgrad_workbench.cli import main
from rankgrad_workbench.settings.kinds import TASKS

ROOT = Path(rankgrad_workbench.__file__).parent


@pytest.mark.parametrize("name", TASKS)
def test_a_kind_of_run_is_in_each_of_its_places(name):
    row = TASKS[name]
    assert (ROOT / "tasks" / name / "settings.py").is_file()
    assert row.trains == f"rankgrad_workbench.tasks.{name}.task" and row.reads.startswith(
        f"rankgrad_workbench.tasks.{name}.page"
    )
    trains = import_module(row.trains)
    assert all(callable(getattr(trains, each)) for each in ("build", "train", "check_data", "summary"))
    assert trains.TASK.kind == name and trains.TASK.make is trains.build
    assert callable(import_module(row.reads).read)
    place = f"{row.settings}.yaml" if name == "retrieval" else f"{row.settings}/{row.settings}.yaml"
    made = OmegaConf.load(ROOT / "settings" / "files" / place)
    assert made.get("task", "retrieval") == name


def test_the_help_of_train_has_the_groups_of_each_kind_that_it_trains(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = capsys.readouterr().out
    others = [name for name, row in TASKS.items() if row.command == "train" and name != "retrieval"]
    assert len(others) == 2 and all(f"train task={name} --cfg" in told for name in others)
