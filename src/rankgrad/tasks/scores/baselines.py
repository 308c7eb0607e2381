"""Losses without ranks, for comparison: the value is a mean over single rows."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional


class CrossEntropy(nn.Module):
    """Binary cross-entropy with the scores as logits, the loss of logistic regression. Mean over the rows.

    >>> import torch
    >>> CrossEntropy().from_lists(torch.tensor([0.0, 0.0]), torch.tensor([True, False]))
    tensor(0.6931)
    """

    graded: ClassVar[bool] = False

    def from_lists(self, scores: Tensor, relevance: Tensor, query: Tensor | None = None) -> Tensor:
        """Loss of rows; which list they belong to does not matter.

        Args:
            scores: [row] float.
            relevance: [row] bool.
            query: [row]; not read.
        """
        return functional.binary_cross_entropy_with_logits(scores, relevance.to(scores.dtype))


class SquaredError(nn.Module):
    """Mean over the rows of (score - grade)^2, the loss of regression.

    >>> import torch
    >>> SquaredError().from_lists(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    graded: ClassVar[bool] = True

    def from_lists(self, scores: Tensor, relevance: Tensor, query: Tensor | None = None) -> Tensor:
        """Loss of rows; which list they belong to does not matter.

        Args:
            scores: [row] float.
            relevance: [row] bool or grades.
            query: [row]; not read.
        """
        return functional.mse_loss(scores, relevance.to(scores.dtype))


__all__ = ["CrossEntropy", "SquaredError"]
