"""Thresholds of the calibration that follow the scores: running quantiles, kept in the state, the same in training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from rankgrad import losses
from rankgrad.config import compose
from rankgrad.losses import AdaptiveROADMAPLoss, CalibrationLoss, ROADMAPLoss, SupAPLoss

G = torch.Generator().manual_seed(0)
SCORES = torch.rand(6, 20, generator=G, dtype=torch.float64)
RELEVANT = torch.rand(6, 20, generator=G) < 0.3
VALID = torch.rand(6, 20, generator=G) < 0.8


def adaptive(a=0.5, b=0.9, **options):
    return CalibrationLoss(quantiles=(a, b), **options).double()


@pytest.mark.parametrize("quantiles", [(0.5, 0.9), (0.0, 1.0), (0.37, 0.81)])
def test_thresholds_are_numpys_quantiles_of_the_valid_pairs(quantiles):
    loss = adaptive(*quantiles)
    value = loss.from_scores(SCORES, RELEVANT, VALID)
    s, positive, rest = SCORES.numpy(), (RELEVANT & VALID).numpy(), (~RELEVANT & VALID).numpy()
    expected = [np.quantile(s[positive], quantiles[0]), np.quantile(s[rest], quantiles[1])]
    np.testing.assert_allclose(loss.running.numpy(), expected, rtol=1e-12)
    alpha, beta = loss.running.tolist()
    if beta <= alpha:
        torch.testing.assert_close(value, CalibrationLoss(alpha, beta).from_scores(SCORES, RELEVANT, VALID))
    by_hand = [
        np.maximum(alpha - row[p], 0).mean() * p.any() + np.maximum(row[n] - beta, 0).mean()
        for row, p, n in zip(s, positive, rest, strict=True)
    ]
    assert float(value) == pytest.approx(np.mean(by_hand), rel=1e-12)


def test_they_run_in_training_mode_alone():
    loss = adaptive(momentum=0.8)
    loss.from_scores(SCORES, RELEVANT)
    first = loss.running.clone()
    loss.eval().from_scores(SCORES + 1, RELEVANT)
    assert torch.equal(loss.running, first)
    loss.train().from_scores(SCORES + 1, RELEVANT)
    torch.testing.assert_close(loss.running, first + 0.2)


def test_a_batch_without_such_pairs_changes_nothing_and_costs_nothing():
    loss = adaptive()
    nothing = torch.zeros_like(RELEVANT)
    value = loss.from_scores(SCORES, nothing)
    assert loss.running[0].isnan() and not loss.running[1].isnan() and value >= 0
    loss.from_scores(SCORES, ~nothing)
    assert not loss.running.isnan().any()


def test_the_state_holds_them():
    loss, other = adaptive(), adaptive()
    loss.from_scores(SCORES, RELEVANT)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.running, loss.running) and not CalibrationLoss().state_dict()
    both = ROADMAPLoss(quantiles=[0.5, 0.9]).double()
    both.from_scores(SCORES, RELEVANT)
    assert torch.equal(both.calibration.running, loss.running)
    assert [both.stats[name] for name in ("alpha", "beta")] == loss.running.tolist()  # for the log of a run


def test_gradients_are_those_of_fixed_thresholds():
    loss = adaptive().eval()
    loss.running.copy_(torch.tensor([0.7, 0.4]))
    fixed = CalibrationLoss(0.7, 0.4)
    x = SCORES.clone().requires_grad_()
    grads = [torch.autograd.grad(each.from_scores(x, RELEVANT, VALID), x)[0] for each in (loss, fixed)]
    assert torch.equal(*grads) and grads[0].abs().sum() > 0


@pytest.mark.parametrize("quantiles", [(0.5,), (0.5, 1.2), (-0.1, 0.5), 0.5, ("a", "b")])
def test_what_are_no_quantiles_is_refused(quantiles):
    with pytest.raises(ValueError, match="quantiles"):
        CalibrationLoss(quantiles=quantiles)


def test_adaptive_roadmap_is_supap_and_these_thresholds():
    loss, thresholds = AdaptiveROADMAPLoss(tau=0.02, weight=0.25).double(), adaptive(0.5, 0.99)
    for step in range(3):
        value = loss.from_scores(SCORES + step, RELEVANT, VALID)
        expected = 0.75 * SupAPLoss(tau=0.02).from_scores(SCORES + step, RELEVANT, VALID)
        expected += 0.25 * thresholds.from_scores(SCORES + step, RELEVANT, VALID)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    assert eval(repr(loss).split("\n")[0] + repr(loss).split("\n")[1] + ")", vars(losses)).weight == 0.25


def test_the_settings_of_the_command_are_the_defaults_of_the_class():
    """The loss has a file of settings, which others read off the signature."""
    given = OmegaConf.to_container(compose(["loss=adaptive_roadmap"]).loss)
    given["quantiles"] = tuple(given["quantiles"])
    loss = AdaptiveROADMAPLoss()
    assert given.pop("_target_") == "rankgrad.losses.AdaptiveROADMAPLoss"
    assert given == {name: getattr(loss, name) for name in given} and set(given) >= {"tau", "rho", "delta", "weight"}
