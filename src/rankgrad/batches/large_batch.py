"""Batches whose activations do not fit into memory: embed in parts, and embed again in the backward pass.

A rank loss needs all embeddings of a batch at once. Accumulating the gradients of small batches gives another loss.
The embeddings are small, but their graph fills the memory. So the parts are embedded one after the other without
graph, and the loss is computed once on all embeddings. The backward pass embeds each part again with its graph, and
goes back through it before the next part. The cost is a second forward pass, about a third of a training step. The
peak memory is that of one part. This is known as multistage backpropagation (Revaud et al., ICCV 2019) and
GradCache (Gao et al., 2021). Here torch's own checkpointing does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from ..common.checks import integer
from ..losses.base import still


def embed_in_parts(
    model: nn.Module,
    inputs: Tensor | Sequence[Any] | Mapping[str, Tensor | Sequence[Any]],
    size: int,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """`model(inputs)` that needs memory for only `size` inputs at a time. Use it like model(inputs), then backward().

    The gradient is the same as if the graphs of all parts were kept. The second pass repeats the first exactly: it uses
    the same states of the random generators (dropout), of autocast and of the model's buffers. Only the first pass
    updates the buffers (running statistics). This works under DistributedDataParallel.

    Batch norm in training mode normalises each part by its own statistics, as in gradient accumulation. So the
    embeddings differ from those of the whole batch. Freeze it, use another norm, or choose large parts.

    Args:
        model: inputs -> [row, dim]. Except for batch norm, the embedding of a row must not depend on other rows.
        inputs: [row, ...], on any device; or a list, such as texts; or a dict of these with the same rows, such as the
            tokens of texts. The model is called with a part of the same kind.
        size: number of rows at once, >= 1.
        device: device of the model. Each part is moved there just before it is embedded, so the whole batch need not
            fit there. None: the device of the inputs.

    Returns:
        [row, dim], attached to the graph.

    Raises:
        TypeError: the model is no module, or its output no tensor.
        ValueError: size < 1, there are no rows, or the entries of a dict differ in length.

    >>> model, images = nn.Linear(3, 2), torch.randn(5, 3)
    >>> embeddings = embed_in_parts(model, images, size=2)
    >>> embeddings.square().sum().backward()
    >>> torch.allclose(embeddings, model(images)), model.weight.grad.shape
    (True, torch.Size([2, 3]))
    """
    size = integer(size, "size is the number of rows embedded at once", low=1)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, as its buffers are kept; got {type(model).__name__}")
    parts = [_rows(inputs, start, start + size) for start in range(0, _length(inputs), size)]
    return torch.cat([_embed(model, part, device) for part in parts])


def _length(inputs: Tensor | Sequence[Any] | Mapping[str, Tensor | Sequence[Any]]) -> int:
    """Number of rows, at least 1."""
    lengths = {name: len(rows) for name, rows in inputs.items()} if isinstance(inputs, Mapping) else {"": len(inputs)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the entries of inputs must have the same number of rows; got {lengths}")
    if not any(lengths.values()):
        raise ValueError("inputs must have at least one row; got none")
    return next(iter(lengths.values()))


def _rows(inputs: Any, start: int, end: int) -> Any:
    if isinstance(inputs, Mapping):
        return {name: rows[start:end] for name, rows in inputs.items()}
    return inputs[start:end]


def _embed(model: nn.Module, part: Any, device: torch.device | str | None) -> Tensor:
    if not torch.is_grad_enabled():
        return _moved(model, part, device)
    embedded: Tensor = checkpoint(_Twice(model), part, device, use_reentrant=False, preserve_rng_state=True)
    return embedded


def _moved(model: Callable[[Any], Any], part: Any, device: torch.device | str | None) -> Tensor:
    if device is not None:
        if isinstance(part, Mapping):
            part = {name: _on(device, rows) for name, rows in part.items()}
        else:
            part = _on(device, part)
    embedded = model(part)
    if not isinstance(embedded, Tensor):
        raise TypeError(
            f"model must return embeddings, a tensor [row, dim]; got {type(embedded).__name__}. Wrap it in a module "
            "that returns the tensor"
        )
    return embedded


def _on(device: torch.device | str, rows: Any) -> Any:
    return rows.to(device, non_blocking=True) if isinstance(rows, Tensor) else rows


class _Twice:
    """Calls a model. Each later call uses the buffers as they were before the first, and does not change the model's.

    A forward pass may update buffers (running statistics, spectral norm's vectors). This update must not happen twice,
    and must not change the result of the second pass.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.buffers: dict[str, Tensor | None] | None = None

    def __call__(self, part: Any, device: torch.device | str | None) -> Tensor:
        with still(self.model):  # only whole batches may update the running statistics of a loss in the model
            if self.buffers is None:
                self.buffers = _copies(_buffers(self.model))
                return _moved(self.model, part, device)
            before = _copies(self.buffers)  # with a retained graph there may be a third call
            return _moved(lambda rows: functional_call(self.model, before, (rows,), tie_weights=False), part, device)


def _buffers(model: nn.Module) -> dict[str, Tensor | None]:
    """All buffers by name, also those that are None until the first forward pass.

    A module that occurs twice has one name: `functional_call` would not restore a second.
    """
    return {
        f"{place}.{name}" if place else name: buffer
        for place, module in model.named_modules()
        for name, buffer in module._buffers.items()  # named_buffers leaves out None
    }


def _copies(buffers: Mapping[str, Tensor | None]) -> dict[str, Any]:
    """Copies of buffers. A tensor with two names has one copy."""
    copies = {id(buffer): None if buffer is None else buffer.clone() for buffer in buffers.values()}
    return {name: copies[id(buffer)] for name, buffer in buffers.items()}
