"""`RankLoss`: any ranks with any metric or penalty. The papers' rank losses are short compositions of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from ..penalties import Penalty
from ..ranks import Blackbox, Soft, exact_ranks
from ..types import Mask, PerPair, PerQuery, Ranks, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

RankSource = Callable[..., Ranks]
Aggregate = Callable[[Ranks, PerPair], PerQuery]


class RankLoss(RetrievalLoss):
    r"""Mean over the queries of 1 - metric(ranks), or of the mean of penalty(irrelevant items above) (lower is better).

    Args:
        ranks: where the relevant items stand: `ranks.Soft(pos=..., neg=...)` with steps of `relaxations`,
            `ranks.Blackbox(lambda_, margin)`, `ranks.exact_ranks` (no gradient), or any callable
            (scores, relevant, valid) -> Ranks. If the loss has `positives`, ranks that take a keyword of that name are
            given it.
        metric: Ranks -> [query] value in [0, 1], higher is better; see `metrics`.
        penalty: f(R) >= 0 elementwise of the irrelevant items above a relevant one; see `penalties`. Exactly one of
            metric and penalty is given.
        common: see `RetrievalLoss`.

    A loss no paper has written, NDCG with the SupAP step:

    >>> import torch
    >>> from rankgrad import metrics, ranks, relaxations
    >>> step = relaxations.SupStep()
    >>> loss = RankLoss(ranks.Soft(pos=relaxations.Heaviside(), neg=step), metric=metrics.ndcg)
    >>> loss.from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.8101)
    """

    differences_only: ClassVar[bool] = True

    def __init__(
        self,
        ranks: RankSource,
        *,
        metric: Callable[[Ranks], PerQuery] | None = None,
        penalty: Penalty | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        if (metric is None) == (penalty is None):
            raise ValueError("RankLoss reads either a metric (1 - metric is the loss) or a penalty off the ranks")
        for name, given in (("ranks", ranks), ("metric", metric), ("penalty", penalty)):
            if given is not None and not callable(given):
                raise ValueError(f"{name} must be a function; got {given!r}")
        self.ranks, self.metric, self.penalty = ranks, metric, penalty
        # blackbox ranks are perturbed by the gradient of the mean over all queries
        self.separate = isinstance(ranks, Soft) or ranks is exact_ranks
        taken = inspect.signature(ranks.values if isinstance(ranks, Blackbox) else ranks).parameters
        self._promise: dict[str, Any] = {}
        if self.positives is not None and "positives" in taken:
            self._promise = {"positives": self.positives}

    def read(self, ranks: Ranks) -> PerQuery:
        """[query] cost of these ranks."""
        if self.metric is not None:
            return 1 - self.metric(ranks)
        assert self.penalty is not None
        return ranks.mean_per_query(self.penalty(ranks.above_neg))

    def ranked(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> Ranks:
        """Where the relevant items stand."""
        return self.ranks(scores, relevant, valid, **self._promise)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Costs read off the ranks; a query counts if it has a relevant item."""
        if isinstance(self.ranks, Blackbox):
            values, ranks = self.ranks.values(self.read, scores, relevant, valid, **self._promise)
        else:
            ranks = self.ranked(scores, relevant, valid)
            values = self.read(ranks)
        return values, ranks.counted


def pooled_mean(ranks: Ranks, values: PerPair) -> PerQuery:
    """[query] sum over the pairs of a query, scaled so that the mean over the counted queries is that of all pairs.

    Published RaMBO code averages over all positives of a batch at once; equal to the mean per query when all queries
    have equally many.
    """
    return ranks.sum_per_query(values) * ranks.counted.sum() / max(len(values), 1)


def aggregate(name: str) -> Aggregate:
    """How the values of relevant items become one per query: "query" (mean of each) or "pooled"."""
    known: dict[str, Aggregate] = {"query": Ranks.mean_per_query, "pooled": pooled_mean}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"aggregation must be 'query' (mean per query, then over queries) or 'pooled'; got {name!r}")
    return known[name]
