"""Losses of sentence-transformers as baselines in a training run.

The trainer of that library gives a loss columns of texts. Our training gives a batch of embeddings with classes.
Triplet losses can use this directly. For losses on pairs, `SentenceTransformersBaseline` makes pairs from the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rankgrad.common.checks import closest, one_of
from rankgrad.losses.checked import Batch, ClassLoss

#: Loss -> what it takes. "classes" are embeddings and classes, "pairs" are anchors and positives, "scores" are pairs
#: and their similarities.
TAKES = {
    "BatchAllTripletLoss": "classes",
    "BatchHardTripletLoss": "classes",
    "BatchHardSoftMarginTripletLoss": "classes",
    "BatchSemiHardTripletLoss": "classes",
    "MultipleNegativesRankingLoss": "pairs",
    "CoSENTLoss": "scores",
}


class SentenceTransformersBaseline(ClassLoss):
    """A loss class of sentence-transformers with the interface of our losses. It takes classes and cannot use a memory.

    * The losses on batch triplets (Hermans et al., arXiv:1703.07737) read the classes themselves.
    * `MultipleNegativesRankingLoss` takes anchors with their positives, and uses the positives of all other anchors as
      negatives. So the batch is divided into rounds with at most one pair of each class: no negative has the class of
      its anchor. The loss is the mean over all pairs. The library's cached form has the same value and gradient.
    * `CoSENTLoss` orders pairs by their wanted similarity. Each row is paired with the next row of its class and with
      four other rows. The wanted similarity is the fraction of levels on which the two agree: 1 or 0 for classes; 1,
      1/2 or 0 for a hierarchy of two levels.

    Args:
        name: name of the class, a key of `TAKES`.
        distance: "cosine" (1 - cosine) or "euclidean" (the library's default); for batch triplets only.
        options: keyword arguments of that class, such as margin or scale.

    Raises:
        ValueError: the loss is unknown.
        TypeError: an option is unknown.
        ModuleNotFoundError: sentence-transformers is not installed.

    >>> loss = SentenceTransformersBaseline("MultipleNegativesRankingLoss", scale=1.0)
    >>> loss(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))    # log(1 + exp(-1)) of both pairs
    tensor(0.3133)
    """

    def __init__(self, name: str, distance: str = "cosine", **options: Any) -> None:
        super().__init__()
        if name not in TAKES:
            raise ValueError(f"no loss {name!r} of sentence-transformers here{closest(name, TAKES)}")
        from sentence_transformers.sentence_transformer import losses

        self.takes = TAKES[name]
        self.hierarchies = self.takes == "scores"
        if self.takes == "classes":
            one_of(distance, "distance", ("cosine", "euclidean"))
            options["distance_metric"] = getattr(losses.BatchHardTripletLossDistanceFunction, f"{distance}_distance")
        self.loss = getattr(losses, name)(model=nn.Identity(), **options)  # embeddings come from outside

    @property
    def what(self) -> str:
        """Name of the class in that library."""
        return type(self.loss).__name__

    def of_batch(self, batch: Batch) -> Tensor:
        """The library's value for the rows, or for the pairs made from them."""
        rows, labels = batch.embeddings, batch.labels
        assert labels is not None
        if self.takes == "classes":
            return self._of([rows], labels)
        if self.takes == "scores":
            # with levels a class is a whole row of them
            classes = labels if labels.ndim == 1 else torch.unique(labels, dim=0, return_inverse=True)[1]
            first, second = _neighbours(classes)
            # a row is in many pairs: on several threads the backward pass of rows[first] adds in any order
            sides = [rows.index_select(0, side) for side in (first, second)]
            return self._of(sides, _scores(labels, first, second))
        anchor, positive, number = _pairs(labels)
        total = 0.0 * rows.sum()
        for which in range(int(number.max()) + 1 if len(number) else 0):
            here = number == which
            total = total + here.sum() * self._of([rows[anchor[here]], rows[positive[here]]], labels)
        return total / max(len(number), 1)

    def _of(self, columns: list[Tensor], labels: Tensor) -> Tensor:
        value: Tensor = self.loss.compute_loss_from_embeddings(columns, labels)
        return value


def _places(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Row indices sorted by class; for each, its position in its class; and the size of its class."""
    order = labels.argsort(stable=True)
    counts = torch.unique_consecutive(labels[order], return_counts=True)[1]
    begins = (counts.cumsum(0) - counts).repeat_interleave(counts)
    return order, torch.arange(len(labels), device=labels.device) - begins, counts.repeat_interleave(counts)


def _pairs(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Anchor, positive and round of each pair. The rows of a class are paired two by two; its first pair is round 0."""
    order, place, size = _places(labels)
    begins = ((place % 2 == 0) & (place + 1 < size)).nonzero().squeeze(1)
    return order[begins], order[begins + 1], place[begins] // 2


def _neighbours(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of the pairs: each row with the next row of its class, and with four distant rows of the batch."""
    order, place, size = _places(labels)
    at = torch.arange(len(labels), device=labels.device)
    following = order[torch.where(place + 1 < size, at + 1, at - place)]
    paired = size > 1
    first, second = [order[paired]], [following[paired]]
    for ninth in range(1, 5):  # shifts below half of the batch: no pair appears twice
        first.append(order)
        second.append(order.roll(len(labels) * ninth // 9 or 1))
    return torch.cat(first), torch.cat(second)


def _scores(labels: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """[pair] fraction of levels on which the two rows agree."""
    levels = labels.reshape(len(labels), -1)
    return (levels[first] == levels[second]).cummin(1).values.float().mean(1)


__all__ = ["TAKES", "SentenceTransformersBaseline"]
