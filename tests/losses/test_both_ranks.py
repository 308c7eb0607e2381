"""RaMBO's gradient through both ranks, as eqs. 17 and 21 are printed, from the operator of Algorithm 1 alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rankgrad import blackbox_rank, detection
from rankgrad.losses import LOSSES
from rankgrad.ranks import Blackbox

COSTS = {
    "rambo_recall": lambda rank, among: torch.log1p(torch.log1p(rank - among)),
    "rambo_ap": lambda rank, among: 1 - among / rank,
}


def printed(
    name: str,
    scores: Tensor,
    relevant: Tensor,
    valid: Tensor,
    lambda_: float,
    margin: float,
    normalized: bool,
    both: bool,
) -> Tensor:
    """The loss of eqs. 14 to 22: one ranking of the list, and one of its relevant items."""
    shifted = scores + torch.where(relevant, -margin / 2, margin / 2)
    costs = []
    for row, hit, there in zip(shifted, relevant, valid, strict=True):
        if not (hit & there).any():
            continue
        y, y_star = row[there], hit[there]
        n, p = (len(y), int(y_star.sum())) if normalized else (1, 1)
        rank = n * blackbox_rank(y, lambda_, normalized)[y_star]
        among = p * blackbox_rank(y[y_star], lambda_, normalized)
        costs.append(COSTS[name](rank, among if both else among.detach()).mean())
    return torch.stack(costs).mean()


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("name", COSTS)
def test_the_gradient_is_that_of_the_printed_equations(name, normalized, both):
    g = torch.Generator().manual_seed(3)
    scores = torch.rand(7, 15, generator=g, dtype=torch.float64)
    relevant, valid = torch.rand(7, 15, generator=g) < 0.4, torch.rand(7, 15, generator=g) < 0.8
    relevant[2] = False
    lambda_ = 0.8 if normalized else 6.0
    one, two = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    loss = LOSSES[name](lambda_=lambda_, margin=0.02, normalized_ranks=normalized, both_ranks=both)
    value = loss.from_scores(one, relevant, valid)
    want = printed(name, two, relevant, valid, lambda_, 0.02, normalized, both)
    value.backward()
    want.backward()
    torch.testing.assert_close(value, want)
    torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-14)
    plain = scores.clone().requires_grad_()
    LOSSES[name](lambda_=lambda_, margin=0.02, normalized_ranks=normalized).from_scores(
        plain, relevant, valid
    ).backward()
    moved = int(((plain.grad - one.grad).abs() > 1e-9).sum())
    assert (moved > 0) == both  # the option matters on these scores


@pytest.mark.parametrize("prefilter", [True, False])
@pytest.mark.parametrize("memory", [0, 2])
def test_a_detector_has_the_option_too(memory, prefilter):
    g = torch.Generator().manual_seed(0)
    targets = torch.rand(20, 3, generator=g) < 0.3
    gradients = {}
    for both in (False, True):
        loss = detection.DetectionAPLoss(40.0, memory=memory, weights=(1, 0), both_ranks=both, prefilter=prefilter)
        g.manual_seed(1)
        for _ in range(3):
            scores = torch.randn(20, 3, generator=g, dtype=torch.float64).requires_grad_()
            loss(scores, targets).backward()
        gradients[both] = scores.grad
    if not memory:
        leaf = scores.detach().T.clone().requires_grad_()
        printed("rambo_ap", leaf, targets.T, torch.ones_like(targets.T), 40.0, 0.15, True, True).backward()
        torch.testing.assert_close(gradients[True], leaf.grad.T, rtol=0, atol=1e-14)
    assert not torch.equal(gradients[True], gradients[False]) and "both_ranks=True" in repr(loss)


def test_the_option_is_refused_if_it_is_no_flag():
    with pytest.raises(ValueError, match="both_ranks must be True or False"):
        Blackbox(both_ranks="yes")  # type: ignore[arg-type]
