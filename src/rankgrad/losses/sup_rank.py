"""SupRank: other metrics computed from the ranks of SupAP (Ramzi et al., 2023, arXiv:2309.08250)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ..common.checks import flag
from ..metrics import Gain, ndcg
from ..ranks import Soft
from ..ranks.relaxations import Heaviside, SupStep
from ..ranks.types import Mask, PerQuery, Ranks, Scores
from .base import Common
from .graded import check_gain, count_temperatures, list_lengths, mean_recall
from .rank_loss import RankLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SupNDCGLoss(RankLoss):
    r"""1 - NDCG with SupAP's ranks: an upper bound of 1 - NDCG (SupRank, Ramzi et al., 2023).

        NDCG = sum_i gain(g_i) / log2(1 + rank_i) / (the same sum for the ideal order)
        rank_i = 1 + sum_{g_j >= g_i} H(s_j - s_i) + sum_{g_j < g_i} H^-(s_j - s_i)
    Only the H^- terms have a gradient. For hierarchical labels, g is the number of shared levels, as in the published
    code.

    The defaults are the published ones. With small networks, try a steeper step: tau 0.002, rho 500, delta 0.01.

    Args:
        tau: temperature of H^-, see `SupAPLoss`.
        rho: see `SupAPLoss`.
        delta: see `SupAPLoss`.
        offset: see `SupAPLoss`; published configurations: 1.44, and 1.0 for iNaturalist, with start = 0.
        start: see `SupAPLoss`.
        tie: see `SupAPLoss`.
        gain: "exp2" 2^g - 1, or "linear" g; both are equal for binary relevance.
        common: see `RetrievalLoss`.

    >>> SupNDCGLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[2, 0, 1]]))
    tensor(0.7995)
    """

    optimises: ClassVar[str] = "upper bound of 1 − NDCG, SupAP's ranks"
    source: ClassVar[str] = "Ramzi et al. 2023 (SupRank), [2309.08250](https://arxiv.org/abs/2309.08250)"
    levels: ClassVar[bool] = True

    def __init__(
        self,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        offset: float | None = None,
        start: float = 0.5,
        tie: Literal["upper", "official"] = "upper",
        gain: Gain = "exp2",
        **common: Unpack[Common],
    ) -> None:
        check_gain(gain)
        step = SupStep(tau, rho, delta, offset, start, tie)
        super().__init__(Soft(Heaviside(), step), metric=self._ndcg, **common)
        self.tau, self.rho, self.delta, self.offset, self.start, self.tie = tau, rho, delta, offset, start, tie
        self.gain = gain

    def _ndcg(self, ranks: Ranks) -> PerQuery:
        return ndcg(ranks, gain=self.gain)

    def ranked(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> Ranks:
        """Ranks of the items; the levels are the gains."""
        if relevant.dtype != torch.bool and not relevant.is_floating_point():
            relevant = relevant.to(scores.dtype)
        return super().ranked(scores, relevant, valid)


class SupRecallLoss(RankLoss):
    r"""1 - mean over k of sum_i sigmoid((k - rank_i) / tau2) / min(k, p) with SupAP's ranks (SupRank, 2023).

    The Recall@k surrogate (`RecallAtKLoss`) limits the sum to k; the published code of SupRank does not. So the loss of
    a query with more than k relevant items may be negative, and these items are still pulled up. clip=True limits the
    sum to k.

    Args:
        k: list lengths, each >= 1.
        tau: temperature of H^-, see `SupAPLoss`.
        rho: see `SupAPLoss`.
        delta: see `SupAPLoss`.
        offset: see `SupAPLoss`; published configurations: 1.44, and 1.0 for iNaturalist, with start = 0.
        start: see `SupAPLoss`.
        tie: see `SupAPLoss`.
        tau2: temperature of the count, in ranks, > 0; one for all k, or one for each.
        clip: True: the sum is at most k, and has no gradient where it is limited.
        common: see `RetrievalLoss`.

    >>> SupRecallLoss(k=(1,)).from_scores(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "Recall@k with SupAP's ranks"
    source: ClassVar[str] = "Ramzi et al. 2023 (SupRank), [2309.08250](https://arxiv.org/abs/2309.08250)"
    graded: ClassVar[bool] = False

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16),
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        offset: float | None = None,
        start: float = 0.5,
        tie: Literal["upper", "official"] = "upper",
        tau2: float | Sequence[float] = 1.0,
        clip: bool = False,
        **common: Unpack[Common],
    ) -> None:
        k, temperatures = list_lengths(k), count_temperatures(tau2, k)
        step = SupStep(tau, rho, delta, offset, start, tie)
        super().__init__(Soft(Heaviside(), step), metric=self._recall, **common)
        self.tau, self.rho, self.delta, self.offset, self.start, self.tie = tau, rho, delta, offset, start, tie
        self.k, self.tau2, self.clip = k, tau2, flag(clip, "clip")
        self._temperatures = temperatures

    def _recall(self, ranks: Ranks) -> PerQuery:
        return mean_recall(ranks, self.k, self._temperatures, self.clip)
