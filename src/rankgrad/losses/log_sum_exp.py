"""The log of ranks that count by an exponential: log-sum-exp of the irrelevant scores against each relevant one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..penalties import Log
from ..ranks import Soft
from ..relaxations import Exponential, Heaviside
from .base import Common
from .rank_loss import RankLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LogSumExpLoss(RankLoss):
    r"""log(1 + irrelevant items above), counted by an exponential step, for each relevant item.

        L = mean_q mean_{p in P_q} log(1 + sum_{n in N_q} exp((s_n - s_p) / tau))

    It is RaMBO's log penalty (CVPR 2020, section 4.5) on ranks relaxed by `relaxations.Exponential`, an upper bound of
    the penalty of the exact ranks. With tau = 1 and pull = 1 it is the (N + 1)-tuplet loss of Sohn (NeurIPS 2016,
    eq. 6) with all irrelevant items of the list. Its gradient never quite ends, and is largest on the hardest items.

    Args:
        tau: temperature, score units, > 0.
        pull: share of the gradient on relevant items, see `ranks.Soft`. 1 is the gradient of the value, which alone has
            second derivatives; at 0.9 a class need not shrink to a point, and retrieval was better (docs/results.md).
        common: see `RetrievalLoss`. Scores some 1e10 temperatures apart overflow, which is an error in float32.

    >>> import torch
    >>> LogSumExpLoss(tau=0.4).from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(1.4076)
    """

    optimises: ClassVar[str] = "log of exponential ranks"
    source: ClassVar[str] = (
        "Sohn, NeurIPS 2016, "
        "[6b180037](https://papers.nips.cc/paper/2016/hash/6b180037abbebea991d8b1232f8a8ca9-Abstract.html); "
        "RaMBO's log penalty on relaxed ranks"
    )

    def __init__(self, tau: float = 0.04, pull: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(Soft(Heaviside(), Exponential(tau), pull=pull), penalty=Log(), **common)
        self.tau, self.pull = tau, pull
