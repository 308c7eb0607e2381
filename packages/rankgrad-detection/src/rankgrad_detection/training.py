"""Training of a detector: Lightning's loop around a torchvision model, with or without a rank loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from rankgrad.batches.distributed import gather_objects, world
from rankgrad_workbench.models.embedding_model import evaluating
from rankgrad_workbench.training.inference import in_order
from rankgrad_workbench.training.module import TrainedModule

from .adapter import LossHandle
from .data import DetectionSet, Example, Target
from .voc_ap import Detections


class DetectorModule(TrainedModule):
    """A detector that is trained on the sum of its losses.

    Args:
        model: called as model(images, targets) -> dict of losses in training mode, e.g. torchvision's Faster R-CNN.
        optimizer: as for `training.TrainedModule`.
        seed: seed of the model's random choices, such as the proposals that it classifies.
        in_use: the loss that replaces cross-entropy, or None. It is saved and resumed with the model.
    """

    def __init__(
        self, model: nn.Module, optimizer: Mapping[str, Any], seed: int, in_use: LossHandle | None = None
    ) -> None:
        super().__init__(model, optimizer)
        self.in_use, self.seed = in_use, seed

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed torch for this step. The model draws proposals from its generator; a resumed run draws the same ones."""
        entropy = np.random.SeedSequence((self.seed, self.trainer.global_step, world()[0]))
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0]))

    def training_step(self, batch: tuple[list[Tensor], list[Target]], batch_idx: int) -> Tensor:
        """Sum of the model's losses. Each loss is logged."""
        images, targets = batch
        losses: dict[str, Tensor] = self.model(images, targets)
        total = torch.stack(list(losses.values())).sum()
        ranking = {} if self.in_use is None else self.in_use.stats
        noted = {**losses, **{f"ranking/{name}": value.float() for name, value in ranking.items()}}
        self.note(total, noted)
        return total


def detect(
    model: nn.Module,
    data: DetectionSet,
    *,
    batch_size: int = 8,
    workers: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> list[Detections]:
    """Detections of each image, on the CPU, with boxes in pixels of the files. The model's mode is restored.

    With several processes, each works on a part of the images, and all get all detections.

    Args:
        model: a detector. model(images) returns dicts with boxes, labels (1 .. C) and scores.
        data: images, without flips.
        batch_size: number of images at once.
        workers: number of workers of the DataLoader.
        progress: whether to show a progress bar.
        device: device of the computation; None: that of the model.
    """
    rank, processes = world()
    rows = list(range(rank, len(data), processes))
    shown = "detecting" if progress and rank == 0 else ""
    by_image: dict[int, Detections] = {}
    with evaluating(model, device) as place:  # trainer.precision=64-true converts the model
        for samples in in_order(Subset(data, rows), list, batch_size, workers, shown):
            for sample, output in zip(samples, model([s.image.to(*place) for s in samples]), strict=True):
                by_image[sample.row] = _at_file_size(sample, output)
    if processes > 1:
        by_image = {index: each for part in gather_objects(by_image) for index, each in part.items()}
    return [by_image[index] for index in range(len(data))]


def _at_file_size(sample: Example, output: Mapping[str, Tensor]) -> Detections:
    height, width = sample.image.shape[1:]
    scale = torch.tensor([sample.size[0] / width, sample.size[1] / height] * 2)
    return Detections(
        boxes=(output["boxes"].float().cpu() * scale).clone(),
        labels=(output["labels"].cpu() - 1).clone(),
        scores=output["scores"].float().cpu().clone(),
    )
