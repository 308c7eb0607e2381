"""Training batches, and the position in an epoch for resuming."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rankgrad.batches.epochs import EpochBatches
from rankgrad.batches.samplers import ClassBatches, class_batches

from ..datasets.rows import Rows
from .inference import loader


class EpochData(L.LightningDataModule):
    """Training batches by a sampler. It saves its position in the epoch, so that a run resumes there.

    Args:
        dataset: gives the samples of a batch.
        sampler: has `set_epoch` and a state with its position in the epoch.
        collate: samples -> batch.
        workers: of the DataLoader.
    """

    def __init__(
        self, dataset: Dataset[Any], sampler: EpochBatches, collate: Callable[[Any], Any], workers: int = 0
    ) -> None:
        super().__init__()
        self.dataset, self.sampler, self.collate, self.workers = dataset, sampler, collate, workers

    def train_dataloader(self) -> DataLoader[Any]:
        """One loader for all epochs; `SetEpoch` names the epoch before each."""
        more = {"persistent_workers": self.workers > 0, "pin_memory": torch.cuda.is_available()}
        return loader(self.dataset, self.collate, self.workers, batch_sampler=self.sampler, **more)

    def state_dict(self) -> dict[str, int]:
        """Epoch and number of batches done, from Lightning's counters."""
        trainer = self.trainer
        assert trainer is not None
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epoch = trainer.current_epoch
        if done >= trainer.num_training_batches:
            epoch, done = epoch + 1, 0
        self.sampler.set_epoch(epoch)
        return self.sampler.state_dict(batches_done=done)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue within the epoch."""
        self.sampler.load_state_dict(state_dict)


class TrainingData(EpochData):
    """Batches of P classes x K rows.

    Args:
        table: training rows.
        labels: [row] long, class of each row.
        transform: see `transforms`.
        sampler: settings, see `samplers.class_batches`.
        seed: of the batches.
        workers: of the DataLoader.
    """

    sampler: ClassBatches

    def __init__(
        self, table: Rows, labels: Tensor, transform: Any, sampler: Mapping[str, Any], seed: int, workers: int = 0
    ) -> None:
        batches = class_batches(labels, table.super_label, seed=seed, **sampler)
        super().__init__(table.dataset(), batches, table.batches(transform), workers)


class SetEpoch(L.Callback):
    """Tells the sampler the epoch, unless the run was just resumed within it."""

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Called before the loader is iterated."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        data.sampler.set_epoch(trainer.current_epoch)
