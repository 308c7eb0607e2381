"""Keep the best epoch of a training, by a metric of held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
from torch import Tensor, nn

from ..training.log import write


class KeepBest(L.Callback):
    """Evaluates the model after each epoch, and keeps the weights of the best epoch; of equal epochs, the earliest.

    The weights are part of the state of a run, so that a resumed run has them.

    Args:
        metric: name of the metric, for the log.
        measure: model -> value, higher is better.

    Attributes:
        value: value of the best epoch; None before the first epoch.
        epoch: number of the best epoch, from 1.
    """

    def __init__(self, metric: str, measure: Callable[[nn.Module], float]) -> None:
        self.metric, self.measure = metric, measure
        self.value: float | None = None
        self.epoch = 0
        self._weights: dict[str, Tensor] = {}

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluate, log, and keep the weights if all earlier epochs were worse."""
        model: Any = pl_module.model
        value = self.measure(model)
        write(trainer.loggers, {f"val/{self.metric}": value}, trainer.global_step - 1)
        if self.value is None or value > self.value:
            self.value, self.epoch = value, trainer.current_epoch + 1
            self._weights = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}

    def restore(self, model: nn.Module) -> None:
        """Load the weights of the best epoch into a model. Before the first epoch, this does nothing."""
        if self._weights:
            model.load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """The best epoch, its value and its weights."""
        return {"value": self.value, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore them."""
        self.value, self.epoch, self._weights = (state_dict[name] for name in ("value", "epoch", "weights"))


__all__ = ["KeepBest"]
