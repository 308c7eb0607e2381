"""ROADMAP (Ramzi et al., NeurIPS 2021, arXiv:2110.01445): SupAP plus a calibration of absolute scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ..checks import number
from ..types import Mask, PerQuery, Scores
from .average_precision import SupAPLoss
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CalibrationLoss(RetrievalLoss):
    r"""Relevant scores above alpha, irrelevant ones below beta, the same for all queries (ROADMAP eq. 7).

        L = 1/M sum_q [ mean_{j in P_q} (alpha - s_qj)_+  +  mean_{j in N_q} (s_qj - beta)_+ ]

    An empty mean is 0 and every query counts. It makes the AP of a batch speak for the whole set (decomposability).

    Args:
        alpha: threshold of relevant scores (cosine).
        beta: threshold of irrelevant scores, <= alpha.
        aggregation: "query": as above; "avg_non_zero": published code: mean over all relevant pairs of the batch with a
            non-zero term, plus the same over irrelevant pairs. It jumps when a pair becomes inactive.
        common: see `RetrievalLoss`.

    >>> CalibrationLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5500)
    """

    optimises: ClassVar[str] = "common thresholds for all queries"
    source: ClassVar[str] = "Ramzi et al., NeurIPS 2021, eq. 7, [2110.01445](https://arxiv.org/abs/2110.01445)"
    graded: ClassVar[bool] = False

    def __init__(
        self,
        alpha: float = 0.9,
        beta: float = 0.6,
        aggregation: Literal["query", "avg_non_zero"] = "query",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        number(alpha, "alpha is the threshold of relevant scores")
        number(beta, "beta is the threshold of irrelevant scores")
        if not beta <= alpha:
            raise ValueError(f"beta (irrelevant below) must not exceed alpha (relevant above); got {beta} > {alpha}")
        if aggregation not in ("query", "avg_non_zero"):
            raise ValueError(f"aggregation must be 'query' or 'avg_non_zero'; got {aggregation!r}")
        self.alpha, self.beta, self.aggregation = alpha, beta, aggregation

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Both parts; every query counts."""
        rest = ~relevant if valid is None else valid & ~relevant
        relevant = relevant if valid is None else valid & relevant
        total = scores.new_zeros(len(scores))
        for short, pairs in ((self.alpha - scores, relevant), (scores - self.beta, rest)):
            active = pairs & (short > 0)
            cost = short.masked_fill(~active, 0).sum(1)
            if self.aggregation == "query":
                total = total + cost / pairs.sum(1).clamp(min=1)
            else:  # scaled so that the mean over the queries is the mean over the active pairs
                total = total + cost * len(scores) / active.sum().clamp(min=1)
        return total, torch.ones(len(scores), dtype=torch.bool, device=scores.device)


class ROADMAPLoss(RetrievalLoss):
    r"""(1 - weight) SupAP + weight calibration (ROADMAP eq. 2).

    Published training code adds both with weight 1, twice this value at weight = 0.5. SupAP averages over the queries
    that have a relevant item, calibration over all; so with reduction="none" every query counts. `stats` holds both
    parts.

    Args:
        tau: see `SupAPLoss`.
        rho: see `SupAPLoss`.
        delta: see `SupAPLoss`.
        offset: see `SupAPLoss`.
        start: see `SupAPLoss`.
        tie: see `SupAPLoss`.
        alpha: see `CalibrationLoss`.
        beta: see `CalibrationLoss`.
        aggregation: of the calibration, see `CalibrationLoss`.
        weight: lambda of eq. 2, 0 .. 1.
        common: see `RetrievalLoss`.

    >>> ROADMAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.7617)
    """

    optimises: ClassVar[str] = "SupAP + calibration"
    source: ClassVar[str] = "Ramzi et al., NeurIPS 2021, [2110.01445](https://arxiv.org/abs/2110.01445)"
    graded: ClassVar[bool] = False

    def __init__(
        self,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        offset: float | None = None,
        start: float = 0.5,
        tie: Literal["upper", "official"] = "upper",
        alpha: float = 0.9,
        beta: float = 0.6,
        aggregation: Literal["query", "avg_non_zero"] = "query",
        weight: float = 0.5,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        number(weight, "weight is ROADMAP's lambda (0: SupAP alone, 1: calibration alone)", low=0, high=1)
        self.tau, self.rho, self.delta, self.offset, self.start, self.tie = tau, rho, delta, offset, start, tie
        self.alpha, self.beta, self.aggregation, self.weight = alpha, beta, aggregation, weight
        self.supap = SupAPLoss(tau, rho, delta, offset, start, tie, positives=self.positives)
        self.calibration = CalibrationLoss(alpha, beta, aggregation)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """The weighted sum; every query counts, so SupAP's share is spread over all of them."""
        supap, has_relevant = self.supap.per_query(scores, relevant, valid)
        calibration, counted = self.calibration.per_query(scores, relevant, valid)
        supap = torch.where(has_relevant, supap, 0) * len(scores) / has_relevant.sum().clamp(min=1)
        self.stats["supap"], self.stats["calibration"] = supap.detach().mean(), calibration.detach().mean()
        self.stats["has_relevant"] = has_relevant
        return (1 - self.weight) * supap + self.weight * calibration, counted

    def components(self) -> dict[str, Tensor]:
        """Both parts of the last value, with their weights."""
        weights = {"supap": 1 - self.weight, "calibration": self.weight}
        return {name: weight * self.stats[name] for name, weight in weights.items()}
