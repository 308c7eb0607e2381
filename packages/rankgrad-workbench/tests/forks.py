"""Processes by fork: they have imported everything already, which takes a new one seconds."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import pytest
import torch

from rankgrad_workbench.cli import main
from rankgrad_workbench.runs import signals
from rankgrad_workbench.runs.children import Children

LOST = Path(os.devnull)


def forked(work: Callable[[], int | None], log: Path | None = LOST) -> int:
    """Start a process that does this and ends with what it gives as exit status (None: 0); its number.

    Args:
        work: what it does; with an exception it ends with status 1.
        log: a file that both outputs are added to; None: they are those of this process.
    """
    if torch.cuda.is_available():
        pytest.skip("needs that autograd has started no threads for a GPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of threads, such as those of pytest-xdist
        number = os.fork()
    if number:
        return number
    status = 1
    try:
        if log is not None:
            sys.stdout = sys.stderr = open(log, "a", buffering=1, encoding="utf-8")
            for output in (1, 2):
                os.dup2(sys.stdout.fileno(), output)
        torch.set_num_threads(1)  # the threads of the parent have not come along
        status = work() or 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def wait(number: int) -> int:
    """The exit status of a process, or minus the signal that ended it; waits for it."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def as_one(words: Sequence[str], log: Path, count: int = 2) -> list[int]:
    """Run a command in processes that are told their ranks as torchrun tells them; their exit statuses."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    def work(rank: int) -> int:
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": 0}
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "forked"}
        os.environ |= {name: str(value) for name, value in (ranks | place).items()}
        return main(list(words))

    return [wait(number) for number in [forked(partial(work, rank), log) for rank in range(count)]]


class Fork:
    """A run in a child by fork, with the methods of `subprocess.Popen` that `Children` uses."""

    def __init__(self, number: int) -> None:
        self.pid = number
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        return self.returncode or 0


def start_by_fork(self: Children, words: Sequence[str], *, log: IO[str] | None = None) -> Fork:
    """`Children.start` without the seconds that Python takes to start: a session of its own, and the same command."""
    parent = os.getpid()

    def work() -> int:
        os.setsid()
        os.environ[signals.PARENT] = str(parent)
        return main(list(words))

    return self.add(Fork(forked(work, None if log is None else Path(log.name))))
