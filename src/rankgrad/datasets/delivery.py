"""Batches on their way from a worker of a DataLoader to the main process, in shared memory that is used again.

torch makes new shared memory for each batch. The kernel then fills every page of it with zeros before it is written,
and takes it back soon after: 0.6 MB for each image of 224 x 224. Here a worker keeps some pieces. The first byte of a
piece says whether the main process has the batch still: it is set when the batch is made, and cleared, through the
memory that both see, when the last tensor on it is gone there.
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
KEPT = 8  # pieces of a worker; a DataLoader asks for two batches ahead, and the main process may hold some more

_PIECES: list[Tensor] = []  # of this worker, uint8


def lend(shape: tuple[int, ...]) -> Tensor:
    """Float32 memory for a batch that a worker makes, in a piece that is free; new memory where none is.

    Args:
        shape: of the batch.
    """
    size = HEAD + 4 * math.prod(shape)
    piece = next((piece for piece in _PIECES if not piece[0] and len(piece) >= size), None)
    if piece is None:
        _PIECES[:] = [piece for piece in _PIECES if piece[0]]  # batches have become larger
        storage = torch.UntypedStorage._new_shared(size)  # type: ignore[no-untyped-call]
        piece = torch.empty(0, dtype=torch.uint8).set_(storage)
        if len(_PIECES) < KEPT:
            _PIECES.append(piece)
    piece[0] = 1
    return piece[HEAD:size].view(torch.float32).view(shape)


class Sent:
    """A batch as a worker gives it away: what arrives in the main process is a tensor.

    Args:
        piece: that it lies in, uint8.
        shape: of the batch.
    """

    def __init__(self, piece: Tensor, shape: tuple[int, ...]) -> None:
        self.piece, self.shape = piece, shape

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (self.piece, self.shape)


def send(batch: Tensor) -> Tensor | Sent:
    """What a worker gives away in place of a batch.

    Args:
        batch: any tensor; float32 that does not lie in a piece is copied into one.
    """
    if batch.dtype != torch.float32 or batch.device.type != "cpu" or batch.layout != torch.strided or not len(batch):
        return batch
    if _own(batch) is None:
        batch = lend(tuple(batch.shape)).copy_(batch.detach())
    piece = _own(batch)  # none if all pieces are with the main process: then the memory is sent and not kept
    return batch if piece is None else Sent(piece, tuple(batch.shape))


def _own(batch: Tensor) -> Tensor | None:
    where = batch.untyped_storage().data_ptr()
    return next((piece for piece in _PIECES if piece.data_ptr() == where), None)


def arrived(piece: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The batch in the main process; when nothing refers to it any more, the worker may use its memory again.

    Args:
        piece: that it lies in, uint8.
        shape: of the batch.
    """
    memory = piece.numpy()
    batch = memory[HEAD : HEAD + 4 * math.prod(shape)].view(np.float32).reshape(shape)
    # torch holds this very array as long as there is a tensor on it
    weakref.finalize(batch, _free, memory).atexit = False
    return torch.from_numpy(batch)


def _free(memory: npt.NDArray[np.uint8]) -> None:
    memory[0] = 0


__all__ = ["arrived", "lend", "send"]
