"""Relaxed ranks: sums of steps over score differences, computed in blocks, and again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ..common.checks import integer, number
from .blocks import Blocks, Method, added, tiles_of
from .first_order import refuse_graph
from .kernels import exponential
from .kernels.cells import Line, known
from .kernels.host import zeros_like
from .kernels.pairs import PairDifferences
from .lists import Lists, check_lists, computed
from .relaxations import Exponential, Heaviside, Step, as_step
from .types import Mask, PerPair, Ranks, Scores

# The gradient between relevant items must be at least this fraction of the terms that cancel in it: float64 rounds
# these at 1e-16.
CANCELLED = 1e-8


def soft_ranks(
    scores: Scores,
    relevant: Tensor,
    valid: Mask | None = None,
    *,
    pos: Callable[[Tensor], Tensor],
    neg: Callable[[Tensor], Tensor],
    chunk: int | None = None,
    positives: int | None = None,
    method: Method = "auto",
    levels: Tensor | None = None,
) -> Ranks:
    r"""Ranks of the relevant items. The two comparisons are relaxed separately.

        above_pos_i  = sum_{j relevant, j != i, gain_j >= gain_i} pos(s_j - s_i)
        above_neg_i  = sum_{j valid, gain_j < gain_i} neg(s_j - s_i)
        above_gain_i = sum_{j relevant, j != i} pos(s_j - s_i) min(gain_i, gain_j)         (gains only)

    With exact steps these are the counts of ROADMAP eqs. 1-3. The count of a step without gradient (`Heaviside`) is
    marked as non-differentiable. There are no second derivatives: `create_graph=True` is an error.

    Time is O(pairs x items). All differences are evaluated in blocks, and again in the backward pass, so memory is
    O(query x item). For long lists with more than a few relevant items, `kernels.cells` computes the sums of `Sigmoid`
    and `SupStep` in time O(query x item + pairs). Its errors are at most 1e-6 of the rank and of the largest gradient.

    Args:
        scores: [query, item] float, higher is closer; only differences within a row matter. Half precision is
            computed and returned in float32.
        relevant: [query, item] bool, or float gains >= 0. An item is never compared with itself.
        valid: [query, item] bool; False removes an item from that query (its own copy, junk images).
        pos: step for items of at least equal gain, see `relaxations`.
        neg: step for items of less gain.
        chunk: number of differences evaluated at once; None chooses by device. Any value gives the same result.
        positives: a promise that every query has exactly this many relevant valid items, see `Lists.of`.
        method: "pairs": compute every difference. "cells": near-linear, for these two steps (`Heaviside` also as pos)
            and bool relevance; relevant scores that spread over more than about 30,000 tau are still compared in pairs.
            "auto": the faster one by a model of their cost on a CPU; pairs for float64 and on a GPU.
        levels: [query, item] integers, > 0 for relevant items. Then the conditions gain_j >= gain_i and gain_j < gain_i
            compare levels instead of gains; min(gain_i, gain_j) does not change. None: gains are compared.

    Raises:
        ValueError: a shape or dtype is wrong, a promise is broken, or "cells" does not support the arguments.

    >>> from rankgrad.ranks.relaxations import Heaviside
    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]])
    >>> soft_ranks(scores, relevant, pos=Heaviside(), neg=Heaviside()).rank
    tensor([1., 3.])
    """
    lists = Lists.of(scores, relevant, valid, positives, levels)
    pos, neg = as_step(pos), as_step(neg)
    _check_method(method, lists, pos, neg)
    if chunk is None:
        # CPU: a block and its temporaries should fit into the second-level cache. GPU: use the whole device.
        chunk = 2**17 if scores.device.type == "cpu" else 2**25
    above_pos, above_neg, above_gain = _SoftCounts.apply(computed(scores), lists, pos, neg, chunk, method)
    return lists.ranks(above_pos, above_neg, above_gain if lists.graded else None)


@dataclass(frozen=True)
class Soft:
    """`soft_ranks` with fixed steps, as an object that a loss can store, print and pickle.

    Args:
        pos: step for items of at least equal gain.
        neg: step for items of less gain.
        chunk: see `soft_ranks`.
        pull: factor of the gradient on the scores of relevant items, in (0, 1]. 1 is the gradient of the value. With
            less, relevant items are pulled less than irrelevant items are pushed, and a class need not shrink to a
            point. The value does not change. This option is ours; 0.9 helped with steps that are unbounded
            (papers/docs/results.md).
        method: see `soft_ranks`. Printed only if it is not "auto".

    >>> from rankgrad.ranks.relaxations import Sigmoid
    >>> ranks = Soft(pos=Sigmoid(0.1), neg=Sigmoid(0.1))
    >>> ranks(torch.tensor([[0.5, 0.6, 0.1]]), torch.tensor([[True, False, False]])).rank  # the exact rank is 2
    tensor([1.7490])
    """

    pos: Callable[[Tensor], Tensor]
    neg: Callable[[Tensor], Tensor]
    chunk: int | None = None
    pull: float = 1.0
    method: Method = "auto"

    def __repr__(self) -> str:
        shown = [f.name for f in fields(self) if f.name != "method" or self.method != "auto"]
        return f"Soft({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __post_init__(self) -> None:
        number(self.pull, "pull is the factor of the gradient on relevant items", above=0, high=1)
        for name in ("pos", "neg"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name} must be a step of `relaxations` or a function; got {getattr(self, name)!r}")
        if self.chunk is not None:
            integer(self.chunk, "chunk is the number of differences evaluated at once", low=1)
        _check_known(self.method)

    def __call__(
        self,
        scores: Scores,
        relevant: Tensor,
        valid: Mask | None = None,
        positives: int | None = None,
        levels: Tensor | None = None,
    ) -> Ranks:
        """Relaxed ranks of a batch."""
        if self.pull != 1 and scores.requires_grad:
            check_lists(scores, relevant, valid)
            scores = _Pulled.apply(scores, relevant, self.pull)
        return soft_ranks(
            scores,
            relevant,
            valid,
            pos=self.pos,
            neg=self.neg,
            chunk=self.chunk,
            positives=positives,
            method=self.method,
            levels=levels,
        )


class _Pulled(torch.autograd.Function):
    """Forward: the scores. Backward: the gradient of relevant items is multiplied by `pull`."""

    @staticmethod
    def forward(ctx: Any, scores: Scores, relevant: Tensor, pull: float) -> Scores:
        ctx.save_for_backward(relevant)
        ctx.pull = pull
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx: Any, upstream: Scores) -> tuple[Scores, None, None]:
        (relevant,) = ctx.saved_tensors
        return torch.where(relevant > 0, ctx.pull * upstream, upstream), None, None


def _check_known(method: str) -> None:
    if method not in ("auto", "pairs", "cells"):
        raise ValueError(f"method must be 'auto', 'pairs' or 'cells'; got {method!r}")


def _check_method(method: str, lists: Lists, pos: Step, neg: Step) -> None:
    _check_known(method)
    if method == "cells" and lists.graded:
        raise ValueError("method='cells' needs bool relevance; got gains: use method='auto'")
    if method == "cells" and not (known(neg) and (known(pos) or isinstance(pos, Heaviside))):
        raise ValueError(
            f"method='cells' supports Sigmoid and SupStep with rho > 0, and Heaviside as pos; got pos={pos!r}, "
            f"neg={neg!r}; use method='auto'"
        )


@dataclass(frozen=True)
class _Sums:
    """All arguments of the sums except the scores."""

    lists: Lists
    pos: Step
    neg: Step
    chunk: int
    rest_line: Line | None
    peers_line: Line | None
    product: Exponential | None


class _SoftCounts(torch.autograd.Function):
    """Sums of steps over blocks. The backward pass evaluates them again, so only the score matrix is saved."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, lists: Lists, pos: Step, neg: Step, chunk: int, method: Method
    ) -> tuple[PerPair, PerPair, PerPair]:
        blocks, items = Blocks(scores, lists, chunk), scores.shape[1]
        rest_line, peers_line = blocks.lines(pos, neg, method)
        product = blocks.product(neg, method)
        ctx.sums = _Sums(lists, pos, neg, chunk, rest_line, peers_line, product)
        rest_slope = peers_slope = None

        if rest_line is not None:
            above_neg, rest_slope = blocks.counts(neg, rest_line, blocks.rest, items)
        elif product is not None:
            above_neg = torch.zeros_like(blocks.own)
            for rows in blocks.rows(items):
                above_neg[:, rows] = exponential.total(product, blocks.rest(rows), blocks.own[:, rows])
        else:
            above_neg, pairs = torch.zeros_like(blocks.own), PairDifferences()
            for rows, wide, groups in blocks.strips(items):
                tiles = tiles_of(blocks.rest(rows), wide)
                for slots in groups:
                    own = blocks.own[slots, rows].unsqueeze(2)
                    above_neg[slots, rows] = added([pairs.total(neg, tile, own) for tile in tiles])

        above_gain = torch.zeros_like(blocks.own)
        if peers_line is not None:
            peers = blocks.peers
            above_pos, peers_slope = blocks.counts(pos, peers_line, lambda rows: peers[rows], peers.shape[1])
            above_pos -= pos(above_pos.new_zeros(()))  # an item is not above itself
        elif rest_line is not None and isinstance(pos, Heaviside):
            above_pos = blocks.exact_peers()
        else:
            above_pos = torch.zeros_like(blocks.own)
            for slots, rows, others, differences in blocks.to_peers():
                count = pos(differences)
                if (gains := blocks.gains(slots, rows, others)) is not None:
                    lower, shared = gains
                    above_gain[slots, rows] += (count * shared).sum(2)
                    above_neg[slots, rows] += neg(differences.masked_fill(~lower, -torch.inf)).sum(2)
                    count = count.masked_fill(lower, 0)
                above_pos[slots, rows] += count.sum(2)

        ctx.save_for_backward(scores, rest_slope, peers_slope)
        result_pos, result_neg = blocks.pairs(above_pos), blocks.pairs(above_neg)
        result_gain = blocks.pairs(above_gain) if lists.graded else scores.new_zeros(0)
        constant = [] if lists.graded else [result_gain]
        if isinstance(pos, Heaviside):
            constant = [result_pos, result_gain]
        if isinstance(neg, Heaviside):
            constant.append(result_neg)
        ctx.mark_non_differentiable(*constant)
        ctx.set_materialize_grads(False)
        return result_pos, result_neg, result_gain

    @staticmethod
    def backward(
        ctx: Any, grad_pos: PerPair | None, grad_neg: PerPair | None, grad_gain: PerPair | None
    ) -> tuple[Tensor | None, None, None, None, None, None]:
        refuse_graph()
        scores, rest_slope, peers_slope = ctx.saved_tensors
        grad = _gradient(scores, grad_pos, grad_neg, grad_gain, ctx.sums, rest_slope, peers_slope)
        return grad, None, None, None, None, None


