"""The interface of launchers: a launcher runs a command and returns a `Child`.

On another machine, a command needs Python with rankgrad, the data, and the folder of the run. So this folder must be on
a file system that all machines share.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from ...files.folders import LinkError, LockedError, lock
from .. import signals
from ..children import Child, Children
from ..folder import Run

EVERY = 1.0  # seconds between two polls of a run on another machine; each asks a scheduler or a shared file system
LEASE = 120.0  # seconds until a file server releases the locks of a dead machine; NFS needs 90


@dataclass(frozen=True)
class RunCommand:
    """A training run as a command that can be started on any machine. If it is started again, it resumes the run.

    Attributes:
        folder: of the run.
        settings: KEY=VALUE of the run.
        command: training command of rankgrad.
        home: base of relative paths.
    """

    folder: Path
    settings: tuple[str, ...]
    command: str = "train"
    home: Path = field(default_factory=Path.cwd)

    @property
    def log(self) -> Path:
        """File for standard output and standard error."""
        return self.home / self.folder / "log.txt"

    def logging(self) -> IO[str]:
        """The log, opened for appending."""
        return self.log.open("a", encoding="utf-8")

    def words(self) -> list[str]:
        """Arguments of `rankgrad`: resume the run if its folder holds one, else start it."""
        # trust= is not stored in the folder, and threads= follows the number of runs at a time
        again = [setting for setting in self.settings if setting.startswith(("trust=", "threads="))]
        begun = Run(self.home / self.folder).config.exists()
        words = [f"resume={self.folder}", *again] if begun else [*self.settings, f"out={self.folder}"]
        return [*self.command.split(), *words]

    def here(self, children: Children | None = None) -> int | str:
        """Train the run in a child process on the machine that calls this method.

        If this process dies, the run notices it, saves its state and ends.

        Args:
            children: an empty `Children` for the process; None: a new one.

        Returns:
            The exit status, or the reason why the run could not start.

        Raises:
            signals.Stopped: on Ctrl-C, SIGTERM or SIGHUP, after the run has saved its state.
        """
        for needed in (self.home, self.home / self.folder):
            if not needed.is_dir():
                return (
                    f"{socket.gethostname()} has no {needed}: the folder of the runs (--out) and the working directory "
                    "of the command must be on a file system that all machines share"
                )
        try:
            with signals.graceful(), children or Children() as children, self.logging() as log:
                with lock(self.home / self.folder, "this run", wait=LEASE):
                    pass  # waits for the lock of a machine that may have died a moment ago
                with blocked(signal.SIGUSR1, signal.SIGUSR2):  # SLURM sends them to all processes of a job
                    children.start(self.words(), log=log, folder=self.home)
                return children.wait().returncode or 0
        except (LockedError, LinkError, OSError) as error:
            return str(error)

    def last_words(self, code: int) -> str:
        """The last line of the log of a run that failed."""
        log = self.folder / self.log.name
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{lines[-1] if lines else 'no output'} (exit {code}; see {log})"


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Context in which signals are blocked. Child processes inherit this; this process gets the signals afterwards."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


class Launcher(Protocol):
    """Runs commands."""

    @property
    def shares_cores(self) -> bool:
        """Whether the runs share the cores of this machine."""

    def start(self, run: RunCommand, children: Children, *, many: bool = False) -> Child:
        """Start a run. Its folder must exist.

        Args:
            run: the run.
            children: the new child is added to them.
            many: the run is short, and one of many.
        """


class Job:
    """A run on another machine, as a child of this process. Subclasses talk to SLURM or Ray.

    Args:
        run: the run.
    """

    def __init__(self, run: RunCommand) -> None:
        self.run = run
        self.returncode: int | None = None
        self.asked = False  # whether it was asked to end
        self._next = 0.0
        self._ended: float | None = None

    def outcome(self) -> int | str | None:
        """The exit status, or an error if there is none; None while the run waits for a machine or runs."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Ask the run to save its state and end; if it has not started, remove it from the queue."""
        raise NotImplementedError

    def destroy(self) -> None:
        """Kill it at once."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Ask it to save its state and end."""
        self.asked, self._next = True, 0.0
        self.cancel()

    def kill(self) -> None:
        """Kill it and its workers at once, without waiting for an answer of SLURM or Ray."""
        self.destroy()
        if self.returncode is None:
            self.returncode = -signal.SIGKILL

    def poll(self) -> int | None:
        """The exit status; None while it waits or runs, and until its result is visible on this machine."""
        now = time.monotonic()
        if self.returncode is not None or now < self._next:
            return self.returncode
        self._next = now + EVERY
        code = self.outcome()
        if code == 0 and not Run(self.run.folder).finished:
            # a network file system shows a new file only after some time
            self._ended = self._ended or now
            if now - self._ended < signals.GRACE:
                return None
            code = (
                f"the run has finished, but {self.run.folder} has no result on this machine: the folder of the runs "
                "(--out) must be on a file system that all machines share"
            )
        if isinstance(code, str):
            if not self.asked:
                with self.run.logging() as log:
                    log.write(f"rankgrad: {code}\n")
            code = 128 + signal.SIGTERM if self.asked else 1
        self.returncode = code
        return code

    def wait(self) -> int:
        """Wait for its end."""
        while (code := self.poll()) is None:
            time.sleep(0.1)
        return code


__all__ = ["EVERY", "Job", "Launcher", "RunCommand", "blocked"]
