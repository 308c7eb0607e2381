"""InfoNCE: each relevant item against the irrelevant ones, which is the log of ranks with an exponential step."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from ..ranks import Soft
from ..ranks.relaxations import Exponential, Heaviside
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common
from .penalties import Log
from .rank_loss import RankLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class InfoNCELoss(RankLoss):
    r"""InfoNCE: minus the log-softmax of each relevant item among the irrelevant ones, mean over the relevant items.

        L = mean_q mean_{p in P_q} log(1 + sum_{n in N_q} exp((s_n - s_p) / tau))

    With one relevant item it is InfoNCE (van den Oord et al., 2018, arXiv:1807.03748, eq. 4); with tau = 1 it is the
    (N + 1)-tuplet loss of Sohn (NeurIPS 2016, eq. 6) with all irrelevant items of the list. It is also RaMBO's log
    penalty (CVPR 2020, section 4.5), log(1 + number of irrelevant items above), counted with the step
    `relaxations.Exponential`, so it is an upper bound of the penalty of the exact ranks. The gradient never becomes 0,
    and is largest for the hardest items.

    Args:
        tau: temperature in score units, > 0.
        pull: factor of the gradient on relevant items, see `ranks.Soft`. 1 gives the gradient of the value.
            With 0.9 a class need not shrink to a point, and retrieval was better (papers/docs/results.md).
        common: see `RetrievalLoss`. In float32, scores about 1e10 temperatures apart overflow and raise an error.

    >>> import torch
    >>> InfoNCELoss(tau=0.4).from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(1.4076)
    """

    optimises: ClassVar[str] = "softmax over the irrelevant items: log of exponential ranks"
    source: ClassVar[str] = (
        "van den Oord et al. 2018, [1807.03748](https://arxiv.org/abs/1807.03748); Sohn, NeurIPS 2016, "
        "[6b180037](https://papers.nips.cc/paper/2016/hash/6b180037abbebea991d8b1232f8a8ca9-Abstract.html); "
        "RaMBO's log penalty on relaxed ranks"
    )

    takes: ClassVar[tuple[str, ...]] = ("log_q", "weights")

    def __init__(self, tau: float = 0.04, pull: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(Soft(Heaviside(), Exponential(tau), pull=pull), penalty=Log(), **common)
        self.tau, self.pull = tau, pull

    def per_query(
        self,
        scores: Scores,
        relevant: Tensor,
        valid: Mask | None,
        log_q: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[PerQuery, Tensor]:
        """Mean cost of the relevant items of each list. Of `log_q`, irrelevant items count: the sum is over these."""
        if log_q is not None:
            scores = scores - self.tau * log_q.masked_fill(relevant > 0, 0)
        ranks = self.ranked(scores, relevant, valid)
        costs = Log()(ranks.above_neg)
        if weights is not None:
            costs = costs * weights[ranks.query, ranks.item]
        return ranks.mean_per_query(costs), ranks.counted
