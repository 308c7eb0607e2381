"""Tensors in the memory of the host: whether values can be read at once, and fast allocation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Whether values can be read at once: the tensor is in the memory of the host, and torch does not compile.

    >>> on_host(torch.zeros(2))
    True
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def zeros_like(tensor: Tensor) -> Tensor:
    """`torch.zeros_like`, with large memory pages if possible.

    numpy asks the system for large pages, torch does not. For a new matrix, the allocation of small pages takes more
    time than to write it.

    >>> zeros_like(torch.ones(2))
    tensor([0., 0.])
    """
    if not on_host(tensor) or tensor.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(tensor)
    return torch.from_numpy(np.zeros(tensor.shape, dtype=np.float32 if tensor.dtype == torch.float32 else np.float64))
