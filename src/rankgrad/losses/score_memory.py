"""The scores of earlier batches, in buffers (RaMBO, section 4.3), for rows of queries and for detectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..common.checks import integer
from ..ranks.types import Mask

FIELDS = ("scores", "targets", "valid")  # fields of `Scored`, and names of the buffers of a slot


class Scored(NamedTuple):
    """Lists of scores: of a detector one list per class, of a retrieval loss one per query.

    Attributes:
        scores: [list, entry] float.
        targets: [list, entry] bool; of a graded loss also its gains or levels.
        valid: [list, entry] bool; None: all entries are valid.
    """

    scores: Tensor
    targets: Tensor
    valid: Mask | None


class ScoreMemory(nn.Module):
    """The detached scores of the last batches (RaMBO, section 4.3). A new batch replaces the oldest.

    The batches may differ in their shape. They are buffers, so they are saved, moved and resumed with the
    module. A saved memory can be loaded into a memory with the same number of batches.

    Args:
        batches: number of batches to keep, >= 0.

    >>> memory = ScoreMemory(2)
    >>> for step in range(3):
    ...     memory.write(Scored(torch.full((1, 2), float(step)), torch.zeros(1, 2, dtype=torch.bool), None))
    >>> [scored.scores.tolist() for scored in memory.held()]
    [[[2.0, 2.0]], [[1.0, 1.0]]]
    """

    written: Tensor

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = integer(batches, "memory is a number of batches", low=0)
        self.register_buffer("written", torch.zeros((), dtype=torch.long))
        self.reset()

    def reset(self) -> None:
        """Remove all batches."""
        device = self.written.device
        for slot in range(self.batches):
            nothing = torch.empty(0, 0, device=device)
            self._store(slot, Scored(nothing, nothing.bool(), None))
        self.count = 0  # number of batches written; reading the buffer instead would wait for a GPU
        self.written.zero_()

    def _store(self, slot: int, batch: Scored) -> None:
        # new buffers, not in place: batches differ in size, and a graph may still use the old ones
        nothing = batch.targets.new_empty(0, 0)
        for name, rows in zip(FIELDS, (batch.scores, batch.targets, batch.valid), strict=True):
            self.register_buffer(f"{name}{slot}", nothing if rows is None else rows)

    def _batch(self, slot: int) -> Scored:
        scores, targets, valid = (self.get_buffer(f"{name}{slot}") for name in FIELDS)
        return Scored(scores, targets, valid if valid.numel() else None)

    @property
    def rows(self) -> int:
        """Current number of entries of a list, such as proposals."""
        return sum(batch.scores.shape[1] for batch in self.held())

    def write(self, batch: Scored) -> None:
        """Store a batch. If the memory is full, it replaces the oldest batch."""
        if self.batches:
            # copies, because the caller may change its tensors
            rows = (None if t is None else t.detach().clone() for t in batch)
            self._store(self.count % self.batches, Scored(*rows))  # type: ignore[arg-type]
        self.count += 1
        self.written += 1

    def held(self) -> list[Scored]:
        """The stored batches, newest first."""
        ages = range(min(self.count, self.batches))
        return [self._batch((self.count - 1 - age) % self.batches) for age in ages]

    def check(self, device: torch.device, classes: int | None = None) -> None:
        """Raise ValueError unless the stored batches are on this device, and have this number of classes if given."""
        for batch in self.held()[:1]:
            if classes is not None and len(batch.scores) != classes:
                raise ValueError(
                    f"the memory holds scores of {len(batch.scores)} classes but got {classes}; after a change of "
                    "data or head, call reset()"
                )
            if batch.scores.device != device:
                raise ValueError(
                    f"the memory is on {batch.scores.device} but scores are on {device}; move the loss to their device"
                )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        count = state_dict.get(f"{prefix}written")
        if count is not None:
            saved = sum(key.startswith(f"{prefix}scores") for key in state_dict)
            if saved != self.batches:
                raise ValueError(
                    f"the saved memory holds {saved} batches, this one {self.batches}: use the same number, or remove "
                    "the memory from the saved state and start with an empty one"
                )
            for slot in range(self.batches):
                rows = (state_dict[f"{prefix}{name}{slot}"] for name in FIELDS)
                self._store(slot, Scored(*(torch.empty_like(t, device=self.written.device) for t in rows)))
            self.count = int(count)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """Numbers of batches and of entries."""
        return f"batches={self.batches}, rows={self.rows}"
