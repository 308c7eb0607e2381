"""Starting several processes for one training run, and joining them: torchrun's way, on one machine or many.

`rankgrad train trainer.devices=4` starts four processes on this machine. Across machines, start torchrun on each of
them with `-m rankgrad train ...`; a run finds its place in the environment either way.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig

from ..config import ConfigError

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it


def wanted(config: DictConfig) -> int:
    """Processes that a configuration asks for on this machine, from trainer.devices and trainer.accelerator."""
    devices, on_cpu = config.trainer.devices, not _on_cuda(config)
    if isinstance(devices, (list, tuple)) or hasattr(devices, "_content"):
        return len(devices)
    if devices in ("auto", -1, "-1"):
        return 1 if on_cpu else torch.cuda.device_count()
    try:
        count = int(devices)
    except (TypeError, ValueError):
        raise ConfigError(f"trainer.devices is a number of devices, a list of them, or auto; got {devices!r}") from None
    if count < 1:
        raise ConfigError(f"trainer.devices must be >= 1, or auto; got {devices!r}")
    return count


def _on_cuda(config: DictConfig) -> bool:
    accelerator = str(config.trainer.accelerator)
    return accelerator in ("cuda", "gpu") or (accelerator == "auto" and torch.cuda.is_available())


def started() -> bool:
    """Whether torchrun, or `launch`, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def first() -> bool:
    """Whether this process is the one that speaks."""
    return not started() or os.environ.get("RANK", "0") == "0"


def launch(config: DictConfig, arguments: Sequence[str]) -> int:
    """Run `python -m rankgrad ARGUMENTS` in as many processes as are wanted; returns the exit status.

    Args:
        config: says how many.
        arguments: of the command line.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    processes = wanted(config)
    if not _on_cuda(config):  # the processes share the cores
        os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // processes, 1)))
    # each process says itself what went wrong, in our words
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=f"rankgrad-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(settings, sys.executable)("-m", "rankgrad", *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode == INTERRUPTED:
            return INTERRUPTED
        told: Any = failure.message
        text = told["message"].partition(": ")[2] if isinstance(told, dict) else f"process {rank} failed. {told}"
        print(f"rankgrad: {text}", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 1
    return 0


def report(error: Exception) -> None:
    """Hand an error over to whoever started this process: all processes may have met it, and it is told once."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    get_error_handler().record_exception(error)


@contextmanager
def joined(config: DictConfig) -> Iterator[None]:
    """The group of the processes that were started together, from here to the end; nothing if there is one process.

    Raises:
        ConfigError: several devices are wanted, but this process was started alone.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1")) if started() else 1
    if processes == 1:
        if wanted(config) > 1:
            raise ConfigError(
                f"trainer.devices={config.trainer.devices} needs a process for each device: use the command rankgrad "
                "train, or start this program with torchrun"
            )
        yield
        return
    # both: embeddings of an evaluation are gathered on the CPU
    backend = "gloo"
    if _on_cuda(config):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    try:
        yield
    finally:
        dist.destroy_process_group()


def trainer_options(config: DictConfig) -> dict[str, Any]:
    """Lightning's arguments for the processes that run: as many devices and machines as torchrun says."""
    if not dist.is_available() or not dist.is_initialized():
        return {}
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    options: dict[str, Any] = {"num_nodes": dist.get_world_size() // here}
    if not isinstance(config.trainer.devices, (list, tuple)) and not hasattr(config.trainer.devices, "_content"):
        options["devices"] = here
    if "strategy" not in config.trainer:
        options["strategy"] = "ddp"
    return options
