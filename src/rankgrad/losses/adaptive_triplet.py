"""A triplet loss whose pairs are also held apart by thresholds that follow the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..common.checks import number
from ..ranks.lists import both_kinds, has_kinds
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss
from .roadmap import CalibrationLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

NEAREST = 1e-6  # squared distance, in float32 about the rounding error of a cosine; below it the slope is 0


class AdaptiveTripletLoss(RetrievalLoss):
    r"""The hardest triplet of each query, and adaptive thresholds for all pairs. It is in no paper.

        (1 - weight) mean_{q in T} (margin + d(q, p_q) - d(q, n_q))_+  +  weight calibration      d = sqrt(2 - 2 s)

    p_q is the relevant item with the lowest score, and n_q the irrelevant item with the highest one. T has the queries
    with both. d is the Euclidean distance between embeddings of length 1. The first term is the batch-hard triplet loss
    (Hermans et al. 2017, arXiv:1703.07737), the second is `CalibrationLoss` with adaptive thresholds. Calibration is a
    mean over all queries, so with reduction="none" every query counts.

    Args:
        margin: of the triplets, in units of d, >= 0.
        weight: weight of the calibration, 0 .. 1.
        quantiles: quantiles of the relevant and of the irrelevant scores, see `CalibrationLoss`.
        common: see `RetrievalLoss`.

    Attributes:
        stats: also "triplet" and "calibration" (their unweighted means), "alpha" and "beta" (the thresholds).

    >>> AdaptiveTripletLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5014)
    """

    optimises: ClassVar[str] = "hardest triplets + calibration that follows the scores"
    source: ClassVar[str] = (
        "Hermans et al. 2017, [1703.07737](https://arxiv.org/abs/1703.07737); "
        "the thresholds: this library, [results](../papers/docs/results.md#ranks-or-thresholds)"
    )
    graded: ClassVar[bool] = False

    def __init__(
        self,
        margin: float = 0.2,
        weight: float = 0.5,
        quantiles: Sequence[float] = (0.5, 0.99),
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        self.margin = number(margin, "margin is that of the triplets, in distances", low=0)
        self.weight = number(weight, "weight is that of the calibration (0: triplets alone)", low=0, high=1)
        self.quantiles = quantiles
        self.calibration = CalibrationLoss(quantiles=quantiles)

    @property
    def by_parts(self) -> bool:
        """True: calibration, too, asks for what it needs."""
        return True

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """The weighted sum. Every query counts, so the triplets are rescaled from the queries that have one to all."""
        calibration, counted = self.calibration.per_query(scores, relevant, valid)
        hits, rest = both_kinds(relevant, valid)
        found, count = hits.any(1) & rest.any(1), self.over_batch("triplets", _triplets, relevant, valid)
        triplet = torch.zeros_like(calibration)
        if scores.shape[1]:
            lowest = scores.masked_fill(~hits, torch.inf).amin(1).masked_fill(~found, 0)
            highest = scores.masked_fill(~rest, -torch.inf).amax(1).masked_fill(~found, 0)
            hinge = (self.margin + _distance(lowest) - _distance(highest)).clamp(min=0)
            triplet = torch.where(found, hinge, 0) * self.queries(scores) / count.clamp(min=1)
        self.stats["triplet"], self.stats["calibration"] = triplet.detach().mean(), calibration.detach().mean()
        for name in ("alpha", "beta"):
            self.stats[name] = self.calibration.stats[name]
        return (1 - self.weight) * triplet + self.weight * calibration, counted

    def remember(self) -> None:
        """Update the thresholds of the calibration with the last call."""
        self.calibration.remember()

    def components(self) -> dict[str, Tensor]:
        """Both parts of the last value, multiplied by their weights."""
        weights = {"triplet": 1 - self.weight, "calibration": self.weight}
        return {name: weight * self.stats[name] for name, weight in weights.items()}


def _triplets(relevant: Tensor, valid: Mask | None) -> Tensor:
    """Number of queries with a relevant and an irrelevant item."""
    return torch.stack(has_kinds(relevant, valid)).all(0).sum()


def _distance(cosines: Tensor) -> Tensor:
    return (2 - 2 * cosines).clamp(min=NEAREST).sqrt()
