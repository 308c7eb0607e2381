"""Exact, relaxed and blackbox ranks against counting by hand; chunks, gradients, and what is saved."""

from __future__ import annotations

import pytest
import reference
import torch
from allocations import Allocations
from naming import stable
from torch import Tensor

from rankgrad import blackbox_rank, losses
from rankgrad.metrics import average_precision
from rankgrad.ranks import Blackbox, Soft, Ties, exact_ranks, soft_ranks
from rankgrad.ranks.kernels import counting
from rankgrad.ranks.relaxations import AutogradStep, Exponential, Heaviside, Sigmoid, Softplus, SupStep
from rankgrad.ranks.types import Ranks

STEP_PAIRS = [
    (Sigmoid(0.05), Sigmoid(0.1)),
    (Heaviside(), SupStep()),
    (Heaviside(), Sigmoid(0.03)),
    (Softplus(0.1), Exponential(0.3)),
    (Sigmoid(0.2), AutogradStep(lambda d: torch.nn.functional.elu(4 * d) + 1)),
]


def counted_by_hand(scores: Tensor, relevance: Tensor, valid: Tensor, pos, neg) -> dict[tuple[int, int], tuple]:
    """(query, item) -> (above_pos, above_neg, above_gain), with steps of floats."""
    found = {}
    for q in range(len(scores)):
        kept = [j for j in range(scores.shape[1]) if valid[q, j]]
        s, g = ([float(t[q, j]) for j in kept] for t in (scores, relevance))
        for i, gain in enumerate(g):
            if gain > 0:
                found[q, kept[i]] = reference.counts(s, g, i, pos, neg)
    return found


def of_float(step):
    return lambda t: float(step(torch.tensor([t], dtype=torch.float64)))


def check_ranks(ranks: Ranks, expected: dict[tuple[int, int], tuple]) -> None:
    assert list(zip(ranks.query.tolist(), ranks.item.tolist(), strict=True)) == list(expected)
    columns = torch.tensor(list(expected.values()), dtype=torch.float64)
    torch.testing.assert_close(ranks.above_pos.double(), columns[:, 0])
    torch.testing.assert_close(ranks.above_neg.double(), columns[:, 1])
    if ranks.above_gain is not None:
        torch.testing.assert_close(ranks.above_gain.double(), columns[:, 2])
    torch.testing.assert_close(ranks.rank.double(), 1 + columns[:, 0] + columns[:, 1])


# ----------------------------------------------------------------------------------------------------------- relaxed


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("steps", STEP_PAIRS, ids=stable)
def test_soft_ranks_equal_sums_over_pairs(problem, steps, ties, graded):
    scores, relevance, valid = problem(1, ties=ties, graded=graded)
    ranks = soft_ranks(scores, relevance, valid, pos=steps[0], neg=steps[1])
    assert (ranks.above_gain is not None) == graded
    check_ranks(ranks, counted_by_hand(scores, relevance, valid, *map(of_float, steps)))


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize("steps", STEP_PAIRS, ids=stable)
def test_gradient_of_soft_ranks_is_that_of_the_dense_formula(problem, steps, graded):
    scores, relevance, valid = problem(2, graded=graded)
    gain = relevance.double() * valid
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(3, int((gain > 0).sum()), generator=generator, dtype=torch.float64)

    ours = scores.clone().requires_grad_()
    ranks = soft_ranks(ours, relevance, valid, pos=steps[0], neg=steps[1])
    outputs = [ranks.above_pos, ranks.above_neg] + ([ranks.above_gain] if graded else [])
    sum((w * o).sum() for w, o in zip(weights, outputs, strict=False)).backward()

    dense = scores.clone().requires_grad_()
    query, item = (gain > 0).nonzero(as_tuple=True)
    diff = dense[query] - dense[query, item].unsqueeze(1)
    mine, theirs = gain[query, item].unsqueeze(1), gain[query]
    others = valid[query].scatter(1, item.unsqueeze(1), False)
    above, below = others & (theirs >= mine), others & (theirs < mine)
    pos, neg = (0 if step.slope(diff) is None else step.slope(diff.detach()) * diff for step in steps)
    # linear in the differences, with the slopes as factors (test_relaxations proves those): the gradient is the same
    total = (weights[0] * torch.where(above, pos, 0).sum(1)).sum()
    total = total + (weights[1] * torch.where(below, neg, 0).sum(1)).sum()
    if graded:
        shared = torch.where(others & (theirs > 0), pos, 0) * torch.minimum(mine, theirs)
        total = total + (weights[2] * shared.sum(1)).sum()
    total.backward()
    torch.testing.assert_close(ours.grad, dense.grad)


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize("chunk", [1, 7, 100, 10**9])
def test_chunks_change_neither_value_nor_gradient(problem, chunk, graded):
    scores, relevance, valid = problem(3, graded=graded)

    def run(size: int | None) -> list[Tensor]:
        leaf = scores.clone().requires_grad_()
        ranks = soft_ranks(leaf, relevance, valid, pos=Sigmoid(0.05), neg=SupStep(), chunk=size)
        weight = torch.arange(1, len(ranks.query) + 1, dtype=torch.float64)
        total = (weight * ranks.above_pos).sum() + (weight.sqrt() * ranks.above_neg).sum()
        if graded:
            total = total + (weight.log1p() * ranks.above_gain).sum()
        total.backward()
        return [ranks.above_pos.detach(), ranks.above_neg.detach(), leaf.grad]

    for one, whole in zip(run(chunk), run(None), strict=True):
        torch.testing.assert_close(one, whole, rtol=1e-12, atol=1e-12)


