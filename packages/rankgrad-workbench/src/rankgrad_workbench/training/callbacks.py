"""Callbacks of a run: evaluation every few epochs, progress and time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor, nn

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


class Forecast(L.Callback):
    """Prints once, after the first steps, how long the training will take and which settings make it shorter.

    The first step is not counted, because it is slower than the others.

    Args:
        quicker: settings that make training shorter, as they are typed.
    """

    STEPS, SECONDS = 20, 10.0  # largest number of steps and seconds that are timed
    SHORT = 180.0  # seconds; nothing is printed for a shorter training

    def __init__(self, quicker: Sequence[str] = ()) -> None:
        self.quicker = tuple(quicker)
        self._batches, self._start, self._told = 0, 0.0, False

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Time the step. Print the forecast when enough steps were timed."""
        if self._told:
            return
        now = time.monotonic()
        self._batches += 1
        if self._batches == 1:
            self._start = now
        elif self._batches > self.STEPS or now - self._start > self.SECONDS:
            self._told = True
            step: float = (now - self._start) / (self._batches - 1) * trainer.accumulate_grad_batches
            steps = trainer.estimated_stepping_batches - trainer.global_step
            if self.SHORT <= steps * step < float("inf"):
                pl_module.print(self.line(int(steps), step))

    def line(self, steps: int, seconds: float) -> str:
        """The text for a number of steps and the seconds of each step.

        >>> Forecast(["recipe=quick"]).line(1500, 2.0)
        'about 50 minutes of training are left: 1500 steps of 2 s. Quicker: recipe=quick'
        """
        minutes = round(steps * seconds / 60)
        time_left = f"{minutes} minutes" if minutes < 180 else f"{minutes / 60:.1f} hours"
        quicker = f". Quicker: {'; '.join(self.quicker)}" if self.quicker else ""
        return f"about {time_left} of training are left: {steps} steps of {seconds:.2g} s{quicker}"


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
    """Lightning's bar with the loss of the last step; it is read only when the bar is drawn."""

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """The numbers behind the bar."""
        loss = cast(TrainedModule, pl_module).noted.get("loss")
        return {} if loss is None else {"loss": float(loss)}


class ProgressLines(L.Callback):
    """Progress as lines, for output that goes to a file or a job's log, where a bar cannot be redrawn.

    The last step always prints a line.
    """

    BETWEEN = 30.0  # seconds; shortest time between two lines

    def __init__(self) -> None:
        self._start, self._last, self._first_step = 0.0, 0.0, 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock. The steps of a resumed run that were done before take no time here."""
        self._start = self._last = time.monotonic()
        self._first_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print a line when enough time has passed."""
        now, steps = time.monotonic(), trainer.estimated_stepping_batches
        if now - self._last < self.BETWEEN and trainer.global_step < steps:
            return
        self._last = now
        done = trainer.global_step - self._first_step
        loss = cast(TrainedModule, pl_module).noted.get("loss")
        epochs = f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}"
        pl_module.print(self.line(trainer.global_step, steps, epochs, loss, (now - self._start) / max(done, 1)))

    @staticmethod
    def line(step: int, steps: float, epochs: str, loss: Tensor | float | None, seconds: float) -> str:
        """The line after a step.

        >>> ProgressLines.line(240, 900, "epoch 3 of 9", 0.305, 1.5)
        'epoch 3 of 9, step 240 of 900: loss 0.3050; 1.5 s a step, 16 min left'
        """
        of = "" if math.isinf(steps) else f" of {steps:.0f}"
        left = "" if math.isinf(steps) else f", {duration((steps - step) * seconds)} left"
        value = "" if loss is None else f": loss {loss:.4f}"
        return f"{epochs}, step {step}{of}{value}; {seconds:.2g} s a step{left}"
