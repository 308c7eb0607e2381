r"""Penalties: the cost of a relevant item with R irrelevant items above it (lower is better, 0 at R = 0).

Each penalty is an elementwise function of R, as a frozen dataclass of numbers. R is a count for blackbox ranks, and a
sum of steps for relaxed ranks. `RankLoss(ranks, penalty=f)` averages it over the relevant items of a query.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..common.checks import number

Penalty = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Identity:
    """R: PNP-O (Li et al., AAAI 2022, eq. 5).

    >>> Identity()(torch.tensor([0.0, 2.0]))
    tensor([0., 2.])
    """

    def __call__(self, above: Tensor) -> Tensor:
        """R itself."""
        return above


@dataclass(frozen=True)
class Log:
    """log(1 + R): RaMBO's "log" (w_k = log(1 + 1/k)) and PNP-Ds (eq. 12); slope 1 / (1 + R).

    >>> Log()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.6931])
    """

    def __call__(self, above: Tensor) -> Tensor:
        """log(1 + R)."""
        return torch.log1p(above)


@dataclass(frozen=True)
class LogLog:
    """log(1 + log(1 + R)): RaMBO's "loglog", w_k = log(1 + log(1 + 1/k) / (1 + log k)).

    >>> LogLog()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5266])
    """

    def __call__(self, above: Tensor) -> Tensor:
        """log(1 + log(1 + R))."""
        return torch.log1p(torch.log1p(above))


@dataclass(frozen=True)
class XLog:
    """(1 + R) log(1 + R): PNP-Iu as printed in eq. 7; slope 1 + log(1 + R) (the 1 is missing in eq. 6).

    >>> XLog()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.3863])
    """

    def __call__(self, above: Tensor) -> Tensor:
        """(1 + R) log(1 + R)."""
        return (1 + above) * torch.log1p(above)


@dataclass(frozen=True)
class Rational:
    """(b R - log(1 + b R)) / b^2: PNP-Ib (eq. 9); slope R / (1 + b R), bounded by 1 / b.

    Args:
        b: > 0. In the paper 4 is best on SOP and 1 on VehicleID. The published code has 2.

    >>> Rational(b=1.0)(torch.tensor([0.0, 1.0, 9.0]))
    tensor([0.0000, 0.3069, 6.6974])
    """

    b: float = 2.0

    def __post_init__(self) -> None:
        number(self.b, "b bounds PNP-Ib's slope by 1 / b", above=0)

    def __call__(self, above: Tensor) -> Tensor:
        """(b R - log(1 + b R)) / b^2."""
        scaled = self.b * above
        # where b R is small, the difference loses its digits: there the first terms of its series, exact to rounding
        small = scaled.clamp(max=torch.finfo(above.dtype).eps ** 0.2)
        series = above.square() * (1 / 2 - small * (1 / 3 - small * (1 / 4 - small * (1 / 5 - small / 6))))
        return torch.where(scaled <= small, series, (scaled - torch.log1p(scaled)) / self.b / self.b)


@dataclass(frozen=True)
class Power:
    """1 - (1 + R)^-alpha: PNP-Dq (eq. 13); slope alpha (1 + R)^-(alpha + 1), almost 0 for items of large R.

    Args:
        alpha: > 0 (the paper has >= 1). The published run has 4, the published default is 1.

    >>> Power(alpha=1.0)(torch.tensor([0.0, 1.0, 3.0]))
    tensor([0.0000, 0.5000, 0.7500])
    """

    alpha: float = 4.0

    def __post_init__(self) -> None:
        number(self.alpha, "alpha is PNP-Dq's exponent (the paper has >= 1)", above=0)

    def __call__(self, above: Tensor) -> Tensor:
        """1 - (1 + R)^-alpha."""
        exponent = -self.alpha * torch.log1p(above)
        # each form loses digits where the other is exact: expm1 those of the slope at large R, exp those of the value
        # at small R
        return torch.where(exponent > -1, -torch.expm1(exponent), 1 - torch.exp(exponent))


@dataclass(frozen=True)
class Weights:
    r"""W(R) = sum_{k <= R} w_k: RaMBO's Proposition 2 for any weights of the refined recalls @1 .. @K.

    It is constant for R >= K, and linear between integers: the derivative at an integer R is w_{R+1}.

    Args:
        weights: w_1 .. w_K, each >= 0.

    >>> Weights((1.0, 0.5))(torch.tensor([0.0, 1.0, 2.0, 9.0]))
    tensor([0.0000, 1.0000, 1.5000, 1.5000])
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("weights must hold at least one weight w_1 .. w_K; got none")
        for k, weight in enumerate(self.weights, start=1):
            number(weight, f"w_{k} of the weights is the weight of recall @{k}", low=0)

    def __call__(self, above: Tensor) -> Tensor:
        """Linear interpolation of the cumulated weights."""
        table = above.new_tensor([0.0, *itertools.accumulate(self.weights)])
        slope = above.new_tensor([*self.weights, 0.0])
        whole = above.detach().floor().clamp(max=len(self.weights))
        index = whole.long()
        return table[index] + slope[index] * (above - whole)


@dataclass(frozen=True)
class Scaled:
    """W(c R).

    Args:
        penalty: W.
        factor: c > 0.

    >>> Scaled(Log(), 3.0)(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 1.3863])
    """

    penalty: Penalty
    factor: float

    def __post_init__(self) -> None:
        number(self.factor, "rank_factor multiplies the ranks", above=0)

    def __call__(self, above: Tensor) -> Tensor:
        """W(c R)."""
        return self.penalty(self.factor * above)


def as_penalty(weight: str | Penalty | Sequence[float], factor: float = 1.0) -> Penalty:
    """RaMBO's `weight` argument: "log", "loglog", a sequence w_1 .. w_K, or a callable W(R) with W(0) = 0.

    Args:
        weight: W.
        factor: c > 0 of W(c R).
    """
    if number(factor, "rank_factor multiplies the ranks", above=0) != 1:
        return Scaled(as_penalty(weight), factor)
    named: dict[str, Penalty] = {"log": Log(), "loglog": LogLog()}
    if isinstance(weight, str) and weight in named:
        return named[weight]
    if callable(weight):
        zero = float(weight(torch.zeros(1, dtype=torch.float64, device="cpu")))
        if abs(zero) > 1e-9:
            raise ValueError(f"W(0) must be 0, the cost of an item with no irrelevant item above it; got W(0) = {zero}")
        return weight
    if isinstance(weight, str) or not isinstance(weight, Iterable):
        raise ValueError(f"weight must be 'loglog', 'log', a callable W(r) or weights w_1 .. w_K; got {weight!r}")
    return Weights(tuple(number(w, "weight is a list of w_1 .. w_K", low=0) for w in weight))


__all__ = ["Identity", "Log", "LogLog", "XLog", "Rational", "Power", "Scaled", "Weights"]
