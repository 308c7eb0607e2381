"""Real commands that are stopped by real signals: nothing is left running, the state is saved, and they go on."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from small_detectors import QUICK, TINY
from small_runs import FEW_WEIGHTS, make_photos, small
from voc_trees import shapes

from rankgrad.runs.forked import possible

pytestmark = pytest.mark.usefixtures("hangup")

# One long epoch, so that a state is there only if a signal had it saved; the log is on the disk after 100 steps.
LONG = ("trainer.max_epochs=1", "sampler.batches_per_epoch=250", "checkpoint_minutes=1000")
RESULTS = ("after.json", "metrics.json")


@dataclass(frozen=True)
class Command:
    """A command that trains below a folder.

    Attributes:
        words: of the command, without the folder.
        out: how it is told the folder.
        runs: how many it trains.
        sign: a file of each run that shows that it trains.
        family: its processes beside itself while it trains.
    """

    words: tuple[str, ...]
    out: Callable[[Path], tuple[str, ...]]
    runs: int = 1
    sign: str = "logs/metrics.csv"
    family: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start it, with both outputs in `log`."""
        folder.mkdir(parents=True, exist_ok=True)
        return self._run([*self.words, *self.out(folder)], folder)

    def go_on(self, folder: Path, hint: list[str]) -> subprocess.Popen[bytes]:
        """Start what the last line said."""
        return self._run(hint, folder)

    def _run(self, words: list[str], folder: Path) -> subprocess.Popen[bytes]:
        with (folder / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "rankgrad", *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Command]:
    photos = make_photos(tmp_path_factory.mktemp("photos"))
    tree = shapes(tmp_path_factory.mktemp("voc"))
    many = [word for word in FEW_WEIGHTS if not word.startswith(("trainer.max_epochs", "sampler.batches", "checkp"))]
    return {
        "train": Command(("train", *small(photos, *LONG, "data.workers=1")), lambda f: (f"out={f / 'run'}",), family=1),
        "devices": Command(
            ("train", *small(photos, *LONG, "trainer.devices=2", "trainer.accelerator=cpu")),
            lambda f: (f"out={f / 'run'}",),
            family=2,
        ),
        "compare": Command(
            ("compare", "loss=pnp,roadmap", "seeds=0", *small(photos, *LONG), "-j", "2"),
            lambda f: ("-o", str(f)),
            runs=2,
            family=2,
        ),
        "tune": Command(
            (
                *("tune", "loss=pnp,roadmap", "trials=1", "folds=2", "seeds=none", "-j", "2"),
                *small(photos, *LONG[:2], "checkpoint_minutes=0.01", "sampler.classes_per_batch=2"),
            ),
            lambda f: ("-o", str(f)),
            runs=2,
            sign="state.ckpt",
            family=4 if possible() else 2,  # the process that forks, and one that it needs
        ),
        "reproduce": Command(
            ("reproduce", "roadmap/table9", "--stand-in", "glyphs", "--seeds", "0", "-j", "2", *many, *LONG),
            lambda f: ("-o", str(f)),
            runs=2,
            family=2,
        ),
        "detect": Command(
            (
                *("detect", "compare", "loss=cross_entropy,ap", "seeds=0", "-j", "2", f"data.root={tree}"),
                *(*TINY, *(word for word in QUICK if not word.startswith("trainer.max_epochs")), *LONG[2:]),
                "trainer.max_epochs=60",
            ),
            lambda f: ("-o", str(f)),
            runs=2,
            family=2,
        ),
    }


@pytest.fixture(scope="module")
def undisturbed(commands, tmp_path_factory) -> Callable[[str], dict[str, bytes]]:
    """Results of a command that nothing stops; each is run once."""
    found: dict[str, dict[str, bytes]] = {}

    def of(name: str) -> dict[str, bytes]:
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            assert commands[name].start(folder).wait(300) == 0, (folder / "log").read_text()
            found[name] = results(folder)
        return found[name]

    return of


