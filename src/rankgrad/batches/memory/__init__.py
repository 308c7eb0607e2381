r"""Memories: a loss that also sees earlier batches.

In evaluation a query is ranked against thousands of images. A batch has only a few hundred of them. There are two
kinds of memory. Both are without a graph: only the current batch gets gradients.

* `CrossBatchMemory` keeps the *embeddings* of earlier batches. They are further items, so lists grow (XBM, Wang et al.,
  CVPR 2020, arXiv:1912.06798; ROADMAP, sections 4.1 and B.4). Embeddings drift slowly, so they can replace missing
  images.
* `RowMemory` keeps the *scores* of earlier batches. They are further lists, so the mean is over more queries (RaMBO,
  section 4.3).

Other implementations have three errors. A query is ranked against an older embedding of itself. Here sample ids prevent
this. The memory is lost on resume. Here it is in buffers. The processes fill their memories differently.
`distributed.GlobalBatch` prevents this.
"""

from __future__ import annotations

from torch import nn

from ...losses.score_memory import ScoreMemory
from .embeddings import CrossBatchMemory
from .scores import RowMemory

Memory = CrossBatchMemory | RowMemory  #: the losses with a memory


def memory_buffers(module: nn.Module) -> list[str]:
    """Names of the buffers of all memories inside a module.

    DistributedDataParallel sends the buffers of the first process to all others before each forward pass. Tell it to
    ignore these: memories are equal on all processes anyway (`distributed.GlobalBatch`), and may be large.

    >>> memory_buffers(nn.Linear(2, 2))
    []
    """
    names = []
    for name, child in module.named_modules():
        if isinstance(child, (CrossBatchMemory, ScoreMemory)):
            prefix = f"{name}." if name else ""
            names += [prefix + buffer for buffer, _ in child.named_buffers(recurse=False)]
    return names


__all__ = ["CrossBatchMemory", "RowMemory", "memory_buffers"]
