"""AUC of the hardest pairs as a loss (Gajić et al., CVPRW 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..common.checks import integer, number
from ..ranks.lists import both_kinds
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AUCLoss(RetrievalLoss):
    r"""1 - AUC of the hardest pairs of the queries (of a paper); for the ROC AUC of scores see `ROCAUCLoss`.

    The area is by the trapezoid rule on soft counts (Algorithm 1). Each query contributes two scores: its lowest
    relevant score hp and its highest irrelevant score hn. No other item has a gradient. A single binary list, such as
    the scores of a classifier, gives only one pair. Use binary cross-entropy there, which learns from every item.

    Queries without a relevant or without an irrelevant item are left out; n remain. With thresholds
    t_m = t_min + m step, m = 0 .. S, and means over the n queries
        TP_m = mean sigmoid(slope (hp - t_m)),  FP_m = mean sigmoid(slope (hn - t_m)),
        L = 1 - sum_{m < S} 1/2 (TP_m + TP_{m+1}) (FP_m - FP_{m+1}).
    The thresholds are global, so all n^2 pairs across queries are compared. Line 12 of the printed algorithm has a
    typo (sigma^+ for sigma^-), which is corrected here. The masked minimum is a true minimum over the relevant items.
    `metrics.auc_hardest` is the exact value.

    The end pieces of the curve are missing. Therefore the loss of a perfect batch is slightly above 0, and an hn within
    ~3 steps of t_min gives a wrong value. `pad_steps` extends the range. We did not have the paper's table of slopes:
    5.3 / step (the logistic closest to a ramp of one step) is our choice.

    Args:
        step: distance between thresholds; it must divide t_max - t_min.
        slope: slope of the sigmoid, > 0; None: 5.3 / step.
        t_min: lowest threshold.
        t_max: highest threshold.
        pad_steps: number of additional thresholds on each side.
        common: see `RetrievalLoss`. With reduction="none", the value of a query compares its hardest relevant score
            with all n hardest irrelevant scores.

    >>> scores = torch.tensor([[0.9, 0.6], [0.7, 0.45], [0.55, 0.2], [0.3, -0.1]], dtype=torch.float64)
    >>> relevant = torch.tensor([[True, False]] * 4)
    >>> round(float(AUCLoss(step=0.1).from_scores(scores, relevant)), 6)  # exactly 3/16
    0.189648
    """

    optimises: ClassVar[str] = "AUC of each query's hardest pair, not the ROC AUC of a list"
    source: ClassVar[str] = "Gajić et al., CVPR Workshops 2022"
    graded: ClassVar[bool] = False

    def __init__(
        self,
        step: float = 0.1,
        slope: float | None = None,
        t_min: float = -1.0,
        t_max: float = 1.0,
        pad_steps: int = 0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        number(step, "step is the distance between thresholds", above=0)
        number(t_max, "t_max is the highest threshold", above=number(t_min, "t_min is the lowest threshold"))
        steps = (t_max - t_min) / step
        if abs(steps - round(steps)) > 1e-6 or round(steps) < 1:
            raise ValueError(f"step must divide t_max - t_min = {t_max - t_min:g}; got {step} ({steps:g} steps)")
        if slope is not None:
            number(slope, "slope is the slope of the sigmoid", above=0, otherwise=", or None for 5.3 / step")
        pad_steps = integer(pad_steps, "pad_steps is the number of additional thresholds on each side", low=0)
        self.step, self.slope, self.t_min, self.t_max, self.pad_steps = step, slope, t_min, t_max, pad_steps

    @property
    def by_parts(self) -> bool:
        """Whether the costs of all queries have the same weight: all of them share each hardest irrelevant score."""
        return self.reduction == "mean"

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Value for the hardest relevant score of each counted query. Their mean is the loss."""
        if scores.shape[1] == 0:  # a minimum over no items is an error
            return scores.sum(1), relevant.any(1)
        true_pos, false_pos, kept = self._rates(scores, relevant, valid)
        if self.tiles is None:
            false_pos = false_pos.sum(0) / kept.sum().clamp(min=1)
            return 1 - _middles(true_pos) @ _steps(false_pos), kept
        sums = self.over_batch("rates", self._sums, relevant, valid, scores)
        all_true, all_false = sums[:2] / sums[2].clamp(min=1)
        # the false positives of other parts are constants; of these queries, all true positives share the gradient
        shared = _steps(false_pos - false_pos.detach()) @ _middles(all_true)
        return 1 - _middles(true_pos) @ _steps(all_false) - shared, kept

    def _rates(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[Tensor, Tensor, Mask]:
        """[query, threshold] soft counts of the hardest relevant and irrelevant score; which queries have both."""
        relevant, rest = both_kinds(relevant, valid)
        kept = relevant.any(1) & rest.any(1)
        hard_pos = scores.masked_fill(~relevant, torch.inf).amin(1, keepdim=True)
        hard_neg = scores.masked_fill(~rest, -torch.inf).amax(1, keepdim=True)
        steps = round((self.t_max - self.t_min) / self.step) + 2 * self.pad_steps
        index = torch.arange(steps + 1, dtype=scores.dtype, device=scores.device)
        thresholds = self.t_min + (index - self.pad_steps) * self.step
        slope = 5.3 / self.step if self.slope is None else self.slope
        # queries that do not count get finite numbers: a masked infinity would give a NaN gradient
        true_pos, false_pos = (
            torch.sigmoid(slope * (torch.where(kept.unsqueeze(1), hard, 0) - thresholds))
            for hard in (hard_pos, hard_neg)
        )
        return true_pos, false_pos * kept.unsqueeze(1), kept

    def _sums(self, relevant: Tensor, valid: Mask | None, scores: Scores) -> Tensor:
        """[3, threshold] sums of the rates over the queries, and number of queries."""
        true_pos, false_pos, kept = self._rates(scores, relevant, valid)
        counts = kept.sum().to(scores.dtype).expand(true_pos.shape[1])
        return torch.stack([(true_pos * kept.unsqueeze(1)).sum(0), false_pos.sum(0), counts])


def _middles(rates: Tensor) -> Tensor:
    """Means of neighbours."""
    return (rates[..., :-1] + rates[..., 1:]) / 2


def _steps(rates: Tensor) -> Tensor:
    """Differences of neighbours."""
    return rates[..., :-1] - rates[..., 1:]
