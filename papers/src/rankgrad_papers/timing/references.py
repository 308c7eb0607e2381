"""Direct implementations of printed formulas. Our losses must give the same values; tests and timings use them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def cube_ap(
    embeddings: Tensor, labels: Tensor, pos: Callable[[Tensor], Tensor], neg: Callable[[Tensor], Tensor]
) -> Tensor:
    """1 - AP with relaxed ranks as the equations are printed: one tensor of all differences s_qj - s_qi.

    Args:
        embeddings: [query, dim] float.
        labels: [query] long.
        pos: step for relevant items.
        neg: step for irrelevant ones.
    """
    scores = embeddings @ embeddings.T
    same = labels.unsqueeze(1) == labels
    others = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    relevant = same & others
    differences = scores.unsqueeze(1) - scores.unsqueeze(2)  # [query, i, j]
    above_pos = (pos(differences) * (relevant.unsqueeze(1) & others)).sum(2)
    above_neg = (neg(differences) * ~same.unsqueeze(1)).sum(2)
    precision = (1 + above_pos) / (1 + above_pos + above_neg)
    return 1 - ((precision * relevant).sum(1) / relevant.sum(1)).mean()


def sigmoid_step(t: Tensor, tau: float = 0.01) -> Tensor:
    """Smooth-AP's step (Brown et al., ECCV 2020)."""
    return torch.sigmoid(t / tau)


def exact_step(t: Tensor) -> Tensor:
    """Heaviside's step, 1 on ties."""
    return (t >= 0).to(t.dtype)


def h_minus(t: Tensor, tau: float = 0.01, rho: float = 100.0, delta: float = 0.05) -> Tensor:
    """H^- of SupAP (Ramzi et al., NeurIPS 2021, eq. 4)."""
    bell = torch.sigmoid(t / tau)
    joint = 0.5 + 1 / (1 + math.exp(-delta / tau))
    return torch.where(t < 0, bell, torch.where(t <= delta, bell + 0.5, rho * (t - delta) + joint))


def cube_smooth_ap(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Smooth-AP: `cube_ap` with a sigmoid for both steps."""
    return cube_ap(embeddings, labels, sigmoid_step, sigmoid_step)


def cube_sup_ap(embeddings: Tensor, labels: Tensor) -> Tensor:
    """SupAP: `cube_ap` with exact steps among relevant items and H^- for the others."""
    return cube_ap(embeddings, labels, exact_step, h_minus)


def pairs_ap(
    scores: Tensor, relevant: Tensor, pos: Callable[[Tensor], Tensor], neg: Callable[[Tensor], Tensor]
) -> Tensor:
    """1 - AP as the equations are printed, for lists longer than the batch: one row of differences per relevant pair.

    Args:
        scores: [query, item] float.
        relevant: [query, item] bool, the same number in each row.
        pos: step for relevant items.
        neg: step for irrelevant ones.
    """
    query, item = relevant.nonzero(as_tuple=True)
    differences = scores[query] - scores[query, item].unsqueeze(1)  # [pair, item]
    above_pos = (pos(differences) * relevant[query].scatter(1, item.unsqueeze(1), False)).sum(1)
    above_neg = (neg(differences) * ~relevant[query]).sum(1)
    return 1 - ((1 + above_pos) / (1 + above_pos + above_neg)).mean()


class _PrintedRank(torch.autograd.Function):
    """RaMBO's Algorithm 1 as it is printed: a whole ranking forward, another one backward."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, lambda_: float) -> Tensor:
        ranks = _ranking(scores)
        ctx.save_for_backward(scores, ranks)
        ctx.lambda_ = lambda_
        return ranks

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        scores, ranks = ctx.saved_tensors
        return -(ranks - _ranking(scores + ctx.lambda_ * upstream[0])) / ctx.lambda_, None


def _ranking(scores: Tensor) -> Tensor:
    """Ranks 1 .. n. The largest score has rank 1."""
    return 1 + torch.argsort(torch.argsort(scores, descending=True)).to(scores.dtype)


def printed_rambo_ap(scores: Tensor, relevant: Tensor, lambda_: float = 4.0, margin: float = 0.02) -> Tensor:
    """RaMBO's AP loss of one list (Rolinek et al., CVPR 2020, eqs. 14, 21-23) on rankings by sorting everything.

    Args:
        scores: [item] float.
        relevant: [item] bool.
        lambda_: size of the perturbation, in ranks divided by the length of the list, like the published values.
        margin: margin in score units.
    """
    shifted = torch.where(relevant, scores - margin / 2, scores + margin / 2)
    ranks: Tensor = _PrintedRank.apply(shifted, lambda_ * len(scores))
    among_relevant = _ranking(shifted.detach()[relevant])
    return 1 - (among_relevant / ranks[relevant]).mean()
