r"""Soft ranks, a soft sort and a soft top k, with exact gradients: projections onto a permutahedron.

    P(z, w) = argmin_{m in conv{all orders of w}} 1/2 |m - z|^2        ("quadratic")
    P(z, w) = log argmin_{m in conv{all orders of e^w}} KL(m, e^z)     ("entropic")

Blondel et al., ICML 2020, arXiv:2002.08871: after a sort, the projection is an isotonic regression, and pool adjacent
violators solves it. Within a pool, P_i = z_i - level(z) + level(w), where level is the mean, or log-sum-exp. This file
finds the pools without a gradient and computes the levels with torch, so gradients of any order are those of autograd.

Time is O(n log n) and memory O(n) per list. Computation is in float64. The pools of tensors on a GPU are found on the
CPU. Tied scores get equal results, the mean of theirs in any order of the tied items (as `metrics.average_ranks`).
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import Numbers, integer, number, one_of, tensor
from .kernels.host import on_host
from .kernels.sorting import sort_rows
from .lists import computed, refuse_transforms, require

Regularization = Literal["quadratic", "entropic"]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
# Rounds in which all adjacent violators are merged at once; what is left is merged one by one.
ROUNDS = 12


def soft_rank(scores: Numbers, strength: float = 1.0, regularization: Regularization = "quadratic") -> Tensor:
    r"""Ranks with a gradient, 1 for the highest score: P(s / strength, (n, ..., 1)) of the negated scores s.

    If neighbouring scores differ by at least `strength`, the quadratic ranks are exactly 1 .. n, and have no gradient.
    Tied scores share the mean of their ranks. As strength -> infinity, all ranks become (n + 1) / 2.

    Args:
        scores: [..., item] float, finite.
        strength: of the regularisation, in score units, > 0.
        regularization: "quadratic", or "entropic" (then the ranks are those of e^P with w = log(n, ..., 1)).

    Returns:
        [..., item] ranks; their sum is n (n + 1) / 2.

    >>> soft_rank(torch.tensor([2.9, 0.1, 1.2]))
    tensor([1., 3., 2.])
    >>> soft_rank(torch.tensor([2.9, 0.1, 1.2]), strength=4.0)
    tensor([1.6250, 2.3250, 2.0500])
    """
    given, s = _checked(scores)
    return _as_given(_ranked(-s, -given, _strength(strength), _down(s), regularization), given)


def soft_sort(scores: Numbers, strength: float = 1.0, regularization: Regularization = "quadratic") -> Tensor:
    r"""Scores in descending order with a gradient to more than one score: P((n, ..., 1) / strength, sorted scores).

    If neighbouring scores differ by at most 1 / strength, the quadratic form is exactly torch.sort. As strength ->
    infinity, all values become the mean ("entropic": the log of the mean of e^scores).

    Args:
        scores: [..., item] float, finite.
        strength: of the regularisation, in 1 / score units, > 0.
        regularization: "quadratic" or "entropic".

    Returns:
        [..., place] values, descending. Quadratic: their sum is that of the scores.

    >>> soft_sort(torch.tensor([2.9, 0.1, 1.2]), strength=1.0)
    tensor([2.4000, 1.4000, 0.4000])
    >>> soft_sort(torch.tensor([2.9, 0.1, 1.2]), strength=0.1)
    tensor([2.9000, 1.2000, 0.1000])
    """
    given, s = _checked(scores)
    z = (_down(s) / _strength(strength)).expand_as(s)
    return _as_given(_projected(z, s.gather(1, _descending(given, s)), _is_entropic(regularization)), given)


def soft_topk(scores: Numbers, k: int, strength: float = 1.0, regularization: Regularization = "quadratic") -> Tensor:
    r"""How much each item belongs to the k highest, in [0, 1] with a gradient: P(s / strength, (1, .., 1, 0, .., 0)).

    If the k-th and the next score differ by at least `strength`, the quadratic form is exactly 1 for the first k and
    0 for the others. Items tied for the last places share them. As strength -> infinity, all become k / n. The
    quadratic form is sparse; the entropic form is min(1, c e^(s / strength)) and never 0.

    Args:
        scores: [..., item] float, finite.
        k: 1 .. n.
        strength: of the regularisation, in score units, > 0.
        regularization: "quadratic" or "entropic".

    Returns:
        [..., item] shares; their sum is k.

    >>> soft_topk(torch.tensor([2.9, 0.1, 1.2, 1.0]), k=2)
    tensor([1.0000, 0.0000, 0.6000, 0.4000])
    """
    given, s = _checked(scores)
    k = integer(k, "k is a number of items", low=1)
    if k > s.shape[1]:
        raise ValueError(f"k is a number of items; got k={k}, but the lists have {s.shape[1]}")
    w = s.new_zeros(s.shape[1])
    w[:k] = 1
    return _as_given(_ranked(s, given, _strength(strength), w, regularization), given)


def _down(s: Tensor) -> Tensor:
    """[item] n, ..., 1."""
    return torch.arange(s.shape[1], 0, -1, dtype=s.dtype, device=s.device)


def _checked(scores: Numbers) -> tuple[Tensor, Tensor]:
    """The scores as a tensor, and as float64 [row, item] with their graph."""
    refuse_transforms()
    given = tensor(scores, "scores")
    if given.ndim == 0 or not given.is_floating_point():
        raise ValueError(f"scores must be a float tensor [..., item]; got {given.dtype} {tuple(given.shape)}")
    if given.numel():
        least, most = given.detach().aminmax()  # one pass over the data; NaN propagates
        require((least > -math.inf) & (most < math.inf), "scores must be finite; they hold NaN or infinity")
    return given, given.double().reshape(math.prod(given.shape[:-1]), given.shape[-1])


def _strength(value: float) -> float:
    return number(value, "strength is that of the regularisation", low=1e-30)


def _is_entropic(regularization: str) -> bool:
    return one_of(regularization, "regularization", ("quadratic", "entropic")) == "entropic"


def _as_given(values: Tensor, given: Tensor) -> Tensor:
    return values.to(computed(given).dtype).reshape(given.shape)


def _descending(given: Tensor, rows: Tensor) -> Tensor:
    """[row, place] the items of each row, the highest first, of tied ones the first; float32 takes half the time."""
    return sort_rows(-computed(given.detach()).reshape(rows.shape))[1]


def _ranked(scores: Tensor, given: Tensor, strength: float, w: Tensor, regularization: Regularization) -> Tensor:
    """[row, item] P(scores / strength, w) in the order of the items; entropic: e^P with log w. w >= 0 descends."""
    entropic = _is_entropic(regularization)
    order = _descending(given, scores)
    z = scores.gather(1, order) / strength
    values = _projected(z, (w.log() if entropic else w).expand_as(z), entropic)
    return torch.empty_like(values).scatter(1, order, values.exp() if entropic else values)


def _projected(z: Tensor, w: Tensor, entropic: bool) -> Tensor:
    """[row, place] P(z, w), both descending."""
    first, count = _pools(z.detach(), w.detach(), entropic)
    # differences within a pool are small, the values may not be: (x + x + x) / 3 is not x
    above = z - _spread(z.detach().reshape(-1)[first], count).view_as(z)
    if entropic:
        top = _spread(w.detach().reshape(-1)[first], count).view_as(w)
        sums: list[Tensor] = [_PoolSum.apply(each.exp(), first, count) for each in (above, w - top)]
        return above - sums[0].log() + sums[1].log() + top
    sums = [_PoolSum.apply(above - w, first, count)]
    return above - sums[0] / _spread(count, count).view_as(z)


def _spread(values: Tensor, count: Tensor) -> Tensor:
    """[row * place] of a value for each pool."""
    return (
        torch.from_numpy(np.repeat(values.numpy(), count.numpy()))
        if on_host(values)
        else values.repeat_interleave(count)
    )


class _PoolSum(torch.autograd.Function):
    """[row, place] the sum of the values of the pool of each place: a symmetric matrix, and its own derivative."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, first: Tensor, count: Tensor) -> Tensor:
        ctx.save_for_backward(first, count)
        flat = values.reshape(-1)
        if on_host(values):
            sums = torch.from_numpy(np.add.reduceat(flat.numpy(), first.numpy())) if len(flat) else flat
        else:
            sums = torch.segment_reduce(flat, "sum", lengths=count)
        return _spread(sums, count).view_as(values)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        return _PoolSum.apply(upstream, *ctx.saved_tensors), None, None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _pools(z: Tensor, w: Tensor, entropic: bool) -> tuple[Tensor, Tensor]:
    """The pools of an isotonic regression of rows: their first places, and their numbers of places."""
    a, b = (each.cpu().numpy().reshape(-1) for each in (z, w))
    if not entropic:
        a, b = a - b, np.ones_like(a)
    head = np.zeros(z.shape, dtype=bool)
    head[:, :1] = True
    first = _regression(a, b, head.reshape(-1), entropic)
    found = first, np.diff(first, append=z.numel())
    return torch.from_numpy(found[0]).to(z.device), torch.from_numpy(found[1]).to(z.device)


