"""One threshold for all pairs: the false non-match rate at a false match rate, from blocks of scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import metrics
from ..search import RankBlock
from .arrays import Array, to_numpy


class PairScores:
    """Scores of all relevant pairs, and as many of the highest irrelevant scores as the threshold may need.

    Args:
        rate: allowed fraction of false matches.
        pairs: upper bound of the number of irrelevant pairs.
    """

    def __init__(self, rate: float, pairs: int) -> None:
        self.rate, self.most = rate, metrics.false_matches(rate, pairs) + 1
        self.relevant: list[Array] = []
        self.irrelevant: list[Array] = []
        self.count = 0
        self._held, self._bound = 0, -np.inf

    def add(self, block: RankBlock) -> None:
        """Add the scores of a block."""
        self.count += int(block.irrelevant.sum())
        self.relevant.append(to_numpy(block.relevant_scores()))
        scores = block.irrelevant_scores()
        self.irrelevant.append(to_numpy(scores[scores > self._bound]))
        self._held += len(self.irrelevant[-1])
        if self._held > 2 * self.most:
            self._reduce()

    def _reduce(self) -> None:
        held = np.concatenate(self.irrelevant)
        if len(held) > self.most:
            held = np.partition(held, len(held) - self.most)[-self.most :]
            # scores equal to the lowest one need not be added again
            self._bound = held.min()
        self.irrelevant, self._held = [held], len(held)

    @classmethod
    def joined(cls, parts: Sequence[PairScores]) -> PairScores:
        """The scores of several processes as one."""
        whole = cls(parts[0].rate, 0)
        whole.most, whole.count = parts[0].most, sum(part.count for part in parts)
        whole.relevant = [scores for part in parts for scores in part.relevant]
        whole.irrelevant = [scores for part in parts for scores in part.irrelevant]
        return whole

    def fnmr(self) -> float | None:
        """Fraction of the relevant pairs not above the threshold; None without irrelevant pairs."""
        if not self.count:
            return None
        allowed = metrics.false_matches(self.rate, self.count)
        if allowed == self.count:
            return 0.0
        held = np.concatenate(self.irrelevant)
        threshold = np.partition(held, len(held) - 1 - allowed)[len(held) - 1 - allowed]
        return float((np.concatenate(self.relevant) <= threshold).mean())
