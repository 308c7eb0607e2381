r"""Scores and relevance -> `Ranks`: exactly, relaxed, or exactly forward and perturbed backward (blackbox).

All three answer the same question for each relevant item i of a query: how many items of at least its gain stand above
it (`above_pos`), and how many of less (`above_neg`). They differ in what "above" means and in its gradient.

Layout. Queries have different numbers of relevant items (p). Their scores are put into a rectangle `own`
[query, slot], slot < max p, and the scores of the irrelevant valid items into `rest` [query, item]. An absent entry is
-inf: every step is 0 there. So nothing of size pairs x items is ever stored: it is formed in blocks and thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .kernels.counting import count_below
from .relaxations import Heaviside, Step, as_step
from .types import Mask, PerPair, PerQuery, Ranks, Scores

Ties = Literal["pessimistic", "optimistic", "index"]


def check_lists(scores: Tensor, relevant: Tensor, valid: Tensor | None) -> None:
    """Raise unless scores are [query, item] floats and relevant (bool or gains) and valid (bool) have their shape."""
    if scores.dim() != 2 or not scores.is_floating_point():
        raise ValueError(f"scores must be a float tensor [query, item]; got {scores.dtype} {tuple(scores.shape)}")
    if relevant.shape != scores.shape:
        raise ValueError(
            f"relevant must have the shape of scores {tuple(scores.shape)}; got {tuple(relevant.shape)}. "
            "Build it with relevance.from_labels(...)."
        )
    if relevant.dtype != torch.bool and not relevant.is_floating_point():
        raise ValueError(
            f"relevant must be bool, or float gains >= 0; got {relevant.dtype}. Use relevant.bool() for 0/1 relevance "
            "or relevant.float() for gains."
        )
    if valid is not None and (valid.dtype != torch.bool or valid.shape != scores.shape):
        raise ValueError(
            f"valid must be bool with the shape of scores {tuple(scores.shape)}; got {valid.dtype} {tuple(valid.shape)}"
        )
    for name, tensor in (("relevant", relevant), ("valid", valid)):
        if tensor is not None and tensor.device != scores.device:
            raise ValueError(f"{name} is on {tensor.device} but scores are on {scores.device}; move one of them")


def computed(scores: Scores) -> Scores:
    """Scores in the precision ranks are computed in: float64 stays, everything else becomes float32."""
    return scores if scores.dtype == torch.float64 else scores.float()


def _row_sums(mask: Mask) -> Tensor:
    """[query] long, True entries of each row. Summing booleans as int64 is ten times slower on a CPU."""
    exact = torch.float32 if mask.shape[1] < 2**24 else torch.float64
    return mask.to(exact).sum(1).long()


@dataclass(frozen=True)
class Lists:
    """Which entries of a score matrix are relevant, as indices: everything about a batch but the scores.

    Attributes:
        query, item, gain: [pair] row, column and gain of the relevant entries, row by row.
        slot: [pair] position of the pair among those of its query, 0 .. p - 1.
        sizes: p of each query, on the host (reading them is the one synchronisation with a GPU).
        rest: [query, item] bool, valid and irrelevant.
        length: [query] long, valid items.
        graded: gains differ from 1, so that relevant items must be compared by gain too.
        complete: every item is valid.
    """

    query: Tensor
    item: Tensor
    gain: Tensor
    slot: Tensor
    sizes: list[int]
    rest: Mask
    length: Tensor
    graded: bool
    complete: bool

    @property
    def width(self) -> int:
        """Largest p."""
        return max(self.sizes, default=0)

    @classmethod
    def of(cls, scores: Scores, relevant: Tensor, valid: Mask | None) -> Lists:
        """Read the lists off relevance (bool or gains) and validity; shapes are checked."""
        check_lists(scores, relevant, valid)
        graded = relevant.dtype != torch.bool
        is_relevant = relevant > 0 if graded else relevant
        if valid is None:
            rest = ~is_relevant
        else:
            is_relevant = is_relevant & valid
            rest = valid & ~is_relevant
        if scores.device.type == "cpu":  # numpy skips over the zeros; torch looks at each
            flat = torch.from_numpy(np.flatnonzero(is_relevant.numpy()))
            query = flat // max(scores.shape[1], 1)
            item = flat - query * scores.shape[1]
            counts = torch.bincount(query, minlength=len(scores))
            sizes: list[int] = counts.tolist()
        else:
            counts = _row_sums(is_relevant)
            sizes = counts.tolist()
            # Knowing the size spares a second synchronisation.
            query, item = torch.nonzero_static(is_relevant, size=sum(sizes)).unbind(1)
        slot = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        dtype = computed(scores).dtype
        gain = relevant[query, item].to(dtype) if graded else scores.new_ones(len(query), dtype=dtype)
        length = torch.full_like(counts, scores.shape[1]) if valid is None else _row_sums(valid)
        return cls(query, item, gain, slot, sizes, rest, length, graded, valid is None)

    def rectangle(self, values: PerPair, fill: float) -> Tensor:
        """[query, slot] the values of the pairs, `fill` where a query has fewer than the most."""
        padded = values.new_full((len(self.sizes), self.width), fill)
        padded[self.query, self.slot] = values
        return padded

    def ranks(self, above_pos: PerPair, above_neg: PerPair, above_gain: PerPair | None) -> Ranks:
        """The record, from the counts of each pair."""
        return Ranks(self.query, self.item, self.gain, above_pos, above_neg, len(self.sizes), above_gain)


# ---------------------------------------------------------------------------------------------------------- relaxed


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


# ------------------------------------------------------------------------------------------------------------ exact


def exact_ranks(
    scores: Scores, relevant: Tensor, valid: Mask | None = None, *, ties: Ties = "pessimistic", margin: float = 0.0
) -> Ranks:
    r"""Exact ranks without gradient, O(n log p) per query: the relevant items are sorted, the others only searched.

    Counts are float64: beyond 2^24 items float32 could not hold them.

    Args:
        scores: [query, item] float.
        relevant: [query, item] bool, or float gains >= 0.
        valid: [query, item] bool; False removes an item.
        ties: "pessimistic": an item level with me is above me (H(0) = 1, ROADMAP eq. 3; equals scikit-learn's AP);
            "optimistic": it is not; "index": a permutation, of level items the lower index is above.
        margin: RaMBO eq. 14: irrelevant scores + margin / 2, relevant ones - margin / 2.

    >>> exact_ranks(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, False, True]])).rank
    tensor([2., 3.], dtype=torch.float64)
    >>> exact_ranks(torch.tensor([[0.9, 0.9, 0.1]]), torch.tensor([[True, False, True]]), ties="index").rank
    tensor([1., 3.], dtype=torch.float64)
    """
    if ties not in ("pessimistic", "optimistic", "index"):
        raise ValueError(f"ties must be 'pessimistic', 'optimistic' or 'index'; got {ties!r}")
    with torch.no_grad():
        lists = Lists.of(scores, relevant, valid)
        return _Order(computed(scores), lists, margin, ties).ranks(lists)


class _Order:
    """Where the relevant items stand in their lists, and for every item how many relevant ones stand above it.

    Scores are negated, so that "better" is "smaller" and torch.searchsorted counts the items that are better.

    Attributes:
        scores: [query, item] as given.
        own: [query, slot] negated scores of the relevant items, +inf where absent.
        place: [query, slot] relevant items above this one (0 = best).
        rivals: [query, slot] irrelevant items above this one.
        overtaken: [query, item] integers, relevant items above an irrelevant item (meaningless elsewhere).
    """

    def __init__(self, scores: Scores, lists: Lists, margin: float, ties: Ties) -> None:
        self.lists, self.ties = lists, ties
        self.scores = scores
        self.items = lists.rectangle(lists.item, -1)
        # only differences count: half the margin up and half down is the whole margin down for the few
        self.place_relevant(lists.rectangle(margin - scores[lists.query, lists.item], torch.inf))

    def place_relevant(self, own: Tensor) -> None:
        """(Re)compute all places for these negated scores of the relevant items."""
        self.own = own
        ordered, by_place = own.sort(dim=1, stable=True)  # slots run by index, so ties keep the lower index first
        if self.ties == "index":
            places = torch.arange(own.shape[1], device=own.device).expand_as(own).contiguous()
            self.place = torch.empty_like(by_place).scatter_(1, by_place, places)
        elif self.ties == "pessimistic":
            self.place = torch.searchsorted(ordered, own, right=True) - 1
        else:
            self.place = torch.searchsorted(ordered, own)
        self.overtaken, row, item = count_below(ordered, self.scores, right=self.ties == "optimistic")
        # whatever is not an irrelevant item goes below everything, where nothing looks
        if self.lists.complete:
            self.overtaken[self.lists.query, self.lists.item] = own.shape[1]
        else:
            self.overtaken.masked_fill_(~self.lists.rest, own.shape[1])
        order = self.place
        if self.ties != "index":  # then places are shared by level items, and the order of sorting is needed
            places = torch.arange(own.shape[1], device=own.device).expand_as(own).contiguous()
            order = torch.empty_like(by_place).scatter_(1, by_place, places)
        elif len(row):
            self._lower_index_first(row, item, ordered, by_place)
        self.rivals = self._rivals_above(own.shape[1]).gather(1, order)

    def _rivals_above(self, width: int) -> Tensor:
        """[query, place] irrelevant items with at most so many relevant ones above them."""
        queries = len(self.overtaken)
        histogram = torch.empty(queries, width + 1, dtype=torch.long, device=self.overtaken.device)
        rows = max(2**24 // max(self.overtaken.shape[1], 1), 1)  # bounds the int64 temporary
        for start in range(0, queries, rows):
            count = self.overtaken[start : start + rows]
            if len(count) > 1:
                count = count + torch.arange(len(count), device=count.device).unsqueeze(1) * (width + 1)
            flat = torch.bincount(count.reshape(-1), minlength=len(self.overtaken[start : start + rows]) * (width + 1))
            histogram[start : start + rows] = flat.view(-1, width + 1)
        return histogram.cumsum(1)[:, :width]

    def _lower_index_first(self, row: Tensor, item: Tensor, ordered: Tensor, by_place: Tensor) -> None:
        """Of an irrelevant item level with relevant ones, those of lower index are above it too."""
        irrelevant = self.lists.rest[row, item]
        row, item = row[irrelevant], item[irrelevant]
        # Relevant items of one score run by index, so (first place of the score, index) sorts them: search that key.
        n = self.overtaken.shape[1]
        key = torch.searchsorted(ordered, ordered) * (n + 1) + self.items.gather(1, by_place)
        key.masked_fill_(ordered == torch.inf, torch.iinfo(torch.int64).max)
        query = self.overtaken[row, item].long() * (n + 1) + item
        for r in torch.unique(row).tolist():  # level scores are rare; rows are ragged
            mine = row == r
            found = torch.searchsorted(key[r].contiguous(), query[mine])
            self.overtaken[r, item[mine]] = found.to(self.overtaken.dtype)

    def ranks(self, lists: Lists) -> Ranks:
        """The record; relevant items of lower gain move from above_pos to above_neg."""
        place, rivals = (t[lists.query, lists.slot].double() for t in (self.place, self.rivals))
        above_gain: Tensor | None = None
        if lists.graded:
            higher, above_gain = self._among_relevant(lists)
            rivals, place = rivals + (place - higher), higher
        return lists.ranks(place, rivals, above_gain)

    def _among_relevant(self, lists: Lists) -> tuple[Tensor, Tensor]:
        """[pair] relevant items above of at least my gain, and the sum of min(gain) over those above."""
        # Negated scores, or places where ties go by index: a smaller one is above.
        score = self.place.double() if self.ties == "index" else self.own
        gain = lists.rectangle(lists.gain, 0.0)
        higher, shared = (torch.empty_like(lists.gain, dtype=torch.float64) for _ in range(2))
        chunk = max(2**20 // max(lists.width, 1), 1)
        for start in range(0, len(lists.query), chunk):
            part = slice(start, start + chunk)
            q, slot = lists.query[part], lists.slot[part].unsqueeze(1)
            mine = score[q].gather(1, slot)
            above = score[q] < mine if self.ties == "optimistic" else score[q] <= mine
            above.scatter_(1, slot, False)
            my_gain = lists.gain[part].unsqueeze(1)
            higher[part] = (above & (gain[q] >= my_gain)).sum(1).double()
            shared[part] = (above * torch.minimum(gain[q], my_gain)).sum(1)
        return higher, shared


# --------------------------------------------------------------------------------------------------------- blackbox


@dataclass(frozen=True)
class Blackbox:
    r"""Exact ranks whose gradient is that of a perturbed ranking (RaMBO, Rolínek et al., CVPR 2020, Algorithm 1).

    Forward: exact ranks of the scores shifted by the margin, ties by lower index. Backward, with
    g = d(mean loss) / d(rank): y_lambda = y' + lambda g and gradient -(rk(y') - rk(y_lambda)) / lambda.
    Only relevant items have g != 0, so only they are perturbed and sorted: O(n log p). The backward is not linear in
    g; therefore it is taken at the level of the loss (`values`), with g of the mean over the valid queries, and only
    then multiplied by what comes in: no loss scale, outer weight or accumulation changes lambda.

    Args:
        lambda_: size of the perturbation, > 0: 4 (SOP), 0.2 (CUB, In-shop) in the paper, in normalised ranks.
        margin: alpha of eq. 14, score units, >= 0.
        normalized_ranks: True: ranks divided by the length of the list, as all published lambdas mean it;
            False: Algorithm 1 as printed. lambda n with False equals lambda with True.
    """

    lambda_: float = 4.0
    margin: float = 0.02
    normalized_ranks: bool = True

    def __post_init__(self) -> None:
        if not self.lambda_ > 0:
            raise ValueError(f"lambda_ is the size of RaMBO's perturbation and must be > 0; got {self.lambda_}")
        if not self.margin >= 0:
            raise ValueError(f"margin is in score units and must be >= 0; got {self.margin}")

    def __call__(self, scores: Scores, relevant: Tensor, valid: Mask | None = None) -> Ranks:
        """The exact ranks of the forward pass, without gradient."""
        return exact_ranks(scores, relevant, valid, ties="index", margin=self.margin)

    def values(
        self, read: Callable[[Ranks], PerQuery], scores: Scores, relevant: Tensor, valid: Mask | None = None
    ) -> tuple[PerQuery, Ranks]:
        """`read(ranks)` per query with the blackbox gradient, and the ranks it was read off.

        The gradient of the mean over the counted queries is Algorithm 1's; a query's own value has as gradient that of
        the mean times the number of counted queries.
        """
        lists = Lists.of(scores, relevant, valid)
        holder: list[Ranks] = []
        values = _BlackboxValues.apply(computed(scores), lists, self, read, holder)
        return values, holder[0]


class _BlackboxValues(torch.autograd.Function):
    """Read a value off exact ranks; the score gradient of its mean is computed at once, in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, lists: Lists, box: Blackbox, read: Callable[[Ranks], PerQuery], holder: list[Ranks]
    ) -> PerQuery:
        order = _Order(scores, lists, box.margin, "index")
        exact = order.ranks(lists)
        holder.append(exact)
        leaf = exact.above_neg.detach().requires_grad_()
        with torch.enable_grad():
            values = read(replace(exact, above_neg=leaf))
        counted = exact.counted
        ctx.num_counted = counted.sum().clamp(min=1)
        if ctx.needs_input_grad[0]:
            g = torch.zeros_like(leaf)
            if values.requires_grad:
                with torch.enable_grad():
                    mean = torch.where(counted, values, 0).sum() / ctx.num_counted
                (g,) = torch.autograd.grad(mean, leaf)
            ctx.save_for_backward(_rank_change(scores, lists, order, box, g))
        return values.detach().to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor, None, None, None, None]:
        (change,) = ctx.saved_tensors
        factor = upstream * ctx.num_counted
        # plain `loss.backward()`: on a long list a copy costs as much as the ranks did
        if factor.device.type == "cpu" and bool((factor == 1).all()):
            return change, None, None, None, None
        return change * factor.unsqueeze(1), None, None, None, None


