"""Batches from a worker of a DataLoader to the main process, in shared memory that is reused.

torch allocates new shared memory for each batch: 0.6 MB for each image of 224 x 224. The kernel fills every page of it
with zeros first and frees it soon after. Here a worker keeps some pieces of shared memory and reuses them. The first
byte of a piece says whether the main process still uses its batch. The worker sets the byte when it makes the batch.
The main process clears it when its last tensor on this piece is deleted.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

HEAD = 64  # bytes before the batch, so that it is aligned
KEPT = 8  # pieces per worker; a DataLoader requests two batches ahead, and the main process may hold a few more

_PIECES: list[Tensor] = []  # of this worker; uint8


def lend(shape: tuple[int, ...]) -> Tensor:
    """Float32 memory for a new batch of this worker: a free piece, or new memory if no piece is free.

    Args:
        shape: of the batch.
    """
    size = HEAD + 4 * math.prod(shape)
    piece = next((piece for piece in _PIECES if not piece[0] and len(piece) >= size), None)
    if piece is None:
        _PIECES[:] = [piece for piece in _PIECES if piece[0]]  # free pieces are too small: batches have become larger
        storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
        piece = torch.empty(0, dtype=torch.uint8).set_(storage)
        if len(_PIECES) < KEPT:
            _PIECES.append(piece)
    piece[0] = 1
    return piece[HEAD:size].view(torch.float32).view(shape)


class Sent:
    """A batch that a worker sends; unpickling it in the main process gives a tensor.

    Args:
        piece: uint8 memory that holds the batch.
        shape: of the batch.
    """

    def __init__(self, piece: Tensor, shape: tuple[int, ...]) -> None:
        self.piece, self.shape = piece, shape

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (self.piece, self.shape)


def send(batch: Tensor) -> Tensor | Sent:
    """What a worker sends to the main process for a batch.

    Args:
        batch: any tensor. A float32 tensor that is not in a piece is copied into one.
    """
    if batch.dtype != torch.float32 or batch.device.type != "cpu" or batch.layout != torch.strided or not len(batch):
        return batch
    if _own(batch) is None:
        batch = lend(tuple(batch.shape)).copy_(batch.detach())
    piece = _own(batch)  # None if the main process uses all pieces: then torch sends the batch and nothing is reused
    return batch if piece is None else Sent(piece, tuple(batch.shape))


def _own(batch: Tensor) -> Tensor | None:
    where = batch.untyped_storage().data_ptr()
    return next((piece for piece in _PIECES if piece.data_ptr() == where), None)


def arrived(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The batch in the main process. When its last reference is deleted, the worker may reuse the memory.

    Args:
        piece: uint8 memory that holds the batch.
        shape: of the batch.
    """
    memory = piece.numpy()
    batch = memory[HEAD : HEAD + 4 * math.prod(shape)].view(np.float32).reshape(shape)
    # torch keeps a reference to this array as long as a tensor uses its memory
    weakref.finalize(batch, _free, memory).atexit = False
    return torch.from_numpy(batch)


def _free(memory: npt.NDArray[np.uint8]) -> None:
    memory[0] = 0


__all__ = ["arrived", "lend", "send"]
