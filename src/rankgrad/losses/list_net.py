"""Softmax cross-entropy of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..common.checks import number
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ListNetLoss(RetrievalLoss):
    r"""Cross-entropy between the normalised gains of a list and the softmax of its scores.

        L = -sum_i g_i / (sum_j g_j) log(softmax(s / tau)_i)

    This is ListNet (Cao et al., ICML 2007, eq. 3) with the target probabilities g / sum(g). ListNet's own are
    proportional to exp(g), which also gives probability to irrelevant items: most of it in a list with few relevant
    items.

    Bound: -log softmax(s / tau)_i is at least the log of the rank of i, where ties count as above. So the loss is at
    least 1 - NDCG with linear gains, and at least 1 - AP and 1 - MRR if all positive gains are equal. The bound is not
    tight: with p relevant items of equal gain the loss is never below log(p).

    Args:
        tau: temperature in score units, > 0. 1 is for logits; use about 0.05 for cosines.
        common: see `RetrievalLoss`. A list counts if it has a relevant item.

    >>> ListNetLoss().from_lists(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([2.0, 0.0, 1.0]))
    tensor(1.7409)
    """

    optimises: ClassVar[str] = "upper bound of 1 − MRR, 1 − AP and 1 − NDCG; softmax cross-entropy"
    source: ClassVar[str] = (
        "Cao et al., ICML 2007 (ListNet), [10.1145/1273496.1273513](https://doi.org/10.1145/1273496.1273513)"
    )
    differences_only: ClassVar[bool] = True
    separate: bool = True

    def __init__(self, tau: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.tau = number(tau, "tau is a temperature in score units", low=1e-30)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Cross-entropy of each list; a list counts if it has a relevant item."""
        gains = relevant.to(scores.dtype) if valid is None else relevant.to(scores.dtype) * valid
        scaled = scores / self.tau if valid is None else (scores / self.tau).masked_fill(~valid, -torch.inf)
        most = gains.amax(1, keepdim=True) if gains.shape[1] else gains.sum(1, keepdim=True)
        share = gains / torch.where(most > 0, most, 1)  # the sum of large gains would overflow
        share = share / share.sum(1, keepdim=True).clamp(min=1)
        # in a list without items all scores are -inf, which gives a NaN inside the backward pass
        scaled = scaled.masked_fill(most == 0, 0)
        # 0 * -inf is NaN
        logs = torch.where(share > 0, scaled - scaled.logsumexp(1, keepdim=True), 0)
        return -(share * logs).sum(1), most.squeeze(1) > 0
