"""A queue of trainings whose values go to a file: it continues, leaves no run, and names what failed."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from rankgrad_papers import trainings
from rankgrad_papers.trainings import Training, train_missing
from rankgrad_papers.values import append, read
from rankgrad_workbench.settings import ConfigError

ROWS = [Training(f"a/b: {row}, seed 0", {"row": row}, [f"loss={row}"], seed="0") for row in ("x", "y")]


@pytest.fixture
def trained(monkeypatch):
    """Settings of the runs that were trained; that of y fails."""
    seen = []

    def in_turn(following, ended, out, jobs, command):
        while (task := following()) is not None:
            task[0].mkdir(parents=True)
            seen.append(task[1])
            ended(task[0], "the loss is not finite" if "loss=y" in task[1] else None)

    monkeypatch.setattr(trainings, "train_in_turn", in_turn)
    return seen


def one(run):
    return {"AP": 1.0}


def test_what_the_file_has_is_not_trained_again_and_a_measured_run_is_removed(tmp_path, trained):
    append(tmp_path / "a.csv", {"row": "y"}, {"AP": 2.0}, seed="0")
    for _ in range(2):
        train_missing(ROWS, tmp_path / "a.csv", tmp_path / "runs", ["threads=1"], one)
    assert trained == [["threads=1", "loss=x"]]
    assert read(tmp_path / "a.csv").units({"row": "x"}, "AP") == {"0": 1}
    assert not [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]


def test_a_run_that_fails_is_named_after_the_others_were_trained_and_is_tried_again(tmp_path, trained):
    with pytest.raises(ConfigError, match="a-b-y,-seed-0: the loss is not finite"):
        train_missing(ROWS[::-1], tmp_path / "a.csv", tmp_path / "runs", [], one)
    assert trained == [["loss=y"], ["loss=x"]]
    assert read(tmp_path / "a.csv").settings == [{"row": "x"}]


def test_a_run_that_fails_can_count_and_its_folder_stays(tmp_path, trained):
    train_missing(ROWS, tmp_path / "a.csv", tmp_path / "runs", [], one, if_failed={"AP": math.nan})
    [value] = read(tmp_path / "a.csv").units({"row": "y"}, "AP").values()
    assert math.isnan(value) and (tmp_path / "runs" / "a-b-y,-seed-0").is_dir()


def test_a_run_that_ended_before_it_was_measured_is_measured_and_not_trained_again(tmp_path, trained, monkeypatch):
    monkeypatch.setattr(trainings, "Run", lambda folder: SimpleNamespace(folder=folder, finished=True))
    train_missing(ROWS, tmp_path / "a.csv", tmp_path / "runs", [], one)
    assert not trained and len(read(tmp_path / "a.csv").settings) == 2
