"""RaMBO's statements by brute force over all permutations of n <= 7 items.

Theorem 1 (rearrangement inequality, with its uniqueness), Propositions 1 and 2, Lemma 1, and the interpolation f_lambda
whose gradient Algorithm 1 is (Vlastelica et al., ICLR 2020).
"""

from __future__ import annotations

import itertools
import math

import pytest
import reference
import torch
from torch import Tensor

from rankgrad import blackbox_rank, losses, metrics, penalties
from rankgrad.ranks import exact_ranks


def permutations(n: int) -> Tensor:
    """[permutation, item] all orders of the ranks 1 .. n."""
    return torch.tensor(list(itertools.permutations(range(1, n + 1))), dtype=torch.float64)


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ----------------------------------------------------------------------------------------------------------- Theorem 1


@pytest.mark.parametrize("n", range(1, 8))
def test_the_identity_has_the_smallest_sum_and_of_distinct_numbers_no_other_order_has_it(n):
    every, falling = permutations(n), randn(20, n, seed=n).sort(1, descending=True).values
    identity = torch.arange(1.0, n + 1, dtype=torch.float64)
    assert all(len(torch.unique(row)) == n for row in falling)
    sums = falling @ every.T
    smallest = falling @ identity
    others = (every != identity).any(1)
    torch.testing.assert_close(sums[:, ~others].squeeze(1), smallest)
    if n > 1:  # the next best order exchanges two neighbours, which costs their difference: the minimum is unique
        gaps = falling.diff(dim=1).abs().amin(1)
        assert (gaps > 0).all()
        torch.testing.assert_close(sums[:, others].amin(1) - smallest, gaps, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", range(2, 7))
def test_of_level_numbers_exactly_the_orders_that_exchange_them_have_the_smallest_sum(n):
    every = permutations(n)
    falling = torch.randint(0, 3, (20, n), generator=torch.Generator().manual_seed(n)).sort(1, descending=True).values
    falling = falling.double()
    for row in falling:
        sums = every @ row
        sorted_by = torch.stack([row[order.argsort()] for order in every])  # what stands at ranks 1 .. n
        keeps = (sorted_by == row).all(1)
        assert torch.equal(sums == sums.min(), keeps)
        ways = math.prod(math.factorial(int(count)) for count in torch.unique(row, return_counts=True)[1])
        assert int(keeps.sum()) == ways


# ------------------------------------------------------------------------------------------------------- Proposition 1


@pytest.mark.parametrize("n", range(1, 8))
def test_ranks_are_the_permutation_with_the_smallest_inner_product(n):
    every, scores = permutations(n), randn(5, n, seed=n)
    ranks = blackbox_rank(scores, 1.0)
    for y, rank in zip(scores, ranks, strict=True):
        assert torch.equal(rank, every[(every @ y).argmin()])
        assert rank.tolist() == reference.rk(y.tolist())


@pytest.mark.parametrize("n", range(2, 7))
def test_ranks_of_level_scores_are_one_of_the_smallest(n):
    every = permutations(n)
    scores = torch.randint(0, 3, (20, n), generator=torch.Generator().manual_seed(n)).double()
    ranks = blackbox_rank(scores, 1.0)
    products = scores @ every.T
    assert torch.equal((scores * ranks).sum(1), products.min(1).values)
    assert torch.equal(ranks.sort(1).values, torch.arange(1.0, n + 1).double().expand(20, n))


# ------------------------------------------------------------- the interpolation whose gradient Algorithm 1 computes


class Landscape:
    """f(w) = a . rk(w), and f_lambda(w) = (min_pi {w . pi + lambda a . pi} - min_pi w . pi) / lambda."""

    def __init__(self, n: int, seed: int) -> None:
        self.every, self.a = permutations(n), randn(n, seed=seed)

    def exact(self, w: Tensor) -> Tensor:
        return self.every[(w @ self.every.T).argmin(-1)] @ self.a

    def smoothed(self, w: Tensor, lambda_: float) -> Tensor:
        both = ((w + lambda_ * self.a) @ self.every.T).amin(-1)
        return (both - (w @ self.every.T).amin(-1)) / lambda_


CASES = [(n, lambda_) for n in (2, 4, 6) for lambda_ in (0.05, 0.5, 2.0)]


@pytest.mark.parametrize(("n", "lambda_"), CASES)
def test_algorithm_1_is_the_gradient_of_the_interpolation(n, lambda_):
    land, points, step = Landscape(n, seed=n), randn(30, n, seed=100 + n), 1e-6
    leaf = points.clone().requires_grad_()
    (blackbox_rank(leaf, lambda_) @ land.a).sum().backward()
    numeric = torch.stack(
        [
            (land.smoothed(points + step * e, lambda_) - land.smoothed(points - step * e, lambda_)) / (2 * step)
            for e in torch.eye(n, dtype=torch.float64)
        ],
        dim=1,
    )
    torch.testing.assert_close(leaf.grad, numeric, rtol=1e-6, atol=1e-6)
    assert lambda_ < 0.5 or (leaf.grad != 0).any()


@pytest.mark.parametrize(("n", "lambda_"), CASES)
def test_interpolation_is_the_value_at_the_perturbed_ranks_less_their_regret(n, lambda_):
    land, points = Landscape(n, seed=n), randn(30, n, seed=200 + n)
    here, there = blackbox_rank(points, 1.0), blackbox_rank(points + lambda_ * land.a, 1.0)
    regret = ((points * there).sum(1) - (points * here).sum(1)) / lambda_
    torch.testing.assert_close(land.smoothed(points, lambda_), there @ land.a + regret)
    assert (regret >= 0).all()


@pytest.mark.parametrize(("n", "lambda_"), CASES)
def test_interpolation_lies_between_the_minimum_and_the_function(n, lambda_):
    land, points = Landscape(n, seed=n), randn(200, n, seed=300 + n)
    value = land.smoothed(points, lambda_)
    assert (value <= land.exact(points) + 1e-12).all()
    assert (value >= (land.every @ land.a).min() - 1e-12).all()


@pytest.mark.parametrize(("n", "lambda_"), CASES)
def test_interpolation_is_continuous_where_the_function_jumps(n, lambda_):
    land = Landscape(n, seed=n)
    start, end = randn(2, n, seed=400 + n)
    t = torch.linspace(0, 1, 2001, dtype=torch.float64).unsqueeze(1)
    line = start + t * (end - start)
    largest_slope = 2 * math.sqrt(n) * n / lambda_  # both minima are Lipschitz with |pi| <= sqrt(n) n
    allowed = largest_slope * (end - start).norm() / 2000
    assert land.smoothed(line, lambda_).diff().abs().max() <= allowed
    # the function itself is constant between jumps that do not shrink with the distance of the points
    jumps = land.exact(line).diff().abs()
    assert (jumps < 1e-9).sum() >= 2000 - n * (n - 1) / 2


@pytest.mark.parametrize(("n", "lambda_"), CASES)
def test_interpolation_is_linear_in_pieces(n, lambda_):
    land, points = Landscape(n, seed=n), randn(20, n, seed=500 + n)
    leaf = points.clone().requires_grad_()
    (blackbox_rank(leaf, lambda_) @ land.a).sum().backward()
    direction = 1e-5 * randn(20, n, seed=600 + n)
    moved = land.smoothed(points + direction, lambda_)
    torch.testing.assert_close(
        moved, land.smoothed(points, lambda_) + (leaf.grad * direction).sum(1), rtol=0, atol=1e-12
    )


def test_interpolation_tends_to_the_function_and_to_its_minimum():
    land, points = Landscape(5, seed=1), randn(50, 5, seed=2)
    errors = [(land.exact(points) - land.smoothed(points, size)).abs().mean().item() for size in (1.0, 0.1, 0.01, 1e-4)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-2 < errors[0]
    gap = points.sort(1).values.diff(dim=1).min() / (2 * land.a.abs().max())  # too little to reorder anything
    torch.testing.assert_close(land.smoothed(points, 0.9 * gap.item()), land.exact(points))
    lowest = (land.every @ land.a).min().expand(50)
    torch.testing.assert_close(land.smoothed(points, 1e6), lowest, rtol=1e-4, atol=1e-4)


def test_loss_level_gradient_is_that_of_its_linearised_interpolation():
    # At one point the recall loss is replaced by a . rk with a = dL/drk; lambda is in plain ranks.
    scores, relevant = randn(1, 6, seed=9), torch.tensor([[True, False, True, False, False, True]])
    loss = losses.RaMBORecallLoss(lambda_=2.0, margin=0.0, weight="log", normalized_ranks=False)
    leaf = scores.clone().requires_grad_()
    loss.from_scores(leaf, relevant).backward()
    above = exact_ranks(scores, relevant).above_neg
    land = Landscape(6, seed=0)
    land.a = torch.zeros(6, dtype=torch.float64)
    land.a[relevant[0]] = 1 / (1 + above) / 3
    numeric = torch.stack(
        [
            (land.smoothed(scores + 1e-6 * e, 2.0) - land.smoothed(scores - 1e-6 * e, 2.0))[0] / 2e-6
            for e in torch.eye(6, dtype=torch.float64)
        ]
    )
    torch.testing.assert_close(leaf.grad[0], numeric, rtol=1e-6, atol=1e-6)


# ----------------------------------------------------------------------------------- Lemma 1, Proposition 2, eq. 20


def log_weight(k: int) -> float:
    return math.log(1 + 1 / k)


def loglog_weight(k: int) -> float:
    return math.log(1 + math.log(1 + 1 / k) / (1 + math.log(k)))


WEIGHTS = {
    "log": (log_weight, penalties.Log(), "log"),
    "loglog": (loglog_weight, penalties.LogLog(), "loglog"),
    "recall@1": (lambda k: float(k == 1), penalties.Weights((1.0,)), (1.0,)),
    "recall@1..3": (lambda k: 0.5**k * (k <= 3), penalties.Weights((0.5, 0.25, 0.125)), (0.5, 0.25, 0.125)),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_the_recalls_add_up_to_the_penalty(name):
    w, penalty, _ = WEIGHTS[name]
    for r in range(60):
        total = sum(w(k) for k in range(1, r + 1))
        assert penalty(torch.tensor([float(r)], dtype=torch.float64)).item() == pytest.approx(total, abs=1e-12)


def test_sum_over_k_of_counts_is_the_sum_over_items_of_cumulated_weights():
    # sum_K w_K |{i : r_i >= K}| = sum_i sum_{K <= r_i} w_K, for every multiset of up to 4 counts below 5
    for size in range(1, 5):
        for r in itertools.combinations_with_replacement(range(5), size):
            counts = sum(log_weight(k) * sum(x >= k for x in r) for k in range(1, 6))
            assert counts == pytest.approx(sum(math.log(1 + x) for x in r), abs=1e-12)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("relevant", [(1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (1, 1, 1, 0, 0), (1, 0, 1, 1, 1), (1,) * 5])
def test_weighted_refined_recalls_are_the_recall_loss_for_every_order(name, relevant):
    w, _, weight = WEIGHTS[name]
    scores = permutations(5) / 10  # every order of five items
    mask = torch.tensor(relevant, dtype=torch.bool).expand(len(scores), -1)
    recalls = torch.stack([metrics.refined_recall_at_k(scores, mask, k) for k in range(1, 7)])
    total = sum(w(k) * (1 - recalls[k - 1]) for k in range(1, 7))
    loss = losses.RaMBORecallLoss(margin=0.0, weight=weight, reduction="none").from_scores(scores, mask)
    torch.testing.assert_close(loss, total)
    for s, row in zip(scores[::17].tolist(), recalls.T[::17].tolist(), strict=True):
        assert row == pytest.approx([reference.refined_recall(s, list(relevant), k) for k in range(1, 7)])


def test_rank_less_rank_among_the_relevant_is_the_number_of_irrelevant_items_above():
    scores = permutations(6)
    relevant = torch.tensor([True, False, True, True, False, False])
    everyone = blackbox_rank(scores, 1.0)[:, relevant]
    among = blackbox_rank(scores[:, relevant], 1.0)
    ranks = exact_ranks(scores, relevant.expand(len(scores), -1))
    assert torch.equal((everyone - among).flatten(), ranks.above_neg)


@pytest.mark.parametrize(
    ("weight", "slope"),
    [
        ("log", lambda r: 1 / (1 + r)),
        ("loglog", lambda r: 1 / ((1 + r) * (1 + math.log(1 + r)))),
        ((1.0, 0.5, 0.25), lambda r: (1.0, 0.5, 0.25, 0.0, 0.0)[r]),
    ],
)
def test_derivative_of_the_penalty_at_a_count_is_the_published_one(weight, slope):
    above = torch.arange(5.0, dtype=torch.float64).requires_grad_()
    penalties.as_penalty(weight)(above).sum().backward()
    assert above.grad.tolist() == pytest.approx([slope(r) for r in range(5)])


def test_margin_moves_relevant_scores_down_and_irrelevant_ones_up():
    # relevant .50, irrelevant .49 and .47: alpha = .02 lets only the first pass, since .49 < .50
    scores, relevant = torch.tensor([[0.50, 0.49, 0.47]], dtype=torch.float64), torch.tensor([[True, False, False]])
    values = [
        losses.RaMBORecallLoss(margin=margin, weight="log").from_scores(scores, relevant).item()
        for margin in (0.0, 0.02, 0.05)
    ]
    assert values == pytest.approx([0.0, math.log(2), math.log(3)])
