r"""Steps: functions of a score difference. A step says how much one item counts as above another.

A step maps diff = (score of the other item) - (score of the relevant item) to a count, which is 0 if the other item is
far below. A step has no labels and no shapes: `ranks` decides which step is used for which pairs. So each step can be
plotted and tested alone. Every step is a frozen dataclass of numbers: it can be pickled, printed and compared.

`ranks.soft_ranks` evaluates a step in chunks, and again in the backward pass, without storing pairs. This needs two
rules: `step(-inf)` is 0 with slope 0 (this leaves an item out), and `step.slope(diff)` is the derivative.
Any other callable works, too. Autograd then takes its derivative (`AutogradStep`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..common.checks import number


@runtime_checkable
class Step(Protocol):
    """The interface of a step, as `ranks.soft_ranks` uses it."""

    def __call__(self, diff: Tensor) -> Tensor:
        """Count for each element of `diff`, same shape; never in place."""
        ...

    def slope(self, diff: Tensor) -> Tensor | None:
        """Derivative at each element of `diff`, itself differentiable; None if the step has no gradient."""
        ...


def _check_temperature(tau: object) -> None:
    # dividing by a smaller tau would leave the range of float32
    number(tau, "tau is a temperature in score units", low=1e-30)


def _compared(relation: Callable[..., Tensor], diff: Tensor, bound: float) -> Tensor:
    """1 where the relation holds, else 0, in the dtype of `diff`. On a CPU this is several times faster than bool."""
    result: Tensor = relation(diff.detach(), bound, out=torch.empty_like(diff))
    return result


def _divided(value: Tensor, by: float) -> Tensor:
    """The value divided by a number; in place unless a graph still needs the value."""
    return value / by if value.requires_grad else value.div_(by)


def _bell(diff: Tensor, tau: float) -> Tensor:
    """Slope of sigmoid(diff / tau), in units of 1 / tau.

    It is s (1 - s), where s is the smaller of sigmoid(d) and sigmoid(-d). Then 1 - s loses no digits. With the larger
    one, a float32 slope would be 0 beyond 17 tau.
    """
    value = diff.abs().div_(-tau).sigmoid_()
    return torch.addcmul(value, value, value, value=-1)


@dataclass(frozen=True)
class Heaviside:
    """Exact step: 1 if diff >= 0, else 0. A tie counts as above (ROADMAP eq. 3). It has no gradient.

    >>> Heaviside()(torch.tensor([-0.1, 0.0, 0.1]))
    tensor([0., 1., 1.])
    """

    def __call__(self, diff: Tensor) -> Tensor:
        """1 where diff >= 0, else 0."""
        return _compared(torch.ge, diff, 0)

    def slope(self, diff: Tensor) -> None:
        """None: piecewise constant."""
        return None


@dataclass(frozen=True)
class Sigmoid:
    r"""Logistic step 1 / (1 + exp(-diff / tau)). It tends to the exact step as tau -> 0, but is 1/2 at a tie.

    Used by Smooth-AP (Brown et al., ECCV 2020), PNP (Li et al., AAAI 2022) and the Recall@k surrogate.

    Args:
        tau: temperature in score units, > 0 (0.01 is common for cosines). The gradient is at most 1 / (4 tau), at a
            tie, and vanishes within a few tau: items that are misranked by far get almost no gradient.

    >>> Sigmoid(0.5)(torch.tensor([0.0, 1.0]))
    tensor([0.5000, 0.8808])
    """

    tau: float = 0.01

    def __post_init__(self) -> None:
        _check_temperature(self.tau)

    def __call__(self, diff: Tensor) -> Tensor:
        """sigmoid(diff / tau)."""
        return (diff / self.tau).sigmoid_()

    def slope(self, diff: Tensor) -> Tensor:
        """Slope sigmoid(d) sigmoid(-d) / tau with d = diff / tau, equally exact above and below a tie."""
        return _bell(diff, self.tau).div_(self.tau)


@dataclass(frozen=True)
class SupStep:
    r"""H^- of ROADMAP (Ramzi et al., NeurIPS 2021, eq. 4): an upper bound of the exact step with lasting gradient.

        H^-(t) = sigmoid(t / tau)                     t < 0
               = sigmoid(t / tau) + start             0 <= t <= delta
               = rho (t - delta) + offset             t > delta

    Args:
        tau: temperature of the sigmoid in score units, > 0.
        rho: slope of the linear part, per score unit, >= 0. With 0 the step is still an upper bound, but an item far
            above has no gradient.
        delta: score difference where the linear part begins, >= 0. "auto" is the paper's tau ln((1 - eps) / eps) with
            eps = 0.01 (0.04595 at tau = 0.01). The published code has the constant 0.05.
        offset: value at which the linear part begins. None makes the function continuous (the paper):
            sigmoid(delta / tau) + start. The published configurations have 1.44 (SOP, CUB: a step down at delta) and
            1.0 (iNaturalist).
        start: constant added to the sigmoid for t >= 0; 0.5 in the paper, 0 in the published iNaturalist configuration
            (then the step is not an upper bound).
        tie: value at t = 0. "upper" uses the second branch: 1 with start = 0.5, an upper bound also with ties.
            "official" uses the first branch: 1/2, as the published code.

    Where two branches meet, the derivative is that of the branch in use.

    >>> SupStep()(torch.tensor([-1.0, 0.0, 0.06]))
    tensor([0.0000, 1.0000, 2.4933])
    """

    tau: float = 0.01
    rho: float = 100.0
    delta: float | Literal["auto"] = 0.05
    offset: float | None = None
    start: float = 0.5
    tie: Literal["upper", "official"] = "upper"

    def __post_init__(self) -> None:
        _check_temperature(self.tau)
        number(self.rho, "rho is a slope per score unit", low=0)
        if self.delta != "auto":
            number(self.delta, "delta is in score units", low=0, otherwise=", or 'auto'")
        if self.offset is not None:
            number(self.offset, "offset is the value at which the linear part begins", otherwise=", or None")
        number(self.start, "start is added to the sigmoid for differences >= 0")
        if self.tie not in ("upper", "official"):
            raise ValueError(f"tie must be 'upper' (H(0) = 0.5 + start) or 'official' (H(0) = 0.5); got {self.tie!r}")

    @property
    def joint(self) -> float:
        """`delta` as a number: the score difference where the linear part begins."""
        return self.tau * math.log(0.99 / 0.01) if self.delta == "auto" else float(self.delta)

    @property
    def at_joint(self) -> float:
        """Value of the sigmoid at `joint`."""
        return 1 / (1 + math.exp(-self.joint / self.tau))

    @property
    def bell_at_joint(self) -> float:
        """Slope of the sigmoid at `joint`, times tau."""
        return math.exp(-self.joint / self.tau) * self.at_joint**2

    def __call__(self, diff: Tensor) -> Tensor:
        """The three branches of eq. 4."""
        # sigmoid up to the joint, constant beyond it; then add the steps and the linear part
        value = (diff.clamp(max=self.joint) / self.tau).sigmoid_()
        if self.start:
            value = torch.add(
                value, _compared(torch.ge if self.tie == "upper" else torch.gt, diff, 0), alpha=self.start
            )
        if self.offset is not None:
            jump = self.offset - self.at_joint - self.start
            value = torch.add(value, _compared(torch.gt, diff, self.joint), alpha=jump)
        return torch.add(value, (diff - self.joint).relu_(), alpha=self.rho)

    def slope(self, diff: Tensor) -> Tensor:
        """Slope of the sigmoid up to the joint, rho beyond it."""
        # the slope of the sigmoid is constant beyond the joint; add the difference to rho there
        bell = _bell(diff.clamp(max=self.joint), self.tau).div_(self.tau)
        return bell.add_(_compared(torch.gt, diff, self.joint), alpha=self.rho - self.bell_at_joint / self.tau)


@dataclass(frozen=True)
class Exponential:
    r"""exp(diff / tau): an upper bound of the exact step. Its gradient grows with the difference.

    With `penalties.Log` it gives the log-sum-exp family: log(1 + sum_neg exp((s_n - s_p) / tau)).
    Beyond the exponent `cap` the step continues as its tangent, so value and slope stay finite in float32.

    Args:
        tau: temperature in score units, > 0.
        cap: exponent beyond which the step is linear.

    >>> Exponential(1.0)(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """

    tau: float = 0.05
    cap: float = 60.0

    def __post_init__(self) -> None:
        _check_temperature(self.tau)
        number(self.cap, "cap is an exponent (float32 overflows at 88)", above=0, high=80)

    def __call__(self, diff: Tensor) -> Tensor:
        """exp(diff / tau), continued by its tangent beyond `cap`."""
        scaled = diff / self.tau
        return torch.exp(scaled.clamp(max=self.cap)) * (1 + F.relu(scaled - self.cap))

    def slope(self, diff: Tensor) -> Tensor:
        """exp(min(diff / tau, cap)) / tau."""
        return _divided((diff / self.tau).clamp_(max=self.cap).exp_(), self.tau)


@dataclass(frozen=True)
class Softplus:
    r"""log2(1 + exp(diff / tau)): an upper bound of the exact step, 1 at a tie, linear for large differences.

    Args:
        tau: temperature in score units, > 0.

    >>> Softplus(1.0)(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 1.8946])
    """

    tau: float = 0.02

    def __post_init__(self) -> None:
        _check_temperature(self.tau)

    def __call__(self, diff: Tensor) -> Tensor:
        """softplus(diff / tau) / ln 2."""
        return F.softplus(diff / self.tau) / math.log(2)

    def slope(self, diff: Tensor) -> Tensor:
        """sigmoid(diff / tau) / (tau ln 2)."""
        return _divided(torch.sigmoid(diff / self.tau), self.tau * math.log(2))


@dataclass(frozen=True)
class AutogradStep:
    """Any elementwise function of a score difference as a step. Autograd takes its derivative.

    Args:
        function: maps a float tensor to a tensor of the same shape. It is never called at -inf, where the step is 0.

    >>> AutogradStep(torch.tanh).slope(torch.tensor([0.0, -torch.inf]))
    tensor([1., 0.])
    """

    function: Callable[[Tensor], Tensor]

    def __call__(self, diff: Tensor) -> Tensor:
        """function(diff), 0 at -inf."""
        present = diff > -torch.inf
        return torch.where(present, self.function(torch.where(present, diff, 0)), 0)

    def slope(self, diff: Tensor) -> Tensor:
        """Derivative by autograd, 0 at -inf."""
        present = diff > -torch.inf
        with torch.enable_grad():
            point = torch.where(present, diff, 0).detach().requires_grad_()
            value = self.function(point)
            if not value.requires_grad:  # constant
                return torch.zeros_like(diff)
            (slope,) = torch.autograd.grad(value.sum(), point)
        return torch.where(present, slope, 0)


def as_step(step: Callable[[Tensor], Tensor]) -> Step:
    """`step` itself if it has a `slope`, else an `AutogradStep` of it."""
    return step if isinstance(step, Step) else AutogradStep(step)


__all__ = ["Step", "Heaviside", "Sigmoid", "SupStep", "Exponential", "Softplus", "AutogradStep"]
