"""The best epoch of a training, by a metric of rows that are not trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
from torch import Tensor, nn

from ..training.log import write


class KeepBest(L.Callback):
    """Measures the model after each epoch and keeps the weights of the best one, of equals the earliest.

    What is kept is part of the state of a run, so that a run that was stopped goes on with it.

    Args:
        metric: its name, for the log.
        measure: model -> value, higher is better.

    Attributes:
        value: of the best epoch; None before the first.
        epoch: which one, from 1.
    """

    def __init__(self, metric: str, measure: Callable[[nn.Module], float]) -> None:
        self.metric, self.measure = metric, measure
        self.value: float | None = None
        self.epoch = 0
        self._weights: dict[str, Tensor] = {}

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure, log, and keep the weights if no epoch before was as good."""
        model: Any = pl_module.model
        value = self.measure(model)
        write(trainer.loggers, {f"val/{self.metric}": value}, trainer.global_step - 1)
        if self.value is None or value > self.value:
            self.value, self.epoch = value, trainer.current_epoch + 1
            self._weights = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}

    def restore(self, model: nn.Module) -> None:
        """Load the weights of the best epoch; without an epoch the model stays as it is."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """What was kept."""
        return {"value": self.value, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with it."""
        self.value, self.epoch, self._weights = (state_dict[name] for name in ("value", "epoch", "weights"))


__all__ = ["KeepBest"]
