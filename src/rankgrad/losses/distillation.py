"""Losses whose targets are numbers for each item: the scores of a teacher, or grades as probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ..common.checks import number
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ListDistillationLoss(RetrievalLoss):
    r"""KL divergence between a teacher's distribution over the list and that of the scores.

        L = sum_i p_i log(p_i / q_i),   p = softmax(t / teacher_tau),   q = softmax(s / tau)

    t are the teacher's scores, such as the logits of a cross-encoder. They are passed as relevance, may be negative,
    and get no gradient. Only their differences matter, so each list may have its own offset.
    `DistillKLDivLoss` of sentence-transformers is this loss times the square of its student temperature (tau).

    Args:
        tau: temperature of the scores, > 0. 0.05 is for cosines; use 1 for logits.
        teacher_tau: temperature of the teacher's scores, > 0. 1 is for logits.
        common: see `RetrievalLoss`. A list counts if the teacher tells two of its items apart.

    >>> ListDistillationLoss(tau=1.0).from_lists(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([3.0, -1.0, 0.5]))
    tensor(1.1168)
    """

    optimises: ClassVar[str] = "a teacher's distribution over the list; KL divergence"
    source: ClassVar[str] = "Lin, Yang & Lin, 2020, [2010.11386](https://arxiv.org/abs/2010.11386)"
    differences_only: ClassVar[bool] = True
    soft: ClassVar[bool] = True
    separate: bool = True

    def __init__(self, tau: float = 0.05, teacher_tau: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.tau = number(tau, "tau is the temperature of the scores", low=1e-30)
        self.teacher_tau = number(teacher_tau, "teacher_tau is the temperature of the teacher's scores", low=1e-30)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """KL divergence of each list."""
        targets, _, counted = _targets(scores, relevant, valid)
        exists = counted.unsqueeze(1) if valid is None else counted.unsqueeze(1) & valid
        # a list of -inf alone gives a NaN inside the backward pass
        hidden = 0.0 if valid is None else torch.where(counted, -torch.inf, 0).to(scores.dtype).unsqueeze(1)
        wanted, found = (
            torch.where(exists, each, hidden).log_softmax(1) for each in (targets / self.teacher_tau, scores / self.tau)
        )
        # 0 * -inf is NaN
        return torch.where(exists, wanted.exp() * (wanted - found), 0).sum(1), counted


class MarginMSELoss(RetrievalLoss):
    r"""Squared error of the margins between the teacher's best items and the others.

        L = mean over the pairs (i, j), t_i = max(t) > t_j, of ((s_i - s_j) / tau - (t_i - t_j))^2

    t are the teacher's scores, passed as relevance; they may be negative, and get no gradient. The authors give one
    positive and one negative document to each query: a list of two. In longer lists the item with the highest teacher
    score is the positive one (items that share this score: each of them). With the positive document first,
    `MarginMSELoss` of sentence-transformers is the same where the teacher agrees that it is the best.

    Args:
        tau: the unit in which margins of scores are measured, > 0. Cosines cannot reach the margins of a teacher's
            logits: then use tau < 1, or normalize=False.
        common: see `RetrievalLoss`. A list counts if the teacher tells two of its items apart.

    >>> MarginMSELoss().from_lists(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([3.0, -1.0, 0.5]))  # (5^2 + 1.5^2) / 2
    tensor(13.6250)
    """

    optimises: ClassVar[str] = "a teacher's margins; squared error"
    source: ClassVar[str] = "Hofstätter et al., 2020, [2010.02666](https://arxiv.org/abs/2010.02666)"
    differences_only: ClassVar[bool] = True
    soft: ClassVar[bool] = True
    separate: bool = True

    def __init__(self, tau: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.tau = number(tau, "tau is the unit of the scores' margins", low=1e-30)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Mean squared error of the margins of each list."""
        targets, most, counted = _targets(scores, relevant, valid)
        exists = torch.ones_like(targets, dtype=torch.bool) if valid is None else valid
        best = exists & (targets == most.unsqueeze(1))
        error = scores / self.tau - targets
        # with the mean error of the best items at 0, the mean over the pairs is the sum of two means
        error = error - _mean(error, best).unsqueeze(1)
        return _mean(error**2, best) + _mean(error**2, exists & ~best), counted


class GradeBCELoss(RetrievalLoss):
    r"""Binary cross-entropy between grades, read as probabilities, and the sigmoid of the scores.

        L = mean over items of -(y log z + (1 - y) log(1 - z)),  y = grade / highest,  z = sigmoid((s - center) / tau)

    Each item is compared with its own grade, not with the other items: a query with a single graded document and the
    documents of other queries (grade 0) can be learned from, and so can a query without a relevant document. Unlike in
    BiXSE, tau and the center are fixed.

    Args:
        tau: temperature in score units, > 0. Use 1 for logits.
        center: score of an item of probability 1/2. Use 0 for logits.
        highest: the grade that means certainly relevant, > 0. Higher grades are refused.
        common: see `RetrievalLoss`. A list counts if it has an item.

    >>> GradeBCELoss(tau=1.0, center=0.0, highest=2).from_lists(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 0.0]))
    tensor(1.2201)
    """

    optimises: ClassVar[str] = "grades as probabilities; binary cross-entropy"
    source: ClassVar[str] = "Tsirigotis et al., 2025 (BiXSE), [2508.06781](https://arxiv.org/abs/2508.06781)"
    separate: bool = True

    def __init__(self, tau: float = 0.1, center: float = 0.5, highest: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.tau = number(tau, "tau is a temperature in score units", low=1e-30)
        self.center = number(center, "center is a score")
        self.highest = number(highest, "highest is the grade that means certainly relevant", low=1e-30)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Mean cross-entropy of each list."""
        # True is certain, whatever the highest grade
        share = relevant.to(scores.dtype) / (1 if relevant.dtype == torch.bool else self.highest)
        exists = torch.ones_like(scores, dtype=torch.bool) if valid is None else valid
        share = torch.where(exists, share, 0)
        cost = F.binary_cross_entropy_with_logits((scores - self.center) / self.tau, share, reduction="none")
        return _mean(cost, exists), exists.any(1)

    def _check_gains(self, gains: Tensor, scores: Scores, name: str = "relevant") -> None:
        what = f"grades must lie in 0 .. highest = {self.highest:g}; set highest to your highest grade"
        self._require_between(name, gains, 0, self.highest, what)


def _targets(scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[Tensor, Tensor, Tensor]:
    """A teacher's scores, 0 where not valid; the highest of each list; which lists count.

    A list counts if two of its scores differ.
    """
    targets = relevant.detach().to(scores.dtype)
    if not targets.shape[1]:
        return targets, targets.sum(1), targets.any(1)
    if valid is None:
        least, most = targets.aminmax(dim=1)
        return targets, most, least < most
    least, most = targets.masked_fill(~valid, torch.inf).amin(1), targets.masked_fill(~valid, -torch.inf).amax(1)
    return targets.masked_fill(~valid, 0), most, least < most


def _mean(values: Tensor, where: Mask) -> PerQuery:
    return torch.where(where, values, 0).sum(1) / where.sum(1).clamp(min=1)