def _gradient(
    scores: Scores,
    grad_pos: PerPair | None,
    grad_neg: PerPair | None,
    grad_gain: PerPair | None,
    sums: _Sums,
    rest_slope: Tensor | None,
    peers_slope: Tensor | None,
) -> Scores:
    """[query, item] the gradient of the sums with respect to the scores; upstream gradients weight the pairs."""
    lists, pos = sums.lists, sums.pos
    blocks = Blocks(scores, lists, sums.chunk)
    weight_pos = None if grad_pos is None else blocks.rectangle(grad_pos)
    weight_neg = None if grad_neg is None else blocks.rectangle(grad_neg)
    weight_gain = None if grad_gain is None or not lists.graded else blocks.rectangle(grad_gain)
    grad, grad_own = zeros_like(scores), torch.zeros_like(blocks.own)
    if weight_neg is not None:
        _push_rest(grad, grad_own, blocks, sums, weight_neg, rest_slope)

    by_cells: Tensor | None = None
    if weight_pos is not None and sums.peers_line is not None:
        assert peers_slope is not None
        by_cells = _with_peers_by_cells(grad_own, blocks, pos, sums.peers_line, weight_pos, peers_slope)
    if by_cells is not None:
        grad_own = by_cells
    elif blocks.gain is not None or (weight_pos is not None and not isinstance(pos, Heaviside)):
        grad_own = grad_own + _push_peers(grad_own, blocks, sums, weight_pos, weight_neg, weight_gain).T
    grad[lists.query, lists.item] = blocks.pairs(grad_own)
    return grad