def test_step_without_gradient_gives_counts_marked_so(problem):
    scores, relevant, valid = problem()
    ranks = soft_ranks(scores.requires_grad_(), relevant, valid, pos=Heaviside(), neg=Sigmoid(0.1))
    assert not ranks.above_pos.requires_grad and ranks.above_neg.requires_grad
    ranks = soft_ranks(scores, relevant, valid, pos=Sigmoid(0.1), neg=Heaviside())
    assert ranks.above_pos.requires_grad and not ranks.above_neg.requires_grad
    graded = soft_ranks(scores, relevant.double(), valid, pos=Heaviside(), neg=Sigmoid(0.1))
    assert not graded.above_gain.requires_grad


def test_scores_without_gradient_give_ranks_without_gradient(problem):
    ranks = soft_ranks(*problem(), pos=Sigmoid(0.1), neg=Sigmoid(0.1))
    assert not ranks.rank.requires_grad


def test_gradient_is_zero_where_an_item_does_not_exist(problem):
    scores, relevant, valid = problem()
    ranks = soft_ranks(scores.requires_grad_(), relevant, valid, pos=Sigmoid(0.3), neg=Softplus(0.3))
    ranks.rank.sum().backward()
    assert (scores.grad[~valid] == 0).all() and (scores.grad[7:] == 0).all()
    assert (scores.grad[valid & (torch.arange(9) < 6).unsqueeze(1)] != 0).all()


def test_ones_as_gains_give_binary_ranks(problem):
    scores, relevant, valid = problem(4)
    binary = soft_ranks(scores, relevant, valid, pos=Sigmoid(0.1), neg=SupStep())
    graded = soft_ranks(scores, relevant.double(), valid, pos=Sigmoid(0.1), neg=SupStep())
    torch.testing.assert_close(graded.above_pos, binary.above_pos)
    torch.testing.assert_close(graded.above_neg, binary.above_neg)
    torch.testing.assert_close(graded.above_gain, binary.above_pos)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_counted_in_float32(problem, dtype):
    scores, relevant, valid = problem(5)
    low = scores.to(dtype)
    ranks = soft_ranks(low, relevant, valid, pos=Sigmoid(0.01), neg=SupStep())
    exact = soft_ranks(low.double(), relevant, valid, pos=Sigmoid(0.01), neg=SupStep())
    assert ranks.rank.dtype == torch.float32
    torch.testing.assert_close(ranks.rank.double(), exact.rank, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["supap", "h_ap", "rambo_ap", "fastap"])
def test_memory_of_a_batch_against_itself_grows_with_its_square(name):
    largest, saved = {}, {}
    for size in (64, 192):
        generator = torch.Generator().manual_seed(0)
        embeddings = torch.randn(size, 8, generator=generator).requires_grad_()
        labels = torch.arange(size) % 4  # size / 4 per class: pairs x items is size^3 / 4
        kept: list[int] = []

        def keep(tensor: Tensor, kept: list[int] = kept) -> Tensor:
            kept.append(tensor.numel())
            return tensor

        with Allocations() as seen, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            losses.LOSSES[name]()(embeddings, labels).backward()
        largest[size], saved[size] = seen.largest, sum(kept)
    assert 192**2 <= largest[192] <= 4 * 192**2 < 192**3 / 4
    assert saved[192] <= 11 * saved[64] and saved[192] <= 12 * 192**2  # 9 times the square, 27 times the cube


