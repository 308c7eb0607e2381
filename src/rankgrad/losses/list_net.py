"""Softmax cross-entropy of a list, and the same with most weight on the items near the top K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..common.checks import list_length, number
from ..ranks.kernels.host import on_host, zeros_like
from ..ranks.lists import has_kinds
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Number of scores in memory at once: on a CPU what its caches hold, elsewhere few and large steps.
BLOCK = 2**16
BLOCK_ELSEWHERE = 2**22


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
    takes: ClassVar[tuple[str, ...]] = ("log_q", "weights")

    def __init__(self, tau: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.tau = number(tau, "tau is a temperature in score units", low=1e-30)

    def per_query(
        self,
        scores: Scores,
        relevant: Tensor,
        valid: Mask | None,
        log_q: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[PerQuery, Tensor]:
        """Cross-entropy of each list; a list counts if it has a relevant item."""
        values = _cross_entropy(scores, _Targets(relevant, valid, self.tau, weights), valid, log_q)
        return values, _has_gains(relevant, valid, scores)


class SLatKLoss(RetrievalLoss):
    r"""SL@K: the softmax loss, in which each relevant item is weighted by how near it is to the top K of its list.

        L = -sum_i g_i / (sum_j g_j) w_i log(softmax(s / tau)_i),   w_i = sigmoid((s_i - beta) / tau_weight)

    beta is the K-th highest score of the list, its top-K quantile. With fewer items, all w_i are 1. A relevant
    item far below the top K is unlikely to enter it, and has little weight. In a sample with `log_q`, an item stands
    for 1 / q items.

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
    takes: ClassVar[tuple[str, ...]] = ("log_q", "weights")

    def __init__(self, k: int = 20, tau: float = 0.2, tau_weight: float = 1.0, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        self.k = list_length(k, "k is a list length")
        self.tau = number(tau, "tau is a temperature in score units", low=1e-30)
        self.tau_weight = number(tau_weight, "tau_weight is a temperature in score units", low=1e-30)

    def per_query(
        self,
        scores: Scores,
        relevant: Tensor,
        valid: Mask | None,
        log_q: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[PerQuery, Tensor]:
        """Weighted cross-entropy of each list; a list counts if it has a relevant item."""
        edge = _edge(scores.detach(), valid, self.k, log_q)
        targets = _Targets(relevant, valid, self.tau, weights, edge, self.tau_weight)
        values = _cross_entropy(scores, targets, valid, log_q)
        return values, _has_gains(relevant, valid, scores)


def _cross_entropy(scores: Scores, targets: _Targets, valid: Mask | None, log_q: Tensor | None) -> PerQuery:
    if not targets.relevant.requires_grad:
        values: PerQuery = _CrossEntropy.apply(scores, targets, valid, log_q)
        return values
    # gains that are learned: their gradient needs the whole matrices
    gains = targets.relevant if valid is None else targets.relevant * valid
    share = gains / gains.sum(1, keepdim=True).clamp(min=torch.finfo(gains.dtype).tiny)
    share = share if targets.weights is None else share * targets.weights
    if targets.edge is not None:
        share = share * torch.sigmoid((scores.detach() - targets.edge) / targets.tau_weight)
    logits = scores / targets.tau
    drawn = logits if log_q is None else logits - log_q
    drawn = drawn if valid is None else drawn.masked_fill(~valid, torch.finfo(drawn.dtype).min / 4)
    return (share * (drawn.logsumexp(1, keepdim=True) - logits)).sum(1)


class _CrossEntropy(torch.autograd.Function):
    r"""[query] sum_i t_i (log sum_j exp(z_j) / q_j - z_i) for z = s / tau and constant targets t.

    It is computed in blocks of rows that fit into a cache, and the backward pass computes the softmax again. So no
    matrix is kept, and for long lists, whose time goes into reading memory, each matrix is read once in a pass.
    """

    @staticmethod
    def forward(ctx: Any, scores: Scores, targets: _Targets, valid: Mask | None, log_q: Tensor | None) -> PerQuery:
        values = scores.new_zeros(len(scores))
        peak, log_sum = scores.new_empty(len(scores), 1), scores.new_empty(len(scores), 1)
        for rows, (logits, share, spare) in _blocks(scores):
            targets.logits(scores, rows, valid, log_q, out=logits)
            targets.shares(scores, rows, spare, out=share)
            torch.amax(logits, 1, keepdim=True, out=peak[rows])
            own = torch.linalg.vecdot(share, logits.sub_(peak[rows]))
            if log_q is not None:
                own += torch.linalg.vecdot(share, log_q[rows])
            torch.log(logits.exp_().sum(1, keepdim=True), out=log_sum[rows])
            torch.sub(share.sum(1) * log_sum[rows, 0], own, out=values[rows])
        ctx.save_for_backward(scores, valid, log_q, peak, log_sum, targets.relevant, targets.weights)
        ctx.targets = targets
        return values

    @staticmethod
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor | None, ...]:
        scores, valid, log_q, peak, log_sum, *_ = ctx.saved_tensors  # raises if one was changed in place
        gradient, targets, factor = zeros_like(scores), ctx.targets, (upstream / ctx.targets.tau).unsqueeze(1)
        for rows, (_, share, spare) in _blocks(scores):
            targets.shares(scores, rows, spare, out=share)
            push = targets.logits(scores, rows, valid, log_q, gradient[rows]).sub_(peak[rows]).sub_(log_sum[rows])
            push.exp_().mul_(share.sum(1, keepdim=True)).sub_(share).mul_(factor[rows])
        return gradient, None, None, None


def _blocks(scores: Scores) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Rows of the scores, and three buffers [row, item]. All blocks use the same memory: new memory takes time."""
    queries, items = scores.shape
    many = max((BLOCK if on_host(scores) else BLOCK_ELSEWHERE) // max(items, 1), 1)
    buffers = [scores.new_empty(min(many, queries), items) for _ in range(3)]
    for start in range(0, queries if items else 0, many):
        rows = slice(start, min(start + many, queries))
        yield rows, tuple(buffer[: rows.stop - start] for buffer in buffers)


@dataclass(frozen=True)
class _Targets:
    """The targets t of the lists: shares of their gains, times weights.

    Attributes:
        relevant: [query, item] bool or gains.
        valid: [query, item].
        tau: temperature of the softmax.
        weights: [query, item] factors of the targets.
        edge: [query, 1] scores from which on a target has most of its weight (SL@K).
        tau_weight: temperature of this weight.
    """

    relevant: Tensor
    valid: Mask | None
    tau: float
    weights: Tensor | None = None
    edge: Tensor | None = None
    tau_weight: float = 1.0

    def shares(self, scores: Scores, rows: slice, spare: Tensor, out: Tensor) -> Tensor:
        """[row, item] the targets of some lists."""
        share = out.copy_(self.relevant[rows])
        if self.valid is not None:
            share.mul_(self.valid[rows])
        if self.relevant.dtype != torch.bool:  # the sum of large gains would overflow
            most = share.amax(1, keepdim=True)
            share.div_(torch.where(most > 0, most, 1))
        share.div_(share.sum(1, keepdim=True).clamp_(min=1))
        if self.weights is not None:
            share.mul_(self.weights[rows])
        if self.edge is not None:
            near = torch.sub(scores[rows], self.edge[rows], out=spare)
            share.mul_(near.div_(self.tau_weight).sigmoid_())
        return share

    def logits(self, scores: Scores, rows: slice, valid: Mask | None, log_q: Tensor | None, out: Tensor) -> Tensor:
        """[row, item] the logits of the softmax of some lists, corrected for their sampling."""
        torch.div(scores[rows], self.tau, out=out)
        if log_q is not None:
            out.sub_(log_q[rows])
        # a finite number: its product with a share of 0 is 0
        return out if valid is None else out.masked_fill_(~valid[rows], torch.finfo(out.dtype).min / 4)


def _edge(scores: Scores, valid: Mask | None, k: int, log_q: Tensor | None) -> Tensor:
    """[query, 1] the k-th highest score of each list, -inf if it has fewer items."""
    if log_q is not None:  # an item of a sample stands for 1 / q items
        drawn = torch.exp(-log_q) if valid is None else torch.exp(-log_q) * valid
        down, order = scores.sort(1, descending=True)
        reached = drawn.gather(1, order).cumsum(1) >= k * (1 - 1e-6)  # rounding of the sum
        return down.masked_fill(~reached, -torch.inf).amax(1, keepdim=True)
    if k > scores.shape[1]:
        return scores.new_full((len(scores), 1), -torch.inf)
    there = scores if valid is None else scores.masked_fill(~valid, -torch.inf)
    return there.topk(k, dim=1, sorted=False).values.amin(1, keepdim=True)


def _has_gains(relevant: Tensor, valid: Mask | None, scores: Scores) -> Tensor:
    """[query] whether a list has a relevant item; a gain that rounds to 0 is none."""
    return has_kinds(relevant if relevant.dtype == torch.bool else relevant.to(scores.dtype), valid)[0]
