"""Arguments that several commands take: devices, trusted packages, paths, settings of a training."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rankgrad.common.text import shown

from ..files import check_unpacked

if TYPE_CHECKING:
    import torch


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add --device and --threads to a command; `machine` reads them."""
    parser.add_argument("--device", default="cpu", help="device: cpu (default), cuda, cuda:1, mps")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all)")


def machine(arguments: argparse.Namespace) -> torch.device:
    """Set the number of threads, and return the device.

    Raises:
        ValueError: the device does not exist on this machine, or the number of threads is below 1.
    """
    import torch

    from rankgrad.batches.distributed import started
    from rankgrad.common.checks import integer

    if arguments.threads is not None:
        torch.set_num_threads(integer(arguments.threads, "--threads counts threads", low=1))
    try:
        # each process on a machine has its own GPU
        own = f"cuda:{os.environ['LOCAL_RANK']}" if arguments.device == "cuda" and started() else arguments.device
        device = torch.device(own)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch raises each of them
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"--device {arguments.device} cannot be used here: {reason}") from None
    return device


def say(text: str) -> None:
    """Print a text. With several processes only the first one prints."""
    from rankgrad.batches.distributed import world

    if world()[0] == 0:
        print(text)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust to a command: the user's own packages. `settings.packages` checks it."""
    what = "package of your own, if the settings of the run name its classes; other packages are never imported"
    parser.add_argument("--trust", action="append", metavar="PACKAGE", help=what)


def add_run(parser: argparse.ArgumentParser, name: str = "model") -> None:
    """Add the run that a command reads."""
    parser.add_argument(name, type=Path, metavar="RUN", help="folder of a run, or its model.pt")


def require(what: str, *paths: Path | None) -> None:
    """Raise unless each path exists. Commands ask this before they import anything, which takes seconds.

    Args:
        what: what is needed, for the message.
        paths: of files or folders; None: not given.

    Raises:
        FileNotFoundError: naming the path.
        ValueError: it is an archive.

    >>> require("the folder of a run", Path("missing"))
    Traceback (most recent call last):
    FileNotFoundError: missing does not exist; give the folder of a run
    """
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(f"{shown(path)} does not exist; give {what}")
        if path is not None:
            check_unpacked(path)
