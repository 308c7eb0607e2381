"""Losses to compare with: cross-entropy, and any loss of pytorch-metric-learning by one thin bridge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CrossEntropyLoss(nn.Module):
    r"""Classification of the training classes: cross-entropy of a linear layer on scale * embedding / |embedding|.

    Args:
        num_classes: training classes; labels must be 0 .. num_classes - 1.
        embedding_size: dim of the embeddings.
        scale: length of the vectors the classifier sees.

    >>> loss = CrossEntropyLoss(num_classes=2, embedding_size=3)
    >>> loss(torch.eye(3), torch.tensor([0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(self, num_classes: int, embedding_size: int, scale: float = 10.0) -> None:
        super().__init__()
        if num_classes < 2 or embedding_size < 1 or scale <= 0:
            raise ValueError(
                f"need num_classes >= 2, embedding_size >= 1, scale > 0; got {num_classes}, {embedding_size}, {scale}"
            )
        self.classifier = nn.Linear(embedding_size, num_classes)
        self.scale = scale

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy of the batch."""
        return F.cross_entropy(self.classifier(self.scale * F.normalize(embeddings, dim=1)), labels)


class PMLLoss(nn.Module):
    """A loss of pytorch-metric-learning with an optional miner, called like ours.

    Args:
        loss: its loss object, e.g. MultiSimilarityLoss(2, 50, 0.5).
        miner: its miner, or None.
    """

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss of a batch; labels are long [row]."""
        # distances in that library expect float32, and autocast would hand them half precision
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.float()
            pairs: Any = None if self.miner is None else self.miner(embeddings, labels)
            result: Tensor = self.loss(embeddings, labels, pairs)
        return result
