"""Steps alone: values, slopes, bounds."""

from __future__ import annotations

import math
import pickle

import pytest
import reference
import torch
from naming import stable

from rankgrad.ranks.relaxations import AutogradStep, Exponential, Heaviside, Sigmoid, Softplus, Step, SupStep, as_step

SMOOTH = [
    Sigmoid(0.05),
    SupStep(),
    SupStep(0.03, 7.0, "auto"),
    SupStep(offset=1.44),
    SupStep(offset=1.0, start=0.0),
    SupStep(tie="official"),
    SupStep(rho=0.0),
    Exponential(0.05),
    Exponential(0.5, cap=2.0),
    Softplus(0.02),
    AutogradStep(torch.tanh),
]
STEPS = [Heaviside(), *SMOOTH]
UPPER = [
    SupStep(),
    SupStep(rho=0.0),
    SupStep(0.03, 7.0, "auto"),
    SupStep(0.2, 1.0, 0.0),
    Exponential(0.05),
    Softplus(0.02),
]


def grid() -> torch.Tensor:
    """Differences on both sides of 0 and of every joint, none of them on one."""
    return torch.linspace(-0.5, 0.5, 402, dtype=torch.float64) + 1e-5


@pytest.mark.parametrize("step", SMOOTH, ids=stable)
def test_slope_is_the_derivative_of_the_step(step):
    diff = grid()
    numeric = (step(diff + 1e-7) - step(diff - 1e-7)) / 2e-7
    torch.testing.assert_close(step.slope(diff), numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [Sigmoid(0.05), Softplus(0.02), SupStep(), Exponential()], ids=stable)
def test_step_can_be_differentiated_by_autograd_too(step):
    diff = grid().requires_grad_()
    step(diff).sum().backward()
    torch.testing.assert_close(diff.grad, step.slope(diff.detach()))


@pytest.mark.parametrize("step", [Sigmoid(1 / 128), SupStep(1 / 128, delta=0.5), Softplus(1 / 128)], ids=stable)
@pytest.mark.parametrize("distance", [0.0, 1.0, 5.0, 10.0, 12.0, 17.0, 30.0])
def test_slope_keeps_its_digits_far_from_a_tie_on_both_sides_in_float32(step, distance):
    points = torch.tensor([-distance, distance]) / 128
    e = math.exp(-distance)
    bell = 128 * e / (1 + e) ** 2
    falls, rises = (128 * e / (1 + e) / math.log(2), 128 / (1 + e) / math.log(2))
    wanted = [falls, rises] if isinstance(step, Softplus) else [bell, bell]
    assert step.slope(points).tolist() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("step", STEPS, ids=stable)
def test_item_left_out_counts_nothing_and_has_no_slope(step):
    out = torch.full((3,), -torch.inf)
    if not isinstance(step, AutogradStep):
        assert (step(out) == 0).all()
    assert (AutogradStep(torch.tanh)(out) == 0).all()
    slope = step.slope(out)
    assert slope is None or (slope == 0).all()


@pytest.mark.parametrize("step", STEPS, ids=stable)
def test_step_leaves_its_input_alone_and_keeps_shape_and_dtype(step):
    diff = torch.linspace(-1, 1, 12).view(3, 4)
    before = diff.clone()
    value, slope = step(diff), step.slope(diff)
    assert torch.equal(diff, before)
    assert value.shape == diff.shape and value.dtype == diff.dtype
    assert slope is None or (slope.shape == diff.shape and slope.dtype == diff.dtype)


@pytest.mark.parametrize("step", [s for s in STEPS if s != SupStep(offset=1.44)], ids=stable)
def test_step_never_falls(step):
    assert (step(grid()).diff() >= 0).all()


def test_published_offset_steps_down_behind_delta():
    step = SupStep(offset=1.44)
    before, behind = step(torch.tensor([0.05 - 1e-9, 0.05 + 1e-9], dtype=torch.float64))
    assert behind - before == pytest.approx(1.44 - 1.49331, abs=1e-4)


@pytest.mark.parametrize("step", UPPER, ids=stable)
def test_upper_bounds_lie_above_the_exact_step_at_a_tie_too(step):
    diff = torch.cat([grid(), torch.zeros(1, dtype=torch.float64)])
    assert (step(diff) >= Heaviside()(diff)).all()


