"""Relaxed ranks: sums of steps over score differences, formed in blocks, and formed again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..kernels.cells import Cells, Line, known
from ..kernels.host import on_host, zeros_like
from ..kernels.pairs import Pairs
from ..relaxations import Heaviside, Sigmoid, Step, SupStep, as_step
from ..types import Mask, PerPair, Ranks, Scores
from .lists import Lists, check_lists, computed

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
COSTS: dict[type[Step], _Costs] = {Sigmoid: _Costs(2.0, 17, 190, 50), SupStep: _Costs(3.0, 33, 260, 2500)}
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
        peers: [query, slot] scores of the relevant items, -inf where absent.
        own: [slot, query] the same with +inf where absent: every difference with these is -inf.
        gain: [query, slot] gains, None if relevance is binary.
        filled: queries that have a relevant item.
    """

    def __init__(self, scores: Scores, lists: Lists, chunk: int) -> None:
        self.scores, self.lists, self.chunk = scores, lists, chunk
        # Balanced batches (the usual case) are in order already and are not copied.
        self.order: Tensor | None = None
        if any(a < b for a, b in zip(lists.sizes, lists.sizes[1:], strict=False)):
            self.order = lists.count.argsort(descending=True, stable=True)
        self.sizes = sorted(lists.sizes, reverse=True)
        self.filled = len(self.sizes) - self.sizes.count(0)
        own = scores[lists.query, lists.item]
        self.peers = self.sort(lists.rectangle(own, -torch.inf))
        self.own = self.sort(lists.rectangle(own, torch.inf)).T.contiguous()
        self.gain = self.sort(lists.rectangle(lists.gain, 0.0)) if lists.graded else None
        self._last: tuple[slice, Tensor] | None = None

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

    def rest(self, rows: slice) -> Tensor:
        """[row, item] scores of some sorted queries, -inf at relevant and absent items.

        It is made when it is needed and overwritten by the next one: a second score matrix would take as long to be
        handed out by the system as its sums.
        """
        if self._last is not None and self._last[0] == rows:
            return self._last[1]
        chosen = rows if self.order is None else self.order[rows]
        if not self.lists.complete:
            rest = torch.where(self.lists.rest[chosen], self.scores[chosen], -torch.inf)
        else:  # then a few entries are all there is to change
            if self._last is None or len(self._last[1]) != rows.stop - rows.start:
                rest = self.scores[chosen].clone()
            else:
                rest = self._last[1].copy_(self.scores[chosen])
            rest.scatter_(1, self.items[rows], -torch.inf)
        self._last = rows, rest
        return rest

    @cached_property
    def items(self) -> Tensor:
        """[sorted query, slot] long, columns of the relevant items; a column twice where a query has fewer."""
        items = self.sort(self.lists.rectangle(self.lists.item, -1))
        return torch.where(items < 0, items[:, :1], items)

    def pushed(self, grad: Tensor, rows: slice) -> Tensor:
        """Zeros [row, item] to write the gradient of some sorted queries to, before it is `kept`."""
        return grad[rows] if self.order is None else torch.zeros_like(grad[rows])

    def kept(self, grad: Tensor, rows: slice, pushed: Tensor) -> None:
        """Put what `pushed` gave into the gradient [query, item]."""
        if self.order is not None:
            grad.index_copy_(0, self.order[rows], pushed)

    def strips(self, columns: int) -> Iterator[tuple[slice, int, list[slice]]]:
        """What is compared together: rows, the width of a tile of columns, and groups of slots.

        A tile is read into the cache once for a group of slots; they have about `chunk` differences. Rows without any
        of the slots are left out.
        """
        row = 0
        while row < self.filled and columns:
            width = self.sizes[row]
            together = min(-(-width // -(-width // SLOTS)), self.chunk)
            rows = slice(row, min(row + max(self.chunk // (together * columns), 1), self.filled))
            tiles = max(round(together * (rows.stop - rows.start) * columns / self.chunk), 1)
            wide = -(-columns // tiles)
            wide += -wide % 64 if tiles > 1 and wide > 64 else 0  # rows of a block begin on cache lines
            groups = [slice(slot, min(slot + together, width)) for slot in range(0, width, together)]
            yield rows, min(wide, columns), groups
            row = rows.stop

    def to_peers(self) -> Iterator[tuple[slice, slice, slice, Tensor]]:
        """Blocks (slots, rows, other slots) and the differences between relevant items there; -inf to itself."""
        for rows, wide, groups in self.strips(self.peers.shape[1]):
            for slots in groups:
                own, start = self.own[slots, rows].unsqueeze(2), 0
                for tile in _tiles(self.peers[rows], wide):
                    others = slice(start, start + tile.shape[1])
                    differences = tile - own
                    differences.diagonal(slots.start - start, 0, 2).fill_(-torch.inf)
                    yield slots, rows, others, differences
                    start = others.stop

    def gains(self, slots: slice, rows: slice, others: slice) -> tuple[Tensor, Tensor] | None:
        """Of a block of `to_peers`, where the other gain is lower, and the lower gain; None if relevance is binary."""
        if self.gain is None:
            return None
        mine, theirs = self.gain[rows, slots].T.unsqueeze(2), self.gain[rows, others]
        return theirs < mine, torch.minimum(theirs, mine)

    def lines(self, pos: Step, neg: Step, method: Method) -> tuple[Line | None, Line | None]:
        """Cells for the sums over the rest and over the peers; None for what is to be summed in pairs."""
        if method == "pairs" or self.gain is not None or not self.filled:
            return None, None
        if method == "auto":
            if self.scores.numel() * len(self.own) < WORTH_A_LOOK or self.scores.dtype != torch.float32:
                return None, None
            if not on_host(self.scores):
                return None, None
        return self._line(neg, self.scores.shape[1], method), self._line(pos, self.peers.shape[1], method)

    def _line(self, step: Step, columns: int, method: Method) -> Line | None:
        if not isinstance(step, (Sigmoid, SupStep)):
            return None
        rows, relevant, cost = self.filled, sum(self.sizes), COSTS[type(step)]
        # what pairs cost beyond what cells cost in any case
        spare = columns * (relevant * cost.pair - rows * cost.item) - relevant * cost.relevant - COST_OF_CALL
        if method == "auto" and spare < 0:
            return None
        low, high = (self.sort(bound)[:rows] for bound in (self.scores.amin(1), self.scores.amax(1)))
        line = Line.over(step, self.own[:, :rows].T, low, high)
        if line is None or line.cells > MOST_CELLS or (method == "auto" and rows * line.cells * cost.cell > spare):
            return None
        return line

    def cells(self, step: Step, line: Line) -> Cells:
        """Near-linear sums of a step, for the rows that have relevant items."""
        assert isinstance(step, (Sigmoid, SupStep))
        return Cells(step, line, self.own[:, : self.filled].T, self.chunk)

    def counts(self, step: Step, line: Line, others: Callable[[slice], Tensor], columns: int) -> tuple[Tensor, Tensor]:
        """[slot, query] near-linear sums of the step and of its slope over the others of each query."""
        cells = self.cells(step, line)
        both = torch.zeros(2, *self.own.shape, dtype=torch.float64, device=self.own.device)
        for rows in cells.groups(columns):
            both[:, :, rows] = torch.stack(cells.counts(rows, others(rows))).mT
        value, slope = both
        return value, slope

    def exact_peers(self) -> Tensor:
        """[slot, query] relevant items at least level with this one, without itself."""
        below = torch.searchsorted(self.peers.sort(dim=1).values, self.own.T.contiguous())
        return (self.peers.shape[1] - 1 - below).T


class _SoftCounts(torch.autograd.Function):
    """Sums of steps over blocks, evaluated again in the backward pass: what is saved is the score matrix."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, lists: Lists, pos: Step, neg: Step, chunk: int, method: Method
    ) -> tuple[PerPair, PerPair, PerPair]:
        ctx.lists, ctx.pos, ctx.neg, ctx.chunk = lists, pos, neg, chunk
        blocks, items = _Blocks(scores, lists, chunk), scores.shape[1]
        ctx.rest_line, ctx.peers_line = blocks.lines(pos, neg, method)
        rest_slope = peers_slope = None

        if ctx.rest_line is not None:
            above_neg, rest_slope = blocks.counts(neg, ctx.rest_line, blocks.rest, items)
        else:
            above_neg, pairs = torch.zeros_like(blocks.own), Pairs()
            for rows, wide, groups in blocks.strips(items):
                tiles = _tiles(blocks.rest(rows), wide)
                for slots in groups:
                    own = blocks.own[slots, rows].unsqueeze(2)
                    above_neg[slots, rows] = _added([pairs.total(neg, tile, own) for tile in tiles])

        above_gain = torch.zeros_like(blocks.own)
        if ctx.peers_line is not None:
            peers = blocks.peers
            above_pos, peers_slope = blocks.counts(pos, ctx.peers_line, lambda rows: peers[rows], peers.shape[1])
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
        blocks, items = _Blocks(scores, lists, ctx.chunk), scores.shape[1]
        weight_pos = None if grad_pos is None else blocks.rectangle(grad_pos)
        weight_neg = None if grad_neg is None else blocks.rectangle(grad_neg)
        weight_gain = None if grad_gain is None or not lists.graded else blocks.rectangle(grad_gain)
        grad, grad_own = zeros_like(scores), torch.zeros_like(blocks.own)

        if weight_neg is not None and ctx.rest_line is not None:
            cells = blocks.cells(neg, ctx.rest_line)
            for rows in cells.groups(items):
                into = blocks.pushed(grad, rows)
                cells.push(rows, blocks.rest(rows), weight_neg[:, rows].T, into)
                blocks.kept(grad, rows, into)
            grad_own -= weight_neg * rest_slope
        elif weight_neg is not None:
            pairs = Pairs()
            for rows, wide, groups in blocks.strips(items):
                into = blocks.pushed(grad, rows)
                tiles = list(zip(_tiles(blocks.rest(rows), wide), _tiles(into, wide), strict=True))
                for slots in groups:
                    own, weight = blocks.own[slots, rows].unsqueeze(2), weight_neg[slots, rows]
                    pushed = [pairs.push(neg, tile, own, weight, to) for tile, to in tiles]
                    grad_own[slots, rows] -= _added([push for push in pushed if push is not None])
                blocks.kept(grad, rows, into)

        grad_peers = torch.zeros_like(blocks.peers)
        if weight_pos is not None and ctx.peers_line is not None:
            cells = blocks.cells(pos, ctx.peers_line)
            for rows in cells.groups(grad_peers.shape[1]):
                cells.push(rows, blocks.peers[rows], weight_pos[:, rows].T, grad_peers[rows])
            grad_own -= weight_pos * peers_slope
        elif blocks.gain is not None or (weight_pos is not None and not isinstance(pos, Heaviside)):
            for slots, rows, others, differences in blocks.to_peers():
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
