"""What a launcher is: something that runs a command, and hands out a `Child`. It decides nothing else.

On another machine a command needs what it needs here: Python with rankgrad, the data, and the folder of the run. So
that folder lies on a file system that all machines share.
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

from ...files.folders import LinkError, LockedError, lock, opened_folder
from .. import signals
from ..children import Child, Children
from ..folder import Run

EVERY = 1.0  # seconds between two looks at a run on another machine: each asks a scheduler or a shared file system
LEASE = 120.0  # seconds until a file server lets go of the locks of a machine that has died; NFS takes 90


@dataclass(frozen=True)
class RunCommand:
    """A training run as a command that can be begun anywhere, and again: a run that was cut off goes on.

    Attributes:
        folder: of the run.
        root: folder of all runs; below it no link is followed.
        settings: KEY=VALUE of the run.
        command: of rankgrad, that trains.
        home: folder that relative paths are meant from.
    """

    folder: Path
    root: Path
    settings: tuple[str, ...]
    command: str = "train"
    home: Path = field(default_factory=Path.cwd)

    @property
    def log(self) -> Path:
        """Where both outputs go."""
        return self.home / self.folder / "log.txt"

    @contextmanager
    def logging(self) -> Iterator[IO[str]]:
        """The log, to be added to.

        Raises:
            LinkError: it is a link, or is below one.
        """
        with opened_folder(self.log.parent, self.home / self.root) as folder, folder.file(self.log.name, "a") as log:
            yield log

    def words(self) -> list[str]:
        """What stands behind `rankgrad`, by what the folder holds now."""
        trusted = [setting for setting in self.settings if setting.startswith("trust=")]  # the folder does not know it
        begun = Run(self.home / self.folder).config.exists()
        words = [f"resume={self.folder}", *trusted] if begun else [*self.settings, f"out={self.folder}"]
        return [*self.command.split(), *words]

    def here(self, children: Children | None = None) -> int | str:
        """Train the run in a process of this machine, whatever machine that is.

        If this process dies, the run notices, saves its state and ends.

        Args:
            children: that it becomes the only one of.

        Returns:
            The exit status, or why the run could not begin.

        Raises:
            signals.Stopped: on Ctrl-C, SIGTERM or SIGHUP, after the run has saved its state.
        """
        for needed in (self.home, self.home / self.folder):
            if not needed.is_dir():
                return (
                    f"{socket.gethostname()} has no {needed}: the folder of the runs (--out), and the one that the "
                    "command is started in, must lie on a file system that all machines share"
                )
        try:
            with signals.graceful(), children or Children() as children, self.logging() as log:
                with lock(self.home / self.folder, "this run", wait=LEASE, root=self.home / self.root):
                    pass  # the machine that had the run before may have died a moment ago
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
    """Processes that are started in here never get these signals; this one gets them afterwards."""
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
        """Start a run whose folder is there.

        Args:
            run: to start.
            children: that it becomes one of.
            many: it is short, and one of many.
        """


class Job:
    """A run on another machine, as a child of this process. What its engine does is in a subclass.

    Args:
        run: that is trained.
    """

    def __init__(self, run: RunCommand) -> None:
        self.run = run
        self.returncode: int | None = None
        self.asked = False  # to end
        self._next = 0.0
        self._ended: float | None = None

    def outcome(self) -> int | str | None:
        """The exit status, or what went wrong before there was one; None while it waits for a machine or runs."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Let the run save its state and end, or not begin."""
        raise NotImplementedError

    def destroy(self) -> None:
        """End it at once."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Ask it to end."""
        self.asked, self._next = True, 0.0
        self.cancel()

    def kill(self) -> None:
        """End it at once, and its workers, too; nobody waits for an engine that does not answer."""
        self.destroy()
        if self.returncode is None:
            self.returncode = -signal.SIGKILL

    def poll(self) -> int | None:
        """The exit status; None while it waits or runs, and until its result can be seen here."""
        now = time.monotonic()
        if self.returncode is not None or now < self._next:
            return self.returncode
        self._next = now + EVERY
        code = self.outcome()
        if code == 0 and not Run(self.run.folder).finished:
            # a network file system shows a new file after a while
            self._ended = self._ended or now
            if now - self._ended < signals.GRACE:
                return None
            code = (
                f"the run has ended well, but {self.run.folder} has no result here: the folder of the runs (--out) "
                "must lie on a file system that all machines share"
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
