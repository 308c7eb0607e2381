"""Training children that are no processes: starting Python takes longer than the runs of these tests."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from small_runs import Killed

from rankgrad_workbench.cli import main
from rankgrad_workbench.settings import compose, plain


class Here:
    """`Children` of this process itself, since starting Python takes longer than these runs; `calls` are the tasks."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.ended: list[Process] = []

    def __call__(self) -> Here:
        return self

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.clear()

    def start(self, words: list[str], *, log: Any) -> Process:
        command = 2 if words[0] == "detect" else 1
        assert words[command - 1] == "train"
        self.calls.append(words[command:])
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                code = main(words)
            except Killed:
                code = -9
        process = Process(code)
        self.ended.append(process)
        return process

    def wait(self) -> Process:
        return self.ended.pop(0)


class Copied(Here):
    """Runs that are not trained: each is a copy of a finished one, with settings of its own.

    Args:
        run: the folder of the finished run.
    """

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run = run

    def start(self, words: list[str], *, log: Any) -> Process:
        self.calls.append(words[1:])
        own, config = compose(words[1:]), OmegaConf.load(self.run / "config.yaml")
        for name in ("loss", "model", "optimizer", "seed", "threads"):
            config[name] = plain(own[name])
        shutil.copytree(self.run, own.out, dirs_exist_ok=True)
        OmegaConf.save(config, Path(own.out) / "config.yaml")
        self.ended.append(Process(0))
        return self.ended[-1]


class Process:
    def __init__(self, returncode: int) -> None:
        self.returncode = returncode