def _push_rest(
    grad: Tensor, grad_own: Tensor, blocks: Blocks, sums: _Sums, weight: Tensor, slope: Tensor | None
) -> None:
    """Add the gradient of the sums over the rest: to `grad` [query, item], and to `grad_own` [slot, query]."""
    items = grad.shape[1]
    if sums.rest_line is not None:
        assert slope is not None
        cells = blocks.cells(sums.neg, sums.rest_line)
        for rows in cells.groups(items):
            into = blocks.gradient_rows(grad, rows)
            cells.push(rows, blocks.rest(rows), weight[:, rows].T, into)
            blocks.write_gradient(grad, rows, into)
        grad_own -= weight * slope
    elif (product := sums.product) is not None:
        for rows in blocks.rows(items):
            into, own = blocks.gradient_rows(grad, rows), blocks.own[:, rows]
            grad_own[:, rows] -= exponential.push(product, blocks.rest(rows), own, weight[:, rows], into)
            blocks.write_gradient(grad, rows, into)
    else:
        pairs = PairDifferences()
        for rows, wide, groups in blocks.strips(items):
            into = blocks.gradient_rows(grad, rows)
            tiles = list(zip(tiles_of(blocks.rest(rows), wide), tiles_of(into, wide), strict=True))
            for slots in groups:
                own = blocks.own[slots, rows].unsqueeze(2)
                pushed = [pairs.push(sums.neg, tile, own, weight[slots, rows], to) for tile, to in tiles]
                grad_own[slots, rows] -= added([push for push in pushed if push is not None])
            blocks.write_gradient(grad, rows, into)


