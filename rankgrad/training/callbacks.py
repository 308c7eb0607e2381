"""What a run does beside training: evaluating every few epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import lightning as L
from torch import nn

from ..runs.log import TEST
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