def test_options_of_published_code_lose_the_upper_bound():
    assert SupStep(tie="official")(torch.zeros(1)) == 0.5
    assert SupStep(start=0.0, offset=1.0)(torch.full((1,), 0.001)) < 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tie": "official"},
        {"offset": 1.44},
        {"start": 0.0, "offset": 1.0},
        {"tau": 0.1, "rho": 3.0, "delta": 0.2},
        {"delta": 0.0},
    ],
    ids=str,
)
def test_sup_step_equals_equation_4(options):
    diff = torch.tensor([-0.7, -0.01, -1e-9, 0.0, 1e-9, 0.02, 0.05, 0.0625, 0.3], dtype=torch.float64)
    expected = [reference.h_minus(**options)(t) for t in diff.tolist()]
    torch.testing.assert_close(SupStep(**options)(diff), torch.tensor(expected, dtype=torch.float64))


def test_auto_delta_is_where_the_sigmoid_reaches_99_percent():
    step = SupStep(tau=0.02, delta="auto")
    assert torch.sigmoid(torch.tensor(step.joint / 0.02, dtype=torch.float64)) == pytest.approx(0.99)
    assert SupStep(delta="auto").joint == pytest.approx(0.04595, abs=1e-5)


def test_sup_step_is_continuous_at_delta_by_default():
    low, high = SupStep()(torch.tensor([0.05, 0.05 + 1e-12], dtype=torch.float64))
    assert high == pytest.approx(low.item(), abs=1e-9)


@pytest.mark.parametrize("make", [Sigmoid, lambda tau: SupStep(tau, start=0.5)], ids=["sigmoid", "sup_step"])
def test_step_tends_to_the_exact_one_below_zero(make):
    diff = torch.tensor([-0.2, -0.001], dtype=torch.float64)
    torch.testing.assert_close(make(1e-5)(diff), torch.zeros(2, dtype=torch.float64))


def test_exponential_goes_on_as_its_tangent_and_stays_finite_in_float32():
    step = Exponential(0.01, cap=60.0)
    value, slope = step(torch.tensor([1e6])), step.slope(torch.tensor([1e6]))
    assert value.isfinite().all() and slope.isfinite().all()
    step = Exponential(1.0, cap=2.0)
    assert step(torch.tensor([3.5])).item() == pytest.approx(math.exp(2) * (1 + 1.5), rel=1e-6)


def test_autograd_step_agrees_with_a_step_that_brings_its_slope():
    own, traced = Sigmoid(0.1), AutogradStep(lambda d: torch.sigmoid(d / 0.1))
    torch.testing.assert_close(traced(grid()), own(grid()))
    torch.testing.assert_close(traced.slope(grid()), own.slope(grid()))


def test_constant_function_as_a_step_has_slope_zero():
    assert (AutogradStep(lambda d: (d > 0).float()).slope(torch.ones(2)) == 0).all()


def test_as_step_wraps_only_what_has_no_slope():
    own = Sigmoid(0.1)
    assert as_step(own) is own
    assert isinstance(as_step(torch.tanh), AutogradStep) and isinstance(as_step(torch.tanh), Step)


@pytest.mark.parametrize("step", STEPS, ids=stable)
def test_step_prints_compares_and_pickles(step):
    assert pickle.loads(pickle.dumps(step)) == step
    if not isinstance(step, AutogradStep):
        assert eval(repr(step)) == step


@pytest.mark.parametrize("make", [Sigmoid, SupStep, Exponential, Softplus])
@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan, math.inf])
def test_temperature_that_is_no_positive_number_is_an_error(make, tau):
    with pytest.raises(ValueError, match="tau"):
        make(tau)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rho": -1.0}, "rho"),
        ({"delta": -0.1}, "delta"),
        ({"delta": "automatic"}, "delta"),
        ({"tie": "lower"}, "tie"),
    ],
    ids=str,
)
def test_impossible_sup_step_is_an_error_that_names_the_option(options, word):
    with pytest.raises(ValueError, match=word):
        SupStep(**options)


@pytest.mark.parametrize("cap", [0.0, 81.0])
def test_cap_that_overflows_float32_is_an_error(cap):
    with pytest.raises(ValueError, match="cap"):
        Exponential(cap=cap)
