"""Soft ranks, sort and top k: optimality over all permutations, gradients, ties, limits, and unusual input."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

import rankgrad
from rankgrad import losses, metrics, ops

KINDS = ("quadratic", "entropic")
OPS = {
    "rank": ops.soft_rank,
    "sort": ops.soft_sort,
    "topk": partial(ops.soft_topk, k=2),
}


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem_of(name: str, scores: list[float], strength: float, k: int = 2) -> tuple[list[float], list[float]]:
    """z and w of the projection, in the notation of the paper."""
    n = len(scores)
    down = [float(n - place) for place in range(n)]
    if name == "rank":
        return [-s / strength for s in scores], down
    if name == "sort":
        return [d / strength for d in down], sorted(scores, reverse=True)
    return [s / strength for s in scores], [1.0] * k + [0.0] * (n - k)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPS)
def test_no_order_of_the_numbers_is_on_the_far_side_of_the_projection(name, kind):
    # m = P(z, w) if and only if m is in the hull and (slope at m) . (v - m) >= 0 for every corner v
    for seed, strength in itertools.product(range(4), (0.05, 0.4, 1.0, 3.0)):
        scores = seeded(5, seed=seed) if seed % 2 else torch.randint(0, 3, (5,), generator=_g(seed)).double()
        z, w = problem_of(name, scores.tolist(), strength)
        found = OPS[name](scores, strength=strength, regularization=kind).tolist()
        if kind == "entropic":
            if name == "sort":  # the values are logarithms
                w, found = [math.exp(x) for x in w], [math.exp(x) for x in found]
            slope = [math.log(m) - x for m, x in zip(found, z, strict=True)]
        else:
            slope = [m - x for m, x in zip(found, z, strict=True)]
        most = [sum(sorted(w, reverse=True)[: i + 1]) for i in range(5)]
        sums = [sum(sorted(found, reverse=True)[: i + 1]) for i in range(5)]
        assert all(s <= m + 1e-9 for s, m in zip(sums, most, strict=True)) and sums[-1] == pytest.approx(most[-1])
        for corner in set(itertools.permutations(w)):
            assert sum(g * (v - m) for g, v, m in zip(slope, corner, found, strict=True)) >= -1e-9


def _g(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPS)
def test_first_and_second_derivatives_are_those_of_the_value(name, kind):
    scores = seeded(3, 6, seed=1).requires_grad_()
    for strength in (0.1, 0.7, 5.0):
        call = partial(OPS[name], strength=strength, regularization=kind)
        assert torch.autograd.gradcheck(call, scores)
        assert torch.autograd.gradgradcheck(call, scores)


@pytest.mark.parametrize("kind", KINDS)
def test_tied_scores_share_the_mean_of_their_ranks_and_have_one_gradient(kind):
    scores = torch.tensor([[1.0, 3.0, 1.0, 0.0, 1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    for strength in (1e-12, 1e-3, 0.9):
        ranks = ops.soft_rank(scores, strength, kind)
        assert len(set(ranks[0, [0, 2, 4]].tolist())) == 1 and ranks[0, 1] == ranks[0, 5]
        if strength < 1e-2:
            torch.testing.assert_close(ranks.detach(), metrics.average_ranks(scores.detach()))
        weights = torch.tensor([1.0, 5.0, 1.0, 2.0, 1.0, 5.0], dtype=torch.float64)
        (gradient,) = torch.autograd.grad((weights * ranks).sum(), scores)
        assert gradient[0, 0] == gradient[0, 2] == gradient[0, 4] and gradient[0, 1] == gradient[0, 5]


def test_items_tied_for_the_last_places_share_them():
    found = ops.soft_topk(torch.tensor([0.0, 5.0, 0.0, -5.0, 0.0]), k=2, strength=0.01)
    torch.testing.assert_close(found, torch.tensor([1 / 3, 1, 1 / 3, 0, 1 / 3]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPS)
def test_lists_of_a_batch_do_not_see_one_another(name, kind):
    call = partial(OPS[name], strength=0.3, regularization=kind)
    scores = seeded(2, 3, 7)
    whole = call(scores)
    for i, j in itertools.product(range(2), range(3)):
        torch.testing.assert_close(whole[i, j], call(scores[i, j]))
    strided = seeded(7, 4).T
    torch.testing.assert_close(call(strided), call(strided.contiguous()))
    order = torch.randperm(7, generator=_g(0))
    moved = call(scores[..., order])
    torch.testing.assert_close(moved, whole if name == "sort" else whole[..., order])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_regularisation_they_are_the_hard_functions(dtype, kind):
    scores = seeded(4, 500).to(dtype)
    hard = scores.argsort(1, descending=True).argsort(1).to(dtype) + 1
    torch.testing.assert_close(ops.soft_rank(scores, 1e-9, kind), hard)
    torch.testing.assert_close(ops.soft_sort(scores, 1e-9, kind), scores.sort(1, descending=True).values)
    torch.testing.assert_close(ops.soft_topk(scores, 20, 1e-9, kind), (hard <= 20).to(dtype))


def test_ranks_are_exact_from_the_strength_on_that_the_page_names():
    scores = torch.tensor([0.0, 0.5, 1.5, 1.0], dtype=torch.float64)
    assert ops.soft_rank(scores, 0.499).tolist() == [4, 3, 1, 2]
    assert ops.soft_rank(scores, 0.501).tolist() != [4, 3, 1, 2]
    assert ops.soft_sort(scores, 1.999).tolist() == [1.5, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("kind", KINDS)
def test_with_strong_regularisation_they_are_constant(kind):
    scores = seeded(2, 9)
    torch.testing.assert_close(ops.soft_rank(scores, 1e9, kind), torch.full_like(scores, 5.0))
    torch.testing.assert_close(ops.soft_topk(scores, 3, 1e9, kind), torch.full_like(scores, 1 / 3))
    mean = scores.exp().mean(1).log() if kind == "entropic" else scores.mean(1)
    torch.testing.assert_close(ops.soft_sort(scores, 1e9, kind), mean.unsqueeze(1).expand(2, 9), rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", ["normal", "growing", "one after another", "steps"])
def test_pools_of_long_lists_are_those_of_scikit_learn(shape):
    isotonic = pytest.importorskip("sklearn.isotonic")
    n = 3000
    values = {
        "normal": seeded(n).numpy() * 800,
        "growing": np.exp(np.linspace(0, 12, n)),
        # each merge makes the pool violate the next one: n rounds of merging would be needed
        "one after another": np.append(np.linspace(0, 2 * n, n - 1) ** 1.2, -1e7),
        "steps": np.repeat(np.arange(n // 100), 100).astype(float) * 120,
    }[shape]
    scores = torch.from_numpy(values)
    down = np.arange(n, 0, -1.0)
    order = np.argsort(values, kind="stable")
    dual = isotonic.isotonic_regression(-values[order] - down, increasing=False)
    expected = np.empty(n)
    expected[order] = -values[order] - dual
    np.testing.assert_allclose(ops.soft_rank(scores).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_huge_and_tiny_scores_keep_their_ranks(kind):
    scores = torch.tensor([[1e30, -1e30, 0.0, 1e30], [1e-30, -1e-30, 0.0, 1e-30]], requires_grad=True)
    ranks = ops.soft_rank(scores, 1e-30 if kind == "quadratic" else 1e-25, kind)
    assert ranks[0].tolist() == pytest.approx([1.5, 4, 3, 1.5])
    ranks.square().sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("name", OPS)
def test_precision_follows_the_input_and_is_at_least_float32(name):
    for dtype, out in ((torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float32,) * 2):
        scores = torch.tensor([0.5, 2.0, -1.0], dtype=dtype, requires_grad=True)
        value = OPS[name](scores)
        value[0].backward()
        assert value.dtype == out and scores.grad.dtype == dtype
    assert OPS[name]([0.5, 2.0, -1.0]).dtype == torch.float64
    torch.testing.assert_close(OPS[name](np.float32([0.5, 2.0, -1.0])), OPS[name](torch.tensor([0.5, 2.0, -1.0])))


@pytest.mark.parametrize("kind", KINDS)
def test_empty_and_single_lists(kind):
    for call in (ops.soft_rank, ops.soft_sort):
        for shape in ((0,), (3, 0), (0, 4)):
            scores = torch.zeros(shape, requires_grad=True)
            value = call(scores, regularization=kind)
            value.sum().backward()
            assert value.shape == shape
    one = torch.tensor([[2.5]])
    assert ops.soft_rank(one, regularization=kind).item() == 1
    assert ops.soft_sort(one, regularization=kind).item() == 2.5
    assert ops.soft_topk(one, 1, regularization=kind).item() == 1
    assert ops.soft_topk(torch.tensor([3.0, 1.0]), 2, regularization=kind).tolist() == [1, 1]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (torch.tensor([1, 2, 3]), {}, "scores must be a float tensor"),
        (torch.tensor(1.0), {}, "scores must be a float tensor"),
        (torch.tensor([1.0, math.nan]), {}, "NaN or infinity"),
        (torch.tensor([1.0, -math.inf]), {}, "NaN or infinity"),
        (torch.ones(2), {"strength": 0.0}, "strength"),
        (torch.ones(2), {"strength": math.nan}, "strength"),
        (torch.ones(2), {"strength": "1"}, "strength"),
        (torch.ones(2), {"regularization": "l2"}, "regularization must be 'quadratic' or 'entropic'"),
    ],
)
def test_what_cannot_be_computed_is_refused(name, scores, options, message):
    with pytest.raises(ValueError, match=message):
        OPS[name](scores, **options)


@pytest.mark.parametrize("k", [0, -1, 4, 1.0, True])
def test_k_beyond_the_list_is_refused(k):
    with pytest.raises(ValueError, match="k is a number of items"):
        ops.soft_topk(torch.ones(3), k)
    with pytest.raises(ValueError, match="k is a number of items"):
        ops.soft_topk(torch.ones(2, 0), 1)


def test_soft_ranks_train_a_loss_of_ranks():
    scores = seeded(1, 12, seed=4).requires_grad_()
    gains = seeded(1, 12, seed=5).exp()
    loss = losses.SpearmanLoss(ranks=lambda s, valid: ops.soft_rank(s, 0.5))
    optimizer = torch.optim.SGD([scores], lr=1.0)
    before = loss.from_scores(scores, gains).item()
    for _ in range(50):
        optimizer.zero_grad()
        loss.from_scores(scores, gains).backward()
        optimizer.step()
    assert loss.from_scores(scores, gains) < 0.1 < before
    assert rankgrad.ops is ops


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo looks at it itself
def test_compiled_code_has_the_same_values_and_gradients():
    scores = seeded(2, 6)
    compiled = torch.compile(lambda s: ops.soft_rank(s, 0.5), backend="eager")
    weights, leaf = seeded(2, 6, seed=1), [scores.detach().requires_grad_() for _ in range(2)]
    for call, each in zip((compiled, partial(ops.soft_rank, strength=0.5)), leaf, strict=True):
        (weights * call(each)).sum().backward()
    torch.testing.assert_close(leaf[0].grad, leaf[1].grad)
