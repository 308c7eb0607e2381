"""A loss: ranks that are relaxed, and a metric that is read off them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from rankgrad import Ranks
from rankgrad.losses import RankLoss
from rankgrad.losses.base import Common
from rankgrad.metrics import average_precision
from rankgrad.ranks import Soft
from rankgrad.ranks.relaxations import Sigmoid

if TYPE_CHECKING:
    from typing_extensions import Unpack


def squared_ap(ranks: Ranks) -> Tensor:
    """AP squared: queries that are nearly right have the largest gradient."""
    return average_precision(ranks) ** 2


class SquaredAPLoss(RankLoss):
    """1 - AP², with sigmoid ranks.

    Args:
        tau: temperature of the sigmoid, in units of the score.
    """

    def __init__(self, tau: float = 0.05, **common: Unpack[Common]) -> None:
        step = Sigmoid(tau)
        super().__init__(Soft(step, step), metric=squared_ap, **common)