def _rank_change(scores: Scores, lists: Lists, order: _Order, box: Blackbox, g: PerPair) -> Scores:
    """[query, item] (rk(y_lambda) - rk(y')) / lambda, with y_lambda = y' + lambda g on the relevant items."""
    size = box.lambda_ * (lists.length if box.normalized_ranks else torch.ones_like(lists.length)).double()
    before, place, rivals = order.overtaken, order.place, order.rivals
    shift = lists.rectangle((size[lists.query] * g).to(scores.dtype), 0.0)
    order.place_relevant(order.own - shift)
    inverse = 1 / size.clamp(min=torch.finfo(torch.float32).tiny)
    change = order.overtaken.sub_(before).to(scores.dtype)  # 0 for items that are not there
    change.mul_(inverse.to(scores.dtype).unsqueeze(1))
    moved = ((order.place - place) + (order.rivals - rivals))[lists.query, lists.slot]
    change[lists.query, lists.item] = (moved * inverse[lists.query]).to(scores.dtype)
    return change


def blackbox_rank(scores: Tensor, lambda_: float, normalized: bool = False) -> Tensor:
    r"""Ranks along the last dimension with RaMBO's gradient: Algorithm 1 (Rolínek et al., CVPR 2020) literally.

    Forward: rk(y) in 1 .. n, 1 the largest, a permutation (of level scores the lower index ranks first).
    Backward with upstream g: -(rk(y) - rk(y + lambda g)) / lambda. Not linear in g: whatever scales the loss scales the
    perturbation. The losses guard against that (`Blackbox`); this bare operator does not.

    Args:
        scores: [..., n] float.
        lambda_: size of the perturbation, > 0.
        normalized: ranks divided by n, in the result, the upstream gradient and lambda (the published code's way).

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
    if not lambda_ > 0:
        raise ValueError(f"lambda_ is the size of the perturbation and must be > 0; got {lambda_}")
    if not scores.is_floating_point() or scores.dim() == 0:
        raise ValueError(f"scores must be a float tensor [..., n]; got {scores.dtype} {tuple(scores.shape)}")
    ranks: Tensor = _BlackboxRank.apply(computed(scores), lambda_, normalized)
    return ranks


def _permutation_ranks(scores: Tensor) -> Tensor:
    """[..., n] long, 1 = largest, lower index first on ties."""
    order = scores.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(1, scores.shape[-1] + 1, device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


class _BlackboxRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, lambda_: float, normalized: bool) -> Tensor:
        ranks = _permutation_ranks(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_, ctx.unit = lambda_, (max(scores.shape[-1], 1) if normalized else 1)
        values: Tensor = ranks.to(scores.dtype) / ctx.unit
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        scores, ranks = ctx.saved_tensors
        moved = _permutation_ranks(scores + ctx.lambda_ * upstream)
        change: Tensor = (moved - ranks).to(scores.dtype) / (ctx.unit * ctx.lambda_)
        return change, None, None
