"""SpearmanLoss: its value and gradient by plain loops, what it counts, and other sources of ranks."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import reference
import torch
from torch import Tensor

from rankgrad import blackbox_rank, losses, metrics, relevance
from rankgrad.losses import SpearmanLoss
from rankgrad.losses.spearman import wanted_ranks


def gradient(loss: torch.nn.Module, scores: Tensor, *lists: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    loss.from_scores(leaf, *lists).backward()
    return leaf.grad


# ---------------------------------------------------------------------------------------------------------- the value


@pytest.mark.parametrize("seed", range(4))
def test_without_level_scores_it_is_one_minus_the_metric(problem, seed):
    scores, gains, _ = problem(seed, graded=True)
    kept = scores[:6]
    value = SpearmanLoss(reduction="none").from_scores(kept, gains[:6])
    torch.testing.assert_close(value, 1 - metrics.spearman(kept, gains[:6]))


def test_equals_scipy_with_level_gains():
    stats = pytest.importorskip("scipy.stats")
    g = torch.Generator().manual_seed(0)
    scores, gains = (
        torch.randn(5, 12, generator=g, dtype=torch.float64),
        torch.randint(4, (5, 12), generator=g).double(),
    )
    expected = [1 - stats.spearmanr(s, t).statistic for s, t in zip(scores.numpy(), gains.numpy(), strict=True)]
    assert SpearmanLoss(reduction="none").from_scores(scores, gains).tolist() == pytest.approx(expected, rel=1e-12)


def test_scores_in_the_order_of_distinct_gains_cost_nothing_and_in_the_reverse_order_two():
    gains = torch.tensor([[4.0, 1.0, 3.0, 2.0]])
    scores = gains.clone().requires_grad_()
    value = SpearmanLoss().from_scores(scores, gains)
    value.backward()
    assert value == 0 and (scores.grad == 0).all()
    assert SpearmanLoss().from_scores(-gains, gains) == 2


@pytest.mark.parametrize(("p", "n"), [(1, 2), (3, 17), (20, 40)])
def test_best_loss_of_relevant_or_not_is_that_of_the_docstring(p, n):
    relevant = torch.arange(n).unsqueeze(0) < p
    scores = torch.arange(n, 0, -1).unsqueeze(0).double()
    best = 1 - math.sqrt(3 * p * (n - p) / (n**2 - 1))
    assert SpearmanLoss().from_scores(scores, relevant).item() == pytest.approx(best, abs=1e-12)


def test_bool_relevance_is_gains_of_one_and_zero_and_only_the_order_of_gains_counts(problem):
    scores, relevant, valid = problem()
    loss = SpearmanLoss()
    expected = loss.from_scores(scores, relevant, valid)
    for gains in (relevant.double(), relevant * 0.25 + 0.5):
        torch.testing.assert_close(loss.from_scores(scores, gains.double(), valid), expected)
    torch.testing.assert_close(
        gradient(loss, scores, relevant.double() + 1, valid), gradient(loss, scores, relevant, valid)
    )
    scores, gains, valid = problem(graded=True)
    torch.testing.assert_close(loss.from_scores(scores, gains.exp() - 1, valid), loss.from_scores(scores, gains, valid))


def test_queries_whose_items_have_one_gain_are_not_counted():
    scores = torch.tensor([[0.3, 0.1, 0.2]] * 4, dtype=torch.float64)
    gains = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 2.0]])
    valid = torch.tensor([[True] * 3] * 3 + [[False, True, False]])
    loss = SpearmanLoss()
    leaf = scores.clone().requires_grad_()
    value = loss.from_scores(leaf, gains, valid)
    value.backward()
    assert loss.stats["counted"].tolist() == [False, False, True, False]
    assert value.item() == pytest.approx(1 - metrics.spearman(scores[2], gains[2]).item())
    assert (leaf.grad[[0, 1, 3]] == 0).all()


def test_wanted_ranks_are_centred_average_ranks_of_length_one(problem):
    for lists in (problem(), problem(1, graded=True), problem(2, graded=True, ties=True)):
        wanted, counted = wanted_ranks(lists.relevant, lists.valid)
        rows = reference.lists(lists.scores, lists.relevant, lists.valid)
        for row, exists, count, (_, g) in zip(wanted, lists.valid, counted, rows, strict=True):
            assert count == (len(set(g)) > 1) and (row[~exists] == 0).all()
            if count:
                ranks = torch.tensor(reference.average_ranks(g), dtype=torch.float64)
                torch.testing.assert_close(row[exists], torch.nn.functional.normalize(ranks - ranks.mean(), dim=0))


# ------------------------------------------------------------------------------------------------------- the gradient


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("lambda_", [0.3, 4.0, 100.0])
@pytest.mark.parametrize("options", [{}, {"graded": True}, {"ties": True}, {"ties": True, "graded": True}], ids=str)
def test_gradient_is_algorithm_1_with_the_slope_of_the_mean_by_the_ranks(problem, options, lambda_, normalized):
    for seed in range(2):
        lists = problem(seed, **options)
        expected = reference.spearman_gradient(*lists, lambda_, normalized)
        found = gradient(SpearmanLoss(lambda_, normalized), *lists)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        assert lambda_ < 1 or (found != 0).any()


def test_lambda_times_length_of_plain_ranks_is_lambda_of_normalised_ones(problem):
    scores, gains, _ = problem(graded=True)
    torch.testing.assert_close(
        gradient(SpearmanLoss(0.5), scores, gains), gradient(SpearmanLoss(0.5 * 13, False), scores, gains)
    )


def test_it_is_one_minus_the_correlation_of_the_bare_operator_where_there_is_one_query(problem):
    scores, gains, _ = problem(graded=True)
    leaf = scores[:1].clone().requires_grad_()
    a, b = blackbox_rank(leaf, 3.0)[0] - 7, metrics.average_ranks(gains[0]) - 7
    (1 - (a @ b) / (a.detach().norm() * b.norm())).backward()
    torch.testing.assert_close(gradient(SpearmanLoss(3.0, False), scores[:1], gains[:1]), leaf.grad)


def test_items_of_one_gain_are_not_moved_against_each_other(problem):
    scores, relevant, valid = problem()
    best = scores + 9 * relevant  # relevant items first: nothing is left to do, although the loss is not 0
    for lambda_ in (0.1, 4.0, 100.0):
        assert (gradient(SpearmanLoss(lambda_), best, relevant, valid) == 0).all()


def test_steps_against_the_gradient_sort_a_list_by_its_gains():
    g = torch.Generator().manual_seed(0)
    gains = torch.rand(4, 30, generator=g)
    scores = torch.randn(4, 30, generator=g).requires_grad_()
    optimizer = torch.optim.SGD([scores], lr=2.0)
    loss = SpearmanLoss(lambda_=40.0)
    start = loss.from_scores(scores, gains).item()
    for _ in range(200):
        optimizer.zero_grad()
        loss.from_scores(scores, gains).backward()
        optimizer.step()
    assert start > 0.8 and loss.from_scores(scores, gains).item() < 0.1


def test_long_lists_are_ranked_as_short_ones_are():
    # longer than what torch sorts: both ways of sorting must agree on what they share
    g = torch.Generator().manual_seed(0)
    scores, gains = torch.randn(2, 5000, generator=g, dtype=torch.float64), torch.randint(3, (2, 5000), generator=g)
    valid = torch.arange(5000).expand(2, 5000) < 500
    whole = SpearmanLoss().from_scores(scores, gains.double(), valid)
    torch.testing.assert_close(whole, SpearmanLoss().from_scores(scores[:, :500], gains[:, :500].double()))
    torch.testing.assert_close(
        gradient(SpearmanLoss(), scores, gains.double(), valid)[:, :500],
        gradient(SpearmanLoss(), scores[:, :500], gains[:, :500].double()),
    )


# -------------------------------------------------------------------------------------------------- labels and ranks


def test_hierarchy_by_level_alone_is_had_from_shared_levels():
    # one other item of the group and four of the class: HAPPIER's gain of the group is the larger one
    labels = torch.tensor([[0, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 1], [1, 2], [1, 2]])
    embeddings = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    gains, valid = relevance.from_labels(labels)
    levels = relevance.shared_levels(labels, labels).float()
    assert gains[0, 5] > gains[0, 1] and levels[0, 5] < levels[0, 1]
    loss = SpearmanLoss()
    torch.testing.assert_close(loss(embeddings, labels), loss(embeddings, relevant=gains))
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    torch.testing.assert_close(loss(embeddings, relevant=levels), loss.from_scores(unit @ unit.T, levels, valid))


def test_any_differentiable_ranks_may_take_the_place_of_the_blackbox(problem):
    def ranks(scores: Tensor, valid: Tensor | None) -> Tensor:
        kept = scores.masked_fill(~valid, -9.0)
        return 0.5 + torch.sigmoid((kept.unsqueeze(1) - kept.unsqueeze(2)) / 0.1).sum(2)  # an item itself counts 1/2

    loss = SpearmanLoss(ranks=ranks)
    for lists in (problem(), problem(1, graded=True)):
        leaf = lists.scores.clone().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda s, lists=lists: loss.from_scores(s, lists.relevant, lists.valid), leaf, fast_mode=True
        )
        costs = []
        for row, (s, g) in enumerate(reference.lists(*lists)):
            if len(set(g)) > 1:
                step = reference.sigmoid(0.1)
                soft = [1 + sum(step(s[j] - s[i]) for j in range(len(s)) if j != i) for i in range(len(s))]
                costs.append(1 - reference.pearson(soft, reference.average_ranks(g)))
                assert loss.stats["counted"][row]
        assert loss.from_scores(*lists).item() == pytest.approx(sum(costs) / len(costs), rel=1e-10)


def test_constant_ranks_of_a_source_give_a_loss_of_one_and_no_nan():
    scores = torch.rand(2, 5, requires_grad=True)
    value = SpearmanLoss(ranks=lambda s, v: 3 + 0 * s).from_scores(scores, torch.eye(5)[:2] > 0)
    value.backward()
    assert value == 1 and scores.grad.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lambda_": 0.0}, "lambda_ is the size of the perturbation and must be a number > 0; got 0.0"),
        ({"lambda_": float("nan")}, "lambda_ is the size of the perturbation"),
        ({"ranks": "sorter"}, "ranks must be 'blackbox' or a function .*; got 'sorter'"),
    ],
)
def test_wrong_option_says_what_is_needed(options, message):
    with pytest.raises(ValueError, match=message):
        losses.SpearmanLoss(**options)


def test_loss_with_a_source_of_ranks_survives_pickle_and_copy(problem):
    scores, relevant, _ = problem()
    loss = SpearmanLoss(ranks=_negated)
    for again in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(again.from_scores(scores, relevant), loss.from_scores(scores, relevant))


def _negated(scores: Tensor, valid: Tensor | None) -> Tensor:
    return -scores
