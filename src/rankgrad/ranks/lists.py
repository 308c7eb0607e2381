"""Which entries of a score matrix are relevant and which are valid, as indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..common.checks import dense
from .kernels.host import on_host
from .types import Mask, PerPair, Ranks, Scores


def check_lists(scores: Tensor, relevant: Tensor, valid: Tensor | None, *, levels: bool = False) -> None:
    """Raise unless scores are [query, item] floats and relevant (bool or gains) and valid (bool) have their shape.

    Args:
        scores: [query, item].
        relevant: [query, item].
        valid: [query, item].
        levels: whether relevant may be integers, the numbers of shared levels.
    """
    refuse_transforms()
    for name, given in (("scores", scores), ("relevant", relevant), ("valid", valid)):
        if given is not None:
            dense(given, name)
    if scores.dim() != 2 or not scores.is_floating_point():
        raise ValueError(f"scores must be a float tensor [query, item]; got {scores.dtype} {tuple(scores.shape)}")
    if relevant.shape != scores.shape:
        raise ValueError(
            f"relevant must have the shape of scores {tuple(scores.shape)}; got {tuple(relevant.shape)}. "
            "Build it with relevance.from_labels(...)."
        )
    check_relevance(relevant, levels=levels)
    if valid is not None and (valid.dtype != torch.bool or valid.shape != scores.shape):
        raise ValueError(
            f"valid must be bool with the shape of scores {tuple(scores.shape)}; got {valid.dtype} {tuple(valid.shape)}"
        )
    for name, tensor in (("relevant", relevant), ("valid", valid)):
        if tensor is not None and tensor.device != scores.device:
            raise ValueError(f"{name} is on {tensor.device} but scores are on {scores.device}; move one of them")


def check_relevance(relevant: Tensor, *, levels: bool = False, name: str = "relevant") -> None:
    """Raise unless relevance is bool or float gains; with `levels`, integers are allowed, too."""
    whole = relevant.dtype != torch.bool and not relevant.is_floating_point() and not relevant.is_complex()
    if relevant.is_complex() or (whole and not levels):
        raise ValueError(
            f"{name} must be bool, or float gains >= 0; got {relevant.dtype}. Use {name}.bool() for 0/1 relevance "
            f"or {name}.float() for gains."
        )


def refuse_transforms() -> None:
    """Raise inside a transform of torch.func: ranks read numbers on the host, and tensors have no values there."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "rankgrad does not support the transforms of torch.func (grad, vmap, jacrev, jvp, hessian): ranks need the "
            "values of tensors. Use torch.autograd.grad(loss, embeddings), and a loop over batches instead of vmap. "
            "torch.func.functional_call works"
        )


def computed(scores: Scores) -> Scores:
    """Scores in the precision of the computation: float64 stays, other dtypes become float32."""
    return scores if scores.dtype == torch.float64 else scores.float()


def _row_sums(mask: Mask) -> Tensor:
    """[query] long, True entries of each row. Summing booleans as int64 is ten times slower on a CPU."""
    exact = torch.float32 if mask.shape[1] < 2**24 else torch.float64
    return mask.to(exact).sum(1).long()


def both_kinds(relevant: Mask, valid: Mask | None) -> tuple[Mask, Mask]:
    """The relevant and the irrelevant items, without those that are not valid.

    >>> both_kinds(torch.tensor([True, False, False]), torch.tensor([True, True, False]))
    (tensor([ True, False, False]), tensor([False,  True, False]))
    """
    return (relevant, ~relevant) if valid is None else (relevant & valid, valid & ~relevant)


def has_kinds(relevant: Tensor, valid: Mask | None) -> tuple[Tensor, Tensor]:
    """[query] bool, whether a query has a relevant valid item; and whether it has an irrelevant one.

    >>> has_kinds(torch.tensor([[True, False], [True, True]]), None)
    (tensor([True, True]), tensor([ True, False]))
    """
    relevant = relevant if relevant.dtype == torch.bool else relevant > 0
    if not on_host(relevant):
        hits, rest = both_kinds(relevant, valid)
        return hits.any(1), rest.any(1)
    # numpy stops at the entry that decides a row; torch is twenty times slower on a CPU
    mine = relevant.numpy()
    if valid is None:
        kinds = mine.any(1), ~mine.all(1)  # without a copy of the matrix
    else:
        there = valid.numpy()
        kinds = (mine & there).any(1), (there > mine).any(1)
    has_relevant, has_irrelevant = (torch.from_numpy(kind) for kind in kinds)
    return has_relevant, has_irrelevant


def asynchronous(tensor: Tensor) -> bool:
    """Whether the host cannot read the values of a tensor at once.

    On CUDA the host would wait until the queue is empty. Inside torch.compile there are no values.
    """
    return tensor.is_cuda or torch.compiler.is_compiling()


def require(good: Tensor, message: str) -> None:
    """ValueError unless a bool scalar is True; an asynchronous assertion if the host would have to wait for it."""
    if asynchronous(good):
        torch._assert_async(good, message)
    elif not bool(good):
        raise ValueError(message)


