"""Softmax cross-entropy of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..checks import number
from ..types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ListNetLoss(RetrievalLoss):
    r"""Cross-entropy of the softmax of the scores of a list, to the share of each item in the gains.

        L = -sum_i g_i / (sum_j g_j) log(softmax(s / tau)_i)

    ListNet (Cao et al., ICML 2007, eq. 3) with the gains themselves as the wanted shares; there they are exp(g), which
    gives irrelevant items a share too: most of it in a list with few relevant ones.

    Bound: -log softmax(s / tau)_i is at least the log of the rank of i, ties counted as above. So the loss is at least
    1 - AP and 1 - MRR of the items of positive gain that are alike, and 1 - NDCG with linear gains. It is not tight:
    with p relevant items of one gain it is never below log(p).

    Args:
        tau: temperature, score units, > 0. 1 is for logits; for cosines take some .05.
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
        # -inf - -inf of a list without items is NaN, and 0 times it too
        logs = torch.where(share > 0, scaled - scaled.logsumexp(1, keepdim=True), 0)
        return -(share * logs).sum(1), most.squeeze(1) > 0
