"""The papers' formulas in torch, all differences at once: for derivatives of any order, by autograd alone.

Each takes (scores, relevant as bool or gains, valid) and gives the mean over the queries that count. Slow, and held
against the losses in `test_second_derivatives.py`; `reference` has the same formulas as loops over numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Step = Callable[[Tensor], Tensor]
Lists = tuple[Tensor, Tensor, Tensor]


def sigmoid(tau: float) -> Step:
    return lambda diff: torch.sigmoid(diff / tau)


def heaviside(diff: Tensor) -> Tensor:
    return (diff >= 0).to(diff.dtype)


def h_minus(tau: float = 0.01, rho: float = 100.0, delta: float = 0.05) -> Step:
    at_joint = 1 / (1 + math.exp(-delta / tau)) + 0.5

    def step(diff: Tensor) -> Tensor:
        low = torch.sigmoid(diff / tau) + 0.5 * (diff >= 0)
        return torch.where(diff > delta, rho * (diff - delta) + at_joint, low)

    return step


def counted_mean(values: Tensor, gains: Tensor) -> Tensor:
    counted = (gains > 0).any(1)
    return values[counted].sum() / counted.sum().clamp(min=1)


def ranks(lists: Lists, pos: Step, neg: Step) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """([query, i] rank, rivals above, sum of min(gain) above, gain), each item i against all j; gain 0: meaningless."""
    scores, relevant, valid = lists
    gains = relevant.to(scores.dtype) * valid
    diff = scores.unsqueeze(1) - scores.unsqueeze(2)  # [query, i, j]
    mine, theirs = gains.unsqueeze(2), gains.unsqueeze(1)
    there = valid.unsqueeze(1) & ~torch.eye(scores.shape[1], dtype=torch.bool)
    level = there & (theirs >= mine)
    equal, less = (pos(diff) * level).sum(2), (neg(diff) * (there & (theirs < mine))).sum(2)
    shared = (pos(diff) * torch.minimum(mine, theirs) * there).sum(2)
    return 1 + equal + less, less, shared, gains


def average_precision(pos: Step, neg: Step) -> Callable[[Lists], Tensor]:
    def loss(lists: Lists) -> Tensor:
        rank, less, _, gains = ranks(lists, pos, neg)
        found = gains > 0
        precision = torch.where(found, (rank - less) / rank, 0).sum(1) / found.sum(1).clamp(min=1)
        return counted_mean(1 - precision, gains)

    return loss


def hierarchical_ap(neg: Step) -> Callable[[Lists], Tensor]:
    def loss(lists: Lists) -> Tensor:
        rank, _, shared, gains = ranks(lists, heaviside, neg)
        value = torch.where(gains > 0, (gains + shared) / rank, 0).sum(1) / gains.sum(1).clamp(min=1e-9)
        return counted_mean(1 - value, gains)

    return loss


def penalty(cost: Step, neg: Step) -> Callable[[Lists], Tensor]:
    def loss(lists: Lists) -> Tensor:
        _, less, _, gains = ranks(lists, heaviside, neg)
        found = gains > 0
        return counted_mean(torch.where(found, cost(less), 0).sum(1) / found.sum(1).clamp(min=1), gains)

    return loss


def ndcg(pos: Step, neg: Step, power: bool = False) -> Callable[[Lists], Tensor]:
    def loss(lists: Lists) -> Tensor:
        rank, _, _, gains = ranks(lists, pos, neg)
        gains = 2**gains - 1 if power else gains
        places = torch.arange(1, gains.shape[1] + 1, dtype=gains.dtype)
        ideal = (gains.sort(1, descending=True).values / torch.log2(1 + places)).sum(1)
        value = torch.where(gains > 0, gains / torch.log2(1 + rank), 0).sum(1) / ideal.clamp(min=1e-9)
        return counted_mean(1 - value, gains)

    return loss


def recall(ks: tuple[int, ...], pos: Step, neg: Step, tau: float, clip: bool = True) -> Callable[[Lists], Tensor]:
    def loss(lists: Lists) -> Tensor:
        rank, _, _, gains = ranks(lists, pos, neg)
        found = gains > 0
        values = []
        for k in ks:
            inside = torch.where(found, torch.sigmoid((k - rank) / tau), 0).sum(1)
            values.append((inside.clamp(max=k) if clip else inside) / found.sum(1).clamp(min=1, max=k))
        return counted_mean(1 - torch.stack(values).mean(0), gains)

    return loss


def calibration(lists: Lists, alpha: float = 0.9, beta: float = 0.6) -> Tensor:
    scores, relevant, valid = lists
    found, rest = relevant.bool() & valid, ~relevant.bool() & valid
    short, far = torch.relu(alpha - scores) * found, torch.relu(scores - beta) * rest
    return (short.sum(1) / found.sum(1).clamp(min=1) + far.sum(1) / rest.sum(1).clamp(min=1)).mean()


def roadmap(lists: Lists) -> Tensor:
    return 0.5 * average_precision(heaviside, h_minus())(lists) + 0.5 * calibration(lists)


def adaptive_roadmap(lists: Lists) -> Tensor:
    scores, relevant, valid = lists
    near, far = (scores.detach()[pairs & valid] for pairs in (relevant.bool(), ~relevant.bool()))
    alpha = float(near.quantile(0.5))
    level = calibration(lists, alpha, min(float(far.quantile(0.99)), alpha - 0.1))
    return 0.25 * average_precision(heaviside, h_minus())(lists) + 0.75 * level


def histogram_ap(position: Callable[[Tensor], Tensor], bins: int) -> Callable[[Lists], Tensor]:
    def loss(lists: Lists) -> Tensor:
        scores, relevant, valid = lists
        found = relevant.bool() & valid
        share = torch.relu(1 - (position(scores).unsqueeze(2) - torch.arange(bins)).abs())  # [query, item, bin]
        hits, everything = (share * found.unsqueeze(2)).sum(1), (share * valid.unsqueeze(2)).sum(1).cumsum(1)
        precision = hits.cumsum(1) / everything.clamp(min=1e-12)
        return counted_mean(1 - (hits * precision).sum(1) / found.sum(1).clamp(min=1), found)

    return loss


def hardest_auc(lists: Lists) -> Tensor:
    scores, relevant, valid = lists
    found, rest = relevant.bool() & valid, ~relevant.bool() & valid
    both = found.any(1) & rest.any(1)
    low = torch.where(found, scores, torch.inf).min(1).values[both]
    high = torch.where(rest, scores, -torch.inf).max(1).values[both]
    thresholds = torch.arange(21, dtype=scores.dtype) * 0.1 - 1
    true_pos, false_pos = (torch.sigmoid(53 * (hard.unsqueeze(1) - thresholds)).mean(0) for hard in (low, high))
    return 1 - ((true_pos[:-1] + true_pos[1:]) * (false_pos[:-1] - false_pos[1:])).sum() / 2


def log_sum_exp(lists: Lists, tau: float = 0.04, pull: float = 1.0) -> Tensor:
    scores, relevant, valid = lists
    pulled = torch.where(relevant > 0, pull * scores + (1 - pull) * scores.detach(), scores)
    step = lambda diff: torch.exp((diff / tau).clamp(max=60)) * (1 + torch.relu(diff / tau - 60))  # noqa: E731
    return penalty(torch.log1p, step)((pulled, relevant, valid))


LOSSES: dict[str, Callable[[Lists], Tensor]] = {
    "roadmap": roadmap,
    "adaptive_roadmap": adaptive_roadmap,
    "supap": average_precision(heaviside, h_minus()),
    "smooth_ap": average_precision(sigmoid(0.01), sigmoid(0.01)),
    "log_sum_exp": log_sum_exp,
    "pnp": penalty(lambda r: 1 - (1 + r) ** -4, sigmoid(0.01)),
    "fastap": histogram_ap(lambda s: (2 - 2 * s) * 2.5, 11),
    "softbin_ap": histogram_ap(lambda s: (1 - s.clamp(-1, 1)) * 9.5, 20),
    "auc": hardest_auc,
    "recall_at_k": recall((1, 2, 4, 8, 16), sigmoid(0.01), sigmoid(0.01), 1.0),
    "suprecall": recall((1, 2, 4, 8, 16), heaviside, h_minus(), 1.0, clip=False),
    "ndcg": ndcg(sigmoid(0.01), sigmoid(0.01)),
    "supndcg": ndcg(heaviside, h_minus(), power=True),
    "h_ap": hierarchical_ap(h_minus()),
    "calibration": calibration,
}