def _regression(a: Floats, b: Floats, head: Bools, entropic: bool) -> npt.NDArray[np.int64]:
    """First places of the pools whose values a / b (entropic: a - b) descend within each row.

    Two adjacent pools in the wrong order are in one pool of the solution, so all such pairs may be merged at once.
    """
    join, value = (np.logaddexp, np.subtract) if entropic else (np.add, np.divide)
    first = np.arange(len(a))
    for rounds in range(ROUNDS + 1):
        level: Floats = value(a, b)
        apart = head.copy()
        apart[1:] |= level[1:] < level[:-1]
        kept = np.flatnonzero(apart)
        if len(kept) == len(a):
            break
        if rounds == ROUNDS:  # a pool may take in its neighbours one after another
            return first[_one_by_one(a, b, level, head, np.flatnonzero(~apart), entropic)]
        first, head, a, b = first[kept], head[kept], join.reduceat(a, kept), join.reduceat(b, kept)
    return first


def _one_by_one(a: Floats, b: Floats, level: Floats, head: Bools, wrong: Any, entropic: bool) -> Bools:
    """Which pools are left if each that is not below the one before it is merged with it, and so on."""
    sums, others, levels, heads = a.tolist(), b.tolist(), level.tolist(), [*head.tolist(), True]
    before, after = list(range(-1, len(a) - 1)), list(range(1, len(a) + 1))
    left = np.ones(len(a), dtype=bool)
    for pool in wrong.tolist():
        while left[pool]:
            if not heads[pool] and levels[before[pool]] <= levels[pool]:
                pool = before[pool]
            elif heads[after[pool]] or levels[pool] > levels[after[pool]]:
                break
            gone = after[pool]
            left[gone] = False
            after[pool] = after[gone]
            if after[gone] < len(a):
                before[after[gone]] = pool
            if entropic:
                sums[pool], others[pool] = _log_sum(sums[pool], sums[gone]), _log_sum(others[pool], others[gone])
                levels[pool] = sums[pool] - others[pool]
            else:
                sums[pool], others[pool] = sums[pool] + sums[gone], others[pool] + others[gone]
                levels[pool] = sums[pool] / others[pool]
    return left


def _log_sum(x: float, y: float) -> float:
    high, low = (x, y) if x > y else (y, x)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))
