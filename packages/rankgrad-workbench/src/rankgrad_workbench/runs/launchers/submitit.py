"""Runs as SLURM jobs, submitted with submitit. Without SLURM, submitit starts processes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable, DelayedSubmission, clean_env, environment_variables

from ...settings.allowed import ConfigError
from .. import signals
from ..children import Child, Children
from . import Job, Launcher, RunCommand, blocked

# submitit's own default of timeout_min is five minutes under SLURM and two without it.
DEFAULTS = {"name": "rankgrad", "timeout_min": 24 * 60}
# Arguments of the executor; all other options are parameters of a job.
OF_EXECUTOR = ("cluster", "slurm_max_num_timeout", "slurm_python")


class Resumed(Checkpointable):
    """A run in a job. If SLURM preempts the job, submitit queues it again, and the run resumes.

    Args:
        run: the run.
    """

    def __init__(self, run: RunCommand) -> None:
        self.run, self.children = run, Children()

    def __call__(self) -> int | str:
        """Train the run; called in the job."""
        try:
            return self.run.here(self.children)
        except signals.Stopped as stopped:
            # We use SIGINT (see `SubmititJob.cancel`), so SLURM has preempted the job. Wait for the next signal: that
            # of submitit queues the job again; SIGKILL ends it.
            while stopped.number == signal.SIGTERM and submitit.JobEnvironment().cluster == "slurm":
                signal.pause()
            return signals.exit_code(stopped)

    def checkpoint(self) -> DelayedSubmission:
        """The job to queue again. The run first saves its state, because SLURM kills a job that is queued again."""
        self.children.end()
        return DelayedSubmission(Resumed(self.run))


class Submitit(Launcher):
    """Launches each run as a job of submitit, for example on SLURM.

    Args:
        options: of submitit's `AutoExecutor`, such as timeout_min, cpus_per_task, gpus_per_node, mem_gb,
            slurm_partition, slurm_account. cluster="local" or "slurm" replaces the detected one.

    Raises:
        ConfigError: submitit refuses an option.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = {**DEFAULTS, **options}
        with tempfile.TemporaryDirectory() as folder:
            self.shares_cores = self._executor(Path(folder)).cluster != "slurm"

    def start(self, run: RunCommand, children: Children) -> Child:
        """Queue a run. The files of its job are in submitit/ of its folder; they are removed after success."""
        folder = run.log.parent / "submitit"
        shutil.rmtree(folder, ignore_errors=True)  # submitit would unpickle an existing result, whoever wrote it
        kept = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
        try:
            # if this command runs in a job itself, the new job has none of its variables; only this process stops it
            with clean_env(), environment_variables(**kept), blocked(signal.SIGINT, signal.SIGHUP):
                job = self._executor(folder).submit(Resumed(run))
        except RuntimeError as error:
            raise ConfigError(f"submitit: {_last_line(str(error))}") from None
        ends = (partial(_cancel, job, self.shares_cores), partial(job.cancel, check=False))
        return children.add(Job(run, partial(_outcome, job), *ends))

    def _executor(self, folder: Path) -> submitit.AutoExecutor:
        own = {name: value for name, value in self.options.items() if name in OF_EXECUTOR}
        try:
            executor = submitit.AutoExecutor(folder=folder, **own)
            executor.update_parameters(**{name: self.options[name] for name in self.options.keys() - own})
        except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"launcher=submitit: {error}") from None
        return executor


def _outcome(job: submitit.Job[int | str], asked: bool) -> int | str | None:
    """A result may become visible some seconds after the end of its job; submitit waits for it."""
    if not job.done(force_check=asked):
        return None
    if (not asked or job.paths.result_pickle.exists()) and job.exception() is None:
        result = job.result()
        if result == 0:
            shutil.rmtree(job.paths.folder, ignore_errors=True)
        return result
    return f"submitit: job {job.job_id} has ended without a result ({job.state}): {_last_line(job.stderr() or '')}"


def _cancel(job: submitit.Job[int | str], local: bool) -> None:
    """Take a job of SLURM out of the queue, or send it SIGINT; send SIGTERM to a process of this machine.

    It then has the time that it needs to save its state. The cancel of submitit itself leaves it less.
    """
    if local:
        with suppress(ProcessLookupError):
            os.kill(int(job.job_id), signal.SIGTERM)
        return
    for words in (["--state=PENDING"], ["--state=RUNNING", "--signal=INT"]):
        subprocess.run(["scancel", *words, job.job_id], check=False, capture_output=True)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
