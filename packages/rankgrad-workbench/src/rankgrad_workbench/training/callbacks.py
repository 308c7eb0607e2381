"""Callbacks of a run: evaluation every few epochs, progress and time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import nn

from rankgrad.common.text import duration

from ..runs.log import TEST
from .log import write
from .module import TrainedModule


class EvaluateEvery(L.Callback):
    """Evaluates every N epochs and logs the values, see `runs.history.evaluations`.

    Args:
        epochs: number of epochs between two evaluations.
        run: model -> metrics by name.
    """

    def __init__(self, epochs: int, run: Callable[[nn.Module], Mapping[str, float]]) -> None:
        self.epochs, self.run = epochs, run

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate and log. The last epoch is left out, because the run is evaluated at its end."""
        epoch = trainer.current_epoch + 1
        if epoch % self.epochs == 0 and epoch != trainer.max_epochs:
            values = self.run(cast(TrainedModule, pl_module).model)
            write(trainer.loggers, {f"{TEST}{name}": value for name, value in values.items()}, trainer.global_step - 1)


class Clock(L.Callback):
    """Measures the training time. In a resumed run the time before the interruption is added; the state holds it."""

    def __init__(self) -> None:
        self._before, self._used_before = 0.0, 0.0
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self._start, self._used = time.monotonic(), time.process_time()

    def state_dict(self) -> dict[str, float]:
        """Seconds so far, and processor seconds."""
        seconds, used = time.monotonic() - self._start, time.process_time() - self._used
        return {"train_seconds": self._before + seconds, "train_cpu_seconds": self._used_before + used}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Add the seconds of a saved state."""
        self._before, self._used_before = state_dict["train_seconds"], state_dict["train_cpu_seconds"]


class LossBar(TQDMProgressBar):
    """Lightning's bar with the loss of the last step, and the time of the training that is left."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock. The steps of a resumed run that were done before take no time here."""
        super().on_train_start(trainer, pl_module)
        self._began = time.monotonic(), trainer.global_step

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """The numbers behind the bar."""
        loss = cast(TrainedModule, pl_module).noted.get("loss")
        _, left = _pace(trainer, *self._began)
        return {**({} if loss is None else {"loss": float(loss)}), **({"left": left} if left else {})}


def _pace(trainer: L.Trainer, began: float, first: int) -> tuple[float, str]:
    """(seconds of a step, time of the training that is left; empty if it has no end)."""
    seconds = (time.monotonic() - began) / max(trainer.global_step - first, 1)
    steps = trainer.estimated_stepping_batches
    return seconds, "" if math.isinf(steps) else duration((steps - trainer.global_step) * seconds)


class ProgressLines(L.Callback):
    """Progress as lines, for output that goes to a file or a job's log, where a bar cannot be redrawn.

    The last step always prints a line.
    """

    BETWEEN = 30.0  # seconds; shortest time between two lines

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._began = time.monotonic(), trainer.global_step
        self._last = self._began[0]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print a line when enough time has passed."""
        now, steps = time.monotonic(), trainer.estimated_stepping_batches
        if now - self._last < self.BETWEEN and trainer.global_step < steps:
            return
        self._last = now
        seconds, left = _pace(trainer, *self._began)
        loss = cast(TrainedModule, pl_module).noted.get("loss")
        pl_module.print(
            f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}, step {trainer.global_step}"
            + (f" of {steps:.0f}" if left else "")
            + ("" if loss is None else f": loss {loss:.4f}")
            + f"; {seconds:.2g} s a step"
            + (f", {left} left" if left else "")
        )
