"""A folder of runs that somebody else has made: links in it lead no command to write, or to delete, outside of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from kept_runs import copied, kept
from small_runs import cut_off, make_photos, small

from rankgrad_workbench.cli import main
from rankgrad_workbench.files.folders import HOLDER, LOCK
from rankgrad_workbench.runs.folder import Run


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def valued(tmp_path: Path) -> Iterator[Path]:
    """A folder outside, that every name of a run's folder has a file in; it is as it was at the end."""
    folder = tmp_path / "valued"
    (folder / "tensorboard").mkdir(parents=True)
    for name in ("rc", "metrics.csv", ".metrics.csv.4711.tmp", "tensorboard/hparams.yaml"):
        (folder / name).write_text(f"{name}\n")
    before = content(folder)
    yield folder
    assert content(folder) == before


def content(folder: Path) -> dict[str, bytes | None]:
    """All that is in a folder, at any depth."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def plant(folder: Path, names: list[str], valued: Path) -> None:
    """Links, each to a file that is not there: who follows one makes it."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(valued / Path(name).name.removeprefix("."))


def refused(capsys: pytest.CaptureFixture[str], link: Path, *words: str | Path) -> None:
    """A command ends with one line that names the link."""
    capsys.readouterr()
    assert main(list(map(str, words))) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rankgrad: ")]
    assert len(told) == 1 and f"{link} is a link to" in told[0]


# ----------------------------------------------------------------------------------------------------------- one run

# Some of what a training writes into its folder.
WRITTEN = ["state.ckpt", "after.json", "model.pt", "logs/metrics.csv", "logs", LOCK]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_training_is_refused_where_a_link_would_be_written_through(photos, tmp_path, valued, capsys, name):
    run = Run(tmp_path / "run")
    (run.folder / name).parent.mkdir(parents=True)
    (run.folder / HOLDER).touch()  # as of a killed process, since files of others are refused in any case
    (run.folder / name).symlink_to(valued if name == "logs" else valued / "rc")
    shutil.copytree(run.folder, tmp_path / "again", symlinks=True)
    refused(capsys, run.folder / name, "train", *small(photos), f"out={run.folder}")
    shutil.copy(kept("interrupted") / "config.yaml", tmp_path / "again")
    refused(capsys, tmp_path / "again" / name, "train", f"resume={tmp_path / 'again'}")


@pytest.mark.parametrize("name", ["logs/tensorboard", "logs/tensorboard/hparams.yaml"])
def test_a_training_is_refused_where_tensorboard_would_follow_a_link(photos, tmp_path, valued, capsys, name):
    run = Run(tmp_path / "run")
    (run.folder / name).parent.mkdir(parents=True)
    (run.folder / HOLDER).touch()
    (run.folder / name).symlink_to(valued / name.removeprefix("logs/"))
    refused(capsys, run.folder / name, "train", *small(photos, "loggers=[tensorboard]"), f"out={run.folder}")


def test_an_unfinished_run_is_evaluated_into_its_own_folder(photos, tmp_path, valued):
    run = Run(tmp_path / "run")
    cut_off([*small(photos), f"out={run.folder}"], 1)
    names = [f"step-1.{ending}" for ending in ("pt", "npz", "json")]
    plant(run.folder, names, valued)
    assert main(["evaluate", str(run.folder), "--bootstrap", "0"]) == 0
    assert all((run.folder / name).is_file() for name in names)


def test_a_state_whose_step_is_a_path_is_refused(tmp_path, capsys):
    """Files are named after the step."""
    run = Run(copied("interrupted", tmp_path / "run"))
    state = torch.load(run.state, weights_only=True)
    torch.save({**state, "global_step": "../../valued/rc"}, run.state)
    (run.folder / "step-..").mkdir()
    assert main(["evaluate", str(run.folder)]) == 2
    assert re.search(rf"{run.state} is not the state of a run", capsys.readouterr().err)


# --------------------------------------------------------------------------------------------------------- many runs


def test_a_comparison_does_not_follow_the_link_of_a_log_or_of_a_run(tmp_path, valued, capsys):
    words = ["compare", "loss=pnp", "seeds=0", "data=glyphs", "recipe=small", "-o"]
    for name, link in (("log", "pnp-seed0/log.txt"), ("run", "pnp-seed0")):
        out = tmp_path / name
        (out / link).parent.mkdir(parents=True)
        (out / link).symlink_to(valued / "rc" if name == "log" else valued)
        refused(capsys, out / link, *words, out)


@pytest.mark.parametrize("name", ["settings.json", "compare.md", "journal.log"])
def test_a_comparison_is_refused_where_it_would_write_a_link(tmp_path, valued, capsys, name):
    plant(tmp_path / "out", [name], valued)
    words = ["compare", "loss=pnp", "seeds=0", "data=glyphs", "recipe=small", "-o"]
    refused(capsys, tmp_path / "out" / name, *words, tmp_path / "out")
