"""The log of a training: the numbers of its steps go to the run's table and to TensorBoard.

A run that was killed and resumed has the same table as an uninterrupted one: rows are appended, and they reach the disk
before the next saved state. A resumed run removes the rows after its state and writes them again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from rankgrad.common.checks import unknown

from ..files import append_text, write_text
from ..runs.folder import TABLE, Run
from ..runs.history import read_rows
from ..settings import ConfigError
from .module import TrainedModule, is_logged

LOGGERS = ("csv", "tensorboard")


class TableLogger(Logger):
    """A Lightning logger that writes the run's table, see `runs.log`. The table is opened at the first use.

    Args:
        folder: folder of the logs, inside the folder of the run. It is created with the first row.
        done: number of steps in the state from which the run resumes; later rows are removed. 0: a new table.
    """

    def __init__(self, folder: Path, done: int = 0) -> None:
        super().__init__()
        self.path, self.done = folder / TABLE, done
        self.columns: list[str] = []
        self._rows: list[dict[str, str]] | None = None

    @property
    def name(self) -> str:
        """Name the folder of logs."""
        return self.path.parent.name

    @property
    def version(self) -> str:
        """There is one table per run."""
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append a row. Readers of the file see it at once; the next `save` writes it to the disk."""
        rows = self._opened()
        row = {"step": str(step or 0), **{name: _cell(value) for name, value in metrics.items()}}
        rows.append(row)
        new = [name for name in row if name not in self.columns]
        self.columns += new
        if new or not self.path.exists():
            self._rewrite(rows)
        else:
            # the file is not kept open, so that its disk can be unmounted
            append_text(self.path, self._lines([row]))

    @rank_zero_only
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Settings are in config.yaml."""

    @rank_zero_only
    def save(self) -> None:
        """Bring the rows to the disk."""
        self._opened()
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def _opened(self) -> list[dict[str, str]]:
        if self._rows is None:
            self._rows = [row for row in read_rows(self.path.parent) if float(row["step"]) < self.done]
            self.columns = list(dict.fromkeys(name for row in self._rows for name in row))
            if self.path.exists():
                self._rewrite(self._rows)
        return self._rows

    def _rewrite(self, rows: Iterable[Mapping[str, str]]) -> None:
        self.path.parent.mkdir(exist_ok=True)
        head = ",".join(self.columns) + "\n" if self.columns else ""
        write_text(self.path, head + self._lines(rows))

    def _lines(self, rows: Iterable[Mapping[str, str]]) -> str:
        return "".join(",".join(row.get(name, "") for name in self.columns) + "\n" for row in rows)


def _cell(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def loggers(run: Run, names: Any, done: int) -> list[Logger]:
    """Make the loggers that a configuration names.

    Args:
        run: the run whose log they write.
        names: names out of `LOGGERS`.
        done: number of steps in the state from which the run resumes. Later rows of an earlier log are removed.

    Raises:
        ConfigError: an unknown name.
    """
    names = [names] if isinstance(names, str) else names
    for name in names:
        if name not in LOGGERS:
            raise ConfigError(unknown("logger", name, LOGGERS))
    chosen: list[Logger] = [TableLogger(run.logs, done)] if "csv" in names else []
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
