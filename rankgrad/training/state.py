"""Writing the state of a run, so that it can go on after its process died."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lightning as L

from .. import signals
from ..distributed import largest


class SaveState(L.Callback):
    """Writes the state of the run after every epoch and every few minutes, atomically: never half a file.

    Args:
        path: file to write; replaced as a whole.
        minutes: longest time between two writes.
    """

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.seconds = path, 60 * minutes
        self.last = time.monotonic()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Lightning has just put a handler of SIGTERM in place that speaks to the other processes at any moment."""
        signals.take_back()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write if the last time is long ago; not between the parts of an accumulated gradient, which is not kept.

        Raises:
            signals.Stopped: a signal asks the run to end; the state is written.
        """
        whole = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        # the end of the epoch writes by itself, after whatever else belongs to it
        if not whole or trainer.is_last_batch:
            return
        # all processes write together, when one is late or asked to end
        late, asked = largest([time.monotonic() - self.last >= self.seconds, signals.requested()])
        if late or asked:
            self.write(trainer)
        if asked:
            raise signals.Stopped(asked)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write; the end of the epoch is as good a place to stop as any."""
        self.write(trainer)
        [asked] = largest([signals.requested()])
        if asked:
            raise signals.Stopped(asked)

    def write(self, trainer: L.Trainer) -> None:
        """To a temporary file beside, flushed, then renamed."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        trainer.save_checkpoint(temporary)  # called by all processes, written by the first
        if trainer.is_global_zero:
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        self.last = time.monotonic()
