"""Commands in processes that are forked from one that has imported everything: they begin at once.

A training process spends ten seconds on importing torch, Lightning and what those import; a trial of `rankgrad tune`
may take less than that. The process that forks is the fork server of the standard library: it has imported, and done
nothing else, so that no thread that works is copied.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess

from . import signals

PRELOADED = ("rankgrad.cli", "rankgrad.config", "rankgrad.training.retrieval", "hydra", "sklearn.cluster")


def possible() -> bool:
    """Whether a process may be forked here: on Linux, as elsewhere system libraries may not survive it; on a CPU.

    A process that has only asked how many GPUs there are may hold CUDA's state, which does not survive a fork either.
    """
    import torch

    return sys.platform == "linux" and not torch.cuda.is_available()


class Forked:
    """A command in a process of its own, with the methods of `subprocess.Popen` that `Children` uses.

    Args:
        words: of the command.
        log: file that both outputs are added to.
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
        """Ask it to end."""
        self.process.terminate()

    def kill(self) -> None:
        """End it at once, and its workers, too."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        self.process.join()
        return self.poll() or 0


def _run(words: list[str], log: str) -> None:
    """In the new process: a session and outputs of its own, then the command."""
    os.setsid()
    parent = multiprocessing.parent_process()
    assert parent is not None
    signals.follow(parent.is_alive)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    sys.argv[1:] = words
    runpy.run_module("rankgrad", run_name="__main__", alter_sys=False)  # as `python -m rankgrad` does