# ------------------------------------------------------------------------------------------------------------- exact


def exact_steps(ties: Ties):
    return {"pessimistic": reference.heaviside, "optimistic": lambda t: float(t > 0)}[ties]


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_ranks_count_level_items_as_asked(problem, seed, ties, graded):
    scores, relevance, valid = problem(seed, ties=True, graded=graded)
    step = exact_steps(ties)
    check_ranks(exact_ranks(scores, relevance, valid, ties=ties), counted_by_hand(scores, relevance, valid, step, step))


def by_index(scores: Tensor, relevance: Tensor, valid: Tensor, margin: float) -> dict[tuple[int, int], tuple]:
    found = {}
    for q in range(len(scores)):
        kept = [j for j in range(scores.shape[1]) if valid[q, j]]
        g = [float(relevance[q, j]) for j in kept]
        y = [float(scores[q, j]) + (-margin if gain > 0 else margin) / 2 for j, gain in zip(kept, g, strict=True)]
        rank = reference.rk(y)
        for i, gain in enumerate(g):
            if gain > 0:
                above = [j for j in range(len(g)) if rank[j] < rank[i]]
                found[q, kept[i]] = (
                    float(sum(g[j] >= gain for j in above)),
                    float(sum(g[j] < gain for j in above)),
                    float(sum(min(g[j], gain) for j in above)),
                )
    return found


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize("margin", [0.0, 0.25, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_exact_ranks_by_index_are_a_permutation_of_the_shifted_scores(problem, seed, margin, graded):
    scores, relevance, valid = problem(seed, ties=True, graded=graded)
    ranks = exact_ranks(scores, relevance, valid, ties="index", margin=margin)
    check_ranks(ranks, by_index(scores, relevance, valid, margin))


def test_exact_ranks_are_what_soft_ranks_count_with_the_exact_step(problem):
    for ties in (False, True):
        scores, relevance, valid = problem(6, ties=ties, graded=True)
        exact = exact_ranks(scores, relevance, valid)
        soft = soft_ranks(scores, relevance, valid, pos=Heaviside(), neg=Heaviside())
        for name in ("above_pos", "above_neg", "above_gain"):
            torch.testing.assert_close(getattr(soft, name), getattr(exact, name))


def test_number_of_relevant_items_and_counted_queries_are_ragged(problem):
    ranks = exact_ranks(*problem())
    assert ranks.num_relevant.tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 0]
    assert ranks.counted.tolist() == [True] * 7 + [False] * 2
    assert ranks.num_queries == 9


# Long lists are counted by cells (tests/kernels/test_counting.py), so these are long.


@pytest.mark.parametrize("share", [0.005, 0.05], ids=["few relevant", "many relevant"])
@pytest.mark.parametrize("junk", [False, True], ids=["all valid", "some not valid"])
@pytest.mark.parametrize("ties", ["pessimistic", "optimistic", "index"])
def test_exact_ranks_of_a_long_list_with_ties_equal_sorting(ties, junk, share, monkeypatch):
    monkeypatch.setattr(counting, "CELLS_FROM", 1)
    generator = torch.Generator().manual_seed(3)
    n = 16_395
    scores = (torch.randn(1, n, generator=generator) * 1000).round() / 1000
    relevant = torch.rand(1, n, generator=generator) < share
    valid = torch.rand(1, n, generator=generator) > 0.1 if junk else torch.ones(1, n, dtype=torch.bool)
    ranks = exact_ranks(scores, relevant, valid if junk else None, ties=ties)
    order = scores[0].argsort(descending=True, stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(n))
    mine = scores[0][ranks.item].unsqueeze(1)
    above = {
        "pessimistic": scores >= mine,
        "optimistic": scores > mine,
        "index": place.unsqueeze(0) < place[ranks.item].unsqueeze(1),
    }[ties]
    above = above.scatter(1, ranks.item.unsqueeze(1), False)
    assert torch.equal(ranks.above_pos, (above & relevant & valid).sum(1).double())
    assert torch.equal(ranks.above_neg, (above & ~relevant & valid).sum(1).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("relevant_items", [10, 300])
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "ties"])
def test_blackbox_gradient_of_a_long_list_is_that_of_algorithm_1(dtype, relevant_items, rounded, monkeypatch):
    monkeypatch.setattr(counting, "CELLS_FROM", 1)
    generator = torch.Generator().manual_seed(5)
    n = 16_387
    scores = torch.randn(2, n, generator=generator, dtype=torch.float64).to(dtype)
    if rounded:
        scores = (scores * 64).round() / 64
    relevant = torch.zeros(2, n, dtype=torch.bool)
    for row in relevant:
        row[torch.randperm(n, generator=generator)[:relevant_items]] = True
    box = Blackbox(lambda_=4.0, margin=0.0)
    leaf = scores.clone().requires_grad_()
    values, ranks = box.values(average_precision, leaf, relevant)
    values.mean().backward()
    rank = ranks.rank.clone().requires_grad_()
    per_pair = (1 + ranks.above_pos) / rank
    (g,) = torch.autograd.grad(ranks.mean_per_query(per_pair).mean(), rank)
    moved = scores.clone()
    moved[relevant] += (4.0 * n * g).to(dtype)

    def ranked(s: Tensor) -> Tensor:
        order = s.argsort(dim=1, descending=True, stable=True)
        return torch.empty_like(order).scatter_(1, order, torch.arange(n).expand_as(order))

    steps = leaf.grad.double() * 4.0 * n
    assert torch.equal(steps.round().long(), ranked(moved) - ranked(scores))


