"""RaMBO: recall and AP losses on blackbox-differentiated ranks (Rolínek et al., CVPR 2020, arXiv:1912.03500)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from ..metrics import precision_at_relevant
from ..ranks import Blackbox
from ..ranks.types import PerQuery, Ranks
from .base import Common
from .penalties import Penalty, as_penalty
from .rank_loss import RankLoss, aggregate

if TYPE_CHECKING:
    from typing_extensions import Unpack

Aggregation = Literal["query", "pooled"]


class RaMBORecallLoss(RankLoss):
    r"""RaMBO's recall loss: mean over relevant i of W(r_i), r_i = number of irrelevant items above i (eqs. 14-20).

    First the margin shifts the scores (eq. 14: irrelevant + margin/2, relevant - margin/2). W is log(1 + r) ("log") or
    log(1 + log(1 + r)) ("loglog"), or in general sum_{k <= r} w_k (Proposition 2). For the gradient see
    `ranks.Blackbox`.

    Two things differ from the published code: r_i is scaled by the length of the list (there by the number of rows),
    and the mean is taken per query first (the code does "pooled"). See docs/numerics.md.

    Args:
        lambda_: size of the perturbation, > 0; 4 on SOP, 0.2 on CUB and In-shop (paper, table 9), for normalised ranks.
        margin: alpha >= 0, in score units; 0.02, on In-shop 0.05.
        weight: "loglog", "log", a differentiable callable W(r) with W(0) = 0, or weights w_1 .. w_K.
        normalized_ranks: True: lambda is for ranks divided by the length of the list, like the published values.
            False: lambda is for Algorithm 1 as printed.
        aggregation: "query": mean per query, then over the queries. "pooled": mean over all relevant items of the
            batch.
        both_ranks: differentiate both ranks of eq. 17, as it is printed. False: the rank among the relevant items is a
            constant of the gradient, as in the published code.
        rank_factor: c > 0 of W(c r). In the published code it is 1 + batches of its memory (`RowMemory`).
        common: see `RetrievalLoss`.

    >>> import torch
    >>> loss = RaMBORecallLoss(weight="log")
    >>> loss.from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))  # log(1 + 1)
    tensor(0.6931)
    """

    optimises: ClassVar[str] = "weighted Recall@K, all K at once"
    source: ClassVar[str] = "Rolínek et al., CVPR 2020, [1912.03500](https://arxiv.org/abs/1912.03500)"

    def __init__(
        self,
        lambda_: float = 4.0,
        margin: float = 0.02,
        weight: Literal["loglog", "log"] | Penalty | Sequence[float] = "loglog",
        normalized_ranks: bool = True,
        aggregation: Aggregation = "query",
        both_ranks: bool = False,
        rank_factor: float = 1.0,
        **common: Unpack[Common],
    ) -> None:
        box = Blackbox(lambda_, margin, normalized_ranks, both_ranks=both_ranks)
        super().__init__(box, penalty=as_penalty(weight, rank_factor), **common)
        self.lambda_, self.margin, self.weight = lambda_, margin, weight
        self.normalized_ranks, self.aggregation, self.both_ranks = normalized_ranks, aggregation, both_ranks
        self.rank_factor = rank_factor
        aggregate(aggregation)  # raises on a misspelt name

    def read(self, ranks: Ranks) -> PerQuery:
        """Mean of W(r) over the relevant items."""
        assert self.penalty is not None
        return aggregate(self.aggregation, self.found())(ranks, self.penalty(ranks.above_neg))


class RaMBOAPLoss(RankLoss):
    r"""RaMBO's AP loss: 1 - mean over relevant i of rk^+(i) / rk(i) on shifted scores (eqs. 14, 21-23).

    The rank among the relevant items is a constant of the gradient, d/drk_i = rk^+ / rk^2 / p, unless `both_ranks`. Two
    things differ from
    the published code: no epsilon is added to denominators (there 1e-5), and the margin is constant (there multiplied
    by |N(0, 1)|). For the classes of a detector see `detection.DetectionAPLoss`.

    Args:
        lambda_: see `RaMBORecallLoss`.
        margin: see `RaMBORecallLoss`.
        normalized_ranks: see `RaMBORecallLoss`.
        aggregation: see `RaMBORecallLoss`.
        both_ranks: differentiate both ranks of eq. 21, see `RaMBORecallLoss`.
        common: see `RetrievalLoss`.

    >>> import torch
    >>> RaMBOAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "AP, exact ranks, blackbox gradient"
    source: ClassVar[str] = "Rolínek et al., CVPR 2020, [1912.03500](https://arxiv.org/abs/1912.03500)"

    def __init__(
        self,
        lambda_: float = 4.0,
        margin: float = 0.02,
        normalized_ranks: bool = True,
        aggregation: Aggregation = "query",
        both_ranks: bool = False,
        **common: Unpack[Common],
    ) -> None:
        box = Blackbox(lambda_, margin, normalized_ranks, both_ranks=both_ranks)
        super().__init__(box, metric=self._precision, **common)
        self.lambda_, self.margin = lambda_, margin
        self.normalized_ranks, self.aggregation, self.both_ranks = normalized_ranks, aggregation, both_ranks
        aggregate(aggregation)

    def _precision(self, ranks: Ranks) -> PerQuery:
        return aggregate(self.aggregation, self.found())(ranks, precision_at_relevant(ranks))
