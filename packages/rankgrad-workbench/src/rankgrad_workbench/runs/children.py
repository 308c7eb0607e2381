"""Child processes that train. They end when this process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from . import signals

COMMAND = (sys.executable, "-m", "rankgrad")


class Child(Protocol):
    """A process, here or on another machine, with the methods of `subprocess.Popen`."""

    returncode: int | None

    def poll(self) -> int | None:
        """The exit status; None while it runs."""

    def terminate(self) -> None:
        """Ask it to save its state and end."""

    def kill(self) -> None:
        """Kill it and its workers at once."""

    def wait(self) -> int:
        """Wait for its end."""


class Process(subprocess.Popen[bytes]):
    """A process that leads its own session."""

    def kill(self) -> None:
        """Kill it and its workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Children:
    """Processes that run commands of rankgrad. Leaving the `with` block ends those that still run.

    Each process leads its own session, so Ctrl-C in a terminal reaches only this process. At the end of the `with`
    block, also after `signals.Stopped`, SIGTERM asks the children to save their state. Those that still run after
    `signals.GRACE` seconds are killed; a second Ctrl-C kills them at once. If this process dies, the children notice it
    and end.
    """

    def __init__(self) -> None:
        self.processes: list[Child] = []

    def start(self, words: Sequence[str], *, log: IO[str] | None = None, folder: Path | None = None) -> Child:
        """Start `python -m rankgrad WORDS`.

        Args:
            words: arguments of the command.
            log: file for standard output and standard error; None: those of this process.
            folder: working directory; None: that of this process.
        """
        process = Process(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if log is None else subprocess.STDOUT,
            env={**os.environ, signals.PARENT: str(os.getpid())},
            cwd=folder,
            start_new_session=True,
        )
        return self.add(process)

    def add(self, child: Child) -> Child:
        """Add a child that other code has started."""
        self.processes.append(child)
        return child

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait(self) -> Child:
        """Wait for the next process that ends; each process is returned once.

        Raises:
            ValueError: no process is left.
        """
        while self.processes:
            for process in self.processes:
                if process.poll() is not None:
                    self.processes.remove(process)
                    return process
            time.sleep(0.1)
        raise ValueError("no process is left to wait for")

    def end(self) -> None:
        """Ask the running processes to end, wait, and kill those that do not end."""
        try:
            for process in self.running():
                process.terminate()
            end = time.monotonic() + signals.GRACE
            while self.running() and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            for process in self.running():
                process.kill()
                process.wait()

    def running(self) -> list[Child]:
        """The children that have not ended."""
        return [process for process in self.processes if process.poll() is None]