def results(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*.json") if path.name in RESULTS]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def stop(command: Command, folder: Path, number: signal.Signals, *, group: bool = False) -> int:
    """Start a command, stop it while all its runs train, and see that no process is left; returns its status."""
    process = command.start(folder)
    end = time.monotonic() + 120
    while len([*folder.rglob(command.sign)]) < command.runs and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    assert process.poll() is None, (folder / "log").read_text()
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == command.family
    (os.killpg if group else os.kill)(process.pid, number)
    code = process.wait(60)
    assert psutil.wait_procs(family, timeout=60)[1] == []
    assert not results(folder)
    for log in [folder / "log", *folder.rglob("log.txt")]:
        assert "Traceback" not in log.read_text() and "Exception" not in log.read_text(), log.read_text()
    return code


def hint(log: Path) -> list[str]:
    """The command that the last line names."""
    found = re.search(r"continue with: rankgrad (.*)$", log.read_text().strip().splitlines()[-1])
    assert found, log.read_text()
    return shlex.split(found[1])


@pytest.mark.slow  # test_signals.py stops children, and test_cli.py a training
def test_a_comparison_that_is_stopped_has_saved_its_states_and_says_how_to_go_on(commands, tmp_path):
    command = commands["compare"]
    assert stop(command, tmp_path, signal.SIGTERM) == 128 + signal.SIGTERM
    assert hint(tmp_path / "log") == [*command.words, *command.out(tmp_path)]
    assert len([*tmp_path.glob("*/state.ckpt")]) == 2 and not [*tmp_path.rglob("*.tmp")]
    assert all(hint(path)[0] == "train" for path in tmp_path.glob("*/log.txt"))


SIGNALS = [pytest.param(getattr(signal, name), id=name) for name in ("SIGINT", "SIGTERM", "SIGHUP")]


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", ["train", "devices", "compare", "tune", "reproduce", "detect"])
def test_a_command_that_is_stopped_goes_on_and_ends_like_one_that_was_not(
    commands, undisturbed, tmp_path, name, number
):
    command = commands[name]
    assert stop(command, tmp_path, number) == 128 + number
    assert len([*tmp_path.rglob("state.ckpt")]) == command.runs
    again = hint(tmp_path / "log")
    expected = ["train", f"resume={tmp_path / 'run'}"]
    assert again == (expected if name in ("train", "devices") else [*command.words, *command.out(tmp_path)])
    assert command.go_on(tmp_path, again).wait(300) == 0, (tmp_path / "log").read_text()
    assert results(tmp_path) == undisturbed(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "devices", "compare", "tune", "reproduce", "detect"])
def test_when_a_command_is_killed_its_children_save_their_states_and_end(commands, undisturbed, tmp_path, name):
    command = commands[name]
    assert stop(command, tmp_path, signal.SIGKILL) == -signal.SIGKILL
    again = [*command.words, *command.out(tmp_path)]
    if name == "train":  # nobody was left to save it
        again = ["train", f"resume={tmp_path / 'run'}"]
    else:
        assert len([*tmp_path.rglob("state.ckpt")]) == command.runs
        if name == "devices":
            again = hint(tmp_path / "log")  # the first child has said so
    assert command.go_on(tmp_path, again).wait(300) == 0, (tmp_path / "log").read_text()
    assert results(tmp_path) == undisturbed(name)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_to_all_processes_of_a_run_leaves_its_workers_for_the_last_step(
    commands, undisturbed, tmp_path, number
):
    assert stop(commands["train"], tmp_path, number, group=True) == 128 + number
    assert len([*tmp_path.rglob("state.ckpt")]) == 1
    assert commands["train"].go_on(tmp_path, hint(tmp_path / "log")).wait(300) == 0
    assert results(tmp_path) == undisturbed("train")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_of_several_that_is_stopped_or_killed_alone_ends_the_others(commands, tmp_path, number):
    command = commands["devices"]
    process = command.start(tmp_path)
    while not [*tmp_path.rglob(command.sign)]:
        time.sleep(0.02)
    family = psutil.Process(process.pid).children()
    family[1].send_signal(number)
    assert process.wait(90) == 128 + number and psutil.wait_procs(family, timeout=60)[1] == []
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    if number == signal.SIGTERM:
        assert len([*tmp_path.rglob("state.ckpt")]) == 1
    else:
        assert "rankgrad: process 1 was ended by SIGKILL" in log
