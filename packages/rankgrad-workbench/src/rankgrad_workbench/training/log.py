"""The log of a training: the numbers of its steps go to the run's table and to TensorBoard.

The table is written before each saved state. So a run that was killed and resumed has the same one as an uninterrupted
run: it removes the rows after its state and writes them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import lightning as L
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

from ..files import write_text
from ..runs.folder import TABLE, Run
from ..runs.history import read_rows
from .module import TrainedModule, is_logged


class TableLogger(Logger):
    """A Lightning logger that writes the run's table, see `runs.history`.

    Args:
        folder: folder of the logs, inside the folder of the run.
        done: number of steps in the state from which the run resumes; later rows are removed. 0: a new table.
    """

    def __init__(self, folder: Path, done: int = 0) -> None:
        super().__init__()
        self.path, self.done = folder / TABLE, done
        self._rows: list[dict[str, str]] | None = None

    @property
    def name(self) -> str:
        """Name the folder of logs."""
        return self.path.parent.name

    @property
    def version(self) -> str:
        """There is one table per run."""
        return ""

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows, which are read when they are first needed: until then, the run may still be refused."""
        if self._rows is None:
            self._rows = [row for row in read_rows(self.path.parent) if float(row["step"]) < self.done]
        return self._rows

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row. The next `save` writes it."""
        self.rows.append({"step": str(step or 0), **{name: _cell(value) for name, value in metrics.items()}})

    @rank_zero_only
    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Settings are in config.yaml."""

    @rank_zero_only
    def save(self) -> None:
        """Write the table; it is then on the disk."""
        columns = dict.fromkeys(name for row in self.rows for name in row)
        lines = [",".join(columns), *(",".join(row.get(name, "") for name in columns) for row in self.rows)]
        if self.rows or self.path.exists():
            self.path.parent.mkdir(exist_ok=True)
            write_text(self.path, "\n".join(lines) + "\n" if columns else "")


def _cell(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def loggers(run: Run, names: Any, done: int) -> list[Logger]:
    """Make the loggers that a configuration names.

    Args:
        run: the run whose log they write.
        names: "csv" and "tensorboard".
        done: number of steps in the state from which the run resumes. Later rows of an earlier log are removed.

    """
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
