"""Callbacks of a run: evaluation every few epochs, progress and time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import lightning as L
import numpy as np
import numpy.typing as npt
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor, nn

from rankgrad.common.text import duration

from ..runs.history import TEST
from .log import write
from .module import TrainedModule
from .state import due


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


class KeepBest(L.Callback):
    """Evaluates the model after each epoch, and keeps the weights of the best epoch; of equal epochs, the earliest.

    Of more than `times` epochs not every one is evaluated.

    The weights are part of the state of a run, so that a resumed run has them.

    Args:
        metric: name of the metric, for the log.
        measure: model -> value, higher is better; or [row] values, whose mean counts.
        patience: steps without a better epoch after which the training ends; None: it never ends early.
        first: also evaluate the model before its first step, as epoch 0.
        times: largest number of evaluations after an epoch.
        errors: an epoch is better than epoch 0 only if the mean difference of the rows is more than this number of its
            standard errors. So few rows do not choose an epoch by chance.

    Attributes:
        value: value of the best epoch; None before the first epoch.
        epoch: number of the best epoch, from 1.
        curve: [step, value] of each evaluated epoch.
        gain: largest mean difference to epoch 0, and its standard error; None: there is none.
    """

    _KEPT = ("value", "epoch", "curve", "gain", "_step", "_weights", "_untrained")

    def __init__(
        self,
        metric: str,
        measure: Callable[[nn.Module], float | npt.NDArray[np.float64]],
        patience: int | None = None,
        *,
        first: bool = False,
        times: int = 100,
        errors: float = 0.0,
    ) -> None:
        self.metric, self.measure, self.patience, self.first, self.times = metric, measure, patience, first, times
        self.errors = errors
        self.gain: list[float] | None = None
        self._untrained: list[float] = []  # [row] values of epoch 0
        self.value: float | None = None
        self.epoch, self._step = 0, 0
        self.curve: list[list[float]] = []
        self._weights: dict[str, Tensor] = {}

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate, log, and keep the weights if all earlier epochs were worse."""
        if due(trainer, self.times):
            self._judge(trainer, pl_module, trainer.current_epoch + 1)
            self._end(trainer)

    def _judge(self, trainer: L.Trainer, pl_module: L.LightningModule, epoch: int) -> None:
        model: Any = pl_module.model
        rows = np.atleast_1d(self.measure(model))
        value = float(rows.mean())
        write(trainer.loggers, {f"val/{self.metric}": value}, max(trainer.global_step - 1, 0))
        self.curve.append([trainer.global_step, value])
        sure = True
        if epoch == 0:
            self._untrained = rows.tolist()
        elif self.errors and self._untrained:
            mean, error = _mean_and_error(rows - np.array(self._untrained))
            self.gain = max(self.gain or [mean, error], [mean, error])
            sure = mean > self.errors * error
        if self.value is None or (value > self.value and sure):
            self.value, self.epoch, self._step = value, epoch, trainer.global_step
            self._weights = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate the model before its first step; end a training that had ended when it was interrupted."""
        if self.first and not trainer.global_step:
            self._judge(trainer, pl_module, 0)
        self._end(trainer)

    def _end(self, trainer: L.Trainer) -> None:
        if self.patience is not None and self.curve and self.curve[-1][0] - self._step >= self.patience:
            trainer.should_stop = True

    def gained(self) -> float | None:
        """How much better the best value of the last quarter of the steps is than all earlier ones; None: unknown."""
        steps = self.curve[-1][0] if self.curve else 0.0
        early, late = ([v for step, v in self.curve if (step > 0.75 * steps) is last] for last in (False, True))
        return max(late) - max(early) if early and late else None

    def restore(self, model: nn.Module) -> None:
        """Load the weights of the best epoch into a model. Before the first epoch, this does nothing."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """The best epoch, its value and its weights, and the curve."""
        return {name: getattr(self, name) for name in self._KEPT}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore them."""
        for name in self._KEPT:
            setattr(self, name, state_dict[name])


def _mean_and_error(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean, and its standard error; one value has none, so it is infinite."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.inf
    return float(values.mean()), float(error)