def require_positives(relevant: Tensor, valid: Mask | None, positives: int) -> None:
    """Check the promise that every query has exactly `positives` relevant valid items.

    Raises:
        ValueError: it does not hold (an asynchronous assertion on a GPU, see `require`).
    """
    is_relevant = relevant > 0 if relevant.dtype != torch.bool else relevant
    _require_counts(_row_sums(is_relevant if valid is None else is_relevant & valid), relevant.shape[1], positives)


def _require_counts(count: Tensor, items: int, positives: int) -> None:
    message = (
        f"positives={positives} promises exactly {positives} relevant valid items for every query, but a query has "
        "another number; leave positives out unless every batch is made so"
    )
    if positives > items and len(count):
        raise ValueError(message)
    require((count == positives).all(), message)


def _columns(mask: Mask, width: int) -> Tensor:
    """[query, slot] ascending columns of the True entries of each row; a row has at most `width` of them."""
    value, item = mask.view(torch.uint8).topk(width, dim=1, sorted=False)
    return item.masked_fill(value == 0, mask.shape[1]).sort(1).values


@dataclass(frozen=True)
class _CountedRanks(Ranks):
    """Ranks with known numbers of relevant items. To count them again would wait for a GPU."""

    count: Tensor | None = None

    @property
    def num_relevant(self) -> Tensor:
        """[query] long, number of relevant items of each query."""
        assert self.count is not None
        return self.count


@dataclass(frozen=True)
class Lists:
    """Which entries of a score matrix are relevant, as indices. It has all data of a batch except the scores.

    Attributes:
        query, item, gain: [pair] row, column and gain of the relevant entries, row by row.
        slot: [pair] position of the pair among the pairs of its query, 0 .. p - 1.
        count: [query] long, number p of relevant items of each query.
        sizes: `count` on the host. Unless `positives` is given, this is the only synchronisation with a GPU.
        order: [pair] value that decides which item is less relevant: the level if known, else the gain.
        rest: [query, item] bool, valid and irrelevant items.
        length: [query] long, number of valid items.
        graded: whether relevance is given as gains. Then relevant items are also compared by gain.
        complete: whether every item is valid.
    """

    query: Tensor
    item: Tensor
    gain: Tensor
    order: Tensor
    slot: Tensor
    count: Tensor
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
    def of(
        cls,
        scores: Scores,
        relevant: Tensor,
        valid: Mask | None,
        positives: int | None = None,
        levels: Tensor | None = None,
    ) -> Lists:
        """The lists of relevance (bool or gains) and validity. Shapes are checked.

        Args:
            scores: [query, item]; only shape, dtype and device matter.
            relevant: [query, item] bool, or float gains >= 0.
            valid: [query, item] bool.
            positives: a promise that every query has exactly this many relevant valid items. Then the host never waits
                for a GPU, and torch.compile needs no value of a tensor.
            levels: [query, item] integers, > 0 for relevant items; see `soft_ranks`.

        Raises:
            ValueError: a shape or dtype is wrong, or the promise does not hold (on a GPU: a device-side assertion).
        """
        check_lists(scores, relevant, valid)
        graded, dtype = relevant.dtype != torch.bool, computed(scores).dtype
        if relevant.dtype == torch.float64:
            relevant = relevant.to(dtype)  # first, so that no relevant item has a gain that rounds to 0
        is_relevant = relevant > 0 if graded else relevant
        if valid is None:
            rest = ~is_relevant
        else:
            is_relevant = is_relevant & valid
            rest = valid & ~is_relevant
        queries, items = scores.shape
        if on_host(scores):  # numpy skips zeros quickly, torch does not
            flat = torch.from_numpy(np.flatnonzero(is_relevant.numpy()))
            query = flat // max(items, 1)
            item = flat - query * items
            count = torch.bincount(query, minlength=queries)
            if positives is not None:
                _require_counts(count, items, positives)
            sizes: list[int] = count.tolist()
            slot = torch.arange(len(query), device="cpu") - (count.cumsum(0) - count)[query]
        else:
            count = _row_sums(is_relevant)
            if positives is None:
                sizes = count.tolist()
            else:
                _require_counts(count, items, positives)
                count, sizes = torch.full_like(count, positives), [positives] * queries
            row = torch.arange(queries, device=scores.device)
            query = torch.repeat_interleave(row, count, output_size=sum(sizes))
            slot = torch.arange(len(query), device=scores.device) - (count.cumsum(0) - count)[query]
            item = _columns(is_relevant, max(sizes, default=0))[query, slot]
        gain = relevant[query, item].to(dtype) if graded else scores.new_ones(len(query), dtype=dtype)
        order = gain if levels is None else levels[query, item].to(dtype)
        length = torch.full_like(count, items) if valid is None else _row_sums(valid)
        return cls(query, item, gain, order, slot, count, sizes, rest, length, graded, valid is None)

    def rectangle(self, values: PerPair, fill: float) -> Tensor:
        """[query, slot] the values of the pairs; empty slots hold `fill`."""
        padded = values.new_full((len(self.sizes), self.width), fill)
        padded[self.query, self.slot] = values
        return padded

    def ranks(self, above_pos: PerPair, above_neg: PerPair, above_gain: PerPair | None) -> Ranks:
        """The `Ranks` record, from the counts of each pair."""
        return _CountedRanks(
            self.query, self.item, self.gain, above_pos, above_neg, len(self.sizes), above_gain, self.count
        )
