"""Processes that train for this one, and never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from . import signals
from .forked import Forked, possible

COMMAND = (sys.executable, "-m", "rankgrad")


class Child(Protocol):
    """A process, here or on another machine, with the methods of `subprocess.Popen`."""

    returncode: int | None

    def poll(self) -> int | None:
        """The exit status; None while it runs."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it at once, and its workers, too."""

    def wait(self) -> int:
        """Wait for its end."""


class Process(subprocess.Popen[bytes]):
    """A process that leads a session of its own."""

    def kill(self) -> None:
        """End it at once, and its workers, too."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Children:
    """Processes that run commands of rankgrad; leaving the `with` ends those that still run.

    Each leads a session of its own, so Ctrl-C in a terminal reaches this process alone. Leaving the `with`, be it
    by `signals.Stopped`, asks them by SIGTERM to save their state, waits, and kills what is left after `signals.GRACE`
    seconds, or at once after a second Ctrl-C. If this process dies, they notice and end by themselves.
    """

    def __init__(self) -> None:
        self.processes: list[Child] = []

    def start(
        self,
        words: Sequence[str],
        *,
        log: IO[str] | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> Child:
        """Start `python -m rankgrad WORDS`.

        Args:
            words: of the command.
            log: for both outputs; None: they are those of this process.
            environment: variables beside those of this process.
            folder: that it works in; None: that of this process.
        """
        process = Process(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if log is None else subprocess.STDOUT,
            env={**os.environ, **(environment or {}), signals.PARENT: str(os.getpid())},
            cwd=folder,
            start_new_session=True,
        )
        return self.add(process)

    def fork(self, words: Sequence[str], log: IO[str]) -> Child:
        """Start a command in a process that has imported everything already, where that is possible.

        Args:
            words: of the command.
            log: for both outputs.
        """
        if not possible():
            return self.start(words, log=log)
        return self.add(Forked(words, log.name))

    def add(self, child: Child) -> Child:
        """Take in a child that something else has started."""
        self.processes.append(child)
        return child

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
                process.kill()
                process.wait()

    def running(self) -> list[Child]:
        """Return the children that have not ended."""
        return [process for process in self.processes if process.poll() is None]
