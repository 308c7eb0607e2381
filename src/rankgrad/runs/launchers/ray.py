"""Runs as tasks of a Ray cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, TaskCancelledError

from ...targets import ConfigError
from .. import signals
from ..children import Child, Children
from .base import Job, RunCommand


def train(run: RunCommand) -> int | str:
    """Train a run, in a worker of Ray.

    Raises:
        signals.Stopped: it was cancelled.
    """
    try:
        return run.here()
    except signals.Stopped as stopped:
        if stopped.number != signal.SIGINT:
            os._exit(1)  # the machine leaves the cluster: Ray tries again on another one, and the run goes on
        raise


class Ray:
    """Each run is a task, which Ray begins again on another machine if its machine dies.

    Args:
        options: of Ray: address of `ray.init` ("auto": of the cluster that this machine is part of), and those of a
            remote function, such as num_cpus, num_gpus, memory, resources, max_retries, runtime_env.

    Raises:
        ConfigError: there is no such cluster, or Ray refuses the options.
    """

    shares_cores = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        options = dict(options)
        address = options.pop("address", "auto")
        try:
            self.function = ray.remote(train).options(**options)
        except (AssertionError, TypeError, ValueError) as error:
            raise ConfigError(f"launcher=ray: {error}") from None
        if not ray.is_initialized():
            try:
                ray.init(address=address, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError) as error:
                first = str(error).strip().splitlines()[0]
                raise ConfigError(
                    f"launcher=ray: {first} (launcher.address={address}). Start a cluster with ray start --head, and "
                    "ray start --address=... on the other machines"
                ) from None
            signals.take_back()  # Ray has put a handler of its own for SIGTERM

    def start(self, run: RunCommand, children: Children, *, many: bool = False) -> Child:
        """Hand a run to the cluster, where it waits for what it needs."""
        return children.add(RayJob(run, self.function.remote(run)))


class RayJob(Job):
    """A run in a task.

    Args:
        run: that is trained.
        task: what Ray gives for it.
    """

    def __init__(self, run: RunCommand, task: ray.ObjectRef) -> None:
        super().__init__(run)
        self.task = task

    def outcome(self) -> int | str | None:
        """See `Job`."""
        ready, _ = ray.wait([self.task], timeout=0)
        if not ready:
            return None
        try:
            result: int | str = ray.get(self.task)
        except TaskCancelledError:
            return "ray: it was cancelled"
        except RayError as error:
            return f"ray: {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        return result

    def cancel(self) -> None:
        """Raise KeyboardInterrupt in the worker, or take the task out of the queue."""
        ray.cancel(self.task)

    def destroy(self) -> None:
        """End the worker, which the run notices."""
        ray.cancel(self.task, force=True)
