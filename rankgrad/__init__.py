"""rankgrad: train embeddings and detectors on the metric you report.

>>> import torch
>>> from rankgrad import losses
>>> loss = losses.ROADMAPLoss()
>>> embeddings = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1])).float()
>>> loss(embeddings, labels=torch.tensor([0, 0, 1, 1]))  # both classes found, scores beyond both thresholds
tensor(0.)
"""

from __future__ import annotations

from . import losses, metrics, penalties, ranks, relaxations, relevance
from ._version import __version__
from .ranks import blackbox_rank
from .types import Ranks

__all__ = [
    "Ranks",
    "__version__",
    "blackbox_rank",
    "losses",
    "metrics",
    "penalties",
    "ranks",
    "relaxations",
    "relevance",
]