def test_pull_scales_the_gradient_of_relevant_scores_and_leaves_the_value(problem):
    scores, relevance, valid = problem(4)
    gradients, values = [], []
    for pull in (1.0, 0.25):
        leaf = scores.clone().requires_grad_()
        ranks = Soft(Sigmoid(0.1), Exponential(0.3), pull=pull)(leaf, relevance, valid)
        value = (ranks.above_neg + ranks.above_pos).sum()
        value.backward()
        gradients.append(leaf.grad)
        values.append(value.detach())
    torch.testing.assert_close(values[0], values[1])
    torch.testing.assert_close(gradients[1], torch.where(relevance, 0.25, 1.0) * gradients[0])
    assert gradients[0][relevance].abs().max() > 0
    with pytest.raises(ValueError, match="pull"):
        Soft(Sigmoid(), Sigmoid(), pull=0.0)


# ---------------------------------------------------------------------------------------------------------- blackbox


def gradient_of(scores: Tensor, g: Tensor, lambda_: float, normalized: bool = False) -> Tensor:
    leaf = scores.clone().requires_grad_()
    blackbox_rank(leaf, lambda_, normalized).backward(g)
    return leaf.grad


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("lambda_", [0.01, 0.2, 3.0])
def test_blackbox_rank_is_algorithm_1(problem, lambda_, ties):
    scores = problem(7, ties=ties).scores
    g = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.tensor([reference.rk(y) for y in scores.tolist()], dtype=torch.float64)
    assert torch.equal(blackbox_rank(scores, lambda_), expected)
    rows = [reference.algorithm_1(y, v, lambda_) for y, v in zip(scores.tolist(), g.tolist(), strict=True)]
    torch.testing.assert_close(gradient_of(scores, g, lambda_), torch.tensor(rows, dtype=torch.float64))


def test_normalised_blackbox_rank_is_algorithm_1_with_n_times_lambda(problem):
    scores = problem(8).scores
    n = scores.shape[1]
    g = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(blackbox_rank(scores, 0.3, normalized=True), blackbox_rank(scores, 0.3) / n)
    # dL/drk = dL/dr / n, so the same perturbation, hence the same gradient of the loss by the scores
    torch.testing.assert_close(gradient_of(scores, g, 0.3, normalized=True), gradient_of(scores, g / n, 0.3 * n))


@pytest.mark.parametrize("seed", range(5))
def test_blackbox_rank_gradient_sums_to_zero_and_goes_against_the_upstream(seed):
    generator = torch.Generator().manual_seed(seed)
    scores, g = torch.randn(2, 20, 11, generator=generator, dtype=torch.float64)
    got = gradient_of(scores, g, 0.7)
    torch.testing.assert_close(got.sum(1), torch.zeros(20, dtype=torch.float64))
    assert ((g * got).sum(1) <= 0).all() and (got != 0).any()


@pytest.mark.parametrize("c", [0.25, 3.0, 64.0])
def test_scaling_scores_and_lambda_divides_the_blackbox_gradient(c):
    scores, g = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(gradient_of(c * scores, g, c * 0.7), gradient_of(scores, g, 0.7) / c)


def test_perturbation_that_reorders_nothing_has_gradient_zero():
    scores = torch.tensor([[3.0, 2.0, 1.0]])
    assert (gradient_of(scores, torch.tensor([[0.4, -0.4, 0.4]]), 1.0) == 0).all()


