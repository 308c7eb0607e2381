"""Softmax cross-entropy of a list, and the same with most weight on the items near the top K."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..common.checks import list_length, number
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
        share, logs, counted = _log_softmax(scores / self.tau, relevant, valid)
        return -(share * logs).sum(1), counted


class SLatKLoss(RetrievalLoss):
    r"""SL@K: the softmax loss, in which each relevant item is weighted by how near it is to the top K of its list.

        L = -sum_i g_i / (sum_j g_j) w_i log(softmax(s / tau)_i),   w_i = sigmoid((s_i - beta) / tau_weight)

    beta is the K-th highest score of the list, its top-K quantile. With fewer items, all w_i are 1. A relevant
    item far below the top K is unlikely to enter it, and has little weight.

    The weights are constants of the gradient. A gradient through them would push relevant items *down*: an item far
    below beta has weight 0 and costs nothing, however large its cross-entropy is. As the weights grow with the scores,
    the value may rise while the ranking improves: choose models by a metric. The formula is that of eq. 2.5 of Talos
    (WWW 2026), with the sign of a loss. The default temperatures are not tuned.

    Args:
        k: K.
        tau: temperature of the softmax, in score units, > 0. 0.1 to 0.2 is for cosines; use 1 for logits.
        tau_weight: temperature of the weights, in score units, > 0.
        common: see `RetrievalLoss`. A list counts if it has a relevant item.

    >>> scores, hits = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([True, False, False])
    >>> SLatKLoss(k=1, tau=1.0, tau_weight=1.0).from_lists(scores, hits)  # sigmoid(1 - 2) * 1.4076
    tensor(0.3786)
    """

    optimises: ClassVar[str] = "NDCG@K; softmax cross-entropy, weighted by the nearness to the top K"
    source: ClassVar[str] = "Yang et al., KDD 2025 (SL@K), [2508.05673](https://arxiv.org/abs/2508.05673)"
    differences_only: ClassVar[bool] = True
    separate: bool = True

    def __init__(self, k: int = 20, tau: float = 0.2, tau_weight: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.k = list_length(k, "k is a list length")
        self.tau = number(tau, "tau is a temperature in score units", low=1e-30)
        self.tau_weight = number(tau_weight, "tau_weight is a temperature in score units", low=1e-30)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Weighted cross-entropy of each list; a list counts if it has a relevant item."""
        share, logs, counted = _log_softmax(scores / self.tau, relevant, valid)
        fixed = scores.detach()
        weight = torch.sigmoid((fixed - _top(fixed, valid, self.k)) / self.tau_weight)
        return -(share * weight * logs).sum(1), counted


def _log_softmax(scaled: Scores, relevant: Tensor, valid: Mask | None) -> tuple[Tensor, Tensor, Tensor]:
    """[query, item] share of the gains of a list, log of the softmax where it is > 0; [query] if the list has gains."""
    gains = relevant.to(scaled.dtype) if valid is None else relevant.to(scaled.dtype) * valid
    scaled = scaled if valid is None else scaled.masked_fill(~valid, -torch.inf)
    most = gains.amax(1, keepdim=True) if gains.shape[1] else gains.sum(1, keepdim=True)
    share = gains / torch.where(most > 0, most, 1)  # the sum of large gains would overflow
    share = share / share.sum(1, keepdim=True).clamp(min=1)
    # in a list without items all scores are -inf, which gives a NaN inside the backward pass
    scaled = scaled.masked_fill(most == 0, 0)
    # 0 * -inf is NaN
    return share, torch.where(share > 0, scaled - scaled.logsumexp(1, keepdim=True), 0), most.squeeze(1) > 0


def _top(scores: Scores, valid: Mask | None, k: int) -> Tensor:
    """[query, 1] the k-th highest score of each list, -inf if it has fewer items."""
    if k > scores.shape[1]:
        return scores.new_full((len(scores), 1), -torch.inf)
    there = scores if valid is None else scores.masked_fill(~valid, -torch.inf)
    return there.topk(k, dim=1, sorted=False).values.amin(1, keepdim=True)
