"""Runs as SLURM jobs, submitted with submitit. Without SLURM, submitit starts processes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable, DelayedSubmission, clean_env, environment_variables

from ...allowed import ConfigError
from .. import signals
from ..children import Child, Children
from .base import Job, RunCommand, blocked

# submitit's own default of timeout_min is five minutes under SLURM and two without it.
DEFAULTS = {"name": "rankgrad", "timeout_min": 24 * 60}
# Arguments of the executor; all other options are parameters of a job.
OF_EXECUTOR = ("cluster", "slurm_max_num_timeout", "slurm_python")
LATE = 15.0  # seconds; a result may become visible this long after the end of its job


class Resumed(Checkpointable):
    """A run in a job. If SLURM preempts the job, submitit queues it again, and the run resumes.

    Args:
        run: the run.
    """

    def __init__(self, run: RunCommand) -> None:
        self.run = run
        self.children: Children | None = None

    def __call__(self) -> int | str:
        """Train the run; called in the job."""
        self.children = Children()
        try:
            return self.run.here(self.children)
        except signals.Stopped as stopped:
            if stopped.number == signal.SIGTERM and submitit.JobEnvironment().cluster == "slurm":
                # We use SIGINT (see `SlurmJob.cancel`), so SLURM has preempted or cancelled the job. Wait for the next
                # signal: submitit's own signal queues the job again; SIGKILL ends it.
                while True:
                    signal.pause()
            return signals.exit_code(stopped)

    def checkpoint(self) -> DelayedSubmission:
        """The job to queue again. The run first saves its state, because SLURM kills a job that is queued again."""
        if self.children is not None:
            self.children.end()
        return DelayedSubmission(Resumed(self.run))


class Submitit:
    """Launches each run as a job of submitit, for example on SLURM.

    Args:
        options: of submitit's `AutoExecutor`, such as timeout_min, cpus_per_task, gpus_per_node, mem_gb,
            slurm_partition, slurm_account. cluster="local" or "slurm" replaces the detected one.

    Raises:
        ConfigError: submitit refuses an option.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = {**DEFAULTS, **options}
        for name in ("nodes", "tasks_per_node"):
            if self.options.get(name, 1) != 1:
                raise ConfigError(
                    f"launcher.{name} must be 1, because a run is one task on one machine; got {self.options[name]}. "
                    "For several devices set launcher.gpus_per_node= and trainer.devices="
                )
        with tempfile.TemporaryDirectory() as folder:
            self.cluster: str = self._executor(Path(folder)).cluster

    @property
    def shares_cores(self) -> bool:
        """Whether the runs share the cores of this machine."""
        return self.cluster != "slurm"

    def start(self, run: RunCommand, children: Children, *, many: bool = False) -> Child:
        """Queue a run. The files of its job are in submitit/ of its folder; they are removed after success."""
        folder = run.log.parent / "submitit"
        shutil.rmtree(folder, ignore_errors=True)  # submitit would unpickle an existing result, whoever wrote it
        executor = self._executor(folder)
        try:
            with _outside_of_a_job(), blocked(signal.SIGINT, signal.SIGHUP):  # only this process stops the job
                job = executor.submit(Resumed(run))
        except RuntimeError as error:
            raise ConfigError(f"submitit: {_last_line(str(error))}") from None
        return children.add((SlurmJob if self.cluster == "slurm" else LocalJob)(run, job))

    def _executor(self, folder: Path) -> submitit.AutoExecutor:
        made = {name: value for name, value in self.options.items() if name in OF_EXECUTOR}
        parameters = {name: value for name, value in self.options.items() if name not in OF_EXECUTOR}
        try:
            executor = submitit.AutoExecutor(folder=folder, **made)
            executor.update_parameters(**parameters)
        except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(f"launcher=submitit: {error}") from None
        return executor


class LocalJob(Job):
    """A run in a process that submitit has started on this machine.

    Args:
        run: the run.
        job: submitit's job.
    """

    def __init__(self, run: RunCommand, job: submitit.Job[int | str]) -> None:
        super().__init__(run)
        self.job = job
        self._over: float | None = None

    def over(self) -> bool:
        """Whether the job has ended."""
        return bool(self.job.done())

    def outcome(self) -> int | str | None:
        """See `Job`."""
        job = self.job
        if not self.over():
            return None
        if not job.paths.result_pickle.exists():
            self._over = self._over or time.monotonic()
            if not self.asked and time.monotonic() - self._over < LATE:
                return None
        elif job.exception() is None:
            result = job.result()
            if result == 0:
                shutil.rmtree(job.paths.folder, ignore_errors=True)
            return result
        return f"submitit: job {job.job_id} has ended without a result ({job.state}): {_last_line(job.stderr() or '')}"

    def cancel(self) -> None:
        """Send SIGTERM, which submitit passes on. The cancel of submitit itself leaves only one second to end."""
        with suppress(ProcessLookupError):
            os.kill(int(self.job.job_id), signal.SIGTERM)

    def destroy(self) -> None:
        """See `Job`."""
        self.job.cancel(check=False)


class SlurmJob(LocalJob):
    """A run in a job of SLURM."""

    def cancel(self) -> None:
        """Remove it from the queue; if it runs, send SIGINT. It then has the time that it needs to save its state."""
        for words in (["--state=PENDING"], ["--state=RUNNING", "--signal=INT"]):
            subprocess.run(["scancel", *words, self.job.job_id], check=False, capture_output=True)

    def over(self) -> bool:
        """Whether the job has ended. When it was asked to end, ask SLURM, since submitit does so every few minutes."""
        if super().over():
            return True
        if not self.asked:
            return False
        words = ["squeue", "--noheader", f"--jobs={self.job.job_id}"]
        answer = subprocess.run(words, check=False, capture_output=True, text=True)
        return answer.returncode != 0 or not answer.stdout.strip()


@contextmanager
def _outside_of_a_job() -> Iterator[None]:
    """Context without SLURM's variables: if this command runs in a job, its submitted jobs must not inherit them."""
    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    place = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}  # needed to find SLURM
    with clean_env(), environment_variables(**place):
        yield


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
