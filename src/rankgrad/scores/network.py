"""A small network [row, width] -> [row], for rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class OneScore(nn.Module):
    """A layer [row, 1] -> [row]."""

    def forward(self, values: Tensor) -> Tensor:
        """Remove the last dimension."""
        return values.squeeze(-1)


def build_ranker(
    width: int, hidden: Sequence[int] = (64, 64), *, dropout: float = 0.0, batch_norm: bool = False
) -> nn.Module:
    """A new model, [row, width] -> [row].

    Args:
        width: number of inputs of a row.
        hidden: number of units of each hidden layer; () for a linear model.
        dropout: fraction of the units of a hidden layer that are set to 0 in training.
        batch_norm: normalise each hidden layer over the batch.

    >>> import torch
    >>> build_ranker(3, ())(torch.zeros(5, 3)).shape
    torch.Size([5])
    """
    layers: list[nn.Module] = []
    for units in hidden:
        norm = [nn.BatchNorm1d(units)] if batch_norm else []
        drop = [nn.Dropout(dropout)] if dropout else []
        layers += [nn.Linear(width, units), *norm, nn.ReLU(), *drop]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, 1), OneScore())


__all__ = ["build_ranker"]
