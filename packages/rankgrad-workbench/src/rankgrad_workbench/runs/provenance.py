"""What numbers were made with: the commit of the code and the processor. Runs and files of results name both."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import torch

from rankgrad._version import __version__

COMMIT, PROCESSOR = "commit", "processor"
MADE = (COMMIT, PROCESSOR)
CHANGED = "+changes"  # behind a commit: the code differs from it
_PACKAGE = Path(__file__).parents[1]


def made_by(device: torch.device | None = None) -> dict[str, str]:
    """The commit of this code, and the processor of this machine.

    Args:
        device: on which the numbers are computed; None: the CPU.

    >>> list(made_by())
    ['commit', 'processor']
    """
    gpu = device is not None and device.type == "cuda"
    return {COMMIT: commit(), PROCESSOR: torch.cuda.get_device_name(device) if gpu else processor()}


def joined(facts: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The commits and the processors of several runs; empty if their facts are from before these were noted.

    >>> joined([{"commit": "a", "processor": "x"}, {"commit": "b", "processor": "x"}, {}])
    {'commit': 'a, b', 'processor': 'x'}
    """
    known = list(facts)
    return {name: ", ".join(dict.fromkeys(str(each[name]) for each in known if each.get(name))) for name in MADE}


@cache
def commit() -> str:
    """The commit of the clone from which this code is run; the version, if it is not run from a clone."""
    try:
        _git("ls-files", "--error-unmatch", "__init__.py")  # a package that was installed below another project
        name = _git("rev-parse", "--short=12", "HEAD")
        return name + (CHANGED if _git("status", "--porcelain", "-uno", ":/src", ":/packages", ":/papers/src") else "")
    except (OSError, subprocess.SubprocessError):
        return __version__


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_PACKAGE, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


@cache
def processor() -> str:
    """The model of the processor."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", info.read_text("utf-8", "replace")) if info.exists() else None
    return model[1].strip() if model else platform.processor() or platform.machine()
