"""Blackbox ranks (RaMBO): exact in the forward pass; the gradient is the change of rank under a perturbation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..common.checks import dense, flag, number
from .exact import Order, by_pair, by_slot, exact_ranks, not_rivals, ranks_of
from .first_order import refuse_graph
from .kernels.counting import Counter
from .kernels.host import on_host
from .kernels.sorting import sort_rows
from .lists import Lists, computed, refuse_transforms, require
from .prefilter import shortened
from .types import Mask, PerPair, PerQuery, Ranks, Scores


@dataclass(frozen=True)
class Blackbox:
    r"""Exact ranks whose gradient comes from a perturbed ranking (RaMBO, Rolínek et al., CVPR 2020, Algorithm 1).

    Forward: exact ranks of the scores y' shifted by the margin; of tied items the lower index is above. Backward, with
    g = d(mean loss) / d(rank): y_lambda = y' + lambda g, and the gradient is -(rk(y') - rk(y_lambda)) / lambda.
    Only relevant items have g != 0, so only they are perturbed and sorted: O(n log p).

    The backward pass is not linear in g. Therefore it is computed together with the loss (`values`), with g of the mean
    over the counted queries, and then multiplied by the upstream gradient. So a loss scale, an outer weight or gradient
    accumulation does not change lambda.

    Args:
        lambda_: size of the perturbation, > 0: 4 (SOP), 0.2 (CUB, In-shop) in the paper, for normalised ranks.
        margin: alpha of eq. 14 in score units, >= 0.
        normalized_ranks: True: lambda is for ranks divided by the length of the list, like all published values.
            False: lambda is for Algorithm 1 as printed. lambda n with False equals lambda with True.
        prefilter: first drop the irrelevant items that are below all relevant items of their list, if this leaves few
            items. The results are the same, and faster if few items are above the lowest relevant one. The cost must
            never fall when an irrelevant item rises. It waits for a GPU once.
        both_ranks: the rank among the relevant items has Algorithm 1's gradient, too, as eqs. 17 and 21 are printed.
            False: it is a constant, as in the published code.

    >>> scores = torch.tensor([[0.5, 0.9, 0.1]], requires_grad=True)
    >>> relevant = torch.tensor([[True, False, False]])
    >>> cost, ranks = Blackbox(margin=0.0).values(lambda ranks: ranks.sum_per_query(ranks.above_neg), scores, relevant)
    >>> cost.sum().backward()
    >>> ranks.rank.tolist(), scores.grad.sign()  # item 1 is above the relevant item: the gradient pushes it down
    ([2.0], tensor([[-1.,  1.,  0.]]))
    """

    lambda_: float = 4.0
    margin: float = 0.02
    normalized_ranks: bool = True
    prefilter: bool = False
    both_ranks: bool = False

    def __post_init__(self) -> None:
        number(self.lambda_, "lambda_ is the size of RaMBO's perturbation", above=0)
        number(self.margin, "margin is in score units", low=0)
        flag(self.normalized_ranks, "normalized_ranks")
        flag(self.prefilter, "prefilter")
        flag(self.both_ranks, "both_ranks")

    def __call__(
        self, scores: Scores, relevant: Tensor, valid: Mask | None = None, *, positives: int | None = None
    ) -> Ranks:
        """The exact ranks of the forward pass, without gradient."""
        return exact_ranks(scores, relevant, valid, ties="index", margin=self.margin, positives=positives)

    def values(
        self,
        read: Callable[[Ranks], PerQuery],
        scores: Scores,
        relevant: Tensor,
        valid: Mask | None = None,
        *,
        positives: int | None = None,
        fixed: Sequence[Scores] = (),
        counted: Tensor | None = None,
    ) -> tuple[PerQuery, Ranks]:
        """`read(ranks)` per query with the blackbox gradient, and the ranks.

        The gradient of the mean over the counted queries is that of Algorithm 1. The gradient of the value of a single
        query is that of the mean times the number of counted queries. For `positives` see `Lists.of`. `fixed` holds
        [query, item] scores of further items without gradient, such as a memory; their columns of `relevant` and
        `valid` come last. `counted` is the number of counted queries of the whole batch, if these are a part of it.
        """
        scores = computed(scores)
        every = scores
        if fixed:
            every = torch.cat([scores.detach(), *(part.detach().to(scores.dtype) for part in fixed)], 1)
        lists = Lists.of(every, relevant, valid, positives)
        holder: list[Ranks] = []
        values = _BlackboxValues.apply(scores, every, lists, self, read, holder, counted)
        return values, holder[0]


class _BlackboxValues(torch.autograd.Function):
    """A value of exact ranks. The forward pass also computes the score gradient of its mean."""

    @staticmethod
    def forward(
        ctx: Any,
        moving: Scores,
        scores: Scores,
        lists: Lists,
        box: Blackbox,
        read: Callable[[Ranks], PerQuery],
        holder: list[Ranks],
        number: Tensor | None,
    ) -> PerQuery:
        item, learning = lists.item, moving.shape[1]  # the first columns of the scores have a gradient
        short = shortened(scores, lists, box.margin) if box.prefilter else None
        if short is not None:
            scores, lists = short.scores, short.lists
        order = Order.of(scores, lists, box.margin)
        counter = Counter(scores, not_rivals(scores, lists))
        place, rivals = order.among("index"), order.back(order.rivals(counter)[0].index)
        exact = ranks_of(order, lists, place, rivals, "index")
        holder.append(replace(exact, item=item))
        leaf, among = (part.detach().requires_grad_() for part in (exact.above_neg, exact.above_pos))
        with torch.enable_grad():
            values = read(replace(exact, above_neg=leaf, above_pos=among if box.both_ranks else exact.above_pos))
        counted = exact.counted
        ctx.num_counted = (counted.sum() if number is None else number).clamp(min=1)
        if ctx.needs_input_grad[0]:
            g = g_among = torch.zeros_like(leaf)
            if values.requires_grad:
                with torch.enable_grad():
                    mean = torch.where(counted, values, 0).sum() / ctx.num_counted
                g, g_among = torch.autograd.grad(mean, (leaf, among), allow_unused=True, materialize_grads=True)
            if box.prefilter:
                require((g >= 0).all(), "prefilter=True needs a cost that never falls when an irrelevant item rises")
            change = _rank_change(counter, lists, order, place + rivals, box, g)
            if box.both_ranks:
                # the cost sees rk^+ as 1 + above_pos, and in above_neg = rk - rk^+
                own = _change_among(lists, order, place, box, g_among - g)
                change[lists.query, lists.item] += own.to(change.dtype)
            if short is not None:
                change = short.spread(change, moving)
            elif learning < scores.shape[1]:
                change = change[:, :learning].contiguous()
            ctx.save_for_backward(change)
        return values.detach().to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor | None, ...]:
        refuse_graph()
        (change,) = ctx.saved_tensors
        factor = upstream * ctx.num_counted
        # the factor is 1 in a plain `loss.backward()`: avoid a copy, which on a long list costs as much as the ranks
        if not (on_host(factor) and bool((factor == 1).all())):
            change = change * factor.unsqueeze(1)
        return change, None, None, None, None, None, None


def _rank_change(counter: Counter, lists: Lists, order: Order, rank: Tensor, box: Blackbox, g: PerPair) -> Scores:
    """[query, item] (rk(y_lambda) - rk(y')) / lambda, with y_lambda = y' + lambda g on the relevant items."""
    dtype = order.own.dtype
    size = box.lambda_ * (lists.length if box.normalized_ranks else torch.ones_like(lists.length)).double()
    shift = by_slot(lists, (size[lists.query] * g).to(dtype), 0.0)
    # each relevant item twice, at its old and at its new score: the columns are still ascending
    both = Order(torch.stack([order.own, order.own - shift], 2).flatten(1), order.column.repeat_interleave(2, dim=1))
    moved = both.by_place & 1  # 1 for a new score
    # [query, place] number of relevant items above this place after the move, minus before
    gained = torch.nn.functional.pad((2 * moved - 1).cumsum(1), (1, 0))
    inverse = 1 / size.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
    above, change = both.rivals(counter, (gained * inverse).to(dtype))
    assert change is not None
    if not lists.complete:
        change.masked_fill_(~lists.rest, 0)
    rank_after = both.back(above.index + moved.cumsum(1) - 1)[:, 1::2]
    own = by_pair(lists, (rank_after - rank) * inverse)
    change[lists.query, lists.item] = own.to(dtype)
    return change


def _change_among(lists: Lists, order: Order, place: Tensor, box: Blackbox, g: PerPair) -> PerPair:
    """[pair] (rk(y+_lambda) - rk(y+)) / lambda, with y+ the scores of the relevant items alone."""
    size = box.lambda_ * (lists.count if box.normalized_ranks else torch.ones_like(lists.count)).double()
    shift = by_slot(lists, (size[lists.query] * g).to(order.own.dtype), 0.0)
    moved = Order(order.own - shift, order.column).among("index")
    inverse = 1 / size.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(1)
    return by_pair(lists, (moved - place) * inverse)


def blackbox_rank(scores: Tensor, lambda_: float, normalized: bool = False) -> Tensor:
    r"""Ranks along the last dimension with RaMBO's gradient: exactly Algorithm 1 (Rolínek et al., CVPR 2020).

    Forward: rk(y) in 1 .. n, 1 for the largest, a permutation (of tied scores the lower index ranks first).
    Backward with upstream g: -(rk(y) - rk(y + lambda g)) / lambda. This is not linear in g: a factor of the loss
    changes the size of the perturbation. The losses avoid this (`Blackbox`); this operator does not.

    Args:
        scores: [..., n] float.
        lambda_: size of the perturbation, > 0.
        normalized: divide ranks by n, in the result, the upstream gradient and lambda, as the published code does.

    Returns:
        [..., n] ranks in the dtype of scores (float32 for half precision).

    >>> y = torch.tensor([0.3, 0.9, 0.5], requires_grad=True)
    >>> ranks = blackbox_rank(y, lambda_=1.0)
    >>> ranks.detach()
    tensor([3., 1., 2.])
    >>> (ranks * torch.tensor([1.0, 0.0, 0.0])).sum().backward()  # push item 0 up: 1.3 would be first
    >>> y.grad
    tensor([-2.,  1.,  1.])
    """
    refuse_transforms()
    number(lambda_, "lambda_ is the size of the perturbation", above=0)
    dense(scores, "scores")
    if not scores.is_floating_point() or scores.dim() == 0:
        raise ValueError(f"scores must be a float tensor [..., n]; got {scores.dtype} {tuple(scores.shape)}")
    ranks: Tensor = _BlackboxRank.apply(computed(scores), lambda_, normalized)
    return ranks


def _permutation_ranks(scores: Tensor) -> Tensor:
    """[..., n] long ranks, 1 is the largest; of tied scores the lower index ranks first."""
    order = sort_rows(-scores.reshape(math.prod(scores.shape[:-1]), scores.shape[-1]))[1]
    places = torch.arange(1, scores.shape[-1] + 1, device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places).view_as(scores)


class _BlackboxRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lambda_: float, normalized: bool) -> Tensor:
        ranks = _permutation_ranks(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_, ctx.unit = lambda_, (max(scores.shape[-1], 1) if normalized else 1)
        values: Tensor = ranks.to(scores.dtype) / ctx.unit
        return values

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        refuse_graph()
        scores, ranks = ctx.saved_tensors
        moved = _permutation_ranks(scores + ctx.lambda_ * upstream)
        change: Tensor = (moved - ranks).to(scores.dtype) / (ctx.unit * ctx.lambda_)
        return change, None, None
