"""Batches for losses of lists: rows of one list, stratified by relevance; or whole queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batches.dealing import hands
from ..batches.epochs import EpochBatches


def usual_positives(batch_size: int, relevant: int, rows: int) -> int:
    """Number of relevant rows in a batch: their fraction of all rows, but one in 64 at least; of few rows, one.

    With a single relevant row, a batch compares only one row with the others, and the steps go to and fro.

    >>> usual_positives(512, 600, 6000), usual_positives(512, 6, 60000), usual_positives(32, 6, 60000)
    (51, 8, 1)
    """
    return max(1, batch_size // 64, round(batch_size * relevant / rows))


class StratifiedBatches(EpochBatches):
    """Batches of rows of one list, each with the same number of relevant rows.

    An epoch is one pass over the irrelevant rows. Rows that do not fill the last batch are left out of this epoch. All
    relevant rows are used once before one is used again, and a batch has no row twice.

    Args:
        relevant: [row] bool, some of them True and some False.
        batch_size: number of rows in a batch; all rows, if there are fewer.
        positives: number of relevant rows in a batch; all of them, if there are fewer. None: in proportion to their
            fraction of all rows, see `usual_positives`.
        seed: 0 .. 2**32 - 1.

    >>> batches = StratifiedBatches(torch.tensor([True, False, False, False, True, False]), batch_size=3)
    >>> [sorted(int(row) in (0, 4) for row in batch) for batch in batches]
    [[False, False, True], [False, False, True]]
    """

    def __init__(self, relevant: Tensor, batch_size: int, positives: int | None = None, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.relevant, self.others = (part.nonzero().squeeze(1).numpy() for part in (relevant, ~relevant))
        wanted = usual_positives(batch_size, len(self.relevant), len(relevant)) if positives is None else positives
        self.positives = min(wanted, len(self.relevant), batch_size - 1)
        self.negatives = min(batch_size - self.positives, len(self.others))
        self.batch_size = self.positives + self.negatives

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self.others) // self.negatives

    def batches(self, epoch: int) -> list[list[int]]:
        """[batch][row] of a whole epoch; the relevant rows come first."""
        rng = np.random.RandomState([self.seed, epoch])  # numpy promises never to change its stream
        others = self.others[rng.permutation(len(self.others))[: len(self) * self.negatives]]
        dealt = self.relevant[hands(len(self.relevant), len(self), self.positives, rng)]
        whole: list[list[int]] = np.concatenate([dealt, others.reshape(len(self), -1)], axis=1).tolist()
        return whole

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "positives": self.positives,
            "negatives": self.negatives,
            "rows": [len(self.relevant), len(self.others)],
        }


class QueryBatches(EpochBatches):
    """Batches of whole queries. Their order depends only on (seed, epoch).

    Queries that do not fill the last batch are left out of this epoch.

    Args:
        query: [row] long, the query of each row.
        queries_per_batch: number of queries in a batch; all queries, if there are fewer.
        seed: 0 .. 2**32 - 1.

    >>> batches = QueryBatches(torch.tensor([0, 0, 1, 2, 2, 2]), queries_per_batch=3)
    >>> [sorted(batch) for batch in batches]
    [[0, 1, 2, 3, 4, 5]]
    """

    def __init__(self, query: Tensor, queries_per_batch: int, seed: int = 0) -> None:
        super().__init__()
        order = query.argsort(stable=True)
        counts = torch.unique(query, return_counts=True)[1].tolist()
        self.rows = [part.tolist() for part in torch.split(order, counts)]
        self.queries_per_batch, self.seed = min(queries_per_batch, len(counts)), seed
        self.batch_size = sum(sorted(counts)[-self.queries_per_batch :])

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return len(self.rows) // self.queries_per_batch

    def batches(self, epoch: int) -> list[list[int]]:
        """[batch][row] of a whole epoch; the rows of a query follow each other."""
        order = np.random.RandomState([self.seed, epoch]).permutation(len(self.rows))
        chosen = order[: len(self) * self.queries_per_batch].reshape(len(self), -1)
        return [[row for query in batch for row in self.rows[query]] for batch in chosen.tolist()]

    def _identity(self) -> dict[str, Any]:
        counts = [len(self.rows), sum(map(len, self.rows))]
        return {"seed": self.seed, "queries_per_batch": self.queries_per_batch, "queries and rows": counts}


__all__ = ["QueryBatches", "StratifiedBatches", "usual_positives"]
