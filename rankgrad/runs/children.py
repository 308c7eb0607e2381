"""Processes that train for this one, and never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Protocol

from . import signals
from .forked import Forked, possible

COMMAND = (sys.executable, "-m", "rankgrad")


class Child(Protocol):
    """A process, as `subprocess.Popen` has it."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """The exit status; None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self) -> int:
        """Wait for its end."""


class Children:
    """Processes that run commands of rankgrad; leaving the `with` ends those that still run.

    Each leads a session of its own, so Ctrl-C in a terminal reaches this process alone. Leaving the `with`, be it
    by `signals.Stopped`, asks them by SIGTERM to save their state, waits, and kills what is left after `signals.GRACE`
    seconds, or at once after a second Ctrl-C. If this process dies, they notice and end by themselves.
    """

    def __init__(self) -> None:
        self.processes: list[Child] = []

    def start(
        self, words: Sequence[str], *, log: IO[str] | None = None, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start `python -m rankgrad WORDS`.

        Args:
            words: of the command.
            log: for both outputs; None: they are those of this process.
            environment: variables beside those of this process.
        """
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if log is None else subprocess.STDOUT,
            env={**os.environ, **(environment or {}), signals.PARENT: str(os.getpid())},
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def fork(self, words: Sequence[str], log: IO[str]) -> Child:
        """Start a command in a process that has imported everything already, where that is possible.

        Args:
            words: of the command.
            log: for both outputs.
        """
        if not possible():
            return self.start(words, log=log)
        process = Forked(words, log.name)
        self.processes.append(process)
        return process

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def wait(self) -> Child:
        """The next process that has ended; each is given once.

        Raises:
            ValueError: there is none left.
        """
        while self.processes:
            for process in self.processes:
                if process.poll() is not None:
                    self.processes.remove(process)
                    return process
            time.sleep(0.1)
        raise ValueError("no process is left to wait for")

    def end(self) -> None:
        """Ask those that still run to end, wait, and kill those that don't."""
        try:
            for process in self.running():
                process.terminate()
            end = time.monotonic() + signals.GRACE
            while self.running() and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            for process in self.running():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # its workers, too
                process.wait()

    def running(self) -> list[Child]:
        """Return the children that have not ended."""
        return [process for process in self.processes if process.poll() is None]
