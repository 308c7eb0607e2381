"""Keep the best epoch of a training, by a metric of held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from .log import write
from .state import due


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
        best = {"value": self.value, "epoch": self.epoch, "step": self._step, "weights": self._weights}
        return {**best, "curve": self.curve, "untrained": self._untrained, "gain": self.gain}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore them."""
        self.value, self.epoch, self._step = (state_dict[name] for name in ("value", "epoch", "step"))
        self._weights, self.curve = state_dict["weights"], state_dict["curve"]
        self._untrained, self.gain = state_dict["untrained"], state_dict["gain"]


def _mean_and_error(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean, and its standard error; one value has none, so it is infinite."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.inf
    return float(values.mean()), float(error)


__all__ = ["KeepBest"]
