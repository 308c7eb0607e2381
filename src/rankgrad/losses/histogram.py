"""AP from soft histograms of scores: FastAP and SoftBinAP. They use absolute scores, quantised into bins."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..common.checks import integer, number
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

PART = 256  # smallest number of items that share a histogram before the histograms are added


def soft_histogram(position: Tensor, count: Tensor, bins: int) -> Tensor:
    """[query, bin] triangular soft histogram: an item at position x adds 1 - |x - l| to each of its two nearest bins l.

    Memory is O(query x item).

    Args:
        position: [query, item] float in 0 .. bins - 1, in units of bins.
        count: [query, item] float, weight of each item (0: absent).
        bins: number of bins.
    """
    low = position.detach().floor().clamp(0, bins - 2)
    share = position - low
    index = low.long()
    queries, items = position.shape
    # long lists in parts, each with a histogram: one after the other in float32, a sum of 50,000 equal weights is wrong
    # by 7e-4
    size = max(PART, bins)
    parts = -(-items // size)
    if parts > 1:
        index += bins * torch.arange(items, device=index.device).div(size, rounding_mode="floor")
    histogram = position.new_zeros(queries, parts * bins)
    histogram = histogram.scatter_add(1, index, count * (1 - share)).scatter_add(1, index + 1, count * share)
    return histogram.view(queries, parts, bins).sum(1, dtype=torch.float64).to(position.dtype)


class _HistogramAP(RetrievalLoss):
    graded: ClassVar[bool] = False
    separate: bool = True

    def position(self, scores: Scores) -> tuple[Tensor, int]:
        """Positions in units of bins, best scores first, and the number of bins."""
        raise NotImplementedError

    def precision(self, items: Tensor, hits: Tensor) -> Tensor:
        """[query, bin] precision of each bin, H+_l / H_l, from the histograms of all items and of the relevant ones."""
        above = items.cumsum(1)
        # before the first item both sums are 0, and so is the term: no division 0 / 0
        return hits.cumsum(1) / torch.where(above > 0, above, 1)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """1 - 1/p sum_l h+_l precision_l."""
        present = torch.ones_like(relevant) if valid is None else valid
        relevant = relevant & present
        position, bins = self.position(scores)
        items = soft_histogram(position, present.to(scores.dtype), bins)
        hits = soft_histogram(position, relevant.to(scores.dtype), bins)
        p = relevant.sum(1)
        return 1 - (hits * self.precision(items, hits)).sum(1) / p.clamp(min=1), p > 0


class FastAPLoss(_HistogramAP):
    r"""FastAP: 1 - 1/p sum_l h+_l H+_l / H_l over L + 1 bins of d^2 = 2 - 2 s in [0, 4] (Cakir et al., CVPR 2019).

    The gradient is that of this value. The published hand-written gradient is Q/2 times as large and ignores the
    upstream gradient.

    Args:
        bins: L, >= 1.
        common: see `RetrievalLoss`.

    >>> FastAPLoss().from_scores(torch.tensor([[0.2, 1.0, -1.0]]), torch.tensor([[True, False, False]]))
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "AP of histogram bins of distance"
    source: ClassVar[str] = "Cakir et al., CVPR 2019"

    def __init__(self, bins: int = 10, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.bins = integer(bins, "bins is the number of intervals of the distance", low=1)

    def position(self, scores: Scores) -> tuple[Tensor, int]:
        """d^2 in units of 4 / L. Rounding errors beyond [0, 4] go to the end bins."""
        return ((2 - 2 * scores) * (self.bins / 4)).clamp(0, self.bins), self.bins + 1


class SoftBinAPLoss(_HistogramAP):
    r"""SoftBinAP: AP from M soft bins, high scores first (Revaud et al., ICCV 2019; He et al., CVPR 2018).

    Scores beyond [low, high] go to the end bins and have zero gradient.

    Args:
        bins: M >= 2; 20 in ROADMAP's comparison, 25 in the published code.
        low: lowest bin centre; 0 in the published code.
        high: highest bin centre.
        common: see `RetrievalLoss`.

    >>> loss = SoftBinAPLoss(bins=3)
    >>> loss.from_scores(torch.tensor([[0.0, 1.0, -1.0]]), torch.tensor([[True, False, False]]))
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "AP of histogram bins of score"
    source: ClassVar[str] = "Revaud et al., ICCV 2019, [1906.07589](https://arxiv.org/abs/1906.07589)"

    def __init__(self, bins: int = 20, low: float = -1.0, high: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        number(high, "high is the highest bin centre", above=number(low, "low is the lowest bin centre"))
        self.bins, self.low, self.high = integer(bins, "bins is the number of bin centres", low=2), low, high

    def position(self, scores: Scores) -> tuple[Tensor, int]:
        """(high - s) in units of the bin distance."""
        return (self.high - scores.clamp(self.low, self.high)) * ((self.bins - 1) / (self.high - self.low)), self.bins
