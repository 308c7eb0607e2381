"""Losses and ranks have first derivatives only: a graph of their gradient is an error, and never a wrong number."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def refuse_graph() -> None:
    """Raise in a backward pass with `create_graph=True`.

    torch's `once_differentiable` is not enough: it only detaches the result. If the gradient also depends on the input
    through another path, `autograd.grad` returns a number in which a part is missing.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "losses and ranks of rankgrad have no second derivatives: call backward() or torch.autograd.grad() without "
            "create_graph=True. For a Hessian-vector product, take the difference of two gradients (docs/numerics.md)"
        )


class _FirstOrder(torch.autograd.Function):
    """Forward: the value. Backward: the gradient, or an error if a graph of it is wanted."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        refuse_graph()
        return upstream


def first_order(value: Tensor) -> Tensor:
    """The value; in the backward pass `refuse_graph` comes first."""
    result: Tensor = _FirstOrder.apply(value)
    return result
