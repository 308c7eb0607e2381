"""Training a detector: Lightning's loop around a torchvision model, with or without a loss that ranks. Wiring only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..distributed import gather_objects, world
from ..training.module import OPTIMIZERS, SCHEDULES, Schedule
from .adapter import LossInUse
from .data import DetectionSet, Example, Target
from .voc_ap import Detections


class DetectorModule(L.LightningModule):
    """A detector and what it learns from: the sum of its losses.

    Args:
        model: called as model(images, targets) -> dict of losses in training mode, e.g. torchvision's Faster R-CNN.
        optimizer: name, lr, weight_decay, momentum, warmup, schedule, milestones, factor; see `training.Schedule`.
        seed: of what the model draws, such as the proposals that it classifies.
        in_use: the loss in the place of cross-entropy, or None: saved and resumed with the model.
    """

    def __init__(
        self, model: nn.Module, optimizer: Mapping[str, Any], seed: int, in_use: LossInUse | None = None
    ) -> None:
        super().__init__()
        self.model, self.in_use = model, in_use
        self.settings, self.seed = dict(optimizer), seed
        self.kept: dict[str, Any] = {}  # settings to be found again in a saved state
        if self.settings["name"] not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer.name {self.settings['name']!r}; known: {', '.join(OPTIMIZERS)}")
        if self.settings["schedule"] not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise ValueError(f"unknown optimizer.schedule {self.settings['schedule']!r}; known: {known}")
        if not 0 <= self.settings["warmup"] <= 1:
            raise ValueError(f"optimizer.warmup is a share of all steps, 0 .. 1; got {self.settings['warmup']}")

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed torch for this step: proposals are drawn from its generator, in a resumed run the same ones."""
        entropy = np.random.SeedSequence((self.seed, self.trainer.global_step, world()[0]))
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0]))

    def training_step(self, batch: tuple[list[Tensor], list[Target]], batch_idx: int) -> Tensor:
        """Sum of the model's losses; each is logged."""
        images, targets = batch
        losses: dict[str, Tensor] = self.model(images, targets)
        total = torch.stack(list(losses.values())).sum()
        self.log("loss", total, prog_bar=True, batch_size=len(images))
        for name, value in losses.items():
            self.log(name, value, batch_size=len(images))
        for name, value in {} if self.in_use is None else self.in_use.stats.items():
            self.log(f"ranking/{name}", value.float(), batch_size=len(images))
        return total

    def configure_optimizers(self) -> Any:
        """The optimiser by name over what is not frozen, and the schedule per step."""
        s = self.settings
        weights = [p for p in self.model.parameters() if p.requires_grad]
        if s["name"] == "sgd":
            optimizer: torch.optim.Optimizer = torch.optim.SGD(
                weights, lr=s["lr"], momentum=s["momentum"], weight_decay=s["weight_decay"]
            )
        else:
            kind = torch.optim.Adam if s["name"] == "adam" else torch.optim.AdamW
            optimizer = kind(weights, lr=s["lr"], weight_decay=s["weight_decay"])
        steps = int(self.trainer.estimated_stepping_batches)
        per_epoch = steps / max(self.trainer.max_epochs or 1, 1)
        milestones = [round(epoch * per_epoch) for epoch in s["milestones"] or ()]
        factor = Schedule(steps, s["warmup"], s["schedule"], milestones, s["factor"])
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The settings go with the state."""
        checkpoint["kept"] = self.kept


def as_they_are(samples: list[Example]) -> list[Example]:
    """What a loader makes of a batch for evaluation."""
    return samples


def detect(
    model: nn.Module,
    data: DetectionSet,
    *,
    batch_size: int = 8,
    workers: int = 0,
    progress: bool = False,
    device: torch.device | str | None = None,
) -> list[Detections]:
    """What a detector finds in each image, on the CPU, boxes in pixels of the files; the model's mode is restored.

    Several processes see a share each, and all get the whole.

    Args:
        model: called as model(images) -> dicts with boxes, labels (1 .. C) and scores.
        data: images, without flips.
        batch_size: images at once.
        workers: of the DataLoader.
        progress: show a progress bar.
        device: where to compute; None: where the model is.
    """
    rank, processes = world()
    rows = list(range(rank, len(data), processes))
    batches: Any = DataLoader(
        torch.utils.data.Subset(data, rows),
        batch_size=batch_size,
        collate_fn=as_they_are,
        num_workers=workers,
        generator=torch.Generator(),  # evaluating in the middle of training must not move torch's own
    )
    if progress and rank == 0:
        from tqdm import tqdm

        batches = tqdm(batches, desc="detecting", unit="batch", leave=False)
    where = torch.device(device) if device is not None else next(model.parameters()).device
    was_training = model.training
    model.to(where).eval()
    found: dict[int, Detections] = {}
    try:
        with torch.inference_mode():
            for samples in batches:
                for sample, output in zip(samples, model([s.image.to(where) for s in samples]), strict=True):
                    found[sample.row] = _at_file_size(sample, output)
    finally:
        model.train(was_training)
    if processes > 1:
        found = {index: each for part in gather_objects(found) for index, each in part.items()}
    return [found[index] for index in range(len(data))]


def _at_file_size(sample: Example, output: Mapping[str, Tensor]) -> Detections:
    height, width = sample.image.shape[1:]
    scale = torch.tensor([sample.size[0] / width, sample.size[1] / height] * 2)
    return Detections(
        boxes=(output["boxes"].float().cpu() * scale).clone(),
        labels=(output["labels"].cpu() - 1).clone(),
        scores=output["scores"].float().cpu().clone(),
    )
