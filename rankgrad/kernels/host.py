"""Which tensors the host may look into."""

from __future__ import annotations

import torch
from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Whether values can be read at once: they are in the memory of the host, and no graph is being compiled.

    >>> on_host(torch.zeros(2))
    True
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
