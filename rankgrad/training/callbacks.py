"""What a run does beside training: evaluating every few epochs."""

from __future__ import annotations

from typing import Any, cast

import lightning as L

from ..runs.folder import TEST
from .module import RetrievalModule


class EvaluateEvery(L.Callback):
    """Evaluates each so many epochs and logs the values: see `history.evaluations`.

    Args:
        epochs: between two evaluations.
        run: model -> Report.
    """

    def __init__(self, epochs: int, run: Any) -> None:
        self.epochs, self.run = epochs, run

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log all metrics of this epoch; those after the last one are the run's result anyway."""
        epoch = trainer.current_epoch + 1
        if epoch % self.epochs == 0 and epoch != trainer.max_epochs:
            values = self.run(cast(RetrievalModule, pl_module).model).values
            found = {f"{TEST}{name}": value for name, value in values.items()}
            for logger in trainer.loggers:  # at once: `self.log` would come after this epoch's state is saved
                logger.log_metrics(found, step=trainer.global_step - 1)
                logger.save()
