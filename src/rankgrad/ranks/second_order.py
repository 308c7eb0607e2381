"""Second derivatives of relaxed ranks, in blocks like the first ones; an error where they do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..relaxations import Step
from ..types import PerPair, Scores
from .blocks import Blocks, tiles_of
from .lists import Lists


def refuse_graph(why: str) -> None:
    """Raise in a backward pass with `create_graph=True`.

    torch's `once_differentiable` is not enough: it only detaches the result. If the gradient also depends on the input
    through another path, `autograd.grad` returns a number in which a part is missing.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"second derivatives do not exist here (create_graph=True): {why}")


def gradient_of_gradient(
    scores: Scores,
    weights: Sequence[PerPair | None],
    lists: Lists,
    pos: Step,
    neg: Step,
    chunk: int,
    direction: Scores,
) -> tuple[Tensor | None, ...]:
    r"""Gradient of <direction, G>, where G is the score gradient of soft ranks with the upstream gradients as weights.

    G = sum_{i, j} w_i step'(s_j - s_i) (e_j - e_i), so <direction, G> = sum w_i step'(s_j - s_i) (u_j - u_i). This
    function differentiates it with respect to w and s. It always uses all differences in pairs, even if G came from
    cells.

    Args:
        scores: [query, item].
        weights: [pair] upstream gradients of `above_pos`, `above_neg` and `above_gain`; None: 0.
        lists: see `Lists`.
        pos: step for items of at least equal gain.
        neg: step for items of less gain.
        chunk: number of differences at once.
        direction: [query, item] u.

    Returns:
        Gradients with respect to the scores and to the three weights (None for a weight that is None).
    """
    blocks = Blocks(scores, lists, chunk)
    weight_pos, weight_neg, weight_gain = (None if given is None else blocks.rectangle(given) for given in weights)
    along_pos, along_neg, along_gain = (torch.zeros_like(blocks.own) for _ in range(3))
    grad, grad_own = torch.zeros_like(scores), torch.zeros_like(blocks.own)
    own_direction = blocks.rectangle(direction[lists.query, lists.item])

    if weight_neg is not None:
        for rows, wide, groups in blocks.strips(scores.shape[1]):
            into = blocks.gradient_rows(grad, rows)
            chosen = direction[rows if blocks.order is None else blocks.order[rows]]
            tiles = [tiles_of(t, wide) for t in (blocks.rest(rows), chosen, into)]
            for slots in groups:
                own, weight = blocks.own[slots, rows].unsqueeze(2), weight_neg[slots, rows].unsqueeze(2)
                for tile, towards, to in zip(*tiles, strict=True):
                    turn = towards - own_direction[slots, rows].unsqueeze(2)
                    bent = _SlopeAlong.of(neg, tile - own, turn)
                    along_neg[slots, rows] += bent.along.sum(2)
                    push = bent.push(weight * turn)
                    to += push.sum(0)
                    grad_own[slots, rows] -= push.sum(2)
            blocks.write_gradient(grad, rows, into)

    grad_peers, peers_direction = torch.zeros_like(blocks.peers), own_direction.T
    for slots, rows, others, differences in blocks.to_peers():
        turn = peers_direction[rows, others] - own_direction[slots, rows].unsqueeze(2)
        weight = blocks.own.new_zeros(()) if weight_pos is None else weight_pos[slots, rows].unsqueeze(2)
        bent = _SlopeAlong.of(pos, differences, turn)
        pushes = []
        if (gains := blocks.gains(slots, rows, others)) is not None:
            lower, shared = gains
            weight = weight * ~lower
            along_gain[slots, rows] += (bent.along * shared).sum(2)
            bent = _SlopeAlong(bent.slope, bent.along.masked_fill(lower, 0), bent.point)
            if weight_gain is not None:
                weight = weight + weight_gain[slots, rows].unsqueeze(2) * shared
            if weight_neg is not None:
                below = _SlopeAlong.of(neg, differences.masked_fill(~lower, -torch.inf), turn)
                along_neg[slots, rows] += below.along.sum(2)
                pushes.append(below.push(weight_neg[slots, rows].unsqueeze(2) * turn))
        along_pos[slots, rows] += bent.along.sum(2)
        pushes.append(bent.push(weight * turn))
        for push in pushes:
            grad_peers[rows, others] += push.sum(0)
            grad_own[slots, rows] -= push.sum(2)

    grad[lists.query, lists.item] = blocks.pairs(grad_own + grad_peers.T)
    given = zip(weights, (along_pos, along_neg, along_gain), strict=True)
    return grad, *(None if weight is None else blocks.pairs(along) for weight, along in given)


@dataclass(frozen=True)
class _SlopeAlong:
    """The slope of a step at some differences, with its graph.

    Attributes:
        slope: [slot, row, item]; None if the step has none.
        along: slope times a direction, without graph.
        point: the differences, the leaf of the graph.
    """

    slope: Tensor | None
    along: Tensor
    point: Tensor

    @classmethod
    def of(cls, step: Step, differences: Tensor, direction: Tensor) -> _SlopeAlong:
        with torch.enable_grad():
            point = differences.detach().requires_grad_()
            slope = step.slope(point)
        if slope is None:
            return cls(None, torch.zeros_like(differences), point)
        if not slope.requires_grad:
            raise RuntimeError(
                f"no second derivatives of {step!r} (create_graph=True): its slope has no graph. Compute it from diff "
                "with torch operations, without detach() or no_grad(); to a constant slope add 0 * diff.clamp(min=0)"
            )
        return cls(slope, slope.detach() * direction, point)

    def push(self, weight: Tensor) -> Tensor:
        """Weight times the derivative of the slope."""
        if self.slope is None:
            return torch.zeros_like(self.along)
        (push,) = torch.autograd.grad(self.slope, self.point, weight)
        return push
