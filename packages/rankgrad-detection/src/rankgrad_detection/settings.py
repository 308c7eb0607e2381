"""The typed settings of a detector's run. configs/detect/detect.yaml explains each setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DetectionImages:
    """`data`: images with boxes, and their size for the model."""

    name: str
    root: str
    format: str
    train: str
    test: str
    classes: str | tuple[str, ...]
    sides: tuple[int, int]
    cache: bool
    workers: int


@dataclass(frozen=True)
class DetectionEvaluation:
    """`evaluation`: how AP is measured, and how often."""

    ious: tuple[float, ...]
    inclusive: bool
    batch_size: int
    every: int
    pictures: int


@dataclass(frozen=True)
class DetectorSettings:
    """The settings that `run` reads.

    Attributes:
        seed: seed of weights, batches and proposals.
        init: folder of a run, or file of initial weights; None: random weights.
        difficult: whether to learn the objects that are marked as difficult, too.
        flip, vertical_flip: probabilities of a flip.
        data: images.
        model: kind, and arguments of `models.build_detector`.
        loss: name, and with `_target_` the loss that replaces cross-entropy.
        ranking: arguments of `adapter.use_ap_loss`.
        sampler: `batch_size`, the images in a batch.
        optimizer: see `training.module.TrainedModule`.
        evaluation: how AP is measured.
        extended: epochs at which the run ended before each extension.
        trainer: arguments of `lightning.Trainer`.
    """

    seed: int
    init: str | None
    difficult: bool
    flip: float
    vertical_flip: float
    data: DetectionImages
    model: Mapping[str, Any]
    loss: Mapping[str, Any]
    ranking: Mapping[str, Any]
    sampler: Mapping[str, int]
    optimizer: Mapping[str, Any]
    evaluation: DetectionEvaluation
    extended: tuple[int, ...]
    trainer: Mapping[str, Any]
