"""Runs that are killed and resumed: children by fork of this process, which has imported everything."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from forks import forked, wait

from rankgrad_workbench.files.folders import HOLDER, LOCK
from rankgrad_workbench.runs.folder import Run

COMPARED = ("before.json", "after.json", "metrics.json", "health.json", "logs/metrics.csv")
EVERY_STEP = "checkpoint_minutes=0"


def same(one: Run, other: Run) -> None:
    """Raise unless two runs have ended alike and left nothing beside."""
    for name in COMPARED:
        ours, theirs = one.folder / name, other.folder / name
        assert ours.exists() == theirs.exists(), name
        assert not ours.exists() or ours.read_bytes() == theirs.read_bytes(), name
    if other.weights.exists():  # a trial of a search keeps its numbers alone
        states = [torch.load(run.weights, weights_only=True) for run in (one, other)]
        keys = [key for key in states[0] if key in ("state", "weights", "state_dict")]
        assert keys
        for key in keys:
            assert all(torch.equal(value, states[1][key][name]) for name, value in states[0][key].items())
    for name in ("embeddings.npz", "scores.npz", "detections.npz"):
        if (one.folder / name).exists():
            with np.load(one.folder / name) as ours, np.load(other.folder / name) as theirs:
                assert all(np.array_equal(ours[column], theirs[column]) for column in ours.files)
    assert not [path for path in one.folder.rglob(".*") if path.is_file()]
    files = [{path.relative_to(run.folder) for path in run.folder.rglob("*")} for run in (one, other)]
    left, right = ({path for path in each if "tensorboard" not in path.parts} for each in files)
    assert left == right


def kill_at_call(name: str, number: int, after: bool, by: int = signal.SIGKILL) -> Callable[[], None]:
    """Patch os.NAME: this process, no child of it, is killed at its call of that number, before or after the call."""

    def patch() -> None:
        real, calls, process = getattr(os, name), [0], os.getpid()

        def killing(*arguments: object, **named: object) -> object:
            calls[0] += os.getpid() == process
            if calls[0] == number and not after:
                os.kill(os.getpid(), by)
            found = real(*arguments, **named)
            if calls[0] == number and after:
                os.kill(os.getpid(), by)
            return found

        setattr(os, name, killing)

    return patch


@dataclass(frozen=True)
class Killed:
    """A kind of run.

    Attributes:
        go: trains with these settings.
        settings: of a new run, without out=.
        again: settings to resume one, beside resume=.
    """

    go: Callable[[list[str]], Run]
    settings: Sequence[str]
    again: Sequence[str] = ()

    def child(self, out: Path, before: Callable[[], object] = lambda: None) -> int:
        """A process that begins or resumes a run; its number."""
        begun = (out / "config.yaml").exists()
        given = [f"resume={out}", *self.again] if begun else [*self.settings, f"out={out}"]

        def work() -> None:
            before()
            self.go(given)

        return forked(work)

    def finish(self, out: Path) -> None:
        """Resume a run until it is finished."""
        while not (Run(out).config.exists() and Run(out).finished):
            assert wait(self.child(out)) == 0

    def at_random(self, out: Path, kills: int, seed: int) -> int:
        """Kill a run at random moments, each after the last one's was resumed; how many hit a live one."""
        dice, hit = random.Random(seed), 0
        for _ in range(kills):
            number = self.child(out)
            time.sleep(dice.uniform(0.05, 1.2))
            os.kill(number, signal.SIGKILL)
            hit += wait(number) == -signal.SIGKILL
            if Run(out).config.exists() and Run(out).finished:
                break
        self.finish(out)
        return hit

    def at_every_call(self, name: str, after: bool, folder: Path, whole: Run) -> None:
        """Kill a run before or after each call of os.NAME, and hold what it ends as to a run that was not killed."""
        number = 0
        while True:
            number += 1
            out = folder / str(number)
            first = wait(self.child(out, kill_at_call(name, number, after)))
            if first == 0:
                break  # the run has fewer calls than that
            assert first == -signal.SIGKILL
            self.finish(out)
            for left in (LOCK, HOLDER):  # a process killed after its last file leaves its lock, which nobody holds
                (out / left).unlink(missing_ok=True)
            same(Run(out), whole)
        assert number > 10
        print(f"killed {'after' if after else 'before'} each of {number - 1} calls of os.{name}, all ended alike")
