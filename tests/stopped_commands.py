"""Real commands that train, stopped by real signals while they do."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

# One long epoch, so that a state is there only if a signal had it saved; the log is on the disk after 100 steps.
LONG = ("trainer.max_epochs=1", "sampler.batches_per_epoch=250", "checkpoint_minutes=1000")
RESULTS = ("after.json", "metrics.json")
SIGNALS = [pytest.param(getattr(signal, name), id=name) for name in ("SIGINT", "SIGTERM", "SIGHUP")]


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

    def start(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start it, with both outputs in `log`."""
        folder.mkdir(parents=True, exist_ok=True)
        return self._run([*self.words, *self.out(folder)], folder)

    def go_on(self, folder: Path, hint: list[str]) -> subprocess.Popen[bytes]:
        """Start what the last line said."""
        return self._run(hint, folder)

    def undisturbed(self, folder: Path) -> dict[str, bytes]:
        """What it gives where nothing stops it."""
        assert self.start(folder).wait(300) == 0, (folder / "log").read_text()
        return results(folder)

    def _run(self, words: list[str], folder: Path) -> subprocess.Popen[bytes]:
        with (folder / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "rankgrad", *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )


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
