"""Sums of a step and of its slope over all pairs of a tile, in place and in few passes.

A step allocates new tensors of the size of its input. In a loop over tiles of a few hundred kilobytes, this takes more
time than the arithmetic. Here the same two buffers are used for all tiles.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..relaxations import Sigmoid, Step, SupStep

# Sums over slots: with few rows, a matrix product per row is fastest. With few slots and a large tile, a pass per slot
# is fastest: the number of calls then does not matter.
FEW, LARGE = 4, 2**14


class PairDifferences:
    """Differences between tiles and relevant items, computed in reused memory.

    >>> tile, own = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[[0.5]]])
    >>> PairDifferences().total(Sigmoid(0.1), tile, own)
    tensor([[1.5000]])
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def total(self, step: Step, tile: Tensor, own: Tensor) -> Tensor:
        """[slot, row] sum over the items of the step.

        Args:
            step: any step; `Sigmoid` and `SupStep` are evaluated in place.
            tile: [row, item] scores, -inf where absent.
            own: [slot, row, 1] relevant scores, +inf where absent.
        """
        differences = self._differences(tile, own)
        if isinstance(step, Sigmoid):
            return differences.div_(step.tau).sigmoid_().sum(2)
        if not isinstance(step, SupStep):
            return step(differences).sum(2)
        spare = self._buffer("spare", differences)
        value = torch.sub(differences, step.joint, out=spare).relu_().sum(2).mul_(step.rho)
        if step.start:
            compare = torch.ge if step.tie == "upper" else torch.gt
            value.add_(compare(differences, 0, out=spare).sum(2), alpha=step.start)
        if step.offset is not None:
            jump = step.offset - step.at_joint - step.start
            value.add_(torch.gt(differences, step.joint, out=spare).sum(2), alpha=jump)
        return value.add_(differences.clamp_(max=step.joint).div_(step.tau).sigmoid_().sum(2))

    def push(self, step: Step, tile: Tensor, own: Tensor, weight: Tensor, into: Tensor) -> Tensor | None:
        """[slot, row] sum over the items of weight times slope; None if the step has none.

        Args:
            step: as for `total`.
            tile: as for `total`.
            own: as for `total`.
            weight: [slot, row].
            into: [row, item]; the sum over the slots of weight times slope is added to it.
        """
        slope, unit = self._slope(step, self._differences(tile, own))
        if slope is None:
            return None
        weight = weight * unit
        slots, rows = weight.shape
        if rows <= FEW and slots > 1:
            into.unsqueeze(1).baddbmm_(weight.T.unsqueeze(1), slope.transpose(0, 1))
        elif slots <= FEW and tile.numel() >= LARGE:
            for values, factor in zip(slope, weight, strict=True):
                into.addcmul_(values, factor.unsqueeze(1))
        else:
            slope.mul_(weight.unsqueeze(2))
            into.add_(slope.sum(0))
            return slope.sum(2)
        return slope.sum(2).mul_(weight)

    def _slope(self, step: Step, differences: Tensor) -> tuple[Tensor | None, float]:
        """The slope in some unit, and the unit. The caller multiplies the few weights by it, not every difference."""
        if isinstance(step, Sigmoid):
            return self._bell(differences, step.tau), 1 / step.tau
        if not isinstance(step, SupStep):
            return step.slope(differences), 1.0
        behind = torch.gt(differences, step.joint, out=self._buffer("spare", differences))
        # the slope of the sigmoid is constant beyond the joint; add the difference to rho there
        bell = self._bell(differences.clamp_(max=step.joint), step.tau)
        return bell.add_(behind, alpha=step.rho * step.tau - step.bell_at_joint), 1 / step.tau

    def _bell(self, differences: Tensor, tau: float) -> Tensor:
        """Slope of the sigmoid in units of 1 / tau; overwrites the differences. See `relaxations.Sigmoid.slope`."""
        value = differences.abs_().div_(-tau).sigmoid_()
        return torch.addcmul(value, value, value, value=-1, out=value)

    def _differences(self, tile: Tensor, own: Tensor) -> Tensor:
        """[slot, row, item] differences."""
        like = own.expand(*own.shape[:2], tile.shape[1])
        return torch.sub(tile, own, out=self._buffer("differences", like))

    def _buffer(self, name: str, like: Tensor) -> Tensor:
        """Memory in the shape of a tensor: the previous buffer if it is large enough."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < like.numel():
            buffer = self._buffers[name] = torch.empty_like(like, memory_format=torch.contiguous_format)
        if buffer.shape == like.shape:
            return buffer
        return buffer.view(-1)[: like.numel()].view(like.shape)
