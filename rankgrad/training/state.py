"""Writing the state of a run, so that it can go on after its process died."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lightning as L

from ..distributed import on_first, world


class SaveState(L.Callback):
    """Writes the state of the run after every epoch and every few minutes, atomically: never half a file.

    Args:
        path: file to write; replaced as a whole.
        minutes: longest time between two writes.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.seconds = path, 60 * minutes
        self.last = time.monotonic()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write if the last time is long ago; not between the parts of an accumulated gradient, which is not kept."""
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        # the end of the epoch writes by itself, after whatever else belongs to it
        if whole and not trainer.is_last_batch and self._due(batch_idx):
            self.write(trainer)

    def _due(self, batch_idx: int) -> bool:
        """Several processes write together, when the first says so; asking it takes time, so not after every batch."""
        late = time.monotonic() - self.last >= self.seconds
        if world()[1] == 1:
            return late
        return batch_idx % 20 == 19 and on_first(lambda: late)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write."""
        self.write(trainer)

    def write(self, trainer: L.Trainer) -> None:
        """To a temporary file beside, flushed, then renamed."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        trainer.save_checkpoint(temporary)  # called by all processes, written by the first
        if trainer.is_global_zero:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        self.last = time.monotonic()
