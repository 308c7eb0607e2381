"""Starting several processes for one training run, and joining them.

`rankgrad train trainer.devices=4` starts four processes on this machine. Across machines, start torchrun on each of
them with `-m rankgrad train ...`; a run finds its place in the environment either way, in torchrun's variables.
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
from omegaconf import DictConfig

from ..config import ConfigError
from ..distributed import STORE, group
from ..distributed import started as started
from ..files import shown
from . import signals
from .children import Children

ERRORS = "TORCHELASTIC_ERROR_FILE"  # torchrun's: where a process leaves what went wrong
UNEXPECTED = 70  # exit status of a process, for an error that is told with its traceback


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


def launch(config: DictConfig, arguments: Sequence[str]) -> int:
    """Run `python -m rankgrad ARGUMENTS` in as many processes as are wanted; returns the exit status.

    Args:
        config: says how many.
        arguments: of the command line.

    Raises:
        signals.Stopped: a signal asked for it before the first process knew how to go on; otherwise that one says so.
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
                return signals.exit_code(stopped)  # the first process has said how to go on
            raise
        return _told(codes, folder)


def _place(rank: int, count: int, folder: Path, *, on_cuda: bool) -> dict[str, str]:
    """The environment of a process: torchrun's variables, and how it finds the others."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    place = {key: str(value) for key, value in ranks.items()}
    place |= {STORE: str(folder / "store"), ERRORS: str(folder / f"{rank}.json")}
    if not on_cuda and "OMP_NUM_THREADS" not in os.environ:  # the processes share the cores
        place["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // count, 1))
    return place


def _told(codes: Sequence[int | None], folder: Path) -> int:
    """Say what went wrong in our words, once, though all processes may have met it; returns the exit status."""
    failed = {rank: code for rank, code in enumerate(codes) if code}
    if not failed:
        return 0
    for rank, code in failed.items():
        if code in signals.EXIT_CODES:  # that one was asked to end
            return code
        if code < 0:
            print(f"rankgrad: process {rank} was ended by {signal.Signals(-code).name}", file=sys.stderr)
            return 128 - code
    errors = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    if not errors:
        rank, code = next(iter(failed.items()))
        print(f"rankgrad: process {rank} failed with exit status {code}", file=sys.stderr)
        return code
    told = json.loads(errors[0].read_text(encoding="utf-8"))["message"]  # the others may have failed because of it
    code = failed.get(int(errors[0].stem)) or next(iter(failed.values()))
    if code == UNEXPECTED:
        print(told["extraInfo"]["py_callstack"], file=sys.stderr)
        return 1  # as Python has it
    lines = told["message"].partition(": ")[2].split("\n")
    print("rankgrad: " + "\n".join(map(shown, lines)), file=sys.stderr)
    return code


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
    if started() <= 1 and wanted(config) > 1:
        raise ConfigError(
            f"trainer.devices={config.trainer.devices} needs a process for each device: use the command rankgrad "
            "train, or start this program with torchrun"
        )
    # both: embeddings of an evaluation are gathered on the CPU
    backend = "gloo"
    if started() > 1 and _on_cuda(config):
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    with group(backend):
        yield


def trainer_options(config: DictConfig) -> dict[str, Any]:
    """Lightning's arguments for the processes that run: as many devices and machines as torchrun says."""
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    options: dict[str, Any] = {}
    if "plugins" not in config.trainer and not TorchElasticEnvironment.detect():
        # inside a job of SLURM, Lightning would take its ranks for those of the job, which started one command
        options["plugins"] = [LightningEnvironment()]
    if not dist.is_available() or not dist.is_initialized():
        return options
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    options["num_nodes"] = dist.get_world_size() // here
    if not isinstance(config.trainer.devices, (list, tuple)) and not hasattr(config.trainer.devices, "_content"):
        options["devices"] = here
    if "strategy" not in config.trainer:
        options["strategy"] = "ddp"
    return options
