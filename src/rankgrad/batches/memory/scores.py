"""A memory of the scores of earlier batches (RaMBO, section 4.3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...common.checks import Numbers, integer
from ...losses.base import RetrievalLoss, in_backward
from ...losses.score_memory import Scored, ScoreMemory
from ...ranks.relevance import Labels


class RowMemory(nn.Module):
    r"""A loss over the score rows of the batch and of the batches before it: RaMBO's score memory (section 4.3).

    Each query of the last batches keeps the row of scores that it had in its own batch, without a graph. The loss is
    that of all rows together, so its mean runs over the queries of 1 + `batches` batches. No list gets longer, and the
    old rows have no gradient. If all queries count, the gradient is therefore

        1 / (1 + batches) of the gradient without a memory.

    The first factor means little to Adam, which divides it out again. A loss of `Blackbox` ranks also perturbs the
    scores 1 + `batches` times less: its memory is a smaller lambda_. In the published code the ranks also grow with
    the number of rows; docs/numerics.md says how to get this.

    Args:
        loss: a `RetrievalLoss` with reduction="mean". Give each part of a `SumLoss` a memory of its own.
        batches: number of earlier batches, >= 1; 3 in RaMBO.

    Attributes:
        stats: the statistics of the loss, for the queries of the batch, and "memory_entries", the number of old rows.

    Raises:
        TypeError: the loss takes no rows of scores.
        RuntimeError: torch.utils.checkpoint computes the loss again in the backward pass.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> memory = RowMemory(SmoothAPLoss(), batches=3)
    >>> for step in range(2):
    ...     loss = memory(torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))
    >>> int(memory.stats["memory_entries"])
    4
    """

    stats: dict[str, Tensor]

    def __init__(self, loss: nn.Module, batches: int = 3) -> None:
        super().__init__()
        if not isinstance(loss, RetrievalLoss):
            raise TypeError(
                "a memory of score rows needs a loss that takes rows of scores, such as RaMBORecallLoss() or another "
                f"loss of rankgrad.losses.LOSSES; got {type(loss).__name__}. CrossBatchMemory keeps embeddings"
            )
        if loss.reduction != "mean":
            raise ValueError(f"a memory of score rows changes the mean: use reduction='mean'; got {loss.reduction!r}")
        self.loss = loss
        self.rows = ScoreMemory(integer(batches, "batches is the number of earlier batches", low=1))
        self.stats = {}

    def reset(self) -> None:
        """Remove all rows. Call it after a change of data or model."""
        self.rows.reset()

    def forward(self, embeddings: Numbers, labels: Labels, *, ids: Numbers | None = None) -> Tensor:
        """Loss of a batch. In training mode, with gradients enabled, its rows are then written to the memory.

        Args:
            embeddings: [row, dim] float.
            labels: as for the loss.
            ids: [row] sample ids, as for the loss.
        """
        learns = self.training and torch.is_grad_enabled()
        if learns and in_backward():
            raise RuntimeError(
                "a memory can't be inside torch.utils.checkpoint: its loss would be computed again in the backward "
                "pass, when the memory has changed. Put only the model inside"
            )
        batch = Scored(*self.loss.score_rows(self.loss.prepared(self.loss.checked(embeddings, labels, ids=ids))))
        zero_rows = self.loss.stats["zero_rows"]
        self.rows.check(batch.scores.device)
        held = self.rows.held()
        value = self.loss.from_scores(*_together([batch, *held]))
        mine = len(batch.scores)
        self.stats = {name: seen[:mine] if seen.ndim else seen for name, seen in self.loss.stats.items()}
        entries = torch.tensor(float(sum(len(each.scores) for each in held)))
        self.stats |= {"zero_rows": zero_rows, "memory_entries": entries}
        if learns:
            self.rows.write(batch)
        return value


def _together(parts: list[Scored]) -> Scored:
    """The lists of all parts. Shorter lists end with entries that are not valid."""
    first, longest = parts[0], max(part.scores.shape[1] for part in parts)
    short = any(part.valid is not None or part.scores.shape[1] < longest for part in parts)
    columns: list[list[Tensor]] = [[], [], []]
    for part in parts:
        if part.targets.dtype != first.targets.dtype:
            raise ValueError(
                f"the memory holds relevance of {part.targets.dtype} but got {first.targets.dtype}: the kind of the "
                "labels has changed; reset() empties the memory"
            )
        valid = torch.ones_like(part.targets, dtype=torch.bool) if part.valid is None else part.valid
        for column, rows in zip(columns, (part.scores.to(first.scores.dtype), part.targets, valid), strict=True):
            column.append(nn.functional.pad(rows, (0, longest - rows.shape[1])))
    scores, targets, valid = (torch.cat(column) for column in columns)
    return Scored(scores, targets, valid if short else None)
