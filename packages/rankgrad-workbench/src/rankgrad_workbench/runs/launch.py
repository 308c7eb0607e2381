"""Starts several processes for one training run and joins them in a group.

`rankgrad train trainer.devices=4` starts four processes on this machine. For several machines, start torchrun on each
of them with `-m rankgrad train ...`. In both cases a process reads its rank from torchrun's environment variables.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist
from omegaconf import DictConfig, OmegaConf
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, get_error_handler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from rankgrad.batches.distributed import group
from rankgrad.batches.distributed import started as started
from rankgrad.common.text import shown

from ..settings import ConfigError
from . import signals

# Largest number of processes on a machine with few cores and accelerators. More than its cores only help to try things
# out, and the number may come from the settings of somebody else.
FEW = 8
UNEXPECTED = 70  # exit status of a process for an unexpected error, which is printed with its traceback


def wanted(config: DictConfig) -> int:
    """Number of processes on this machine, from trainer.devices and trainer.accelerator.

    Raises:
        ConfigError: it is not a number of devices, or is larger than this machine allows.
    """
    devices, most = config.trainer.devices, max(os.cpu_count() or 1, torch.cuda.device_count(), FEW)
    if devices in ("auto", -1, "-1"):
        return max(torch.cuda.device_count(), 1) if _on_cuda(config) else 1
    count = str(len(devices) if OmegaConf.is_list(devices) else devices)
    if not count.isdecimal() or not 1 <= int(count) <= most:
        raise ConfigError(
            f"trainer.devices must be auto, a number of devices or a list of them, from 1 to the {most} processes that "
            f"this machine can run; got {devices!r}"
        )
    return int(count)


def _on_cuda(config: DictConfig) -> bool:
    accelerator = str(config.trainer.accelerator)
    return accelerator in ("cuda", "gpu") or (accelerator == "auto" and torch.cuda.is_available())


def launch(config: DictConfig, arguments: Sequence[str]) -> int:
    """Run `python -m rankgrad ARGUMENTS` in `wanted(config)` processes, as torchrun does; returns the exit status.

    Args:
        config: settings of the run.
        arguments: of the command line.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # it would tell each error again
    count = wanted(config)
    if not _on_cuda(config):  # the processes share the cores
        os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // count, 1)))
    os.environ[signals.PARENT] = str(os.getpid())
    place = LaunchConfig(
        *(1, 1, count),
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
    )
    try:
        elastic_launch(place, sys.executable)("-m", "rankgrad", *arguments)
    except SignalException as stopped:
        return 128 + int(stopped.sigval)  # the first process has printed how to resume
    except ChildFailedError as failed:
        return _told(failed.failures)
    return 0


def _told(failures: Mapping[int, ProcessFailure]) -> int:
    """Print the first error of the processes, which may have caused the others; returns the exit status.

    The time of an error is known in seconds. Within the same second, the other processes were ended by torch because
    of the error, or have lost their connection to the process that had it.
    """
    later = {-signal.SIGTERM: 2, 128 + signal.SIGTERM: 2, UNEXPECTED: 1}
    rank, failure = min(failures.items(), key=lambda each: (each[1].timestamp, later.get(each[1].exitcode, 0)))
    code, told = failure.exitcode, failure.error_file_data["message"]
    if code in signals.EXIT_CODES:  # a signal asked this process to end
        return code
    if code == UNEXPECTED:
        print(told["extraInfo"]["py_callstack"], file=sys.stderr)
        return 1  # Python's exit status for an exception
    if code < 0:
        said = f"process {rank} was killed by {failure.signal_name()}"
    elif isinstance(told, dict):
        said = "\n".join(map(shown, told["message"].partition(": ")[2].split("\n")))
    else:
        said = f"process {rank} failed with exit status {code}"
    print(f"rankgrad: {said}", file=sys.stderr)
    return 128 - code if code < 0 else code


def report(error: Exception) -> None:
    """Write an error for the process that started this one, which prints it once for all processes."""
    get_error_handler().record_exception(error)


@contextmanager
def joined(config: DictConfig) -> Iterator[None]:
    """Context with the process group of all processes of the run; does nothing for a single process.

    Raises:
        ConfigError: several devices are requested, but only one process was started.
    """
    if started() <= 1 and wanted(config) > 1:
        raise ConfigError(
            f"trainer.devices={config.trainer.devices} needs a process for each device: use the command rankgrad "
            "train, or start this program with torchrun"
        )
    # gloo also with GPUs, since embeddings of an evaluation are gathered on the CPU
    backend = "gloo"
    if started() > 1 and _on_cuda(config):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    with group(backend):
        yield


def trainer_options(config: DictConfig) -> dict[str, Any]:
    """Arguments of Lightning's Trainer for the running processes: the numbers of devices and machines."""
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    options: dict[str, Any] = {}
    if "plugins" not in config.trainer and not TorchElasticEnvironment.detect():
        # inside a SLURM job, Lightning would use the job's ranks, but the job has started only one command
        options["plugins"] = [LightningEnvironment()]
    if dist.is_available() and dist.is_initialized():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        options |= {"num_nodes": dist.get_world_size() // here, "strategy": config.trainer.get("strategy", "ddp")}
        options |= {} if OmegaConf.is_list(config.trainer.devices) else {"devices": here}
    return options
