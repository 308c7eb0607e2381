"""What a run does beside training: evaluating every few epochs, and saying how far it is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import lightning as L
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor, nn

from ..runs.log import TEST
from ..tables import duration
from .log import write
from .module import TrainedModule


class EvaluateEvery(L.Callback):
    """Evaluates each so many epochs and logs the values: see `runs.history.evaluations`.

    Args:
        epochs: between two evaluations.
        run: model -> metrics by name.
    """

    def __init__(self, epochs: int, run: Callable[[nn.Module], Mapping[str, float]]) -> None:
        self.epochs, self.run = epochs, run

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log all metrics of this epoch; those after the last one are the run's result anyway."""
        epoch = trainer.current_epoch + 1
        if epoch % self.epochs == 0 and epoch != trainer.max_epochs:
            values = self.run(cast(TrainedModule, pl_module).model)
            write(trainer.loggers, {f"{TEST}{name}": value for name, value in values.items()}, trainer.global_step - 1)


class Forecast(L.Callback):
    """Says once, after the first steps, how long the training will take, and which settings would make it shorter.

    The first step is not counted, because it is slower than the others.

    Args:
        quicker: settings as they are typed.
        worth: seconds; of a shorter training nothing is said.
    """

    STEPS, SECONDS = 20, 10.0  # that are watched at most

    def __init__(self, quicker: Sequence[str] = (), worth: float = 180.0) -> None:
        self.quicker, self.worth = tuple(quicker), worth
        self._batches, self._start, self._told = 0, 0.0, False

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Watch, and speak once."""
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
            if self.worth <= steps * step < float("inf"):
                pl_module.print(self.line(int(steps), step))

    def line(self, steps: int, seconds: float) -> str:
        """What is said of so many steps that take so many seconds each.

        >>> Forecast(["recipe=quick"]).line(1500, 2.0)
        'about 50 minutes of training are left: 1500 steps of 2 s. Quicker: recipe=quick'
        """
        minutes = round(steps * seconds / 60)
        time_left = f"{minutes} minutes" if minutes < 180 else f"{minutes / 60:.1f} hours"
        quicker = f". Quicker: {'; '.join(self.quicker)}" if self.quicker else ""
        return f"about {time_left} of training are left: {steps} steps of {seconds:.2g} s{quicker}"


class Clock(L.Callback):
    """Measures how long a training takes: of one that goes on, with what came before, which is in its state."""

    def __init__(self) -> None:
        self._before, self._used_before = 0.0, 0.0
        self.start()

    def start(self) -> None:
        """Begin to count."""
        self._start, self._used = time.monotonic(), time.process_time()

    def state_dict(self) -> dict[str, float]:
        """Return the seconds so far, and those of the processor."""
        seconds, used = time.monotonic() - self._start, time.process_time() - self._used
        return {"train_seconds": self._before + seconds, "train_cpu_seconds": self._used_before + used}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Go on from those of a state."""
        self._before, self._used_before = state_dict["train_seconds"], state_dict["train_cpu_seconds"]


class LossBar(TQDMProgressBar):
    """Lightning's bar with the loss of the last step; it is read only when the bar is drawn."""

    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """What stands behind the bar."""
        loss = cast(TrainedModule, pl_module).noted.get("loss")
        return {} if loss is None else {"loss": float(loss)}


class ProgressLines(L.Callback):
    """How far a training is, as lines: what a file or the log of a job shows instead of a bar that is drawn anew.

    Args:
        seconds: between two lines at least; after the last step there is one in any case.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self._start, self._last, self._first_step = 0.0, 0.0, 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin to count; a resumed training has steps behind it, which took no time."""
        self._start = self._last = time.monotonic()
        self._first_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Print a line, if it is time for one."""
        now, steps = time.monotonic(), trainer.estimated_stepping_batches
        if now - self._last < self.seconds and trainer.global_step < steps:
            return
        self._last = now
        done = trainer.global_step - self._first_step
        loss = cast(TrainedModule, pl_module).noted.get("loss")
        epochs = f"epoch {trainer.current_epoch + 1} of {trainer.max_epochs}"
        pl_module.print(self.line(trainer.global_step, steps, epochs, loss, (now - self._start) / max(done, 1)))

    @staticmethod
    def line(step: int, steps: float, epochs: str, loss: Tensor | float | None, seconds: float) -> str:
        """What is said after a step of so many that take so many seconds each.

        >>> ProgressLines.line(240, 900, "epoch 3 of 9", 0.305, 1.5)
        'epoch 3 of 9, step 240 of 900: loss 0.3050; 1.5 s a step, 16 min left'
        """
        of = "" if math.isinf(steps) else f" of {steps:.0f}"
        left = "" if math.isinf(steps) else f", {duration((steps - step) * seconds)} left"
        value = "" if loss is None else f": loss {loss:.4f}"
        return f"{epochs}, step {step}{of}{value}; {seconds:.2g} s a step{left}"