def _push_peers(grad_own: Tensor, blocks: Blocks, sums: _Sums, *weights: Tensor | None) -> Tensor:
    """[query, slot] the gradient of the sums over relevant items; what these take away is added to `grad_own`."""
    weight_pos, weight_neg, weight_gain = weights
    grad_peers = torch.zeros_like(blocks.peers)
    for slots, rows, others, differences in blocks.to_peers():
        weight = grad_own.new_zeros(()) if weight_pos is None else weight_pos[slots, rows].unsqueeze(2)
        pushes = []
        if (gains := blocks.gains(slots, rows, others)) is not None:
            lower, shared = gains
            weight = weight * ~lower
            if weight_gain is not None:
                weight = weight + weight_gain[slots, rows].unsqueeze(2) * shared
            if weight_neg is not None:
                slope = sums.neg.slope(differences.masked_fill(~lower, -torch.inf))
                if slope is not None:
                    pushes.append(slope.mul_(weight_neg[slots, rows].unsqueeze(2)))
        if (slope := sums.pos.slope(differences)) is not None:
            pushes.append(slope.mul_(weight))
        for push in pushes:
            grad_peers[rows, others] += push.sum(0)
            grad_own[slots, rows] -= push.sum(2)
    return grad_peers


def _with_peers_by_cells(
    grad_own: Tensor, blocks: Blocks, pos: Step, line: Line, weight: Tensor, slope: Tensor
) -> Tensor | None:
    """[slot, query] float64 the gradient, including the terms between relevant items; None if rounding is too large.

    In cells, each item is also compared with itself. The two terms of this cancel, except for float64 rounding. If all
    other terms are smaller than the rounding, the items must be compared in pairs.
    """
    up = torch.zeros_like(blocks.peers, dtype=torch.float64)
    cells = blocks.cells(pos, line)
    for rows in cells.groups(up.shape[1]):
        cells.push(rows, blocks.peers[rows], weight[:, rows].T, up[rows])
    down = weight * slope
    total = grad_own + (up.T - down)
    return total if bool(total.abs().max() >= CANCELLED * down.abs().max()) else None
