"""Batches larger than the memory for their activations: embed in parts, and embed again in the backward pass.

A rank loss needs all embeddings of a batch at once, and accumulating the gradients of small batches is another loss.
But the embeddings are small; what fills the memory is the graph behind them. So: embed the parts one after the other
without keeping their graphs, compute the loss once on all embeddings, and in the backward pass embed each part again,
this time with its graph, and go back through it before the next one. The cost is a second forward pass, about a third
of a training step; the peak is that of one part. (Known as multistage backpropagation, Revaud et al., ICCV 2019, and
GradCache, Gao et al., 2021; torch's own checkpointing does the work here.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from .checks import integer
from .losses.base import still


def embed_in_parts(
    model: nn.Module, inputs: Tensor | Sequence[Any], size: int, *, device: torch.device | str | None = None
) -> Tensor:
    """`model(inputs)` with the memory of `size` inputs at a time; use it like model(inputs), backward() included.

    The gradient is that of embedding the parts with their graphs kept. The second pass repeats the first exactly: the
    state of the random generators (dropout), autocast, and the model's buffers are those of the first pass, and the
    buffers (running statistics) are updated by the first pass only. Works under DistributedDataParallel.

    Batch norm in training mode normalises each part by its own statistics, here as with gradient accumulation: the
    embeddings are then not those of the whole batch. Freeze it, use another norm, or choose large enough parts.

    Args:
        model: inputs -> [row, dim]; treats rows independently, but for batch norm.
        inputs: [row, ...], on any device; or a list, such as texts.
        size: rows at once, >= 1.
        device: where a part is moved when its turn comes, so that the whole batch need not fit there; None: where the
            inputs are.

    Returns:
        [row, dim], attached to the graph.

    Raises:
        ValueError: size < 1 or no rows.

    >>> model, images = nn.Linear(3, 2), torch.randn(5, 3)
    >>> embeddings = embed_in_parts(model, images, size=2)
    >>> embeddings.square().sum().backward()
    >>> torch.allclose(embeddings, model(images)), model.weight.grad.shape
    (True, torch.Size([2, 3]))
    """
    size = integer(size, "size is the number of rows embedded at once", low=1)
    if len(inputs) == 0:
        raise ValueError("inputs has no rows; there is nothing to embed")
    parts = [inputs[start : start + size] for start in range(0, len(inputs), size)]
    return torch.cat([_embed(model, part, device) for part in parts])


def _embed(model: nn.Module, part: Any, device: torch.device | str | None) -> Tensor:
    if not torch.is_grad_enabled():
        return _moved(model, part, device)
    embedded: Tensor = checkpoint(_Twice(model), part, device, use_reentrant=False, preserve_rng_state=True)
    return embedded


def _moved(model: Callable[[Any], Any], part: Any, device: torch.device | str | None) -> Tensor:
    embedded: Tensor = model(
        part if device is None or not isinstance(part, Tensor) else part.to(device, non_blocking=True)
    )
    return embedded


class _Twice:
    """Calls a model; called again, it calls it with the buffers of the first time and leaves the model's own alone.

    What a forward pass does to buffers (running statistics, spectral norm's vectors) must neither happen twice nor
    change what the second pass computes.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.buffers: dict[str, Tensor] | None = None

    def __call__(self, part: Any, device: torch.device | str | None) -> Tensor:
        with still(self.model):  # the thresholds of a loss inside the model follow whole batches
            if self.buffers is None:
                self.buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
                return _moved(self.model, part, device)
            # a copy: a retained graph may ask for a third time
            before = {name: buffer.clone() for name, buffer in self.buffers.items()}
            return _moved(lambda images: functional_call(self.model, before, (images,)), part, device)
