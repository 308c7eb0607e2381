"""The area under the ROC curve of a list, or under its part at low false positive rates, as a loss on pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from ..common.checks import number
from ..ranks import Soft
from ..ranks.relaxations import Heaviside, Softplus
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ROCAUCLoss(RetrievalLoss):
    r"""1 - ROC AUC of the scores of a list, bounded by a logistic cost of all its pairs; not the AUC of `AUCLoss`.

        L = mean over the pairs (i relevant, j irrelevant) of log2(1 + exp((s_j - s_i) / tau))

    1 - ROC AUC is the fraction of pairs in the wrong order; a tie counts 1/2. The cost of each pair is at least that,
    so the loss is an upper bound. The loss is 1 if all scores are equal.

    With fpr < 1, only the irrelevant items of the highest scores are used: floor(fpr N) of N, at least one. This is the
    one-way partial AUC. The loss is then an upper bound of 1 - `metrics.partial_roc_auc`, whose best value is 1.

    With gains, all pairs of different gain are used; the item of higher gain should rank higher. This is RankNet
    (Burges et al., ICML 2005, eq. 3) divided by log 2, as a mean over the pairs of a list.

    Args:
        tau: temperature in score units, > 0. 1 is for logits; use about 0.05 for cosines.
        fpr: largest false positive rate that counts, in (0, 1].
        common: see `RetrievalLoss`. A list without such a pair does not count.

    Time is O(relevant x all) per list. Gains need fpr = 1; otherwise a ValueError is raised.

    >>> loss = ROCAUCLoss()
    >>> loss.from_lists(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([True, False, False]))  # 1.8946 and 0.4519
    tensor(1.1733)
    >>> ROCAUCLoss(fpr=0.5).from_lists(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([True, False, False]))
    tensor(1.8946)
    """

    optimises: ClassVar[str] = "upper bound of 1 − ROC AUC of a list, or of its part at low false positive rates"
    source: ClassVar[str] = (
        "Burges et al., ICML 2005 (RankNet), [10.1145/1102351.1102363](https://doi.org/10.1145/1102351.1102363)"
    )
    differences_only: ClassVar[bool] = True
    separate: bool = True

    def __init__(self, tau: float = 1.0, fpr: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.tau, self.fpr = tau, number(fpr, "fpr is the largest false positive rate that counts", above=0, high=1)
        self._ranks = Soft(Heaviside(), Softplus(tau))

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Mean cost of the pairs of each list; a list counts if it has a pair."""
        if self.fpr < 1:
            if relevant.dtype != torch.bool:
                raise ValueError("fpr < 1 needs bool relevance: pass e.g. gains > 0, or fpr=1")
            there = torch.ones_like(relevant) if valid is None else valid
            valid = (relevant & there) | hardest(scores, ~relevant & there, self.fpr)
        if relevant.dtype == torch.float64:
            relevant = relevant.to(scores.dtype)  # as in the ranks, so that the same pairs are counted and summed
        ranks = self._ranks(scores, relevant, valid, self.positives)
        pairs = different_pairs(relevant, valid)
        return ranks.sum_per_query(ranks.above_neg) / pairs.clamp(min=1), pairs > 0


def hardest(scores: Scores, rest: Mask, share: float) -> Mask:
    """[query, item] the irrelevant items of the highest scores: floor(share N) of N, at least one; ties by index.

    >>> hardest(torch.tensor([[0.9, 0.5, 0.7, 0.1]]), torch.tensor([[False, True, True, True]]), 0.7)
    tensor([[False,  True,  True, False]])
    """
    order = scores.detach().masked_fill(~rest, -torch.inf).argsort(dim=1, descending=True, stable=True)
    most = (rest.sum(1, keepdim=True).double() * share).floor().clamp(min=1)
    first = torch.arange(scores.shape[1], device=scores.device).expand_as(order) < most
    return torch.zeros_like(rest).scatter_(1, order, first) & rest


def different_pairs(relevant: Tensor, valid: Mask | None) -> PerQuery:
    """[query] number of pairs of valid items of different relevance, float64.

    >>> different_pairs(torch.tensor([[2.0, 1.0, 1.0, 0.0]]), None)
    tensor([5.], dtype=torch.float64)
    """
    gains = relevant.double() if relevant.dtype == torch.bool else relevant
    ordered = gains if valid is None else gains.masked_fill(~valid, torch.inf)
    ordered = ordered.sort(1).values.contiguous()
    below = torch.searchsorted(ordered, gains.contiguous()).double()
    return (below if valid is None else below * valid).sum(1)
