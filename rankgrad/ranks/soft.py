"""Relaxed ranks: sums of steps over the score differences, in blocks that are formed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..relaxations import Heaviside, Step, as_step
from ..types import Mask, PerPair, Ranks, Scores
from .lists import Lists, check_lists, computed


def soft_ranks(
    scores: Scores,
    relevant: Tensor,
    valid: Mask | None = None,
    *,
    pos: Callable[[Tensor], Tensor],
    neg: Callable[[Tensor], Tensor],
    chunk: int | None = None,
) -> Ranks:
    r"""Ranks of the relevant items, the two comparisons relaxed separately.

        above_pos_i  = sum_{j relevant, j != i, gain_j >= gain_i} pos(s_j - s_i)
        above_neg_i  = sum_{j valid, gain_j < gain_i} neg(s_j - s_i)
        above_gain_i = sum_{j relevant, j != i} pos(s_j - s_i) min(gain_i, gain_j)         (gains only)

    With exact steps these are the counts of ROADMAP eqs. 1-3. Time O(pairs x items); the pairs are evaluated in blocks
    and again in the backward pass, so memory is O(query x item). A step without gradient (`Heaviside`) makes its count
    non-differentiable, and says so. First derivatives only.

    Args:
        scores: [query, item] float, higher is closer; only differences within a row matter. Half precision is
            computed and returned in float32.
        relevant: [query, item] bool, or float gains >= 0. An item is never compared with itself.
        valid: [query, item] bool; False removes an item from that query (its own copy, junk images).
        pos: step for items of at least equal gain, see `relaxations`.
        neg: step for items of less gain.
        chunk: elements evaluated at once; None chooses by device. Any value gives the same result.

    Raises:
        ValueError: wrong shapes or dtypes.

    >>> from rankgrad.relaxations import Heaviside
    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]])
    >>> soft_ranks(scores, relevant, pos=Heaviside(), neg=Heaviside()).rank
    tensor([1., 3.])
    """
    lists = Lists.of(scores, relevant, valid)
    if chunk is None:
        # CPU: a block and its few temporaries should stay in the second-level cache. GPU: fill the device.
        chunk = 2**17 if scores.device.type == "cpu" else 2**25
    above_pos, above_neg, above_gain = _SoftCounts.apply(computed(scores), lists, as_step(pos), as_step(neg), chunk)
    return lists.ranks(above_pos, above_neg, above_gain if lists.graded else None)


@dataclass(frozen=True)
class Soft:
    """`soft_ranks` with its steps fixed, as something a loss can hold, print and pickle.

    Args:
        pos: step for items of at least equal gain.
        neg: step for items of less gain.
        chunk: see `soft_ranks`.
        pull: share of the gradient that reaches the scores of relevant items, in (0, 1]. 1 is the gradient of the
            value. Below 1, relevant items are pulled less than irrelevant ones are pushed, so that a class need not
            shrink to a point; the value stays. Ours; 0.9 helped with steps whose tail is unbounded (docs/results.md).
    """

    pos: Callable[[Tensor], Tensor]
    neg: Callable[[Tensor], Tensor]
    chunk: int | None = None
    pull: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.pull <= 1:
            raise ValueError(f"pull is the share of the gradient on relevant items, in (0, 1]; got {self.pull}")

    def __call__(self, scores: Scores, relevant: Tensor, valid: Mask | None = None) -> Ranks:
        """Relaxed ranks of a batch."""
        if self.pull != 1 and scores.requires_grad:
            check_lists(scores, relevant, valid)
            damped = torch.lerp(scores.detach(), scores, self.pull)
            scores = torch.where(relevant > 0, damped, scores)
        return soft_ranks(scores, relevant, valid, pos=self.pos, neg=self.neg, chunk=self.chunk)


class _Blocks:
    """Rectangles of a batch with its queries ordered by decreasing p, so that "has a slot s" is a prefix of rows."""

    def __init__(self, scores: Scores, lists: Lists, chunk: int) -> None:
        self.lists, self.chunk = lists, chunk
        # Balanced batches (the usual case) are in order already and are not copied.
        self.order: Tensor | None = None
        if any(a < b for a, b in zip(lists.sizes, lists.sizes[1:], strict=False)):
            self.order = torch.tensor(sorted(range(len(lists.sizes)), key=lambda q: -lists.sizes[q]))
            self.order = self.order.to(scores.device)
        self.sizes = sorted(lists.sizes, reverse=True)
        self.rest = self.sort(scores.masked_fill(~lists.rest, -torch.inf))
        own = scores[lists.query, lists.item]
        self.peers = self.sort(lists.rectangle(own, -torch.inf))
        # thresholds of absent slots are +inf: every difference with them is -inf
        self.own = self.sort(lists.rectangle(own, torch.inf)).T.contiguous()
        self.gain = self.sort(lists.rectangle(lists.gain, 0.0)) if lists.graded else None

    def sort(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else rows[self.order]

    def unsort(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else torch.empty_like(rows).index_copy_(0, self.order, rows)

    def pairs(self, rectangle: Tensor) -> PerPair:
        """[pair] out of [slot, sorted query]."""
        return self.unsort(rectangle.T.contiguous())[self.lists.query, self.lists.slot]

    def rectangle(self, values: PerPair) -> Tensor:
        """[slot, sorted query] out of [pair]; 0 where absent."""
        return self.sort(self.lists.rectangle(values, 0.0)).T.contiguous()

    def __iter__(self) -> Iterator[tuple[slice, slice]]:
        """(slots, rows) of blocks of about `chunk` elements; rows that have none of the slots are left out."""
        items = max(self.rest.shape[1], 1)
        rows_with = [0] * (self.lists.width + 1)
        for size in self.sizes:
            rows_with[size] += 1
        for slot in range(self.lists.width - 1, -1, -1):
            rows_with[slot] += rows_with[slot + 1]  # rows whose p is at least slot
        slot = 0
        while slot < self.lists.width:
            rows = rows_with[slot + 1]
            slots = min(max(self.chunk // (rows * items), 1), self.lists.width - slot)
            step = max(self.chunk // (slots * items), 1)
            for row in range(0, rows, step):
                yield slice(slot, slot + slots), slice(row, min(row + step, rows))
            slot += slots

    def differences(self, slots: slice, rows: slice) -> tuple[Tensor, Tensor, Tensor | None]:
        """[slot, row, item] and [slot, row, slot'] score differences to the relevant items, and their gains."""
        own = self.own[slots, rows].unsqueeze(2)
        to_rest = self.rest[rows] - own
        to_peers = self.peers[rows] - own
        index = torch.arange(slots.start, slots.stop, device=own.device).view(-1, 1, 1)
        to_peers.scatter_(2, index.expand(-1, to_peers.shape[1], 1), -torch.inf)  # never with itself
        if self.gain is None:
            return to_rest, to_peers, None
        return to_rest, to_peers, self.gain[rows, slots].T.unsqueeze(2)


class _SoftCounts(torch.autograd.Function):
    """Sums of steps over blocks, evaluated again in the backward pass: what is saved is the score matrix."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, lists: Lists, pos: Step, neg: Step, chunk: int
    ) -> tuple[PerPair, PerPair, PerPair]:
        ctx.lists, ctx.pos, ctx.neg, ctx.chunk = lists, pos, neg, chunk
        ctx.save_for_backward(scores)
        blocks = _Blocks(scores, lists, chunk)
        above_pos = torch.zeros_like(blocks.own)
        above_neg = torch.zeros_like(blocks.own)
        above_gain = torch.zeros_like(blocks.own) if lists.graded else None
        for slots, rows in blocks:
            to_rest, to_peers, gain = blocks.differences(slots, rows)
            above_neg[slots, rows] = neg(to_rest).sum(2)
            if gain is None:
                above_pos[slots, rows] = pos(to_peers).sum(2)
            else:
                assert above_gain is not None and blocks.gain is not None
                peer_gain = blocks.gain[rows]
                lower = peer_gain < gain
                count = pos(to_peers)
                above_gain[slots, rows] = (count * torch.minimum(peer_gain, gain)).sum(2)
                above_pos[slots, rows] = count.masked_fill(lower, 0).sum(2)
                above_neg[slots, rows] += neg(to_peers.masked_fill(~lower, -torch.inf)).sum(2)
        result_pos, result_neg = blocks.pairs(above_pos), blocks.pairs(above_neg)
        result_gain = scores.new_zeros(0) if above_gain is None else blocks.pairs(above_gain)
        constant = [result_gain] if above_gain is None else []
        if isinstance(pos, Heaviside):
            constant = [result_pos, result_gain]
        if isinstance(neg, Heaviside):
            constant.append(result_neg)
        ctx.mark_non_differentiable(*constant)
        ctx.set_materialize_grads(False)
        return result_pos, result_neg, result_gain

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_pos: Tensor | None, grad_neg: Tensor | None, grad_gain: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        (scores,) = ctx.saved_tensors
        lists, pos, neg = ctx.lists, ctx.pos, ctx.neg
        blocks = _Blocks(scores, lists, ctx.chunk)
        weight_pos = None if grad_pos is None else blocks.rectangle(grad_pos)
        weight_neg = None if grad_neg is None else blocks.rectangle(grad_neg)
        weight_gain = None if grad_gain is None or not lists.graded else blocks.rectangle(grad_gain)
        grad_rest = torch.zeros_like(blocks.rest)
        grad_peers = torch.zeros_like(blocks.peers)
        grad_own = torch.zeros_like(blocks.own)

        def collect(slope: Tensor, into: Tensor, slots: slice, rows: slice) -> None:
            into[rows] += slope.squeeze(0) if len(slope) == 1 else slope.sum(0)
            grad_own[slots, rows] -= slope.sum(2)

        for slots, rows in blocks:
            to_rest, to_peers, gain = blocks.differences(slots, rows)
            if weight_neg is not None and (slope := neg.slope(to_rest)) is not None:
                collect(slope.mul_(weight_neg[slots, rows].unsqueeze(2)), grad_rest, slots, rows)
            lower = None if gain is None or blocks.gain is None else blocks.gain[rows] < gain
            if lower is not None and weight_neg is not None:
                slope = neg.slope(to_peers.masked_fill(~lower, -torch.inf))
                if slope is not None:
                    collect(slope.mul_(weight_neg[slots, rows].unsqueeze(2)), grad_peers, slots, rows)
            if (weight_pos is None and weight_gain is None) or (slope := pos.slope(to_peers)) is None:
                continue
            weight = torch.zeros_like(slope)
            if weight_pos is not None:
                weight += weight_pos[slots, rows].unsqueeze(2)
                if lower is not None:
                    weight.masked_fill_(lower, 0)
            if weight_gain is not None:
                assert blocks.gain is not None and gain is not None
                weight += weight_gain[slots, rows].unsqueeze(2) * torch.minimum(blocks.gain[rows], gain)
            collect(slope.mul_(weight), grad_peers, slots, rows)

        grad = blocks.unsort(grad_rest)
        grad[lists.query, lists.item] = blocks.pairs(grad_own + grad_peers.T)
        return grad, None, None, None, None
