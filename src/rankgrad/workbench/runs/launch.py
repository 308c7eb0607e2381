"""Starts several processes for one training run and joins them in a group.

`rankgrad train trainer.devices=4` starts four processes on this machine. For several machines, start torchrun on each
of them with `-m rankgrad train ...`. In both cases a process reads its rank from torchrun's environment variables.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig, OmegaConf

from ...batches.distributed import STORE, group
from ...batches.distributed import started as started
from ...common.files import shown
from ..config import ConfigError
from . import signals
from .children import Children

ERRORS = "TORCHELASTIC_ERROR_FILE"  # torchrun's variable: the file to which a process writes its error
# Largest number of processes on a machine with few cores and accelerators. More than its cores only help to try things
# out, and the number may come from the settings of somebody else.
FEW = 8
UNEXPECTED = 70  # exit status of a process for an unexpected error, which is printed with its traceback


def wanted(config: DictConfig) -> int:
    """Number of processes on this machine, from trainer.devices and trainer.accelerator.

    Raises:
        ConfigError: it is not a number of devices, or is larger than this machine allows.
    """
    count, most = _named(config), max(os.cpu_count() or 1, torch.cuda.device_count(), FEW)
    if count > most:
        raise ConfigError(f"trainer.devices asks for {count} processes; this machine can run at most {most}")
    return count


def _named(config: DictConfig) -> int:
    devices, on_cpu = config.trainer.devices, not _on_cuda(config)
    if OmegaConf.is_list(devices):
        return len(devices)
    if devices in ("auto", -1, "-1"):
        return 1 if on_cpu else torch.cuda.device_count()
    try:
        count = int(devices)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"trainer.devices must be a number of devices, a list, or auto; got {devices!r}") from None
    if count < 1:
        raise ConfigError(f"trainer.devices must be >= 1, or auto; got {devices!r}")
    return count


def _on_cuda(config: DictConfig) -> bool:
    accelerator = str(config.trainer.accelerator)
    return accelerator in ("cuda", "gpu") or (accelerator == "auto" and torch.cuda.is_available())


def launch(config: DictConfig, arguments: Sequence[str]) -> int:
    """Run `python -m rankgrad ARGUMENTS` in `wanted(config)` processes; returns the exit status.

    Args:
        config: settings of the run.
        arguments: of the command line.

    Raises:
        signals.Stopped: a signal stopped the run before the first process could print how to resume.
    """
    count = wanted(config)
    ranks = []
    with tempfile.TemporaryDirectory(prefix="rankgrad-") as name:
        folder = Path(name)
        try:
            with Children() as children:
                for rank in range(count):
                    place = _place(rank, count, folder, on_cuda=_on_cuda(config))
                    ranks.append(children.start(arguments, environment=place))
                for _ in ranks:
                    if children.wait().returncode:
                        break
                codes = [process.poll() for process in ranks]
        except KeyboardInterrupt as stopped:
            if ranks and ranks[0].returncode in signals.EXIT_CODES:
                return signals.exit_code(stopped)  # the first process has printed how to resume
            raise
        return _told(codes, folder)


def _place(rank: int, count: int, folder: Path, *, on_cuda: bool) -> dict[str, str]:
    """The environment of a process: torchrun's variables, and the store where the processes meet."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    place = {key: str(value) for key, value in ranks.items()}
    place |= {STORE: str(folder / "store"), ERRORS: str(folder / f"{rank}.json")}
    if not on_cuda and "OMP_NUM_THREADS" not in os.environ:  # the processes share the cores
        place["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // count, 1))
    return place


def _told(codes: Sequence[int | None], folder: Path) -> int:
    """Print the error of the processes once, though several may have had it; returns the exit status."""
    failed = {rank: code for rank, code in enumerate(codes) if code}
    if not failed:
        return 0
    for rank, code in failed.items():
        if code in signals.EXIT_CODES:  # a signal asked this process to end
            return code
        if code < 0:
            print(f"rankgrad: process {rank} was killed by {signal.Signals(-code).name}", file=sys.stderr)
            return 128 - code
    errors = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    if not errors:
        rank, code = next(iter(failed.items()))
        print(f"rankgrad: process {rank} failed with exit status {code}", file=sys.stderr)
        return code
    told = json.loads(errors[0].read_text(encoding="utf-8"))["message"]  # the first error may have caused the others
    code = failed.get(int(errors[0].stem)) or next(iter(failed.values()))
    if code == UNEXPECTED:
        print(told["extraInfo"]["py_callstack"], file=sys.stderr)
        return 1  # Python's exit status for an exception
    lines = told["message"].partition(": ")[2].split("\n")
    print("rankgrad: " + "\n".join(map(shown, lines)), file=sys.stderr)
    return code


def report(error: Exception) -> None:
    """Write an error for the process that started this one, which prints it once for all processes."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

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
    if not dist.is_available() or not dist.is_initialized():
        return options
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    options["num_nodes"] = dist.get_world_size() // here
    if not OmegaConf.is_list(config.trainer.devices):
        options["devices"] = here
    if "strategy" not in config.trainer:
        options["strategy"] = "ddp"
    return options
