"""Tensors in the memory of the host: which ones may be looked into, and how a large one is had quickly."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Whether values can be read at once: they are in the memory of the host, and no graph is being compiled.

    >>> on_host(torch.zeros(2))
    True
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def zeros_like(tensor: Tensor) -> Tensor:
    """`torch.zeros_like`, in large pages where that is known to work.

    numpy asks the system for large pages and torch does not: of a matrix that is not in use yet, taking small pages
    costs more time than writing it.

    >>> zeros_like(torch.ones(2))
    tensor([0., 0.])
    """
    if not on_host(tensor) or tensor.dtype not in (torch.float32, torch.float64):
        return torch.zeros_like(tensor)
    return torch.from_numpy(np.zeros(tensor.shape, dtype=np.float32 if tensor.dtype == torch.float32 else np.float64))
