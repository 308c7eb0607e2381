"""Files of a received run that no run writes: pipes, devices, huge numbers. A command ends in one line."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from forks import forked, wait
from kept_runs import copied
from small_runs import make_photos

from rankgrad.common.text import shown
from rankgrad_workbench.cli import main
from rankgrad_workbench.files import load_json
from rankgrad_workbench.runs import launch, signals
from rankgrad_workbench.runs.folder import Run
from rankgrad_workbench.settings import ConfigError, compose, load

pytestmark = pytest.mark.usefixtures("no_page")


def ends(words: list[str], log: Path, *, memory: int | None = None) -> str:
    """What a command prints that ends with status 2, within a minute."""

    def work() -> int:
        signal.alarm(60)
        if memory is not None:
            now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
        return main(words)

    status, said = wait(forked(work, log)), log.read_text()
    assert status == 2 and "Traceback" not in said, (status, said)
    return said


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["config.yaml", "after.json", "before.json", "facts.json", "logs/metrics.csv"])
def test_a_pipe_in_a_run_does_not_stop_a_report(tmp_path, name):
    run = copied("retrieval", tmp_path / "run", photos=make_photos(tmp_path / "photos"))
    pipe(run / name)
    said = ends(["report", str(run)], tmp_path / "log")
    assert f"{run / name}" in said


def test_a_pipe_in_place_of_a_state_does_not_stop_training(tmp_path):
    run = copied("interrupted", tmp_path / "run", photos=make_photos(tmp_path / "photos"))
    pipe(run / "state.ckpt")
    assert "state.ckpt" in ends(["train", f"resume={run}"], tmp_path / "log")


def test_pipes_do_not_stop_a_check(tmp_path):
    run = copied("retrieval", tmp_path / "run")
    kept = (Run(run).config, Run(run).checksums)
    pipes = [path for path in run.rglob("*") if path.is_file() and path not in kept]
    for path in pipes:
        pipe(path)
    said = ends(["check", str(run)], tmp_path / "log")
    assert all(f"{name} " in said for name in ("facts.json", "model.pt", "after.json", "logs/metrics.csv"))
    assert f"damaged: {run / 'facts.json'} is a folder, a pipe or a device" in said


def test_a_pipe_in_place_of_a_journal_does_not_stop_a_search(tmp_path):
    pytest.importorskip("optuna")
    from rankgrad_workbench.tuning.study import storage

    os.mkfifo(tmp_path / "journal.log")

    def work() -> int:
        signal.alarm(60)
        with pytest.raises(OSError, match="must be a file"):
            storage(tmp_path / "journal.log")
        return 0

    assert wait(forked(work)) == 0


def test_a_device_is_not_read_until_the_memory_is_full(tmp_path):
    run = copied("retrieval", tmp_path / "run", photos=make_photos(tmp_path / "photos"))
    (run / "after.json").unlink()
    (run / "after.json").symlink_to("/dev/zero")
    assert "must be a file" in ends(["report", str(run)], tmp_path / "log")


def test_a_file_that_is_larger_than_the_memory_ends_in_one_line(tmp_path):
    run = copied("retrieval", tmp_path / "run", photos=make_photos(tmp_path / "photos"))
    os.truncate(run / "after.json", 2**36)  # a hole, which takes no room on the disk
    assert "there is not enough memory" in ends(["report", str(run)], tmp_path / "log", memory=2**30)


# ---------------------------------------------------------------------------------------------------------- numbers


def changed(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


LONG = 10**400
NUMBERS = {
    "a value": lambda report: report["values"].update(AP=LONG),
    "an interval": lambda report: report["intervals"].update(AP=[LONG, LONG]),
    "a count": lambda report: report["counts"].update(classes=LONG),
    "a class": lambda report: report["per_class"][0].update(queries=LONG),
    "an infinite class": lambda report: report["per_class"][0].update(queries=float("inf")),
    "a query": lambda report: report["per_query"].update(AP=LONG),
}


@pytest.mark.parametrize("change", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("name", ["after.json", "before.json"])
def test_a_number_that_no_report_has_is_named(tmp_path, capsys, name, change):
    run = copied("retrieval", tmp_path / "run", photos=make_photos(tmp_path / "photos"))
    changed(run / name, change)
    assert main(["report", str(run)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"rankgrad: {run / name} ") and len(said) < 500


@pytest.mark.parametrize("number", [2**63, -(2**63), LONG])
def test_long_integers_are_refused_and_all_others_are_read(tmp_path, number):
    path = tmp_path / "a.json"
    path.write_text(f"[{2**63 - 1}, {1 - 2**63}, NaN]")
    assert load_json(path)[:2] == [2**63 - 1, 1 - 2**63]
    path.write_text(f"[{number}]")
    with pytest.raises(ValueError, match="digits is too large"):
        load_json(path)


def test_a_long_integer_in_the_settings_of_a_run_is_named(tmp_path):
    run = Run(copied("interrupted", tmp_path / "run"))
    text = run.config.read_text()
    run.config.write_text(text.replace("ks:\n", f"ks:\n  - {LONG}\n", 1))
    assert run.config.read_text() != text
    with pytest.raises(ConfigError, match=r"evaluation.ks\[0\] is an integer of more than 64 bits"):
        load(run.config)


@pytest.mark.parametrize("devices", ["1000", "9223372036854775807", f"[{','.join(map(str, range(1000)))}]"])
def test_more_processes_than_a_machine_can_run_are_not_started(devices):
    config = compose([f"trainer.devices={devices}", "trainer.accelerator=cpu"])
    with pytest.raises(ConfigError, match="processes that this machine can run; got"):
        launch.wanted(config)
    assert launch.wanted(compose([f"trainer.devices={launch.FEW}", "trainer.accelerator=cpu"])) == launch.FEW


# ------------------------------------------------------------------------------------------------------------ texts


def test_marks_without_a_width_are_shown_but_not_those_that_letters_need():
    for mark in "\u200b\u200e\u200f\u061c\u2060\ufeff":
        assert shown(f"a{mark}b") == f"a{mark.encode('unicode_escape').decode()}b"
    for text in ("\u0646\u200c\u0627", "\U0001f469\u200d\U0001f4bb"):
        assert shown(text) == text


@pytest.mark.parametrize("parent", ["x", "", "1.5", "-1"])
def test_a_parent_that_is_no_number_is_ignored(monkeypatch, parent):
    monkeypatch.setenv(signals.PARENT, parent)
    signals.follow_parent()
    assert signals.PARENT not in os.environ


def test_a_pipe_in_an_index_does_not_stop_a_search(tmp_path):
    os.mkfifo(tmp_path / "photos.index")
    photo = next(make_photos(tmp_path / "photos").rglob("*.png"))
    words = ["search", "--index", str(tmp_path / "photos.index"), str(photo)]
    assert "photos.index does not exist" in ends(words, tmp_path / "log")
