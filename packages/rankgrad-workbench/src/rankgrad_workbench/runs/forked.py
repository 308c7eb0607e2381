"""Commands in processes that are forked from a process that has imported everything, so that they start at once.

A training process needs ten seconds to import torch, Lightning and their dependencies; a trial of `rankgrad tune` may
take less than that. The process that forks is the fork server of the standard library. It only imports modules, so no
running thread is copied by a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from . import signals

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

PRELOADED = (
    "rankgrad_workbench.cli",
    "rankgrad_workbench.settings",
    "rankgrad_workbench.tasks.retrieval.task",
    "hydra",
    "sklearn.cluster",
)


def possible() -> bool:
    """Whether forking is safe here: on Linux and without a GPU.

    On other systems, system libraries may break after a fork. So does the state of CUDA, which a process may have after
    it only counted the GPUs.
    """
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


class Forked:
    """A command in its own process, with the methods of `subprocess.Popen` that `Children` uses.

    Args:
        words: arguments of the command.
        log: file to which standard output and standard error are appended.
    """

    def __init__(self, words: Sequence[str], log: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        self.process: ForkServerProcess = context.Process(target=_run, args=(list(words), log))
        self.process.start()
        self.pid: int = self.process.pid or 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        self.returncode = self.process.exitcode
        return self.returncode

    def terminate(self) -> None:
        """Ask it to save its state and end."""
        self.process.terminate()

    def kill(self) -> None:
        """Kill it and its workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        self.process.join()
        return self.poll() or 0


def _run(words: list[str], log: str) -> None:
    """Runs in the new process: set its session and outputs, then run the command."""
    os.setsid()
    parent = multiprocessing.parent_process()
    assert parent is not None
    signals.follow(parent.is_alive)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores SIGINT
    sys.argv[1:] = words
    runpy.run_module("rankgrad", run_name="__main__", alter_sys=False)  # as `python -m rankgrad` does
