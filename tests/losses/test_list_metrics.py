"""Losses of the metrics of one list: ROC AUC and its part, NDCG@k, AP, MRR; which of them bound their metric."""

from __future__ import annotations

import itertools
import math

import pytest
import reference
import torch
from torch import Tensor

from rankgrad import metrics
from rankgrad.losses import (
    InfoNCELoss,
    LambdaLoss,
    ListNetLoss,
    NDCGLoss,
    RankLoss,
    ROCAUCLoss,
    SLatKLoss,
    SupAPLoss,
    SupNDCGLoss,
)
from rankgrad.ranks import Soft
from rankgrad.ranks.relaxations import Heaviside, SupStep

NONE = {"reduction": "none"}


def orders_of(levels: tuple[float, ...], most: int = 6) -> list[tuple[Tensor, Tensor]]:
    """Scores and gains [order, item]: every order of every list of up to so many items of these levels."""
    found = []
    for items in range(2, most + 1):
        scores = torch.tensor(list(itertools.permutations(range(items))), dtype=torch.float64)
        for gains in itertools.combinations_with_replacement(levels, items):
            if any(gains):
                found.append((scores, torch.tensor(gains, dtype=torch.float64).expand_as(scores)))
    return found


def exact_step(loss: LambdaLoss) -> LambdaLoss:
    """The loss with the step that its own is never below."""
    loss._step = lambda differences, out: out.copy_(differences >= 0).mul_(math.log(2))
    return loss


@pytest.mark.parametrize("k", [1, 2, 3, None])
@pytest.mark.parametrize("gain", ["linear", "exp2"])
def test_changes_by_swaps_of_wrong_pairs_add_up_to_at_least_what_ndcg_misses(k, gain):
    loss = exact_step(LambdaLoss("ndcg", k, gain=gain, **NONE))
    for scores, gains in orders_of((0.0, 1.0, 2.0), 5):
        missed = 1 - metrics.ndcg(scores, gains, k=k, gain=gain)
        assert (loss.from_scores(scores, gains) >= missed - 1e-12).all()


def test_changes_by_swaps_of_wrong_pairs_add_up_to_at_least_what_ap_and_mrr_miss():
    for scores, gains in orders_of((0.0, 1.0)):
        for name, metric in (("map", metrics.average_precision), ("mrr", metrics.reciprocal_rank)):
            found = exact_step(LambdaLoss(name, **NONE)).from_scores(scores, gains > 0)
            assert (found >= 1 - metric(scores, gains > 0) - 1e-12).all()


