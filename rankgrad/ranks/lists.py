"""Which entries of a score matrix are relevant and which exist: everything about a batch of lists but the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..types import Mask, PerPair, Ranks, Scores


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
