"""A loss made of any function of embeddings and labels."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class CalledLoss(nn.Module):
    """A function that was passed to `rankgrad.fit` as loss, under a name that the run's settings can store.

    Args:
        name: name of the loss in the run.
        function: (embeddings [row, dim], labels [row]) -> scalar with a gradient. If it is a module, its weights are
            trained, too.

    Raises:
        ValueError: there is no function. The settings of a run cannot store one.

    >>> import torch
    >>> CalledLoss("length", lambda embeddings, labels: embeddings.norm())(torch.eye(2)[:1], torch.tensor([0]))
    tensor(1.)
    """

    def __init__(self, name: str, function: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        if function is None:
            raise ValueError(f"the loss {name} is a Python function: pass it to rankgrad.fit again")
        self.name, self.function = name, function

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Value of the function.

        Raises:
            TypeError: the value is not a scalar.
        """
        value = self.function(embeddings, labels)
        if not isinstance(value, Tensor) or value.ndim:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"a loss must return one number, a tensor of shape (); {self.name} returned {got}")
        return value


__all__ = ["CalledLoss"]
