"""Relaxed ranks: sums of steps over score differences, formed in blocks, and formed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..kernels.cells import Cells, Line, known
from ..kernels.pairs import Pairs
from ..relaxations import Heaviside, Sigmoid, Step, SupStep, as_step
from ..types import Mask, PerPair, Ranks, Scores
from .lists import Lists, asynchronous, check_lists, computed

Method = Literal["auto", "pairs", "cells"]

# Relevant items of a query that are compared together.
SLOTS = 16
# Scores that spread over more cells than this (some 30,000 tau) are compared in pairs.
MOST_CELLS = 2**18
# With fewer differences than this pairs are faster, whatever else.
WORTH_A_LOOK = 2**20


class _Costs(NamedTuple):
    """Nanoseconds forward and backward: of a pair; and by cells of an item, a cell of a row, a relevant item."""

    pair: float
    item: float
    cell: float
    relevant: float


# Measured on one thread of a server CPU with AVX-512. Only their ratios matter.
COSTS: dict[type[Step], _Costs] = {Sigmoid: _Costs(2.5, 20, 190, 50), SupStep: _Costs(3.6, 30, 260, 2500)}
COST_OF_CALL = 2e6


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
) -> Ranks:
    r"""Ranks of the relevant items, the two comparisons relaxed separately.

        above_pos_i  = sum_{j relevant, j != i, gain_j >= gain_i} pos(s_j - s_i)
        above_neg_i  = sum_{j valid, gain_j < gain_i} neg(s_j - s_i)
        above_gain_i = sum_{j relevant, j != i} pos(s_j - s_i) min(gain_i, gain_j)         (gains only)

    With exact steps these are the counts of ROADMAP eqs. 1-3. A step without gradient (`Heaviside`) makes its count
    non-differentiable, and says so. First derivatives only.

    Time is O(pairs x items): all differences are evaluated in blocks and again in the backward pass, so that memory is
    O(query x item). For long lists with more than a few relevant items, sums of `Sigmoid` and `SupStep` come from
    `kernels.cells` instead, in time O(query x item + pairs), and within 1e-6 of the rank and of the largest gradient.

    Args:
        scores: [query, item] float, higher is closer; only differences within a row matter. Half precision is
            computed and returned in float32.
        relevant: [query, item] bool, or float gains >= 0. An item is never compared with itself.
        valid: [query, item] bool; False removes an item from that query (its own copy, junk images).
        pos: step for items of at least equal gain, see `relaxations`.
        neg: step for items of less gain.
        chunk: elements evaluated at once; None chooses by device. Any value gives the same result.
        positives: the promise that every query has exactly so many relevant valid items, see `Lists.of`.
        method: "pairs": every difference; "cells": near-linear, for these two steps (`Heaviside` too as pos) and bool
            relevance; relevant scores that spread over more than some 30,000 tau are compared in pairs all the same;
            "auto": the faster one, by a model of their cost on a CPU, and never cells for float64 or on a GPU.

    Raises:
        ValueError: wrong shapes or dtypes, a broken promise, "cells" for what it does not know.

    >>> from rankgrad.relaxations import Heaviside
    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]])
    >>> soft_ranks(scores, relevant, pos=Heaviside(), neg=Heaviside()).rank
    tensor([1., 3.])
    """
    lists = Lists.of(scores, relevant, valid, positives)
    pos, neg = as_step(pos), as_step(neg)
    _check_method(method, lists, pos, neg)
    if chunk is None:
        # CPU: a block and its few temporaries should stay in the second-level cache. GPU: fill the device.
        chunk = 2**17 if scores.device.type == "cpu" else 2**25
    above_pos, above_neg, above_gain = _SoftCounts.apply(computed(scores), lists, pos, neg, chunk, method)
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
        method: see `soft_ranks`. Printed only if it is not "auto".
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
        if not 0 < self.pull <= 1:
            raise ValueError(f"pull is the share of the gradient on relevant items, in (0, 1]; got {self.pull}")

    def __call__(
        self, scores: Scores, relevant: Tensor, valid: Mask | None = None, positives: int | None = None
    ) -> Ranks:
        """Relaxed ranks of a batch."""
        if self.pull != 1 and scores.requires_grad:
            check_lists(scores, relevant, valid)
            damped = torch.lerp(scores.detach(), scores, self.pull)
            scores = torch.where(relevant > 0, damped, scores)
        return soft_ranks(
            scores,
            relevant,
            valid,
            pos=self.pos,
            neg=self.neg,
            chunk=self.chunk,
            positives=positives,
            method=self.method,
        )


def _check_method(method: str, lists: Lists, pos: Step, neg: Step) -> None:
    if method not in ("auto", "pairs", "cells"):
        raise ValueError(f"method must be 'auto', 'pairs' or 'cells'; got {method!r}")
    if method == "cells" and lists.graded:
        raise ValueError("method='cells' needs bool relevance: gains are compared in pairs; use method='auto'")
    if method == "cells" and not (known(neg) and (known(pos) or isinstance(pos, Heaviside))):
        raise ValueError(
            f"method='cells' knows Sigmoid and SupStep, and Heaviside as pos; got pos={pos!r}, neg={neg!r}; "
            "use method='auto'"
        )


class _Blocks:
    """Scores of a batch as rectangles, with the queries ordered by decreasing p.

    Attributes:
        rest: [query, item] scores, -inf at relevant and absent items.
        peers: [query, slot] scores of the relevant items, -inf where absent.
        own: [slot, query] the same with +inf where absent: every difference with these is -inf.
        filled: queries that have a relevant item.
    """

    def __init__(self, scores: Scores, lists: Lists, chunk: int) -> None:
        self.lists, self.chunk = lists, chunk
        # Balanced batches (the usual case) are in order already and are not copied.
        self.order: Tensor | None = None
        if any(a < b for a, b in zip(lists.sizes, lists.sizes[1:], strict=False)):
            self.order = torch.tensor(sorted(range(len(lists.sizes)), key=lambda q: -lists.sizes[q]))
            self.order = self.order.to(scores.device)
        self.sizes = sorted(lists.sizes, reverse=True)
        self.filled = len(self.sizes) - self.sizes.count(0)
        own = scores[lists.query, lists.item]
        if lists.complete:
            rest = scores.clone()
            rest[lists.query, lists.item] = -torch.inf
        else:
            rest = scores.masked_fill(~lists.rest, -torch.inf)
        self.rest = self.sort(rest)
        self.peers = self.sort(lists.rectangle(own, -torch.inf))
        self.own = self.sort(lists.rectangle(own, torch.inf)).T.contiguous()
        self.gain = self.sort(lists.rectangle(lists.gain, 0.0)) if lists.graded else None

    def sort(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else rows[self.order]

    def unsort(self, rows: Tensor) -> Tensor:
        return rows if self.order is None else torch.empty_like(rows).index_copy_(0, self.order, rows)

    def pairs(self, rectangle: Tensor) -> PerPair:
        """[pair] out of [slot, sorted query]."""
        return self.unsort(rectangle.T.contiguous())[self.lists.query, self.lists.slot].to(self.own.dtype)

    def rectangle(self, values: PerPair) -> Tensor:
        """[slot, sorted query] out of [pair]; 0 where absent."""
        return self.sort(self.lists.rectangle(values, 0.0)).T.contiguous()

    def strips(self, columns: int) -> Iterator[tuple[slice, slice, int]]:
        """What is compared together: slots, rows, and columns in tiles of which width.

        Several slots share a strip, so that a tile is read into the cache once for all of them. Rows that have none of
        the slots are left out. The slots have about `chunk` differences to a tile.
        """
        row = 0
        while row < self.filled and columns:
            width = self.sizes[row]
            together = min(-(-width // -(-width // SLOTS)), self.chunk)
            rows = slice(row, min(row + max(self.chunk // (together * columns), 1), self.filled))
            wide = max(self.chunk // (together * (rows.stop - rows.start)), 1)
            wide -= wide % 64 if wide > 64 else 0  # rows of a block begin on cache lines
            for slot in range(0, width, together):
                yield slice(slot, min(slot + together, width)), rows, min(wide, columns)
            row = rows.stop

    def gains(self, slots: slice, rows: slice, others: slice) -> tuple[Tensor, Tensor] | None:
        """Of a block of `to_peers`, where the other gain is lower, and the lower gain; None if relevance is binary."""
        if self.gain is None:
            return None
        mine, theirs = self.gain[rows, slots].T.unsqueeze(2), self.gain[rows, others]
        return theirs < mine, torch.minimum(theirs, mine)

    def to_peers(self) -> Iterator[tuple[slice, slice, slice, Tensor]]:
        """Blocks (slots, rows, other slots) and the differences between relevant items there; -inf to itself."""
        for slots, rows, wide in self.strips(self.peers.shape[1]):
            own, start = self.own[slots, rows].unsqueeze(2), 0
            for tile in _tiles(self.peers[rows], wide):
                others = slice(start, start + tile.shape[1])
                differences = tile - own
                differences.diagonal(slots.start - start, 0, 2).fill_(-torch.inf)
                yield slots, rows, others, differences
                start = others.stop

    def lines(self, scores: Scores, pos: Step, neg: Step, method: Method) -> tuple[Line | None, Line | None]:
        """Cells for the sums over `rest` and over `peers`; None for what is to be summed in pairs."""
        if method == "pairs" or self.gain is not None or not self.filled:
            return None, None
        if method == "auto" and self.rest.numel() * len(self.own) < WORTH_A_LOOK:
            return None, None
        if method == "auto" and (asynchronous(scores) or scores.device.type != "cpu" or scores.dtype != torch.float32):
            return None, None
        return self._line(scores, neg, self.rest.shape[1], method), self._line(scores, pos, self.peers.shape[1], method)

    def _line(self, scores: Scores, step: Step, columns: int, method: Method) -> Line | None:
        if not isinstance(step, (Sigmoid, SupStep)):
            return None
        rows, relevant, cost = self.filled, sum(self.sizes), COSTS[type(step)]
        # what pairs cost beyond what cells cost in any case
        spare = columns * (relevant * cost.pair - rows * cost.item) - relevant * cost.relevant - COST_OF_CALL
        if method == "auto" and spare < 0:
            return None
        low, high = (self.sort(bound)[:rows] for bound in torch.aminmax(scores, dim=1))
        line = Line.over(step, self.own[:, :rows].T, low, high)
        if line is None or line.cells > MOST_CELLS or (method == "auto" and rows * line.cells * cost.cell > spare):
            return None
        return line

    def _cells(self, step: Step, others: Tensor, line: Line) -> Cells:
        assert isinstance(step, (Sigmoid, SupStep))
        return Cells(step, line, self.own[:, : self.filled].T, others[: self.filled], self.chunk)

    def counts(self, step: Step, others: Tensor, line: Line) -> list[Tensor]:
        """[slot, query] near-linear sums of the step and of its slope over `rest` or `peers`."""
        found = self._cells(step, others, line).counts()
        return [F.pad(sums.T, (0, len(self.sizes) - self.filled)) for sums in found]  # queries without relevant items

    def push(self, step: Step, others: Tensor, line: Line, weight: Tensor) -> Tensor:
        """[query, item] or [query, slot'], sum over the slots of weight times slope."""
        pushed = torch.empty_like(others)
        pushed[self.filled :] = 0
        self._cells(step, others, line).push(weight[:, : self.filled].T, pushed[: self.filled])
        return pushed

    def exact_peers(self) -> Tensor:
        """[slot, query] relevant items at least level with this one, without itself."""
        below = torch.searchsorted(self.peers.sort(dim=1).values, self.own.T.contiguous())
        return (self.peers.shape[1] - 1 - below).double().T


class _SoftCounts(torch.autograd.Function):
    """Sums of steps over blocks, evaluated again in the backward pass: what is saved is the score matrix."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, lists: Lists, pos: Step, neg: Step, chunk: int, method: Method
    ) -> tuple[PerPair, PerPair, PerPair]:
        ctx.lists, ctx.pos, ctx.neg, ctx.chunk = lists, pos, neg, chunk
        blocks = _Blocks(scores, lists, chunk)
        ctx.rest_line, ctx.peers_line = blocks.lines(scores, pos, neg, method)
        rest_slope = peers_slope = None

        if ctx.rest_line is not None:
            above_neg, rest_slope = blocks.counts(neg, blocks.rest, ctx.rest_line)
        else:
            above_neg, pairs = torch.zeros_like(blocks.own), Pairs()
            for slots, rows, wide in blocks.strips(blocks.rest.shape[1]):
                own = blocks.own[slots, rows].unsqueeze(2)
                above_neg[slots, rows] = _added([pairs.total(neg, t, own) for t in _tiles(blocks.rest[rows], wide)])

        above_gain = torch.zeros_like(blocks.own)
        if ctx.peers_line is not None:
            above_pos, peers_slope = blocks.counts(pos, blocks.peers, ctx.peers_line)
            above_pos -= pos(above_pos.new_zeros(()))  # an item is not above itself
        elif ctx.rest_line is not None and isinstance(pos, Heaviside):
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
    @once_differentiable
    def backward(
        ctx: Any, grad_pos: Tensor | None, grad_neg: Tensor | None, grad_gain: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None, None]:
        scores, rest_slope, peers_slope = ctx.saved_tensors
        lists, pos, neg = ctx.lists, ctx.pos, ctx.neg
        blocks = _Blocks(scores, lists, ctx.chunk)
        weight_pos = None if grad_pos is None else blocks.rectangle(grad_pos)
        weight_neg = None if grad_neg is None else blocks.rectangle(grad_neg)
        weight_gain = None if grad_gain is None or not lists.graded else blocks.rectangle(grad_gain)
        grad_own = torch.zeros_like(blocks.own)

        if ctx.rest_line is not None and weight_neg is not None:
            grad_rest = blocks.push(neg, blocks.rest, ctx.rest_line, weight_neg)
            grad_own -= weight_neg * rest_slope
        else:
            grad_rest, pairs = torch.zeros_like(blocks.rest), Pairs()
            for slots, rows, wide in blocks.strips(blocks.rest.shape[1]):
                if weight_neg is None:
                    break
                own, weight = blocks.own[slots, rows].unsqueeze(2), weight_neg[slots, rows]
                tiles = zip(_tiles(blocks.rest[rows], wide), _tiles(grad_rest[rows], wide), strict=True)
                pushed = [pairs.push(neg, tile, own, weight, into) for tile, into in tiles]
                grad_own[slots, rows] -= _added([push for push in pushed if push is not None])

        if ctx.peers_line is not None and weight_pos is not None:
            grad_peers = blocks.push(pos, blocks.peers, ctx.peers_line, weight_pos)
            grad_own -= weight_pos * peers_slope
        else:
            grad_peers = torch.zeros_like(blocks.peers)
            silent = blocks.gain is None and (weight_pos is None or isinstance(pos, Heaviside))
            for slots, rows, others, differences in () if silent else blocks.to_peers():
                weight = grad_own.new_zeros(()) if weight_pos is None else weight_pos[slots, rows].unsqueeze(2)
                pushes = []
                if (gains := blocks.gains(slots, rows, others)) is not None:
                    lower, shared = gains
                    weight = weight * ~lower
                    if weight_gain is not None:
                        weight = weight + weight_gain[slots, rows].unsqueeze(2) * shared
                    if weight_neg is not None:
                        slope = neg.slope(differences.masked_fill(~lower, -torch.inf))
                        if slope is not None:
                            pushes.append(slope.mul_(weight_neg[slots, rows].unsqueeze(2)))
                if (slope := pos.slope(differences)) is not None:
                    pushes.append(slope.mul_(weight))
                for push in pushes:
                    grad_peers[rows, others] += push.sum(0)
                    grad_own[slots, rows] -= push.sum(2)

        grad = blocks.unsort(grad_rest)
        grad[lists.query, lists.item] = blocks.pairs(grad_own + grad_peers.T)
        return grad, None, None, None, None, None


def _tiles(strip: Tensor, wide: int) -> Sequence[Tensor]:
    tiles: Sequence[Tensor] = (strip,) if wide == strip.shape[1] else torch.split(strip, wide, dim=1)
    return tiles


def _added(parts: list[Tensor]) -> Tensor | int:
    """Sum of the tensors, in float64 if there are many."""
    if len(parts) < 2:
        return parts[0] if parts else 0
    return torch.stack(parts).sum(0, dtype=torch.float64)
