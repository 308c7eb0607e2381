"""The log of a training: the numbers of its steps go to the run's table and to TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import lightning as L
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from ..runs.folder import Run
from ..runs.log import LogTable
from ..settings import ConfigError
from .module import TrainedModule, is_logged

LOGGERS = ("csv", "tensorboard")


class TableLogger(Logger):
    """A Lightning logger that writes the run's table, see `runs.log`.

    Args:
        run: the run that the table belongs to.
        done: number of steps in the state from which the run resumes.
    """

    def __init__(self, run: Run, done: int) -> None:
        super().__init__()
        self.run, self.done = run, done
        self._table: LogTable | None = None

    @property
    def name(self) -> str:
        """Name the folder of logs."""
        return self.run.logs.name

    @property
    def version(self) -> str:
        """There is one table per run."""
        return ""

    @property
    def table(self) -> LogTable:
        """The table. It is opened at the first use."""
        if self._table is None:
            self._table = LogTable(self.run.logs, self.done)
        return self._table

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row."""
        self.table.add(metrics, 0 if step is None else step)

    @rank_zero_only
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Settings are in config.yaml."""

    @rank_zero_only
    def save(self) -> None:
        """Bring the rows to the disk."""
        self.table.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Bring the rows to the disk."""
        self.table.flush()


def loggers(run: Run, names: Any, done: int) -> list[Logger]:
    """Make the loggers that a configuration names.

    Args:
        run: the run whose log they write.
        names: names out of `LOGGERS`.
        done: number of steps in the state from which the run resumes. Later rows of an earlier log are removed.

    Raises:
        ConfigError: an unknown name, or not a list.
    """
    if isinstance(names, str):
        raise ConfigError(f"loggers must be a list such as loggers=[csv,tensorboard]; got {names!r}")
    unknown = [name for name in names if name not in LOGGERS]
    if unknown:
        raise ConfigError(f"unknown logger {unknown[0]!r}; known: {', '.join(LOGGERS)}")
    chosen: list[Logger] = []
    if "csv" in names:
        chosen.append(TableLogger(run, done))
    if "tensorboard" in names:
        again: dict[str, Any] = {"purge_step": done} if done else {}
        chosen.append(TensorBoardLogger(run.folder, name=run.logs.name, version="tensorboard", **again))
    return chosen


class WriteLog(L.Callback):
    """Passes the numbers of a step to the loggers before the state is saved. So the log has every step of the state."""

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write the first step, and every `trainer.log_every_n_steps` steps."""
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch
        if whole and is_logged(trainer, trainer.global_step):
            noted = {name: float(value) for name, value in cast(TrainedModule, pl_module).noted.items()}
            write(trainer.loggers, {"epoch": trainer.current_epoch, **noted}, trainer.global_step - 1)


def write(to: Sequence[Logger], values: Mapping[str, float], step: int) -> None:
    """Log some numbers of a step."""
    for logger in to:
        logger.log_metrics(dict(values), step=step)
