"""The rows of a run as batches for losses of lists."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankgrad.batches.epochs import EpochBatches
from rankgrad.scores.batches import QueryBatches, StratifiedBatches

from ...training.data import EpochData
from .settings import Batches

Batch = tuple[Tensor, Tensor, Tensor | None]


class ScoreRows(Dataset[Batch]):
    """Encoded rows with relevance and query, a batch at a time.

    Args:
        inputs: [row, width] float.
        relevance: [row] bool or grades.
        query: [row] long; None: all rows are one list.
    """

    def __init__(self, inputs: Tensor, relevance: Tensor, query: Tensor | None) -> None:
        self.inputs, self.relevance, self.query = inputs, relevance, query

    def __len__(self) -> int:
        """Rows."""
        return len(self.inputs)

    def __getitems__(self, rows: Sequence[int]) -> Batch:
        """The batch of these rows."""
        place = torch.tensor(rows)
        return self.inputs[place], self.relevance[place], None if self.query is None else self.query[place]


def list_data(rows: ScoreRows, settings: Batches, seed: int) -> EpochData:
    """Training batches: whole queries if rows have queries, else stratified by relevance.

    Args:
        rows: the training rows.
        settings: settings of the batches.
        seed: seed of their order.
    """
    sampler: EpochBatches
    if rows.query is None:
        relevant = rows.relevance > 0
        sampler = StratifiedBatches(relevant, settings.batch_size, settings.positives_per_batch, seed)
    else:
        sampler = QueryBatches(rows.query, settings.queries_per_batch, seed)
    return EpochData(rows, sampler, tuple)  # rows are batches already


__all__ = ["ScoreRows", "list_data"]
