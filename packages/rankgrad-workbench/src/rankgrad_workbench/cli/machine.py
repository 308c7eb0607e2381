"""The flags for the device and the number of threads."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

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

    if arguments.threads is not None:
        if arguments.threads < 1:
            raise ValueError(f"--threads is a number of threads, 1 or more; got {arguments.threads}")
        torch.set_num_threads(arguments.threads)
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
