"""The batches of a training run, and where in an epoch it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..datasets.samplers import ClassBatchSampler, EpochBatches, class_batches
from ..datasets.transforms import Collate
from ..runs import signals


class FeatureSet(Dataset[tuple[Tensor, int, int]]):
    """Features computed once, as (feature, label, index): what a head alone is trained on."""

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self.features, self.labels = features, labels.tolist()

    def __len__(self) -> int:
        """Images."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        """Feature, label and index of an image."""
        return self.features[index], self.labels[index], index


class KeepFeatures:
    """The transform of features: none."""

    def __call__(self, images: list[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Stack them."""
        return torch.stack(list(images))


class EpochData(L.LightningDataModule):
    """Training batches by a sampler; knows where in an epoch it stands, so that a run resumes there.

    Args:
        dataset: what is asked for a batch of the sampler.
        sampler: with set_epoch, and the state of its place in an epoch.
        collate: samples -> batch.
        workers: of the DataLoader.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: EpochBatches,
        collate: Callable[[Any], Any],
        workers: int = 0,
    ) -> None:
        super().__init__()
        self.dataset, self.sampler, self.collate, self.workers = dataset, sampler, collate, workers

    def train_dataloader(self) -> DataLoader[Any]:
        """One loader for all epochs; `SetEpoch` names the epoch before each."""
        return DataLoader(
            self.dataset,
            batch_sampler=self.sampler,
            collate_fn=self.collate,
            generator=torch.Generator(),  # a loader draws a number per epoch; the model's dropout must not notice
            num_workers=self.workers,
            worker_init_fn=signals.spare_worker,
            persistent_workers=self.workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def state_dict(self) -> dict[str, int]:
        """Epoch and batches done, from Lightning's own counters."""
        trainer = self.trainer
        assert trainer is not None
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epoch = trainer.current_epoch
        if done >= trainer.num_training_batches:
            epoch, done = epoch + 1, 0
        self.sampler.set_epoch(epoch)
        return self.sampler.state_dict(batches_done=done)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on in the middle of the epoch."""
        self.sampler.load_state_dict(state_dict)


class TrainingData(EpochData):
    """Batches of P classes x K images.

    Args:
        dataset: gives (image, label, index).
        labels: [image] long, classes of the dataset.
        transform: see `transforms`.
        sampler: its settings, see `samplers.class_batches`.
        seed: of the batches.
        workers: of the DataLoader.
        super_labels: [image] long, for batches_per_pair.
    """

    sampler: ClassBatchSampler

    def __init__(
        self,
        dataset: Dataset[Any],
        labels: Tensor,
        transform: Any,
        sampler: Mapping[str, Any],
        seed: int,
        workers: int = 0,
        super_labels: Tensor | None = None,
    ) -> None:
        batches = class_batches(labels, super_labels, seed=seed, **sampler)
        super().__init__(dataset, batches, Collate(transform), workers)


class SetEpoch(L.Callback):
    """Names the epoch to the sampler, unless it has just been resumed inside one."""

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Called before the loader is iterated."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        data.sampler.set_epoch(trainer.current_epoch)
