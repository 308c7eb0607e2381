"""Detectors trained on Average Precision: the loss, and its use in torchvision's models.

The names here need only torch. Import data, evaluation and training from their own modules.
"""

from __future__ import annotations

from ..batches.memory.scores import ScoreMemory
from .adapter import LossHandle, use_ap_loss
from .loss import (
    DETECTION_LOSSES,
    DetectionAPLoss,
    DetectionRankLoss,
    DetectionSmoothAPLoss,
    DetectionSupAPLoss,
    one_hot_targets,
)

__all__ = [
    "DETECTION_LOSSES",
    "DetectionAPLoss",
    "DetectionRankLoss",
    "DetectionSmoothAPLoss",
    "DetectionSupAPLoss",
    "LossHandle",
    "ScoreMemory",
    "one_hot_targets",
    "use_ap_loss",
]
