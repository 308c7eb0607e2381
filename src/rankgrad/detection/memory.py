"""Scores and targets of the last batches: what a batch of proposals is ranked against beside itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

FIELDS = ("scores", "targets", "valid")  # of `Scored`, and of the buffers of a slot


class Scored(NamedTuple):
    """Proposals of one or more batches, a list per class.

    Attributes:
        scores: [class, row] float.
        targets: [class, row] bool.
        valid: [class, row] bool; None: all entries exist.
    """

    scores: Tensor
    targets: Tensor
    valid: Tensor | None


class ScoreMemory(nn.Module):
    """The last batches of scores (RaMBO, section 4.3): detached, the oldest leaves first.

    The batches may have any numbers of rows. They lie in buffers: saved, moved, resumed. A saved memory can be loaded
    by one that keeps as many batches.

    Args:
        batches: how many are kept, >= 0.

    >>> memory = ScoreMemory(2)
    >>> for step in range(3):
    ...     memory.write(Scored(torch.full((1, 2), float(step)), torch.zeros(1, 2, dtype=torch.bool), None))
    >>> [scored.scores.tolist() for scored in memory.held()]
    [[[2.0, 2.0]], [[1.0, 1.0]]]
    """

    written: Tensor

    def __init__(self, batches: int) -> None:
        super().__init__()
        if isinstance(batches, bool) or not isinstance(batches, int) or batches < 0:
            raise ValueError(f"memory is a number of batches, an integer >= 0; got {batches!r}")
        self.batches = batches
        self.register_buffer("written", torch.zeros((), dtype=torch.long))
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        device = self.written.device
        for slot in range(self.batches):
            nothing = torch.empty(0, 0, device=device)
            self._store(slot, Scored(nothing, nothing.bool(), None))
        self.count = 0  # batches written; the buffer says the same, but reading it would wait for a GPU
        self.written.zero_()

    def _store(self, slot: int, batch: Scored) -> None:
        # replaced and not written to: each batch takes what it needs, and no graph meets a change
        nothing = batch.targets.new_empty(0, 0)
        for name, rows in zip(FIELDS, (batch.scores, batch.targets, batch.valid), strict=True):
            self.register_buffer(f"{name}{slot}", nothing if rows is None else rows)

    def _batch(self, slot: int) -> Scored:
        scores, targets, valid = (self.get_buffer(f"{name}{slot}") for name in FIELDS)
        return Scored(scores, targets, valid if valid.numel() else None)

    @property
    def rows(self) -> int:
        """Proposals now held."""
        return sum(batch.scores.shape[1] for batch in self.held())

    def write(self, batch: Scored) -> None:
        """Keep a batch, in the place of the oldest one.

        Raises:
            ValueError: another number of classes than the batches held have.
        """
        self.check(len(batch.scores))
        if self.batches:
            # copies: views of the caller's tensors would change with them
            rows = (None if t is None else t.detach().clone() for t in batch)
            self._store(self.count % self.batches, Scored(*rows))  # type: ignore[arg-type]
        self.count += 1
        self.written += 1

    def held(self) -> list[Scored]:
        """The batches, the newest first."""
        ages = range(min(self.count, self.batches))
        return [self._batch((self.count - 1 - age) % self.batches) for age in ages]

    def check(self, classes: int) -> None:
        """Raise ValueError unless the batches held are of so many classes."""
        for batch in self.held()[:1]:
            if len(batch.scores) != classes:
                raise ValueError(
                    f"the memory holds scores of {len(batch.scores)} classes but got {classes}; after a change of "
                    "data or head, empty it by reset()"
                )

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        count = state_dict.get(f"{prefix}written")
        if count is not None:
            saved = sum(key.startswith(f"{prefix}scores") for key in state_dict)
            if saved != self.batches:
                raise ValueError(
                    f"the saved memory holds {saved} batches, this one {self.batches}: build it with the same number, "
                    "or drop the memory from the state and start with an empty one"
                )
            for slot in range(self.batches):
                rows = (state_dict[f"{prefix}{name}{slot}"] for name in FIELDS)
                self._store(slot, Scored(*(torch.empty_like(t, device=self.written.device) for t in rows)))
            self.count = int(count)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """How many batches are kept, and how full it is."""
        return f"batches={self.batches}, rows={self.rows}"