def test_blackbox_rank_is_not_linear_in_its_upstream():
    scores = torch.tensor([[3.0, 2.0, 1.0]])
    g = torch.tensor([[0.0, 0.0, 0.75]])
    assert (gradient_of(scores, g, 1.0) == 0).all() and (gradient_of(scores, 2 * g, 1.0) != 0).any()


def test_blackbox_rank_works_along_the_last_dimension_and_in_half_precision():
    scores = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    ranks = blackbox_rank(scores, 1.0)
    assert torch.equal(ranks[1, 2], blackbox_rank(scores[1, 2], 1.0))
    half = blackbox_rank(scores.half(), 1.0)
    assert half.dtype == torch.float32 and torch.equal(half, blackbox_rank(scores.half().float(), 1.0))
    assert blackbox_rank(torch.zeros(4), 1.0).tolist() == [1, 2, 3, 4]
    assert blackbox_rank(torch.zeros(2, 0), 1.0).shape == (2, 0)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_perturbation_that_is_not_positive_is_an_error(bad):
    with pytest.raises(ValueError, match="lambda_"):
        blackbox_rank(torch.zeros(3), bad)
    with pytest.raises(ValueError, match="lambda_"):
        Blackbox(bad)


def test_ranks_of_integers_or_of_a_vector_are_an_error():
    with pytest.raises(ValueError, match="float"):
        blackbox_rank(torch.zeros(3, dtype=torch.long), 1.0)
    with pytest.raises(ValueError, match=r"\[query, item\]"):
        exact_ranks(torch.zeros(3), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="ties"):
        exact_ranks(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.bool), ties="average")
    with pytest.raises(ValueError, match="margin"):
        Blackbox(1.0, margin=-0.1)


OPTIONS = [
    (lambda_, margin, normalized, aggregation)
    for lambda_, margin in ((4.0, 0.02), (0.5, 0.0), (0.05, 0.25))
    for normalized in (True, False)
    for aggregation in ("query", "pooled")
]
COSTS = {
    "log": (losses.RaMBORecallLoss, {"weight": "log"}, reference.recall_cost("log")),
    "loglog": (losses.RaMBORecallLoss, {"weight": "loglog"}, reference.recall_cost("loglog")),
    "weights": (losses.RaMBORecallLoss, {"weight": (1.0, 0.5, 0.25)}, reference.recall_cost((1.0, 0.5, 0.25))),
    "callable": (losses.RaMBORecallLoss, {"weight": torch.log1p}, reference.recall_cost("log")),
    "ap": (losses.RaMBOAPLoss, {}, reference.ap_cost),
}


@pytest.mark.parametrize("kind", ["distinct", "ties", "graded", "graded ties"])
@pytest.mark.parametrize("cost", COSTS)
def test_blackbox_loss_is_algorithm_1_on_dense_sorted_lists(problem, cost, kind):
    scores, relevance, valid = problem(9, ties="ties" in kind, graded="graded" in kind)
    cls, extra, by_hand = COSTS[cost]
    for options in OPTIONS:
        lambda_, margin, normalized, aggregation = options
        loss = cls(lambda_=lambda_, margin=margin, normalized_ranks=normalized, aggregation=aggregation, **extra)
        leaf = scores.clone().requires_grad_()
        value = loss.from_scores(leaf, relevance, valid)
        value.backward()
        expected, gradient, g = reference.rambo(scores, relevance, valid, by_hand, *options)
        assert value.item() == pytest.approx(expected, rel=1e-12), options
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-12, atol=1e-12)
        assert (leaf.grad * g).sum() <= 0
        torch.testing.assert_close(leaf.grad.sum(1), torch.zeros(len(scores), dtype=torch.float64))
        assert (lambda_, normalized) != (4.0, True) or (leaf.grad != 0).any()


def test_ranks_refuse_the_transforms_of_torch_func_by_name(problem):
    scores, relevant, valid = problem()
    for ranked in (Soft(Heaviside(), Sigmoid()), exact_ranks):
        with pytest.raises(RuntimeError, match=r"torch\.func"):
            torch.func.grad(lambda s, ranked=ranked: ranked(s, relevant, valid).above_neg.sum())(scores)
    with pytest.raises(RuntimeError, match=r"torch\.func"):
        torch.func.vmap(lambda s: blackbox_rank(s, 1.0))(scores)
