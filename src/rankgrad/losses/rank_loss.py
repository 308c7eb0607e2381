"""`RankLoss`: any ranks with any metric or penalty. The rank losses of the papers are short subclasses of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..ranks import Blackbox, Soft, exact_ranks
from ..ranks.lists import both_kinds
from ..ranks.types import Mask, PerPair, PerQuery, Ranks, Scores
from .base import Common, RetrievalLoss
from .penalties import Penalty

if TYPE_CHECKING:
    from typing_extensions import Unpack

RankSource = Callable[..., Ranks]
Aggregate = Callable[[Ranks, PerPair], PerQuery]


class RankLoss(RetrievalLoss):
    r"""Mean over the queries of 1 - metric(ranks), or of the mean of penalty(irrelevant items above). Lower is better.

    Args:
        ranks: computes the ranks of the relevant items: `ranks.Soft(pos=..., neg=...)` with steps of `relaxations`,
            `ranks.Blackbox(lambda_, margin)`, `ranks.exact_ranks` (no gradient), or any callable
            (scores, relevant, valid) -> Ranks. If it takes a keyword `positives`, it gets the loss's own `positives`.
        metric: Ranks -> [query] value in [0, 1], higher is better; see `metrics`.
        penalty: f(R) >= 0, elementwise, of the number R of irrelevant items above a relevant item; see `penalties`.
            Give exactly one of metric and penalty.
        common: see `RetrievalLoss`.

    A loss that is in no paper, NDCG with the SupAP step:

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
            raise ValueError("RankLoss needs either a metric (the loss is 1 - metric) or a penalty; got both or none")
        for name, given in (("ranks", ranks), ("metric", metric), ("penalty", penalty)):
            if given is not None and not callable(given):
                raise ValueError(f"{name} must be a function; got {given!r}")
        self.ranks, self.metric, self.penalty = ranks, metric, penalty
        # the gradient of the mean over all queries perturbs blackbox ranks
        self.separate = isinstance(ranks, Soft) or ranks is exact_ranks
        taken = inspect.signature(ranks.values if isinstance(ranks, Blackbox) else ranks).parameters
        self._promise: dict[str, Any] = {}
        if self.positives is not None and "positives" in taken:
            self._promise = {"positives": self.positives}

    @property
    def by_parts(self) -> bool:
        """Also True for blackbox ranks: the number of counted queries comes from `tiles`."""
        return self.separate or isinstance(self.ranks, (Soft, Blackbox))

    def found(self) -> Tensor | None:
        """[2] numbers of queries with a relevant item and of relevant pairs in the whole batch; None: count here."""
        tiles = self.tiles
        return None if tiles is None else tiles.once((self, "found"), lambda: tiles.sum(_found))

    def read(self, ranks: Ranks) -> PerQuery:
        """[query] cost of these ranks."""
        if self.metric is not None:
            return 1 - self.metric(ranks)
        assert self.penalty is not None
        return ranks.mean_per_query(self.penalty(ranks.above_neg))

    def ranked(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> Ranks:
        """Ranks of the relevant items."""
        return self.ranks(scores, relevant, valid, **self._promise)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """Costs computed from the ranks; a query counts if it has a relevant item."""
        if isinstance(self.ranks, Blackbox):
            found = self.found()
            counted = None if found is None else found[0]
            values, ranks = self.ranks.values(self.read, scores, relevant, valid, counted=counted, **self._promise)
        else:
            ranks = self.ranked(scores, relevant, valid)
            values = self.read(ranks)
        return values, ranks.counted


def _found(relevant: Tensor, valid: Mask | None) -> Tensor:
    pairs = both_kinds(relevant > 0 if relevant.dtype != torch.bool else relevant, valid)[0].sum(1)
    return torch.stack([(pairs > 0).sum(), pairs.sum()])


def pooled_mean(ranks: Ranks, values: PerPair, found: Tensor | None = None) -> PerQuery:
    """[query] sum over the pairs of a query, scaled so that its mean over the counted queries is the mean of all pairs.

    Published RaMBO code averages over all positives of a batch at once. This equals the mean per query if all queries
    have the same number of positives. `found` is `RankLoss.found`, if the ranks are those of a part of a batch.
    """
    counted, pairs = (ranks.counted.sum(), max(len(values), 1)) if found is None else (found[0], found[1].clamp(min=1))
    return ranks.sum_per_query(values) * counted / pairs


def aggregate(name: str, found: Tensor | None = None) -> Aggregate:
    """The function that turns the values of relevant items into one value per query: "query" (mean) or "pooled"."""
    known: dict[str, Aggregate] = {"query": Ranks.mean_per_query, "pooled": partial(pooled_mean, found=found)}
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"aggregation must be 'query' (mean per query, then over queries) or 'pooled'; got {name!r}")
    return known[name]
