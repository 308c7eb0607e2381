"""Runs as tasks of a Ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError, TaskCancelledError

from ...settings.allowed import ConfigError
from .. import signals
from ..children import Child, Children
from . import Job, Launcher, RunCommand


def train(run: RunCommand) -> int | str:
    """Train a run, in a worker of Ray.

    Raises:
        signals.Stopped: it was cancelled.
    """
    try:
        return run.here()
    except signals.Stopped as stopped:
        if stopped.number != signal.SIGINT:
            os._exit(1)  # the machine leaves the cluster: Ray starts the task again elsewhere, which resumes the run
        raise


class Ray(Launcher):
    """Each run is a task. If its machine dies, Ray starts the task again on another machine.

    Args:
        options: of Ray: address of `ray.init` ("auto": the cluster of this machine), and options of a remote function,
            such as num_cpus, num_gpus, memory, resources, max_retries, runtime_env.

    Raises:
        ConfigError: the cluster cannot be reached, or Ray refuses an option.
    """

    shares_cores = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        remote = dict(options)
        address = remote.pop("address", "auto")
        try:
            self.function = ray.remote(train).options(**remote)
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False, logging_level="error")
                signals.take_back()  # Ray has replaced the handler of SIGTERM
        except (AssertionError, ConnectionError, RuntimeError, TypeError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise ConfigError(
                f"launcher=ray: {first} (launcher.address={address}; start a cluster with ray start --head)"
            ) from None

    def start(self, run: RunCommand, children: Children) -> Child:
        """Submit a run to the cluster, where it waits for the resources that it needs."""
        task = self.function.remote(run)
        # cancelling raises KeyboardInterrupt in the worker, or removes the task from the queue
        ends = (partial(ray.cancel, task), partial(ray.cancel, task, force=True))
        return children.add(Job(run, partial(_outcome, task), *ends))


def _outcome(task: ray.ObjectRef, asked: bool) -> int | str | None:
    if not ray.wait([task], timeout=0)[0]:
        return None
    try:
        result: int | str = ray.get(task)
    except TaskCancelledError:
        return "ray: the task was cancelled"
    except RayError as error:
        return f"ray: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return result