HARD = Soft(Heaviside(), SupStep())
BOUNDS = {
    "roc auc": (ROCAUCLoss(**NONE), metrics.roc_auc),
    "ap, supap": (SupAPLoss(**NONE), metrics.average_precision),
    "ap, log-sum-exp": (InfoNCELoss(**NONE), metrics.average_precision),
    "mrr, log-sum-exp": (InfoNCELoss(**NONE), metrics.reciprocal_rank),
    "ap, list_net": (ListNetLoss(**NONE), metrics.average_precision),
    "mrr, list_net": (ListNetLoss(**NONE), metrics.reciprocal_rank),
    "ndcg, list_net": (ListNetLoss(**NONE), metrics.ndcg),
    "mrr, supap's step": (RankLoss(HARD, metric=metrics.reciprocal_rank, **NONE), metrics.reciprocal_rank),
    "mrr, lambda": (LambdaLoss("mrr", **NONE), metrics.reciprocal_rank),
    "ap, lambda": (LambdaLoss("map", **NONE), metrics.average_precision),
    "ndcg, lambda": (LambdaLoss(gain="linear", **NONE), metrics.ndcg),
    "ndcg, supndcg": (SupNDCGLoss(gain="linear", **NONE), metrics.ndcg),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_loss_that_says_so_is_never_below_what_the_metric_misses_also_with_ties(problem, name):
    loss, metric = BOUNDS[name]
    for seed, ties, scale in itertools.product(range(5), (False, True), (0.1, 1.0, 10.0)):
        scores, relevant, valid = problem(seed, ties=ties)
        cost = loss.from_scores(scale * scores, relevant, valid)
        counted = loss.stats["counted"]
        assert (cost >= 1 - metric(scale * scores, relevant, valid) - 1e-12)[counted].all()


def test_list_net_and_sup_ndcg_bound_ndcg_of_gains(problem):
    for seed in range(5):
        scores, gains, valid = problem(seed, graded=True)
        missed = 1 - metrics.ndcg(scores, gains, valid)
        for loss in (ListNetLoss(**NONE), SupNDCGLoss(gain="linear", **NONE), LambdaLoss(gain="linear", **NONE)):
            assert (loss.from_scores(scores, gains, valid) >= missed - 1e-12)[loss.stats["counted"]].all()


@pytest.mark.parametrize("fpr", [0.01, 0.2, 0.34, 0.5, 0.9, 1.0])
def test_partial_roc_auc_and_its_loss_equal_plain_loops_and_the_loss_bounds_it(problem, fpr):
    for seed, ties in itertools.product(range(3), (False, True)):
        lists = problem(seed, ties=ties)
        rows = reference.lists(*lists)
        exact = metrics.partial_roc_auc(*lists, fpr=fpr)
        expected = [reference.partial_roc_auc(s, g, fpr) for s, g in rows[:6]] + [0.0] * 3
        assert exact.tolist() == pytest.approx(expected)
        loss = ROCAUCLoss(fpr=fpr, tau=0.3)
        assert loss.from_scores(*lists).item() == pytest.approx(reference.pairs_loss(rows, 0.3, fpr), rel=1e-10)
        counted = loss.stats["counted"]
        assert counted.tolist() == [True] * 6 + [False] * 3
        each = ROCAUCLoss(fpr=fpr, tau=0.3, **NONE).from_scores(*lists)
        assert (each >= 1 - exact - 1e-12)[counted].all()


def test_partial_roc_auc_up_to_1_is_roc_auc(problem):
    lists = problem(1, ties=True)
    torch.testing.assert_close(metrics.partial_roc_auc(*lists, fpr=1), metrics.roc_auc(*lists))


def test_partial_roc_auc_is_that_of_scikit_learn(problem):
    sk = pytest.importorskip("sklearn.metrics")
    for fpr, ties in itertools.product((0.1, 0.37, 0.8), (False, True)):
        scores, relevant, _ = problem(2, ties=ties)
        for s, r in zip(scores[:6], relevant[:6], strict=True):
            value, least = metrics.partial_roc_auc(s.unsqueeze(0), r.unsqueeze(0), fpr=fpr).item(), fpr**2 / 2
            expected = sk.roc_auc_score(r.numpy(), s.numpy(), max_fpr=fpr)
            assert (1 + (fpr * value - least) / (fpr - least)) / 2 == pytest.approx(expected)


def test_only_the_hardest_irrelevant_items_have_a_gradient_below_an_fpr():
    scores = torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.8]], requires_grad=True)
    loss = ROCAUCLoss(fpr=0.5).from_scores(scores, torch.tensor([[True, False, False, False, False]]))
    loss.backward()
    assert (scores.grad != 0).tolist() == [[True, True, False, True, False]]  # of level ones the lower index


def test_grades_and_a_low_fpr_do_not_go_together():
    with pytest.raises(ValueError, match="fpr < 1"):
        ROCAUCLoss(fpr=0.1).from_scores(torch.rand(1, 3), torch.tensor([[2.0, 1.0, 0.0]]))


