"""Launchers train runs on this machine, under SLURM (with submitit), or on a Ray cluster.

On another machine, a run needs Python with rankgrad, the data, and its folder. So this folder must be on a file system
that all machines share.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rankgrad.common.checks import one_of

from ...files.folders import LinkError, LockedError, lock
from ...settings.allowed import ConfigError
from .. import signals
from ..children import Child, Children
from ..folder import Run

EVERY = 1.0  # seconds between two polls of a run on another machine; each asks a scheduler or a shared file system
LEASE = 120.0  # seconds until a file server releases the locks of a dead machine; NFS needs 90
ENGINES = {"submitit": "Submitit", "ray": "Ray"}  # module here, which needs the package of this name -> its launcher
SHARED = "the folder of the runs (--out) and that of the command must be on a file system that all machines share"


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
        if not self.log.parent.is_dir():
            return f"{socket.gethostname()} has no {self.log.parent}: {SHARED}"
        try:
            with signals.graceful(), children or Children() as children, self.logging() as log:
                with lock(self.log.parent, "this run", wait=LEASE):
                    pass  # waits for the lock of a machine that may have died a moment ago
                with blocked(signal.SIGUSR1, signal.SIGUSR2):  # SLURM sends them to all processes of a job
                    children.start(self.words(), log=log, folder=self.home)
                return children.wait().returncode or 0
        except (LockedError, LinkError, OSError) as error:
            return str(error)

    def last_words(self, code: int) -> str:
        """The last line of the log of a run that failed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{lines[-1] if lines else 'no output'} (exit {code}; see {self.folder / self.log.name})"


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Context in which signals are blocked. Child processes inherit this; this process gets the signals afterwards."""
    earlier = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


class Launcher:
    """Starts runs. This one starts each as a process of this machine; `shares_cores` says that they share its cores."""

    shares_cores = True

    def start(self, run: RunCommand, children: Children) -> Child:
        """Start a run, whose folder must exist, and add it to the children."""
        with run.logging() as log:
            return children.start(run.words(), log=log)


LOCAL = Launcher()


class Job:
    """A run on another machine, as a child of this process.

    Args:
        run: the run.
        outcome: (whether it was asked to end) -> the exit status, or an error if there is none; None
            while it waits for a machine or runs.
        cancel: asks the run to save its state and end; if it has not started, removes it from the queue.
        destroy: kills it at once.
    """

    def __init__(
        self,
        run: RunCommand,
        outcome: Callable[[bool], int | str | None],
        cancel: Callable[[], object],
        destroy: Callable[[], object],
    ) -> None:
        self.run, self.outcome, self.cancel, self.destroy = run, outcome, cancel, destroy
        self.returncode: int | None = None
        self.asked = False  # whether it was asked to end
        self._next = 0.0
        self._ended: float | None = None

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
        code = self.outcome(self.asked)
        if code == 0 and not Run(self.run.folder).finished:
            # a network file system shows a new file only after some time
            self._ended = self._ended or now
            if now - self._ended < signals.GRACE:
                return None
            code = f"the run has finished, but {self.run.folder} has no result on this machine: {SHARED}"
        if isinstance(code, str) and not self.asked:
            with self.run.logging() as log:
                log.write(f"rankgrad: {code}\n")
        self.returncode = code if not isinstance(code, str) else 128 + signal.SIGTERM if self.asked else 1
        return self.returncode

    def wait(self) -> int:
        """Wait for its end."""
        while (code := self.poll()) is None:
            time.sleep(0.1)
        return code


def read_launcher(settings: Sequence[str]) -> tuple[Launcher, list[str]]:
    """The launcher for launcher=NAME and launcher.OPTION=VALUE, and the remaining settings of the runs.

    Raises:
        ConfigError: the launcher is unknown, a value cannot be read, or submitit or Ray refuses an option.
        ModuleNotFoundError: submitit or Ray is not installed.

    >>> read_launcher(["loss=pnp", "launcher=local"])[1]
    ['loss=pnp']
    """
    names = [word.removeprefix("launcher=") for word in settings if word.startswith("launcher=")]
    words = [word.removeprefix("launcher.") for word in settings if word.startswith("launcher.")]
    rest = [word for word in settings if not word.startswith(("launcher=", "launcher."))]
    try:
        name = one_of(names[-1] if names else "local", "launcher", ("local", *ENGINES))
        options: Any = OmegaConf.to_container(OmegaConf.from_dotlist(words), resolve=False)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError(f"launcher: {str(error).splitlines()[0]}") from None
    return _make(name, options), rest


def _make(name: str, options: dict[str, Any]) -> Launcher:
    if name in ENGINES:
        launcher: Launcher = getattr(import_module(f".{name}", __name__), ENGINES[name])(options)
        return launcher
    if options:
        raise ConfigError(f"launcher.{next(iter(options))}= needs launcher=submitit or launcher=ray")
    return LOCAL


__all__ = ["LOCAL", "Launcher", "RunCommand", "read_launcher"]
