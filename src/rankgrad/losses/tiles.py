"""Losses of batches whose score matrix would fill the memory: a few queries at a time, to the same value and gradient.

The cost of a query needs only its own row of scores. So a tile of rows is scored, its costs and their gradient are
computed, the rows and the items get their share of it, and the tile is dropped. The gradient of a mean waits for the
backward pass, so nothing is computed twice. Memory is that of the embeddings and of one tile. What a loss needs of all
queries, such as a quantile of their scores, is computed when it asks for it, by a pass over all tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from ..ranks.first_order import refuse_graph
from ..ranks.lists import both_kinds
from ..ranks.types import Mask, PerQuery, Scores
from .checked import Batch

Again = Callable[[PerQuery], "list[Tensor | None]"]  # weights of the costs -> gradient, see `Tiles.gradient`

WORTH = 2**24  # smaller score matrices are computed at once
TILE = 2**22  # number of scores in memory at once
DIGITS = 16  # bits of a score that one pass counts to find a quantile


class Tiled(Protocol):
    """A loss whose batch may come in tiles."""

    stats: dict[str, Tensor]

    @property
    def reduction(self) -> str:
        """See `RetrievalLoss`."""

    @property
    def by_parts(self) -> bool:
        """Whether the queries may be computed in parts."""

    def parameters(self) -> Iterator[Tensor]:
        """The weights of the loss."""

    def relevance(self, batch: Batch, rows: slice) -> tuple[Tensor, Mask | None]:
        """Relevance and validity of some rows."""

    def score_rows(self, batch: Batch, rows: slice) -> tuple[Scores, Tensor, Mask | None]:
        """Scores, relevance and validity of some rows."""

    def costs(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[Tensor, ...]:
        """[query] costs, which queries count, and whether they have an item of either kind."""

    def with_value(self, name: str, value: object) -> AbstractContextManager[None]:
        """A context in which an attribute of the loss, and of the losses inside it, has this value."""


def worth_tiles(loss: Tiled, batch: Batch) -> bool:
    """Whether this batch goes by tiles: it is large, and the loss takes the queries in parts."""
    queries, items = batch.shape
    if queries < 2 or queries * items < WORTH or not loss.by_parts or batch.indices_tuple is not None:
        return False
    return not (torch.compiler.is_compiling() or any(weight.requires_grad for weight in loss.parameters()))


def costs_by_tiles(loss: Tiled, batch: Batch) -> list[Tensor] | None:
    """What `Tiled.costs` returns for a `prepared` batch; None if only the whole matrix gives all gradients."""
    tiles = Tiles(loss, batch)
    learns = torch.is_grad_enabled() and any(tiles.needed)
    at_once = learns and loss.reduction == "mean"
    found = tiles.costs(torch.ones_like(batch.embeddings[:, 0]) if at_once else None)
    if found is not None and learns:
        known = (None, *tiles.gradient) if at_once else (tiles.again,)
        found[0] = _Tiled.apply(batch.embeddings, batch.ref_emb, found[0], *known)
    return found


def _others(costs: Tensor, scores: Tensor) -> bool:
    """Whether the costs also have a gradient by something else: weights of a step, relevance from a network."""
    nodes, seen = [costs.grad_fn], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            if getattr(node, "variable", scores) is not scores:
                return True
            nodes += [each for each, _ in node.next_functions]
    return False


class Tiles:
    """The queries of a batch in parts. A loss with parts asks it for what it needs of the whole batch.

    Args:
        loss: scores the rows of a part and computes their costs.
        batch: the whole batch, `prepared`.

    Attributes:
        queries: number of queries of the batch.
        needed: whether the embeddings and the references need a gradient.
        gradient: gradient by the embeddings and by the references, after `costs`.
    """

    def __init__(self, loss: Tiled, batch: Batch) -> None:
        self.queries, items = batch.shape
        rows = max(TILE // items, 1)
        self._parts = [slice(start, min(start + rows, self.queries)) for start in range(0, self.queries, rows)]
        self._loss, self._batch, self._known = loss, batch.detached(), dict[Hashable, Tensor]()
        device = batch.embeddings.device
        self._random = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
        self.needed = batch.embeddings.requires_grad, batch.ref_emb is not None and batch.ref_emb.requires_grad
        self.gradient: list[Tensor | None] = []

    def costs(self, weights: PerQuery | None) -> list[Tensor] | None:
        """See `costs_by_tiles`; with weights of the costs also the `gradient` of their sum."""
        rows, items = self._batch.embeddings, self._batch.items
        found: list[tuple[Tensor, ...]] = []
        stats: list[dict[str, Tensor]] = []
        learned = zip((rows, items), self.needed, strict=True)
        into = [torch.zeros_like(each) if needed and weights is not None else None for each, needed in learned]
        to_items = into[0] if self._batch.ref_emb is None else into[1]
        with self._loss.with_value("tiles", self):
            for part, scores, relevant, valid in self.blocks():
                self._loss.stats = {}
                costs, *seen = self._loss.costs(scores.requires_grad_(weights is not None), relevant, valid)
                if not found and _others(costs, scores):
                    return None
                if weights is not None:
                    (slope,) = torch.autograd.grad(costs, scores, weights[part])
                    if into[0] is not None:
                        into[0][part].addmm_(slope, items)
                    if to_items is not None:
                        to_items.addmm_(slope.T, rows[part])
                found.append((costs.detach(), *seen))
                stats.append(self._loss.stats)
        self.gradient, self._loss.stats = into, self._together(stats)
        return [torch.cat(each) for each in zip(*found, strict=True)]

    def again(self, weights: PerQuery) -> list[Tensor | None]:
        """The gradient of the weighted costs. They are computed as before, and the loss does not notice it."""
        cuda = [weights.device] if weights.is_cuda else []
        with self._loss.with_value("stats", {}), torch.enable_grad(), torch.random.fork_rng(cuda):
            torch.set_rng_state(self._random[0])
            for state in self._random[1:]:
                torch.cuda.set_rng_state(state, weights.device)
            self.costs(weights)
        return self.gradient

    def _together(self, stats: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """The statistics of all queries: those by query are joined, single numbers are means over the queries."""
        sizes = torch.tensor([part.stop - part.start for part in self._parts], dtype=torch.float64)
        together = {"tiles": torch.tensor(float(len(self._parts)))}
        for name, first in stats[0].items():
            values = [each[name] for each in stats]
            mean = torch.stack(values).double() @ sizes.to(first.device) / self.queries if not first.ndim else None
            together[name] = torch.cat(values) if mean is None else mean.to(first.dtype)
        return together

    def blocks(self) -> Iterator[tuple[slice, Scores, Tensor, Mask | None]]:
        """Rows, scores, relevance and validity of each part."""
        return ((part, *self._loss.score_rows(self._batch, part)) for part in self._parts)

    def once(self, name: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """A result without gradient that is the same for all parts: computed for the first part that asks for it."""
        if name not in self._known:
            with torch.no_grad():
                self._known[name] = compute()
        return self._known[name]

    def sum(self, count: Callable[..., Tensor], *, scored: bool = False) -> Tensor:
        """The sum of count(relevant, valid), or of count(relevant, valid, scores) if it is `scored`, over all parts."""
        if scored:
            return torch.stack([count(*lists, scores) for _, scores, *lists in self.blocks()]).sum(0)
        parts = (self._loss.relevance(self._batch, part) for part in self._parts)
        return torch.stack([count(self._seen(relevant), valid) for relevant, valid in parts]).sum(0)

    def _seen(self, relevant: Tensor) -> Tensor:
        """Relevance in the precision of the scores: a gain that rounds to 0 is irrelevant."""
        return relevant.to(self._batch.embeddings.dtype) if relevant.is_floating_point() else relevant

    def quantiles(self, shares: Sequence[float]) -> Tensor:
        """[2] quantiles of the scores of all relevant and of all irrelevant pairs, interpolated; NaN without pairs.

        A few rows tell where they are about. If that is right, one pass finds them among the scores there.

        Args:
            shares: share of the scores below each quantile, 0 .. 1.
        """
        some = range(0, self.queries, max(self.queries // max(TILE // (4 * self._batch.shape[1]), 2), 1))
        rows = [self._loss.score_rows(self._batch, slice(row, row + 1)) for row in some]
        sides = [[scores[both_kinds(relevant, valid)[side]] for scores, relevant, valid in rows] for side in range(2)]
        near = [
            _Near(share, torch.cat(sample), self.queries / len(some))
            for share, sample in zip(shares, sides, strict=True)
        ]
        for _, scores, relevant, valid in self.blocks():
            for place, pairs in zip(near, both_kinds(relevant, valid), strict=True):
                place.count(scores, pairs)
        found = [place.quantile() for place in near]
        known = [value for value in found if value is not None]
        return torch.stack(known) if len(known) == len(found) else self.quantiles_by_bits(shares)

    def quantiles_by_bits(self, shares: Sequence[float]) -> Tensor:
        """The same for any scores, also if most of them are equal.

        Floats have the order of integers with the same bits. From the highest bits down, each pass counts the scores by
        their next bits, and so finds the bits of the score at a place in the sorted list.
        """
        places = [_Place(share, self._batch.embeddings.dtype) for share in shares]
        for shift in range(places[0].bits - DIGITS, -1, -DIGITS):
            for _, scores, relevant, valid in self.blocks():
                keys = _keys(scores.view(places[0].whole))
                for place, pairs in zip(places, both_kinds(relevant, valid), strict=True):
                    place.count(keys, pairs, shift)
            for place in places:
                place.narrow(shift)
        return torch.stack([place.quantile() for place in places]).to(self._batch.embeddings.device)


class _Near:
    """One quantile, searched among the scores between two bounds that a sample gives."""

    def __init__(self, share: float, sample: Tensor, weight: float) -> None:
        ordered = sample.sort().values
        margin = TILE / (4 * weight * max(len(ordered), 1))  # between the bounds are about half as many as in a tile
        places = ((share + side * margin) * len(ordered) for side in (-1, 1))
        self.low, self.high = (
            float(ordered[int(place)]) if 0 <= place < len(ordered) else bound
            for place, bound in zip(places, (-math.inf, math.inf), strict=True)
        )
        self.share, self.all, self.below, self.most = share, 0, 0, TILE
        self.between = [sample[:0]]

    def count(self, scores: Scores, pairs: Mask) -> None:
        """Count these pairs, and keep the scores between the bounds."""
        self.all += int(torch.count_nonzero(pairs))
        if self.low > -math.inf:
            self.below += int(torch.count_nonzero(pairs & (scores < self.low)))
        if self.most >= 0:
            self.between.append(scores[pairs & (scores >= self.low) & (scores <= self.high)])
            self.most -= len(self.between[-1])

    def quantile(self) -> Tensor | None:
        """The value, [] float; NaN without pairs; None if it is not between the bounds or too many scores are."""
        between, place = torch.cat(self.between), self.share * (self.all - 1)
        low = int(place) - self.below
        if not self.all:
            return between.new_full((), torch.nan)
        if self.most < 0 or low < 0 or low >= len(between) or (place % 1 and low + 1 >= len(between)):
            return None
        ordered = between.sort().values
        below, above = ordered[low], ordered[low + 1 if place % 1 else low]
        value: Tensor = below + (above - below) * (place % 1)
        return value


def _keys(bits: Tensor) -> Tensor:
    """Integers in the order of the floats with these bits; and the bits of such integers."""
    info = torch.iinfo(bits.dtype)
    return bits ^ ((bits >> (info.bits - 1)) & info.max)


class _Place:
    """The search for one quantile, see `Tiles.quantiles`."""

    def __init__(self, share: float, dtype: torch.dtype) -> None:
        self.share, self.dtype = share, dtype
        self.bits, self.whole = (64, torch.int64) if dtype == torch.float64 else (32, torch.int32)
        self.base = -(2 ** (DIGITS - 1))  # the known bits, moved up by those that are counted next
        self.counts = torch.zeros(2**DIGITS, dtype=torch.long)
        self.index, self.fraction = -1, 0.0  # place among the scores of the known bits
        self.following = torch.iinfo(self.whole).max  # the lowest key above those
        self.ends: list[int] = []

    def count(self, keys: Tensor, pairs: Mask, shift: int) -> None:
        """Count the scores of these pairs by their next bits, if their higher bits are the known ones."""
        digit = (keys >> shift) - self.base
        digit = torch.where(pairs & (digit >= 0) & (digit < 2**DIGITS), digit, 2**DIGITS)
        self.counts += digit.flatten().bincount(minlength=2**DIGITS + 1)[:-1].cpu()
        if not shift:
            beyond = torch.where(pairs & (keys > self.base + 2**DIGITS - 1), keys, self.following)
            self.following = min(self.following, int(beyond.amin()))

    def narrow(self, shift: int) -> None:
        """Find the next bits of the score below the place; with the last bits also the score above it."""
        upto = self.counts.cumsum(0)
        if self.index < 0:
            place = self.share * (int(upto[-1]) - 1)
            if place < 0:  # there are no scores
                return
            self.index, self.fraction = int(place), place - int(place)
        digit = int(torch.searchsorted(upto, self.index, right=True))
        if shift:
            self.index -= int(upto[digit] - self.counts[digit])
            self.base, self.counts = (self.base + digit) << DIGITS, torch.zeros_like(self.counts)
            return
        above = int(torch.searchsorted(upto, self.index + 1, right=True)) if self.fraction else digit
        self.ends = [self.base + digit, self.base + above if above < 2**DIGITS else self.following]

    def quantile(self) -> Tensor:
        """The value, [] float."""
        if not self.ends:
            return torch.full((), torch.nan, dtype=self.dtype)
        below, above = _keys(torch.tensor(self.ends, dtype=self.whole)).view(self.dtype)
        value: Tensor = below + (above - below) * self.fraction
        return value


class _Tiled(torch.autograd.Function):
    """Costs that are known. Backward: their gradient is known, too; or it is computed by tiles, with their weights."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, items: Tensor | None, costs: PerQuery, again: Again | None, *known: Tensor | None
    ) -> PerQuery:
        ctx.again = again
        ctx.save_for_backward(*known)
        return costs.view_as(costs)

    @staticmethod
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor | None, ...]:
        refuse_graph()
        if ctx.again is not None:
            gradient = ctx.again(upstream)
        else:  # of a mean: all costs have the same weight
            gradient = [None if each is None else each * upstream[0] for each in ctx.saved_tensors]
        return (*gradient, *[None] * (len(ctx.needs_input_grad) - len(gradient)))
