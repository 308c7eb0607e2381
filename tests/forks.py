"""Processes by fork: they have imported everything already, which takes a new one seconds."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch


def forked(work: Callable[[], int | None], log: Path | None = None) -> int:
    """Start a process that does this and ends with what it gives as exit status (None: 0); its number.

    Args:
        work: what it does; with an exception it ends with status 1.
        log: a file for both outputs; None: they are lost.
    """
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        sys.stdout = sys.stderr = open(log or os.devnull, "w", buffering=1, encoding="utf-8")
        for output in (1, 2):
            os.dup2(sys.stdout.fileno(), output)
        torch.set_num_threads(1)  # the threads of the parent have not come along
        status = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def wait(number: int) -> int:
    """The exit status of a process, or minus the signal that ended it; waits for it."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
