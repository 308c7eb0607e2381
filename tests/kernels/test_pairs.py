"""Sums over tiles of pairs, in reused memory, against the steps themselves."""

from __future__ import annotations

import math

import pytest
import torch
from naming import stable
from torch import Tensor

from rankgrad.ranks.kernels import pairs
from rankgrad.ranks.kernels.pairs import PairDifferences
from rankgrad.ranks.relaxations import AutogradStep, Exponential, Heaviside, Sigmoid, Softplus, SupStep

STEPS = [
    Sigmoid(0.05),
    SupStep(),
    SupStep(0.03, 7.0, "auto", offset=1.44),
    SupStep(offset=1.0, start=0.0, tie="official"),
    SupStep(tie="official", delta=0.0),
    Exponential(0.3),
    Softplus(0.1),
    AutogradStep(torch.tanh),
]
# slots, rows, items: few rows, few slots of a long tile, and many of both
SHAPES = [(1, 1, 7), (3, 1, 40), (6, 2, 40), (2, 9, 40), (3, 9, pairs.LARGE // 9 + 1), (7, 9, 40)]


def problem(shape: tuple[int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A tile, scores of relevant items and weights: with ties, and with absent entries of both kinds."""
    slots, rows, items = shape
    g = torch.Generator().manual_seed(seed)
    tile = (torch.rand(rows, items, generator=g, dtype=torch.float64) * 64).round() / 64
    own = (torch.rand(slots, rows, 1, generator=g, dtype=torch.float64) * 64).round() / 64
    tile[:, ::5] = -torch.inf
    own[-1, 1:] = torch.inf
    return tile, own, torch.rand(slots, rows, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("step", [Heaviside(), *STEPS], ids=stable)
def test_totals_are_sums_of_the_step_in_whatever_memory_was_used_before(step, transposed):
    used = PairDifferences()
    for number, shape in enumerate([*sorted(SHAPES, key=math.prod, reverse=True), *SHAPES]):
        tile, own, _ = problem(shape, number)
        tile = tile.T.contiguous().T if transposed else tile
        before = tile.clone(), own.clone()
        torch.testing.assert_close(used.total(step, tile, own), step(tile - own).sum(2), rtol=1e-12, atol=1e-12)
        assert torch.equal(tile, before[0]) and torch.equal(own, before[1])


@pytest.mark.parametrize("step", STEPS, ids=stable)
def test_pushes_are_weighted_sums_of_the_slope(step):
    used = PairDifferences()
    for number, shape in enumerate([*SHAPES, *reversed(SHAPES)]):
        tile, own, weight = problem(shape, number)
        expected = step.slope(tile - own) * weight.unsqueeze(2)
        into = torch.rand_like(tile)
        before = into.clone()
        found = used.push(step, tile, own, weight, into)
        torch.testing.assert_close(found, expected.sum(2), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(into - before, expected.sum(0), rtol=1e-12, atol=1e-12)


def test_step_without_slope_pushes_nothing():
    tile, own, weight = problem((2, 3, 8), 0)
    into = torch.zeros_like(tile)
    assert PairDifferences().push(Heaviside(), tile, own, weight, into) is None
    assert (into == 0).all()


@pytest.mark.parametrize("step", [Sigmoid(1 / 128), SupStep(1 / 128, delta=0.5)], ids=stable)
@pytest.mark.parametrize("distance", [5, 10, 17, 30])
def test_pushes_of_saturated_pairs_keep_their_digits_on_both_sides_in_float32(step, distance):
    tile, own, weight = torch.tensor([[-distance, distance]]) / 128, torch.zeros(1, 1, 1), torch.ones(1, 1)
    into = torch.zeros_like(tile)
    PairDifferences().push(step, tile, own, weight, into)
    bell = 128 / (2 + math.exp(distance) + math.exp(-distance))
    assert into.tolist()[0] == pytest.approx([bell, bell], rel=1e-6)
