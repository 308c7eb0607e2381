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

    def from_lists(
        self, scores: Tensor, relevance: Tensor, query: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Loss of rows; which list they belong to does not matter.

        Args:
            scores: [row] float.
            relevance: [row] bool.
            query: [row]; not read.
            weights: [row] weight of each row, 1 on average; None: all are 1.
        """
        return functional.binary_cross_entropy_with_logits(scores, relevance.to(scores.dtype), weights)

    def best_constant(self, relevance: Tensor, weights: Tensor | None = None) -> float:
        """The best score for all rows alike: the log-odds of relevance.

        From 0, cross-entropy on rare rows lowers all scores first, and by all weights of a network: for some hundred
        steps the rows that are far from the others, as rare ones are, have the lowest scores.
        """
        return float(_mean(relevance, weights).logit())


class SquaredError(nn.Module):
    """Mean over the rows of (score - grade)^2, the loss of regression.

    >>> import torch
    >>> SquaredError().from_lists(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
    tensor(2.)
    """

    graded: ClassVar[bool] = True

    def from_lists(
        self, scores: Tensor, relevance: Tensor, query: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Loss of rows; which list they belong to does not matter.

        Args:
            scores: [row] float.
            relevance: [row] bool or grades.
            query: [row]; not read.
            weights: [row] weight of each row, 1 on average; None: all are 1.
        """
        return functional.mse_loss(scores, relevance.to(scores.dtype), weight=weights)

    def best_constant(self, relevance: Tensor, weights: Tensor | None = None) -> float:
        """The best score for all rows alike: the mean grade."""
        return float(_mean(relevance, weights))


def _mean(relevance: Tensor, weights: Tensor | None) -> Tensor:
    values = relevance.double()
    return values.mean() if weights is None else (values * weights).sum() / weights.sum()


def begin_at_the_best_constant(
    network: nn.Module, loss: nn.Module, rows: Tensor, weights: Tensor | None = None
) -> None:
    """Set the last bias of a network to the best score for all rows alike, if the loss is one of these.

    Args:
        network: a network of `build_ranker`.
        loss: any loss.
        rows: [row] relevance of the training rows.
        weights: [row] see the losses.
    """
    if isinstance(loss, (CrossEntropy, SquaredError)):
        *_, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
        nn.init.constant_(last.bias, loss.best_constant(rows, weights))


__all__ = ["CrossEntropy", "SquaredError", "begin_at_the_best_constant"]
