"""Any function of embeddings and labels as the loss of a run."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class CalledLoss(nn.Module):
    """A loss that was handed to `rankgrad.fit`, under a name that a run's settings can keep.

    Args:
        name: what the run calls it.
        function: (embeddings [row, dim], labels [row]) -> scalar with a gradient; weights of a module are learned, too.

    Raises:
        ValueError: there is no function, as where the loss is made of the settings of a run.

    >>> import torch
    >>> CalledLoss("length", lambda embeddings, labels: embeddings.norm())(torch.eye(2)[:1], torch.tensor([0]))
    tensor(1.)
    """

    def __init__(self, name: str, function: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        if function is None:
            raise ValueError(f"the loss {name} was handed to rankgrad.fit in Python: call rankgrad.fit with it again")
        self.name, self.function = name, function

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """What the function says.

        Raises:
            TypeError: that is no scalar.
        """
        value = self.function(embeddings, labels)
        if not isinstance(value, Tensor) or value.ndim:
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"a loss gives one number, a tensor of shape (); {self.name} gave {got}")
        return value


__all__ = ["CalledLoss"]
