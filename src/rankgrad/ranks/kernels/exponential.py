"""Sums of an exponential step over all pairs in linear time: exp(s_j - s_i) is a product, so one sum serves every i.

Beyond its cap the step is linear and no product: the callers compare the largest difference with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..relaxations import Exponential


def total(step: Exponential, rest: Tensor, own: Tensor) -> Tensor:
    """[slot, row] sum over the items of the step.

    Args:
        step: the step.
        rest: [row, item] scores, -inf where absent.
        own: [slot, row] relevant scores, +inf where absent.

    >>> total(Exponential(1.0), torch.tensor([[1.0, 0.0, -torch.inf]]), torch.tensor([[0.0]]))  # e + 1
    tensor([[3.7183]])
    """
    factor, powers = _factors(step, rest, own)
    return factor * powers.sum(1)


def push(step: Exponential, rest: Tensor, own: Tensor, weight: Tensor, into: Tensor) -> Tensor:
    """[slot, row] sum over the items of weight times slope. The sum over the slots is added to `into` [row, item]."""
    factor, powers = _factors(step, rest, own)
    weight = weight * factor / step.tau
    into.addcmul_(powers, weight.sum(0).unsqueeze(1))
    return weight * powers.sum(1)


def _factors(step: Exponential, rest: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """The step as a product of [slot, row] and [row, item]; powers of the highest item are 1."""
    top = rest.amax(1)
    top = torch.where(top > -torch.inf, top, 0)
    return ((top - own) / step.tau).exp_(), (rest - top.unsqueeze(1)).div_(step.tau).exp_()


__all__ = ["push", "total"]