def test_items_behind_k_are_pulled_up_and_pairs_behind_k_are_left_alone():
    scores = torch.arange(6.0).flip(0).requires_grad_()
    gains = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    LambdaLoss(k=2).from_lists(scores, gains).backward()
    assert scores.grad[3] < 0 and (scores.grad > 0).tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure": "dcg"}, "measure must be 'ndcg', 'map', 'mrr' or 'precision'; got 'dcg'"),
        ({"measure": "mrr", "k": 3}, "k is for 'ndcg' and 'precision' only"),
        ({"measure": "precision"}, "'precision' needs it"),
        ({"k": 0}, "k is a list length"),
        ({"k": 2**63}, "k is a list length and must be an integer <= 9223372036854775807"),
        ({"gain": "square"}, "gain must be"),
        ({"tau": 0}, "tau is a temperature"),
    ],
)
def test_options_of_lambda_loss_that_mean_nothing_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LambdaLoss(**options)


def test_small_chunks_of_pairs_give_the_same(problem, monkeypatch):
    from rankgrad.losses import lambda_loss

    lists = problem(0, graded=True)
    found = []
    for chunk in (lambda_loss.CHUNK, 13, 1):
        monkeypatch.setattr(lambda_loss, "CHUNK", chunk)
        leaf = lists.scores.clone().requires_grad_()
        value = LambdaLoss().from_scores(leaf, *lists[1:])
        value.backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_loss_of_precision_at_k_bounds_what_is_missed_of_the_best_that_can_be_had(k):
    for scores, gains in orders_of((0.0, 1.0)):
        hits = gains > 0
        missed = hits.sum(1).clamp(max=k) / k - metrics.precision_at_k(scores, hits, k)
        for loss in (LambdaLoss("precision", k, **NONE), exact_step(LambdaLoss("precision", k, **NONE))):
            assert (loss.from_scores(scores, hits) >= missed - 1e-12).all()


@pytest.mark.parametrize(
    "loss",
    [LambdaLoss(), LambdaLoss("map"), LambdaLoss("mrr"), LambdaLoss("precision", 1), ListNetLoss(), NDCGLoss()],
    ids=str,
)
def test_a_gain_that_rounds_to_zero_in_the_precision_of_the_scores_is_irrelevant_and_said_to_be(loss):
    gains = torch.tensor([[1e-60, 0.0, 0.0]], dtype=torch.float64)
    for dtype, found in ((torch.float32, False), (torch.float64, True)):
        loss.from_scores(torch.tensor([[0.5, 0.9, 0.1]], dtype=dtype), gains)
        assert loss.stats["counted"].item() is loss.stats["has_relevant"].item() is found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_grades_of_exponential_gains_are_learned_like_linear_ones(dtype):
    """2^g - 1 is proportional to g there, and NDCG is a ratio."""
    scores, grades = torch.tensor([[0.5, 0.9, 0.1]], dtype=dtype), torch.tensor([[1e-20, 0.0, 3e-20]], dtype=dtype)
    for kind in (LambdaLoss, NDCGLoss):
        values = [kind(gain=gain, tau=0.1).from_scores(scores, grades) for gain in ("exp2", "linear")]
        torch.testing.assert_close(*values)
        assert values[0] > 0


