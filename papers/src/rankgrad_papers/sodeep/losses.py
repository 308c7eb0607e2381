"""Losses on ranks from a learned sorter (SoDeep, Engilberge et al., CVPR 2019). The first use trains the sorter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rankgrad.losses import RankLoss, SpearmanLoss
from rankgrad.losses.base import Common
from rankgrad.metrics import average_precision

from .networks import Learned
from .store import load_sorter

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SoDeepAPLoss(RankLoss):
    """1 - AP, computed from ranks of a learned sorter.

    Args:
        items: length of the longest list; at least the rows of a batch.
        architecture: a key of `sodeep.ARCHITECTURES`.
        steps, batch_size, lr, seed: of the sorter's training.
    """

    def __init__(
        self,
        items: int = 128,
        architecture: str = "lstm_small",
        steps: int = 3000,
        batch_size: int = 32,
        lr: float = 1e-2,
        seed: int = 0,
        **common: Unpack[Common],
    ) -> None:
        sorter = load_sorter(items, architecture, steps=steps, batch_size=batch_size, lr=lr, seed=seed)
        super().__init__(Learned(sorter), metric=average_precision, **common)


class SoDeepSpearmanLoss(SpearmanLoss):
    """1 - Spearman's correlation of scores and gains, from ranks of a learned sorter. Arguments: see `SoDeepAPLoss`."""

    def __init__(
        self,
        items: int = 128,
        architecture: str = "lstm_small",
        steps: int = 3000,
        batch_size: int = 32,
        lr: float = 1e-2,
        seed: int = 0,
        **common: Unpack[Common],
    ) -> None:
        sorter = load_sorter(items, architecture, steps=steps, batch_size=batch_size, lr=lr, seed=seed)
        super().__init__(ranks=sorter, **common)
