"""Losses for lists of length k and for graded relevance: Recall@k surrogate, NDCG, H-AP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from ..common.checks import flag, list_length, number, one_of
from ..metrics import Gain, hierarchical_ap, ndcg, soft_recall_at_k
from ..ranks import Soft
from ..ranks.relaxations import Heaviside, Sigmoid, SupStep
from ..ranks.relevance import MOST_LEVELS, hierarchical_gains, own_items
from ..ranks.types import Mask, PerQuery, Ranks, Scores
from .base import Common
from .rank_loss import RankLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack


class HAPLoss(RankLoss):
    r"""H-AP: 1 - hierarchical AP for graded relevance (HAPPIER, Ramzi et al., ECCV 2022, arXiv:2207.04873).

        H-AP = sum_i hrank_i / rank_i / sum_i g_i
        rank_i  = 1 + sum_{g_j >= g_i} H(s_j - s_i) + sum_{g_j < g_i} H^-(s_j - s_i)
        hrank_i = g_i + sum_j H(s_j - s_i) min(g_i, g_j)
    Only the H^- terms have a gradient. With binary relevance it is SupAP.

    g is the gain of an item. It is given as float relevance, or computed from hierarchical labels as in HAPPIER:
    (l / L) / |items of exactly l shared levels|. In a batch, such gains can have the wrong order: a single item that
    shares one of two levels has gain 1/2, while each of four items of the query's own class has 1/4. With order="gain"
    (the formula) the single item then belongs first and is pushed up. Both published codes (HAPPIER, SupRank) compare
    levels instead (order="level"): more shared levels always come first. In a whole gallery, coarse levels have more
    items and both orders agree. The wrong order comes only from counting in a batch, so "level" is our default. The
    order decides only between H and H^-: the value of exact ranks does not change.

    Args:
        tau: temperature of H^-, see `SupAPLoss`.
        rho: see `SupAPLoss`.
        delta: see `SupAPLoss`.
        offset: see `SupAPLoss`.
        start: see `SupAPLoss`.
        tie: see `SupAPLoss`.
        order: how to decide that an item is less relevant. "level": by the number of shared levels, if known
            (hierarchical labels, or integer relevance). "gain": by the gain. Float gains have no levels and are always
            compared by gain.
        common: see `RetrievalLoss`.

    >>> HAPLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[1.0, 0.5, 0.0]]))
    tensor(0.6400)

    The gradient of one item with one shared level, among four items with two shared levels:

    >>> scores = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.75, 0.1]], requires_grad=True)
    >>> levels = torch.tensor([[2, 2, 2, 2, 1, 0]])
    >>> for order in ("level", "gain"):
    ...     loss = HAPLoss(order=order, tau=0.1).from_scores(scores, levels)
    ...     print(order, "down" if torch.autograd.grad(loss, scores)[0][0, 4] > 0 else "up")
    level down
    gain up
    """

    optimises: ClassVar[str] = "hierarchical AP"
    source: ClassVar[str] = "Ramzi et al., ECCV 2022, [2207.04873](https://arxiv.org/abs/2207.04873)"
    levels: ClassVar[bool] = True

    def __init__(
        self,
        tau: float = 0.01,
        rho: float = 100.0,
        delta: float | Literal["auto"] = 0.05,
        offset: float | None = None,
        start: float = 0.5,
        tie: Literal["upper", "official"] = "upper",
        order: Literal["level", "gain"] = "level",
        **common: Unpack[Common],
    ) -> None:
        one_of(order, "order", ("level", "gain"))
        step = SupStep(tau, rho, delta, offset, start, tie)
        super().__init__(Soft(Heaviside(), step), metric=hierarchical_ap, **common)
        self.tau, self.rho, self.delta, self.offset, self.start, self.tie = tau, rho, delta, offset, start, tie
        self.order = order

    def ranked(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> Ranks:
        """Ranks of the items by gains or by levels."""
        if relevant.dtype == torch.bool or relevant.is_floating_point():
            return super().ranked(scores, relevant, valid)
        gains = hierarchical_gains(relevant, MOST_LEVELS, valid)
        levels = relevant if self.order == "level" else None
        return self.ranks(scores, gains, valid, levels=levels, **self._promise)


class NDCGLoss(RankLoss):
    r"""1 - NDCG with sigmoid ranks and discount 1 / log2(1 + rank).

    The relaxation is that of ApproxNDCG (Qin, Liu & Li, 2010), applied to the scores of a retrieval model.

    Args:
        tau: temperature in score units, > 0.
        gain: "linear" g, or "exp2" 2^g - 1.
        common: see `RetrievalLoss`.

    >>> NDCGLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[3.0, 0.0, 1.0]]))
    tensor(0.3410)
    """

    optimises: ClassVar[str] = "NDCG, sigmoid ranks"
    source: ClassVar[str] = "Qin, Liu & Li, Information Retrieval 2010 (ApproxNDCG)"

    def __init__(self, tau: float = 0.01, gain: Gain = "linear", **common: Unpack[Common]) -> None:
        check_gain(gain)
        step = Sigmoid(tau)
        super().__init__(Soft(step, step), metric=self._ndcg, **common)
        self.tau, self.gain = tau, gain

    def _ndcg(self, ranks: Ranks) -> PerQuery:
        return ndcg(ranks, gain=self.gain)


def check_gain(gain: str) -> None:
    """Raise unless this is a kind of gain that NDCG knows."""
    if gain not in ("linear", "exp2"):
        raise ValueError(f"gain must be 'linear' (g) or 'exp2' (2^g - 1); got {gain!r}")


def list_lengths(k: object) -> tuple[int, ...]:
    """The k of Recall@k, checked."""
    if isinstance(k, str) or not isinstance(k, Iterable):
        raise ValueError(f"k must be a sequence of list lengths, such as (1, 2, 4); got {k!r}")
    lengths = tuple(list_length(each, "k holds list lengths") for each in k)
    if not lengths:
        raise ValueError("k must hold at least one list length; got none")
    return lengths


def count_temperatures(tau2: object, k: Sequence[int]) -> tuple[float, ...]:
    """The temperature of the count for each k, checked."""
    what = "tau2 is a temperature in ranks"
    if isinstance(tau2, str) or not isinstance(tau2, Iterable):
        return (number(tau2, what, low=1e-30, otherwise=", or one for each k"),) * len(k)
    temperatures = tuple(number(each, what, low=1e-30) for each in tau2)
    if len(temperatures) != len(k):
        raise ValueError(f"tau2 must be one temperature, or one for each of the {len(k)} k; got {len(temperatures)}")
    return temperatures


def mean_recall(ranks: Ranks, k: Sequence[int], temperatures: Sequence[float], clip: bool) -> PerQuery:
    """Mean of the soft recalls over all k."""
    recalls = [soft_recall_at_k(ranks, each, tau, clip=clip) for each, tau in zip(k, temperatures, strict=True)]
    return torch.stack(recalls).mean(0)


class RecallAtKLoss(RankLoss):
    r"""Recall@k surrogate: 1 - mean over k of min(k, sum_i sigmoid((k - rank_i) / tau2)) / min(k, p).

    Patel, Tolias & Matas, CVPR 2022 (arXiv:2108.11179), as in the published code. rank_i is relaxed by a sigmoid of
    temperature tau1 over all valid items.

    Args:
        k: list lengths, each >= 1.
        tau1: temperature of the ranks, in score units, > 0.
        tau2: temperature of the count, in ranks, > 0; one for all k, or one for each.
        clip: False: the sum over i is not limited to k (as in SupRank's recall, `SupRecallLoss`).
        rank_query: as the published code: without references, the query stays in its own list as an irrelevant item of
            rank 1 (so no relevant item reaches k = 1), and k is at most the length of the list.
        common: see `RetrievalLoss`.

    >>> RecallAtKLoss(k=(1,)).from_scores(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, False]]))
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "Recall@k, sigmoid ranks and count"
    source: ClassVar[str] = "Patel et al., CVPR 2022, [2108.11179](https://arxiv.org/abs/2108.11179)"

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16),
        tau1: float = 0.01,
        tau2: float | Sequence[float] = 1.0,
        clip: bool = True,
        rank_query: bool = False,
        **common: Unpack[Common],
    ) -> None:
        k, temperatures = list_lengths(k), count_temperatures(tau2, k)
        number(tau1, "tau1 is the temperature of the ranks, in score units", low=1e-30)
        flag(clip, "clip")
        flag(rank_query, "rank_query")
        if rank_query and common.get("include_self"):
            raise ValueError(
                "rank_query keeps the query as an irrelevant item, include_self as a relevant one: give one"
            )
        step = Sigmoid(tau1)
        super().__init__(Soft(step, step), metric=self._recall, **common)
        self.k, self.tau1, self.tau2, self.clip, self.rank_query = k, tau1, tau2, clip, rank_query
        self.separate = not rank_query  # published code limits k to the longest list
        self._temperatures = temperatures

    def _recall(self, ranks: Ranks, longest: int | None = None) -> PerQuery:
        lengths = [k if longest is None else min(k, longest) for k in self.k]
        return mean_recall(ranks, lengths, self._temperatures, self.clip)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """1 - the mean of the soft recalls. The published code limits k to the list length, the formula does not."""
        ranks = self.ranked(scores, relevant, valid)
        return 1 - self._recall(ranks, scores.shape[1] if self.rank_query else None), ranks.counted

    def _with_query(self, relevant: Tensor, valid: Mask | None, rows: slice) -> tuple[Tensor, Mask | None]:
        if self.rank_query and valid is not None:
            own = own_items(relevant.shape[1], rows, relevant.device)
            relevant, valid = relevant.masked_fill(own, 0), valid | own
        return relevant, valid