def test_large_grades_have_a_finite_gradient():
    """2^128 is infinite in float32, but NDCG is a ratio."""
    loss = LambdaLoss("ndcg", gain="exp2", tau=0.1)
    scores = torch.tensor([[0.5, 0.9, 0.1], [0.5, 0.9, 0.1]], requires_grad=True)
    value = loss.from_scores(scores, torch.tensor([[200.0, 200.0, 199.0], [1.0, 0.0, 0.0]]))
    value.backward()
    assert scores.grad.isfinite().all() and scores.grad[0].any()
    exact = scores.detach().double().requires_grad_()
    same = loss.from_scores(exact, torch.tensor([[200.0, 200.0, 199.0], [1.0, 0.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(value.double(), same, rtol=1e-5, atol=0)


def test_weights_of_sl_at_k_are_constants_of_the_gradient(problem):
    scores, relevant, valid = problem(1)
    loss = SLatKLoss(k=3, tau=0.2, tau_weight=0.1)
    leaf = scores.clone().requires_grad_()
    loss.from_scores(leaf, relevant, valid).backward()
    hidden = scores.masked_fill(~valid, -math.inf)
    beta = hidden.sort(1, descending=True).values[:, 2:3]
    weight = torch.sigmoid((scores - beta) / 0.1)  # as numbers: their slope is not in the gradient
    again = scores.clone().requires_grad_()
    logs = (again / 0.2).masked_fill(~valid, -math.inf).log_softmax(1)
    hits = relevant & valid
    costs = -torch.where(hits, weight * logs, 0).sum(1) / hits.sum(1).clamp(min=1)
    (costs.sum() / hits.any(1).sum()).backward()
    torch.testing.assert_close(leaf.grad, again.grad)


def test_sl_at_k_pulls_up_a_relevant_item_however_far_below_the_top_it_is():
    # with a gradient through the weights it would be pushed down: its cost is weight x cross-entropy
    scores = torch.linspace(1, -1, 41, dtype=torch.float64).unsqueeze(0)
    relevant = torch.zeros(1, 41, dtype=torch.bool)
    relevant[0, 30] = True
    leaf = scores.clone().requires_grad_()
    SLatKLoss(k=5, tau=0.2, tau_weight=0.05).from_scores(leaf, relevant).backward()
    through = scores.clone().requires_grad_()
    beta = through.topk(5, dim=1).values[:, 4]
    (torch.sigmoid((through[:, 30] - beta) / 0.05) * -(through / 0.2).log_softmax(1)[:, 30]).sum().backward()
    assert leaf.grad[0, 30] < 0 < through.grad[0, 30]


def test_sl_at_k_of_lists_shorter_than_k_is_the_softmax_loss(problem):
    lists = problem(2)
    torch.testing.assert_close(
        SLatKLoss(k=14, tau=0.3, tau_weight=0.01).from_scores(*lists), ListNetLoss(0.3).from_scores(*lists)
    )
    one = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
    assert SLatKLoss(k=1).from_scores(*one) == 0
    for k in (0, 2.5, None):
        with pytest.raises(ValueError, match="k is a list length"):
            SLatKLoss(k=k)


@pytest.mark.parametrize("spread", [1.0, 1000.0])
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("measure", ["ndcg", "map", "mrr", "precision"])
def test_exponentials_of_items_give_the_cost_of_the_pairs_and_wide_lists_are_compared_in_pairs(measure, graded, spread):
    generator = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(6, 40, generator=generator, dtype=torch.float64)
    gains = torch.randint(0, 4, (6, 40), generator=generator)
    relevance = gains.double() if graded else gains == 3
    valid = torch.rand(6, 40, generator=generator) < 0.9
    found = []
    for by_pairs in (False, True):
        loss, leaf = LambdaLoss(measure, 5 if measure == "precision" else None), scores.clone().requires_grad_()
        if by_pairs:
            loss._step = lambda differences, out: out.copy_(torch.nn.functional.softplus(differences))
        value = loss.from_scores(leaf, relevance, valid)
        value.backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-9, atol=0)  # softplus is linear beyond 20
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-9, atol=1e-12)
    assert found[0][1].isfinite().all() and found[0][1].abs().sum() > 0


def test_small_costs_of_a_list_with_a_high_and_a_low_relevant_item_keep_their_digits_in_float32():
    """exp(-110) is 0 in float32, but the low item is only 60 above the others."""
    scores, hits = torch.tensor([[110.0, 60.0, 1.0, 0.0]]), torch.tensor([[True, True, False, False]])
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype, copy=True).requires_grad_()
        LambdaLoss().from_scores(leaf, hits).backward()
        gradients.append(leaf.grad.double())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-5 * float(gradients[1].abs().max()))
    assert gradients[1].abs().max() > 0
