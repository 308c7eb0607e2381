"""A metric: a function of the ranks of the relevant items, which gives one value for each query."""

from __future__ import annotations

from torch import Tensor

from rankgrad import Ranks
from rankgrad.metrics import average_precision


def perfect(ranks: Ranks) -> Tensor:
    """1 for a query whose relevant items all stand first, else 0."""
    return (average_precision(ranks) == 1).double()
