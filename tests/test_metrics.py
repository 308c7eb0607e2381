"""Metrics against plain loops, against scikit-learn, and on ties; AUC of hardest pairs and its loss."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import get_args

import numpy as np
import pytest
import reference
import torch
from torch import Tensor

from rankgrad import losses, metrics
from rankgrad.ranks import Ties, exact_ranks, soft_ranks
from rankgrad.ranks.relaxations import Sigmoid
from rankgrad.ranks.types import TiedRanks
from rankgrad.scores import JudgedRows
from rankgrad.scores.evaluation import evaluate_scores


def per_query(cost, lists) -> Tensor:
    """[query] value by loops, 0 where nothing is relevant."""
    values = [cost(s, g) if reference.relevant_of(g) else 0.0 for s, g in reference.lists(*lists)]
    return torch.tensor(values, dtype=torch.float64)


def exact_ap(s: list[float], g: list[float]) -> float:
    return 1 - reference.ap_loss(reference.heaviside, reference.heaviside)(s, g)


def pessimistic_rank(s: list[float], i: int) -> int:
    return sum(x >= s[i] for x in s)


def r_precision(s: list[float], g: list[float]) -> float:
    relevant = reference.relevant_of(g)
    return sum(pessimistic_rank(s, i) <= len(relevant) for i in relevant) / len(relevant)


# ----------------------------------------------------------------------------------------------------- plain loops

LOOPS = {
    "average_precision": (metrics.average_precision, exact_ap),
    "reciprocal_rank": (metrics.reciprocal_rank, reference.reciprocal_rank),
    "ndcg": (metrics.ndcg, reference.ndcg),
    "ndcg@3": (lambda *lists: metrics.ndcg(*lists, k=3), lambda s, g: reference.ndcg(s, g, 3)),
    "ndcg exp2": (lambda *lists: metrics.ndcg(*lists, gain="exp2"), lambda s, g: reference.ndcg(s, g, gain="exp2")),
    "r_precision": (metrics.r_precision, r_precision),
    "dcg": (metrics.dcg, reference.dcg),
    "dcg@3 exp2": (
        lambda *lists: metrics.dcg(*lists, k=3, gain="exp2"),
        lambda s, g: reference.dcg(s, g, 3, "exp2"),
    ),
    **{
        f"{name}@{k}": (
            lambda s, g, v, read=read, k=k: read(s, g, valid=v, k=k),
            lambda s, g, by_hand=by_hand, k=k: by_hand(s, g, k),
        )
        for k in (1, 2, 5, 99)
        for name, read, by_hand in (
            ("hit rate", metrics.recall_at_k, reference.hit_at_k),
            ("recall", metrics.item_recall_at_k, reference.recall_at_k),
            ("refined_recall", metrics.refined_recall_at_k, reference.refined_recall),
            ("precision", metrics.precision_at_k, reference.precision_at_k),
            ("reciprocal_rank", metrics.reciprocal_rank, reference.reciprocal_rank),
            ("ap", metrics.average_precision_at_k, partial(reference.ap_at_k, over="relevant")),
            (
                "ap over found",
                partial(metrics.average_precision_at_k, over="found"),
                partial(reference.ap_at_k, over="found"),
            ),
        )
    },
}


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("name", LOOPS)
def test_metric_of_ragged_lists_equals_plain_loops(problem, name, ties):
    read, by_hand = LOOPS[name]
    for seed in range(3):
        lists = problem(seed, ties=ties)
        value = read(*lists)
        assert value.shape == (9,)
        torch.testing.assert_close(value, per_query(by_hand, lists))


@pytest.mark.parametrize("name", ["ndcg", "ndcg@3", "ndcg exp2", "dcg", "dcg@3 exp2"])
def test_ndcg_of_graded_lists_equals_plain_loops(problem, name):
    read, by_hand = LOOPS[name]
    for ties in (False, True):
        lists = problem(1, ties=ties, graded=True)
        torch.testing.assert_close(read(*lists), per_query(by_hand, lists))


def test_graded_ap_equals_plain_loops(problem):
    by_hand = reference.hap_loss(reference.heaviside)
    for ties in (False, True):
        lists = problem(1, ties=ties, graded=True)
        torch.testing.assert_close(metrics.hierarchical_ap(*lists), per_query(lambda s, g: 1 - by_hand(s, g), lists))
        torch.testing.assert_close(metrics.average_precision(*lists), per_query(exact_ap, lists))


def test_map_at_r_equals_plain_loops_and_never_exceeds_ap(problem):
    for seed in range(5):
        lists = problem(seed)
        torch.testing.assert_close(metrics.map_at_r(*lists), per_query(reference.map_at_r, lists))
        assert (metrics.map_at_r(*lists) <= metrics.average_precision(*lists) + 1e-12).all()


def test_roc_auc_equals_plain_loops_and_is_zero_where_undefined(problem):
    for ties in (False, True):
        lists = problem(2, ties=ties)
        # query 6 has nothing irrelevant, 7 and 8 nothing relevant
        expected = [reference.roc_auc(s, g) for s, g in reference.lists(*lists)[:6]] + [0.0] * 3
        assert metrics.roc_auc(*lists).tolist() == pytest.approx(expected)


def test_roc_auc_of_gains_is_that_of_relevant_against_irrelevant_items():
    scores, gains = torch.tensor([[0.9, 0.5, 0.1, 0.05]]), torch.tensor([[1.0, 2.0, 0.0, 3.0]])
    assert metrics.roc_auc(scores, gains).tolist() == pytest.approx([2 / 3])
    assert metrics.roc_auc(scores, gains.int()).tolist() == pytest.approx([2 / 3])
    graded = TiedRanks(*(exact_ranks(scores, gains, ties=t) for t in ("pessimistic", "optimistic", "index")))
    with pytest.raises(ValueError, match="ROC AUC .*gains"):
        metrics.roc_auc(graded, irrelevant=[1])


@pytest.mark.parametrize(
    ("mean", "each"),
    [
        (metrics.mean_average_precision, metrics.average_precision),
        (metrics.mean_reciprocal_rank, metrics.reciprocal_rank),
    ],
)
def test_means_leave_out_queries_without_relevant_items(problem, mean, each):
    lists = problem(3)
    torch.testing.assert_close(mean(*lists), each(*lists)[:7].mean())
    ranks = exact_ranks(*lists)
    if each is metrics.average_precision:
        torch.testing.assert_close(mean(ranks), mean(*lists))
    with pytest.raises(ValueError, match="none of the 2 queries"):
        mean(*(t[7:] for t in lists))


def test_ranks_and_scores_give_the_same_metric(problem):
    lists = problem(4)
    ranks = exact_ranks(*lists)
    for read in (
        metrics.average_precision,
        metrics.map_at_r,
        metrics.r_precision,
        metrics.reciprocal_rank,
        metrics.ndcg,
        metrics.hierarchical_ap,
    ):
        torch.testing.assert_close(read(ranks), read(*lists))
    for read in (metrics.recall_at_k, metrics.item_recall_at_k, metrics.precision_at_k, metrics.refined_recall_at_k):
        torch.testing.assert_close(read(ranks, 3), read(lists[0], lists[1], 3, lists[2]))
        torch.testing.assert_close(read(ranks, k=3), read(ranks, 3))


def test_each_metric_picks_its_own_reading_of_ties_out_of_tied_ranks(problem):
    scores, relevant, valid = problem(4, ties=True)
    tied = TiedRanks(**{ties: exact_ranks(scores, relevant, valid, ties=ties) for ties in get_args(Ties)})
    for read in (
        metrics.average_precision,
        partial(metrics.average_precision, ties="average"),
        metrics.map_at_r,
        metrics.r_precision,
        metrics.reciprocal_rank,
        metrics.mean_reciprocal_rank,
        metrics.mean_average_precision,
        metrics.ndcg,
        partial(metrics.ndcg, k=3),
        metrics.hierarchical_ap,
    ):
        torch.testing.assert_close(read(tied), read(scores, relevant, valid))
    for read in (metrics.recall_at_k, metrics.item_recall_at_k, metrics.precision_at_k, metrics.refined_recall_at_k):
        torch.testing.assert_close(read(tied, 3), read(scores, relevant, 3, valid))
    irrelevant = (valid & ~relevant).sum(1)
    torch.testing.assert_close(metrics.roc_auc(tied, irrelevant=irrelevant), metrics.roc_auc(scores, relevant, valid))
    with pytest.raises(TypeError, match="irrelevant"):
        metrics.roc_auc(tied)


def test_soft_recall_count_equals_its_formula(problem):
    lists = problem(5)
    ranks = soft_ranks(*lists, pos=Sigmoid(0.1), neg=Sigmoid(0.1))
    for k, tau in ((1, 1.0), (3, 0.3)):
        by_hand = reference.recall_loss((k,), 0.1, (tau,))
        expected = per_query(lambda s, g, by_hand=by_hand: 1 - by_hand(s, g), lists)
        torch.testing.assert_close(metrics.soft_recall_at_k(ranks, k, tau), expected)


def test_integer_relevance_is_read_as_bool_or_grades():
    scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 1]])
    assert torch.equal(metrics.average_precision(scores, relevant), metrics.average_precision(scores, relevant.bool()))
    grades = torch.tensor([[1, 0, 3]])
    assert torch.equal(metrics.ndcg(scores, grades), metrics.ndcg(scores, grades.double()))


@pytest.mark.parametrize("scale", [1e299, 1e-60, 1 + 1e-9, 1e9])
def test_gains_keep_their_digits_whatever_the_precision_of_the_scores(scale):
    scores, grades = torch.tensor([[0.5, 0.25, 0.75, 0.1]]), torch.tensor([[1, 0, 2, 3]]).double() + 3e-9
    gains = scale * grades * (torch.tensor([[1, 0, 1, 1]]))
    for read in (metrics.average_precision, metrics.hierarchical_ap, metrics.ndcg, metrics.dcg, metrics.map_at_r):
        wanted = read(scores.double(), gains)
        torch.testing.assert_close(read(scores, gains), wanted, rtol=1e-15, atol=0)
        assert wanted.isfinite().all() and wanted > 0


@pytest.mark.parametrize("read", [metrics.hierarchical_ap, metrics.ndcg, metrics.dcg, metrics.average_precision])
def test_gains_whose_sum_would_overflow_are_refused_and_smaller_ones_give_finite_numbers(read):
    scores, relative = torch.tensor([[0.3, 0.2, 0.1]]), torch.tensor([[0.9, 1.0, 0.0]], dtype=torch.float64)
    assert read(scores, 1e300 * relative).isfinite().all()
    with pytest.raises(ValueError, match=r"gains must be in 0 .. 1e\+300; got 9e\+307"):
        read(scores, 1e308 * relative)


def test_complex_relevance_is_refused():
    with pytest.raises(ValueError, match="relevant must be bool.*complex64"):
        metrics.average_precision(torch.rand(1, 3), torch.ones(1, 3, dtype=torch.complex64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_scores_rank_like_their_exact_values(problem, dtype):
    scores, relevant, valid = problem(6)
    for read in (metrics.average_precision, metrics.ndcg, metrics.roc_auc, metrics.reciprocal_rank):
        torch.testing.assert_close(
            read(scores.to(dtype), relevant, valid), read(scores.to(dtype).double(), relevant, valid)
        )


def test_fall_out_equals_plain_loops_also_without_relevant_items(problem):
    for ties in (False, True):
        scores, relevant, valid = problem(2, ties=ties)
        lists = reference.lists(scores, relevant, valid)
        tied = TiedRanks(**{t: exact_ranks(scores, relevant, valid, ties=t) for t in get_args(Ties)})
        irrelevant = (valid & ~relevant).sum(1)
        for k in (1, 3, 99):
            wanted = [reference.fall_out(s, g, k) for s, g in lists]
            assert metrics.fall_out_at_k(scores, relevant, k, valid).tolist() == pytest.approx(wanted)
            assert metrics.fall_out_at_k(tied, k=k, irrelevant=irrelevant.numpy()).tolist() == pytest.approx(wanted)
        assert wanted[6] == 0 and wanted[7:] == [1, 1]  # nothing irrelevant; nothing relevant
    with pytest.raises(TypeError, match="fall-out of ranks needs .*irrelevant"):
        metrics.fall_out_at_k(tied, k=1)
    with pytest.raises(ValueError, match=r"irrelevant .*\[query\].*got shape \(8,\)"):
        metrics.fall_out_at_k(tied, k=1, irrelevant=irrelevant[1:])


@pytest.mark.parametrize("fmr", [0, 0.01, 0.1, 0.29, 0.5, 1])
def test_fnmr_equals_a_loop_over_all_thresholds(problem, fmr):
    for ties in (False, True):
        lists = problem(3, ties=ties)
        rows = reference.lists(*lists)
        pos, neg = (
            [x for s, g in rows for x, gain in zip(s, g, strict=True) if (gain > 0) == kind] for kind in (True, False)
        )
        assert metrics.fnmr_at_fmr(*lists, fmr=fmr).item() == pytest.approx(reference.fnmr(pos, neg, fmr))


def test_fnmr_of_too_few_pairs_and_of_level_pairs_lets_nothing_irrelevant_match():
    scores, relevant = torch.tensor([[0.9, 0.5, 0.5, 0.1]]), torch.tensor([[True, True, False, False]])
    assert metrics.fnmr_at_fmr(scores, relevant).item() == 0.5  # the level pair does not match
    assert metrics.fnmr_at_fmr(scores, relevant, fmr=0.5).item() == 0
    for bad in (-0.1, 1.5, True, [0.1], "0.1", math.nan):
        with pytest.raises(ValueError, match="fmr is the allowed fraction"):
            metrics.fnmr_at_fmr(scores, relevant, fmr=bad)
    with pytest.raises(ValueError, match="FNMR is undefined"):
        metrics.fnmr_at_fmr(scores, torch.ones(1, 4, dtype=torch.bool))


@pytest.mark.parametrize(
    ("mean", "each"),
    [
        (metrics.mean_average_precision, metrics.average_precision),
        (metrics.mean_reciprocal_rank, metrics.reciprocal_rank),
        (partial(metrics.mean_reciprocal_rank, k=2), partial(metrics.reciprocal_rank, k=2)),
    ],
)
def test_weights_make_a_weighted_mean_over_the_queries_that_count(problem, mean, each):
    lists = problem(3)
    weights = [0.5, 0, 3, 1, 1, 2, 0.25, 100, 100]  # the last two have no relevant item
    values = each(*lists).tolist()
    wanted = sum(w * v for w, v in zip(weights[:7], values, strict=False)) / sum(weights[:7])
    assert mean(*lists, weights=weights).item() == pytest.approx(wanted)
    assert mean(*lists, weights=torch.full((9,), 7)).item() == pytest.approx(mean(*lists).item())
    for bad, told in (
        ([-1] * 9, "the weight of query 0 is -1.0"),
        ([1, math.nan] + [1] * 7, "the weight of query 1 is nan"),
        ([1e308] * 9, "the weight of query 0 is 1e.308"),
        ([0] * 7 + [1, 1], "all of them are 0"),
        ([1] * 8, "9 numbers; got shape"),
    ):
        with pytest.raises(ValueError, match=told):
            mean(*lists, weights=bad)


def test_arrays_and_lists_are_taken_where_tensors_are(problem):
    scores, relevant, valid = problem(1, ties=True)
    for name in (*AT_K, "average_precision", "ndcg", "dcg", "roc_auc", "auc_hardest", "fnmr_at_fmr", "map_at_r"):
        read = getattr(metrics, name)
        wanted = read(scores, relevant, valid=valid)
        for given in (
            [t.numpy() for t in (scores, relevant, valid)],
            [t.tolist() for t in (scores, relevant, valid)],
            [scores.numpy(), relevant.int().tolist(), valid],
        ):
            assert torch.equal(read(given[0], given[1], valid=given[2]), wanted), name
    a, b = [0.1, 0.4, 0.3], [3, 1, 2]
    assert metrics.spearman(a, b).item() == pytest.approx(metrics.spearman(torch.tensor(a), torch.tensor(b)).item())
    assert metrics.average_ranks(b).tolist() == [1, 3, 2]
    words, numbers, vectors = ["x", "y", "x", "z"], [-5, 2**40, -5, 0], [[1.0, 0], [0, 1], [1, 1], [1, -1]]
    assert metrics.nmi(words, numbers) == metrics.ami(numbers, words) == pytest.approx(1)
    assert metrics.dists_intra(vectors, words) == metrics.dists_intra(torch.tensor(vectors), torch.tensor(numbers))
    gap = metrics.decomposability_gap(scores, relevant, torch.arange(13) % 3, valid)
    batches = [f"batch {j % 3}" for j in range(13)]
    assert torch.equal(metrics.decomposability_gap(scores.numpy(), relevant.tolist(), batches, valid.numpy()), gap)


AT_K = {
    name: getattr(metrics, name)
    for name in (
        "recall_at_k",
        "item_recall_at_k",
        "precision_at_k",
        "refined_recall_at_k",
        "average_precision_at_k",
        "fall_out_at_k",
    )
}


@pytest.mark.parametrize("name", AT_K)
def test_k_may_be_any_integer_in_any_place_and_nothing_else(problem, name):
    read, (scores, relevant, valid) = AT_K[name], problem(4)
    ranks = exact_ranks(scores, relevant, valid, ties="index")
    more = {"irrelevant": (valid & ~relevant).sum(1)} if name == "fall_out_at_k" else {}
    wanted = read(scores, relevant, 2, valid)
    for k in (2, np.int64(2), np.uint8(2), torch.tensor(2)):
        for value in (
            read(scores, relevant, k, valid),
            read(scores, relevant, k=k, valid=valid),
            read(ranks, k=k, **more),
            read(ranks, k, **more),
        ):
            assert torch.equal(value, wanted)
    assert torch.equal(read(ranks, **more), read(scores, relevant, 1, valid))
    for bad in (0, -1, 2.0, np.float64(2), True, np.True_, "2", [1, 5], (2,)):
        for call in (
            lambda: read(scores, relevant, bad, valid),  # noqa: B023
            lambda: read(ranks, k=bad, **more),  # noqa: B023
            lambda: read(ranks, bad, **more),  # noqa: B023
        ):
            with pytest.raises(ValueError, match="k is a number of items .*>= 1; got"):
                call()
    with pytest.raises(TypeError, match="k is given twice, 2 and 4"):
        read(ranks, 2, k=4, **more)
    with pytest.raises(TypeError, match="scores need relevant"):
        read(scores, 2)
    with pytest.raises(TypeError, match="ranks already contain"):
        read(ranks, relevant, k=2, **more)


@pytest.mark.parametrize("name", AT_K)
def test_the_largest_k_is_that_of_torch_and_a_larger_one_is_refused(problem, name):
    """Comparing ranks with a larger integer was an OverflowError."""
    read, (scores, relevant, valid) = AT_K[name], problem(4)
    assert read(scores, relevant, 2**63 - 1, valid).isfinite().all()
    with pytest.raises(ValueError, match="k is a number of items and must be an integer <= 9223372036854775807; got 1"):
        read(scores, relevant, 10**30, valid)


@pytest.mark.parametrize("bad", [0, 1.0, True, "1", [1]])
def test_k_of_the_metrics_that_need_none_is_checked_too(problem, bad):
    lists = problem(4)
    relaxed = soft_ranks(*lists, pos=Sigmoid(0.1), neg=Sigmoid(0.1))
    for read in (metrics.reciprocal_rank, metrics.mean_reciprocal_rank, metrics.ndcg, metrics.dcg):
        with pytest.raises(ValueError, match="k is .*>= 1; got"):
            read(*lists, k=bad)
    with pytest.raises(ValueError, match="k is a number of items"):
        metrics.soft_recall_at_k(relaxed, bad)


# -------------------------------------------------------------------------------------------------------------- ties

TIED = [3.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.0], [0, 1, 0, 1, 0, 1, 0]


def all_orders() -> list[list[int]]:
    """Orders of the example's items that its scores allow."""
    scores = TIED[0]
    groups = [[j for j, x in enumerate(scores) if x == value] for value in sorted(set(scores), reverse=True)]
    return [
        list(itertools.chain.from_iterable(parts))
        for parts in itertools.product(*(list(itertools.permutations(group)) for group in groups))
    ]


def test_ap_of_level_items_is_pessimistic_by_default_and_an_expectation_if_asked():
    scores, relevant = torch.tensor([TIED[0]]), torch.tensor([TIED[1]]).bool()
    assert metrics.average_precision(scores, relevant).item() == pytest.approx(0.5)
    assert metrics.average_precision(scores, relevant, ties="average").item() == pytest.approx(0.516667, abs=1e-6)
    values = [reference.expected_ap(TIED[0], TIED[1], [order]) for order in all_orders()]
    assert (min(values), max(values)) == (pytest.approx(0.4444, abs=1e-4), pytest.approx(0.5889, abs=1e-4))
    assert reference.expected_ap(*TIED, all_orders()) == pytest.approx(0.516667, abs=1e-6)
    # numerator >=, denominator > would give .8667, more than any order has
    for ties in ("pessimistic", "average", "optimistic"):
        assert metrics.average_precision(scores, relevant, ties=ties).item() <= 0.8667 - 0.1


@pytest.mark.parametrize("seed", range(6))
def test_expected_ap_is_the_mean_over_all_orders_of_the_level_items(seed):
    g = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (1, 7), generator=g).double()
    relevant = torch.rand(1, 7, generator=g) < 0.5
    relevant[0, 0] = True
    s, rel = scores[0].tolist(), relevant[0].double().tolist()
    groups = [[j for j, x in enumerate(s) if x == value] for value in (2.0, 1.0, 0.0)]
    orders = [
        list(itertools.chain.from_iterable(parts))
        for parts in itertools.product(*(list(itertools.permutations(group)) for group in groups))
    ]
    got = metrics.average_precision(scores, relevant, ties="average").item()
    assert got == pytest.approx(reference.expected_ap(s, rel, orders))


def test_optimistic_ap_puts_no_level_item_above():
    scores, relevant = torch.zeros(1, 4), torch.tensor([[True, True, False, False]])
    assert metrics.average_precision(scores, relevant, ties="optimistic").item() == 1
    assert metrics.average_precision(scores, relevant).item() == 0.5


def test_top_lists_break_ties_by_lower_index():
    scores = torch.zeros(2, 3)
    relevant = torch.tensor([[True, False, False], [False, False, True]])
    assert metrics.recall_at_k(scores, relevant, 1).tolist() == [1, 0]
    assert metrics.recall_at_k(scores, relevant, 2).tolist() == [1, 0]
    assert metrics.reciprocal_rank(scores, relevant).tolist() == pytest.approx([1, 1 / 3])
    assert metrics.precision_at_k(scores, relevant, 1).tolist() == [1, 0]
    assert metrics.r_precision(scores, relevant).tolist() == [0, 0]  # rank-counting: a level item is above


def test_level_pairs_count_one_half_in_roc_auc_and_share_their_discount_in_ndcg():
    scores, relevant = torch.zeros(1, 2), torch.tensor([[True, False]])
    assert metrics.roc_auc(scores, relevant).item() == 0.5
    assert metrics.ndcg(scores, relevant).item() == pytest.approx((1 + 1 / math.log2(3)) / 2)


def test_exponential_gains_that_overflow_are_an_error_that_names_the_largest():
    scores, gains = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0.0, 1.0, 1023.0]])
    assert float(metrics.ndcg(scores, gains, gain="exp2")) == pytest.approx(0.5)
    for metric in (metrics.ndcg, metrics.dcg):
        with pytest.raises(ValueError, match="gains must be below 1024; got 1500"):
            metric(scores, [[0, 1, 1500]], gain="exp2")


def test_k_beyond_the_list_is_the_whole_list_but_stays_the_denominator_of_precision():
    scores, relevant = torch.tensor([[0.9, 0.5]]), torch.tensor([[False, True]])
    found = metrics.recall_at_k(scores, relevant, 100), metrics.item_recall_at_k(scores, relevant, 100)
    assert [each.item() for each in found] == [1, 1]
    assert metrics.precision_at_k(scores, relevant, 100).item() == 0.01
    assert metrics.ndcg(scores, relevant, k=100) == metrics.ndcg(scores, relevant)


# ------------------------------------------------------------------------------------------------------ scikit-learn


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
def test_metrics_equal_scikit_learn(ties):
    sk = pytest.importorskip("sklearn.metrics")
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(12, 40, generator=g, dtype=torch.float64)
    scores = (scores * 3).round() / 4 if ties else scores
    relevant = torch.rand(12, 40, generator=g) < 0.3
    gains = relevant * torch.randint(1, 5, relevant.shape, generator=g).double()
    ap, auc = metrics.average_precision(scores, relevant), metrics.roc_auc(scores, relevant)
    for q in range(12):
        assert ap[q].item() == pytest.approx(sk.average_precision_score(relevant[q].numpy(), scores[q].numpy()))
        assert auc[q].item() == pytest.approx(sk.roc_auc_score(relevant[q].numpy(), scores[q].numpy()))
        for k in (None, 1, 5, 40):
            ours = metrics.ndcg(scores[q : q + 1], gains[q : q + 1], k=k).item()
            assert ours == pytest.approx(sk.ndcg_score(gains[q : q + 1].numpy(), scores[q : q + 1].numpy(), k=k))


def test_dcg_and_fnmr_equal_scikit_learn():
    sk = pytest.importorskip("sklearn.metrics")
    g = torch.Generator().manual_seed(0)
    scores = (torch.randn(6, 300, generator=g, dtype=torch.float64) * 20).round()
    relevant = torch.rand(6, 300, generator=g) < 0.3
    gains = relevant * torch.randint(1, 5, relevant.shape, generator=g).double()
    for k in (None, 1, 10):
        for q in range(6):
            ours = metrics.dcg(scores[q : q + 1], gains[q : q + 1], k=k).item()
            assert ours == pytest.approx(sk.dcg_score(gains[q : q + 1].numpy(), scores[q : q + 1].numpy(), k=k))
    false, true, _ = sk.roc_curve(relevant.flatten().numpy(), scores.flatten().numpy(), drop_intermediate=False)
    for fmr in (0.0, 0.001, 0.03, 0.3, 0.9):
        assert metrics.fnmr_at_fmr(scores, relevant, fmr=fmr).item() == pytest.approx(1 - true[false <= fmr].max())


def test_ami_equals_scikit_learn():
    sk = pytest.importorskip("sklearn.metrics")
    g = torch.Generator().manual_seed(0)
    for classes, clusters, items in ((5, 5, 60), (2, 9, 60), (1, 3, 60), (3, 1, 60), (60, 60, 60), (40, 300, 3000)):
        a, b = (torch.randint(0, n, (items,), generator=g) for n in (classes, clusters))
        for mine in (b, torch.where(torch.rand(items, generator=g) < 0.6, a, b)):
            expected = sk.adjusted_mutual_info_score(a.numpy(), mine.numpy(), average_method="arithmetic")
            assert metrics.ami(a, mine) == pytest.approx(expected, abs=1e-9)


def test_ami_of_chance_is_near_zero_where_nmi_is_not_and_one_for_equal_partitions():
    g = torch.Generator().manual_seed(0)
    a, b = torch.randint(0, 100, (2, 500), generator=g)
    assert metrics.nmi(a, b) > 0.6 and abs(metrics.ami(a, b)) < 0.05
    for same in (torch.arange(9), torch.zeros(9, dtype=torch.long), torch.arange(9) // 2):
        assert metrics.ami(same, same.flip(0) if same[0] == same[-1] else same * 7 - 3) == 1


def test_nmi_equals_scikit_learn():
    sk = pytest.importorskip("sklearn.metrics")
    g = torch.Generator().manual_seed(0)
    for classes, clusters in ((5, 5), (2, 9), (1, 3), (1, 1), (60, 60)):
        a, b = (torch.randint(0, n, (60,), generator=g) for n in (classes, clusters))
        expected = sk.normalized_mutual_info_score(a.numpy(), b.numpy(), average_method="arithmetic")
        assert metrics.nmi(a, b) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shapes", [((5,), (4,)), ((4, 2), (4, 2)), ((0,), (0,))])
def test_partitions_are_two_vectors_of_the_same_length(shapes):
    for of in (metrics.nmi, metrics.ami):
        with pytest.raises(ValueError, match="equally long vectors"):
            of(*(torch.zeros(shape, dtype=torch.long) for shape in shapes))


def test_nmi_ignores_names_and_is_one_for_equal_partitions():
    labels = torch.tensor([0, 0, 1, 1, 2])
    renamed = torch.tensor([9, 9, -4, -4, 70])
    assert metrics.nmi(labels, renamed) == pytest.approx(1)
    assert metrics.nmi(labels, torch.zeros(5, dtype=torch.long)) == 0


# --------------------------------------------------------------------------------------------- spearman and distances


def test_spearman_equals_scipy_with_ties():
    stats = pytest.importorskip("scipy.stats")
    g = torch.Generator().manual_seed(0)
    for scale in (1.0, 100.0):
        a, b = ((torch.randn(30, generator=g) * scale).round().double() for _ in range(2))
        assert metrics.spearman(a, b).item() == pytest.approx(stats.spearmanr(a.numpy(), b.numpy()).statistic)


@pytest.mark.parametrize("low", [-(2**63), 0, 2**63 - 4])
def test_ranks_tell_integers_apart_that_float64_does_not(low):
    values = torch.tensor([2, 0, 3, 1]) + low
    assert metrics.average_ranks(values).tolist() == [2, 4, 1, 3]
    assert metrics.spearman(values, [2.0, 0.0, 3.0, 1.0]).item() == 1


def test_complex_numbers_are_refused_where_they_would_lose_their_imaginary_parts():
    given, labels = torch.ones(2, dtype=torch.complex64), [0, 1]
    for call, name in (
        (lambda: metrics.average_ranks(given), "values"),
        (lambda: metrics.dists_inter(given[:, None], labels), "embeddings"),
        (lambda: metrics.mean_average_precision([[0.9, 0.1]] * 2, [[1, 0]] * 2, weights=given), "weights"),
        (lambda: evaluate_scores(given, JudgedRows(torch.tensor([1.0, 0.0]))), "scores"),
    ):
        with pytest.raises(TypeError, match=f"{name} must be real numbers; got torch.complex64"):
            call()


def test_one_number_has_no_rank():
    for call in (partial(metrics.average_ranks, 3.0), partial(metrics.spearman, 3.0, 2.0)):
        with pytest.raises(ValueError, match="values must be .*; got one number, 3"):
            call()


def test_spearman_without_ties_is_the_sum_of_squares_formula_row_by_row():
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, 4, 9, generator=g, dtype=torch.float64)
    rank = [[torch.tensor(reference.rk(row)) for row in t.tolist()] for t in (a, b)]
    expected = [1 - 6 * ((x - y) ** 2).sum().item() / (9 * 80) for x, y in zip(*rank, strict=True)]
    assert metrics.spearman(a, b).tolist() == pytest.approx(expected)
    assert metrics.spearman(a, -a).tolist() == pytest.approx([-1] * 4)


def test_spearman_of_a_constant_vector_is_nan():
    assert metrics.spearman(torch.zeros(3), torch.arange(3.0)).isnan()


def test_distances_equal_loops_over_pairs():
    g = torch.Generator().manual_seed(0)
    embeddings, labels = torch.randn(12, 4, generator=g), torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 1])
    cosine = reference.cosines(embeddings, embeddings)
    intra = []
    for c in range(4):
        members = (labels == c).nonzero().flatten().tolist()
        pairs = [1 - cosine[i, j].item() for i in members for j in members if i != j]
        if pairs:
            intra.append(sum(pairs) / len(pairs))
    assert metrics.dists_intra(embeddings, labels) == pytest.approx(sum(intra) / len(intra), abs=1e-6)
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1)
    means = torch.stack([unit[labels == c].mean(0) for c in range(4)])
    between = reference.cosines(means, means)
    inter = [1 - between[i, j].item() for i in range(4) for j in range(4) if i != j]
    assert metrics.dists_inter(embeddings, labels) == pytest.approx(sum(inter) / len(inter), abs=1e-6)
    for length in (1e-200, 1e200):  # of the rows; their squares are not in the range of float64
        scaled = embeddings.double() * length
        assert metrics.dists_intra(scaled, labels) == pytest.approx(metrics.dists_intra(embeddings, labels))
        assert metrics.dists_inter(scaled, labels) == pytest.approx(metrics.dists_inter(embeddings, labels))


# ---------------------------------------------------------------------------------------------------- decomposability


def random_batches(seed: int, sizes: list[tuple[int, int]], perfect: bool) -> tuple[Tensor, Tensor, Tensor]:
    """One query; with `perfect`, every batch has its relevant items above its irrelevant ones."""
    g = torch.Generator().manual_seed(seed)
    scores, relevant, batch = [], [], []
    for b, (pos, neg) in enumerate(sizes):
        drawn = torch.rand(pos + neg, generator=g, dtype=torch.float64)
        scores.append(drawn.sort(descending=True).values if perfect else drawn)
        relevant.append(torch.arange(pos + neg) < pos)
        batch.append(torch.full((pos + neg,), b))
    return torch.cat(scores).unsqueeze(0), torch.cat(relevant).unsqueeze(0), torch.cat(batch)


def test_gap_is_the_mean_over_the_batches_that_have_a_relevant_item(problem):
    scores, relevant, valid = problem(7)
    batch = torch.arange(13) % 3
    gap = metrics.decomposability_gap(scores, relevant, batch, valid)
    for q in range(9):
        inside = []
        for b in range(3):
            columns = [j for j in range(13) if batch[j] == b and valid[q, j]]
            g = [float(relevant[q, j]) for j in columns]
            if sum(g):
                inside.append(exact_ap([scores[q, j].item() for j in columns], g))
        (s, g) = reference.lists(scores[q : q + 1], relevant[q : q + 1], valid[q : q + 1])[0]
        expected = sum(inside) / len(inside) - exact_ap(s, g) if inside else 0.0
        assert gap[q].item() == pytest.approx(expected, abs=1e-12)


def test_gap_is_not_always_positive_but_is_where_every_batch_is_perfect():
    sizes = [(2, 3), (3, 4), (1, 5)]
    gaps = [metrics.decomposability_gap(*random_batches(seed, sizes, perfect=False)).item() for seed in range(80)]
    assert min(gaps) < 0 < max(gaps)
    perfect = [metrics.decomposability_gap(*random_batches(seed, sizes, perfect=True)).item() for seed in range(80)]
    assert min(perfect) >= -1e-12


def test_one_batch_has_no_gap():
    scores, relevant, _ = random_batches(0, [(3, 6)], perfect=False)
    assert metrics.decomposability_gap(scores, relevant, torch.zeros(9, dtype=torch.long)).item() == pytest.approx(0)


def test_batches_behind_one_another_attain_the_bound():
    relevant = torch.tensor([[True, True, False, False, False] * 3])
    scores, batch = torch.arange(15.0).flip(0).unsqueeze(0), torch.arange(15) // 5
    gap = metrics.decomposability_gap(scores, relevant, batch).item()
    bound = metrics.decomposability_bound([2, 2, 2], [3, 3, 3])
    assert gap == pytest.approx(bound) == pytest.approx(0.329004, abs=1e-6)


@pytest.mark.parametrize("sizes", [[(2, 3)] * 3, [(1, 4), (3, 2), (2, 5)], [(4, 1), (1, 6)]], ids=str)
def test_gap_never_exceeds_the_bound_of_the_worst_order(sizes):
    bound = metrics.decomposability_bound([p for p, _ in sizes], [n for _, n in sizes])
    for seed in range(60):
        gap = metrics.decomposability_gap(*random_batches(seed, sizes, perfect=True)).item()
        assert gap <= bound + 1e-12


def test_calibrated_bound_holds_in_the_worst_order_and_vanishes_when_all_is_calibrated():
    sizes, alpha, beta = [(2, 3), (3, 2), (2, 4)], 0.6, 0.4
    pos, neg = [p for p, _ in sizes], [n for _, n in sizes]
    for seed in range(60):
        scores, relevant, batch = random_batches(seed, sizes, perfect=True)
        high = [int((relevant & (scores >= alpha))[0, batch == b].sum()) for b in range(3)]
        wrong = [int((~relevant & (scores > beta))[0, batch == b].sum()) for b in range(3)]
        bound = metrics.decomposability_bound(pos, neg, above_alpha=high, above_beta=wrong)
        assert metrics.decomposability_gap(scores, relevant, batch).item() <= bound + 1e-12
    assert metrics.decomposability_bound(pos, neg, above_alpha=pos, above_beta=[0, 0, 0]) == 0


def test_bound_of_the_given_order_is_at_most_that_of_the_worst():
    pos, neg = [1, 5, 2], [6, 1, 2]
    given = metrics.decomposability_bound(pos, neg, order="given")
    worst = metrics.decomposability_bound(pos, neg)
    orders = [
        metrics.decomposability_bound([pos[i] for i in p], [neg[i] for i in p], order="given")
        for p in itertools.permutations(range(3))
    ]
    assert given < worst == max(orders)


def test_bound_of_many_batches_is_that_of_the_given_order_and_says_so():
    with pytest.warns(UserWarning, match="too many orders"):
        bound = metrics.decomposability_bound([1] * 8, [1] * 8)
    assert bound == metrics.decomposability_bound([1] * 8, [1] * 8, order="given")


def test_mean_ap_of_batches_overrates_the_ap_of_all_the_more_the_smaller_they_are():
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (640,), generator=g)
    scores = torch.randn(10, 640, generator=g) + 1.5 * torch.nn.functional.one_hot(labels, 10).T
    relevant = labels.unsqueeze(0) == torch.arange(10).unsqueeze(1)
    order = torch.randperm(640, generator=g)
    means = []
    for size in (16, 64, 256, 640):
        batch = torch.empty(640, dtype=torch.long)
        batch[order] = torch.arange(640) // size
        means.append(metrics.decomposability_gap(scores, relevant, batch).mean().item())
    assert means[0] > means[1] > means[2] > 0 and means[3] == pytest.approx(0, abs=1e-9)


# ------------------------------------------------------------------------------- AUC of the hardest pairs, and its loss

HARD_POS, HARD_NEG = [0.9, 0.7, 0.55, 0.3], [0.6, 0.45, 0.2, -0.1]
PAIRS = torch.tensor([HARD_POS, HARD_NEG], dtype=torch.float64).T, torch.tensor([[True, False]] * 4)
GOLDEN = [
    (0.5, 10.6, 0, 0.2746396029391295),
    (0.5, 10.6, 2, 0.2744545525384159),
    (0.25, 21.2, 0, 0.20704503871806412),
    (0.25, 21.2, 2, 0.2070443007481535),
    (0.1, 53, 0, 0.18964817914488885),
    (0.1, 53, 2, 0.18964817914479248),
    (0.1, 10, 0, 0.2338675991404655),
    (0.1, 10, 2, 0.2336002762019811),
    (0.05, 106, 0, 0.17984732643050727),
    (0.05, 106, 2, 0.17984732643050727),
    (0.02, 265, 0, 0.18748346432296914),
    (0.02, 265, 2, 0.18748346432296914),
]


def hardest_pairs(pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """Lists of two items, so that the hardest scores are given ones."""
    return torch.stack([pos, neg], 1), torch.tensor([[True, False]]).expand(len(pos), 2)


@pytest.mark.parametrize(("step", "slope", "pad", "value"), GOLDEN)
def test_auc_loss_equals_the_golden_table_and_the_loops(step, slope, pad, value):
    loss = losses.AUCLoss(step=step, slope=slope, pad_steps=pad)
    assert loss.from_scores(*PAIRS).item() == pytest.approx(value, abs=1e-13)
    assert reference.auc_loss(HARD_POS, HARD_NEG, step, slope, pad_steps=pad) == pytest.approx(value, abs=1e-13)


def test_default_slope_is_the_logistic_closest_to_a_ramp_of_one_step():
    for step in (0.5, 0.1, 0.02):
        torch.testing.assert_close(
            losses.AUCLoss(step=step).from_scores(*PAIRS),
            losses.AUCLoss(step=step, slope=5.3 / step).from_scores(*PAIRS),
        )


def test_exact_auc_of_the_hardest_pairs_is_the_share_of_ordered_pairs_across_queries():
    assert metrics.auc_hardest(*PAIRS).item() == pytest.approx(13 / 16)
    sk = pytest.importorskip("sklearn.metrics")
    expected = sk.roc_auc_score([1] * 4 + [0] * 4, HARD_POS + HARD_NEG)
    assert metrics.auc_hardest(*PAIRS).item() == pytest.approx(expected)


def test_exact_auc_finds_the_hardest_of_ragged_lists(problem):
    for ties in (False, True):
        lists = problem(3, ties=ties)
        low, high = reference.hardest(reference.lists(*lists))
        expected = sum((p > n) + 0.5 * (p == n) for p in low for n in high) / len(low) ** 2
        assert len(low) == 6 and metrics.auc_hardest(*lists).item() == pytest.approx(expected)


@pytest.mark.parametrize(("step", "error"), [(0.1, 0.03), (0.02, 0.005)])
def test_auc_loss_estimates_the_exact_value(step, error):
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        pos, neg = torch.randn(2, 128, generator=g, dtype=torch.float64) * 0.15 + torch.tensor([[0.5], [0.35]])
        lists = hardest_pairs(pos, neg)
        loss = losses.AUCLoss(step=step).from_scores(*lists)
        assert abs(1 - loss.item() - metrics.auc_hardest(*lists).item()) <= error


@pytest.mark.parametrize("pad", [0, 2])
def test_auc_gradient_raises_hardest_positives_and_lowers_hardest_negatives(pad):
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        reach = 1 - 4 * 0.1 if pad == 0 else 1.0
        neg = (torch.rand(40, generator=g, dtype=torch.float64) * 2 - 1) * reach
        scores, relevant = hardest_pairs(torch.rand(40, generator=g, dtype=torch.float64) * 2 - 1, neg)
        scores = scores.requires_grad_()
        losses.AUCLoss(pad_steps=pad).from_scores(scores, relevant).backward()
        assert (scores.grad[:, 0] <= 1e-15).all() and (scores.grad[:, 1] >= -1e-15).all()


def test_negatives_at_the_lowest_threshold_are_mishandled_unless_padded():
    neg = torch.tensor([-1.0] + [-0.2] * 7, dtype=torch.float64)
    scores, relevant = hardest_pairs(torch.full((8,), 0.5, dtype=torch.float64), neg)
    values, gradients = [], []
    for pad in (0, 1, 2):
        leaf = scores.clone().requires_grad_()
        loss = losses.AUCLoss(step=0.1, slope=53.0, pad_steps=pad).from_scores(leaf, relevant)
        loss.backward()
        values.append(loss.item())
        gradients.append(leaf.grad[0, 1].item())
    assert values[0] == pytest.approx(0.063, abs=1e-3) and values[1] < 1e-3 and values[2] < 1e-5
    assert gradients[0] < -1 and abs(gradients[2]) < 1e-3  # the wrong sign is the published algorithm's


def test_auc_loss_of_separated_lists_is_near_zero_and_of_reversed_ones_near_one():
    high, low = torch.full((8,), 0.8).double(), torch.full((8,), -0.2).double()
    assert losses.AUCLoss().from_scores(*hardest_pairs(high, low)).item() < 1e-3
    assert losses.AUCLoss().from_scores(*hardest_pairs(low, high)).item() > 1 - 1e-3


def area(pos: float, neg: float, loss: losses.AUCLoss) -> float:
    """K(p, q): 1 - loss of one query."""
    pair = torch.tensor([[pos, neg]], dtype=torch.float64), torch.tensor([[True, False]])
    return 1 - loss.from_scores(*pair).item()


def test_kernels_of_a_pair_and_its_mirror_add_up_to_the_ends():
    loss, end = losses.AUCLoss(step=0.25, slope=9.0), reference.sigmoid(1 / 9.0)
    for p, q in ((0.3, 0.1), (-0.9, 0.8), (0.5, 0.5), (1.0, -1.0)):
        both = area(p, q, loss) + area(q, p, loss)
        assert both == pytest.approx(end(p + 1) * end(q + 1) - end(p - 1) * end(q - 1), abs=1e-12)


def test_equal_multisets_of_hardest_scores_have_half_the_area_between_the_ends():
    values = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.4
    loss = losses.AUCLoss(step=0.1).from_scores(*hardest_pairs(values, values.flip(0))).item()
    end = reference.sigmoid(0.1 / 5.3)
    low, high = (sum(end(x - t) for x in values.tolist()) / 20 for t in (-1.0, 1.0))
    assert 1 - loss == pytest.approx((low**2 - high**2) / 2, abs=1e-12)
    assert loss == pytest.approx(0.5, abs=1e-3)


def test_auc_area_is_the_mean_of_the_kernel_over_all_pairs_across_queries():
    loss = losses.AUCLoss(step=0.25)
    kernel = [area(p, n, loss) for p in HARD_POS for n in HARD_NEG]
    assert 1 - loss.from_scores(*PAIRS).item() == pytest.approx(sum(kernel) / 16)


def test_class_with_one_member_is_dropped_from_the_auc_loss():
    # the member itself is no query; its scores stay among the others' irrelevant ones
    embeddings = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3])
    loss = losses.AUCLoss()
    value = loss(embeddings, labels)
    assert loss.stats["counted"].tolist() == [True] * 6 + [False]
    same, eye = labels.unsqueeze(1) == labels.unsqueeze(0), torch.eye(7, dtype=torch.bool)
    low, high = reference.hardest(reference.lists(reference.cosines(embeddings, embeddings), same, ~eye))
    assert len(low) == 6 and value.item() == pytest.approx(reference.auc_loss(low, high))


def test_masked_items_are_left_out_of_the_hardest_and_do_not_count_as_zero():
    # all similarities positive, all irrelevant ones negative: multiplying by a mask would find 0 in both
    scores = torch.tensor([[0.9, 0.6, -0.3, -0.5], [0.6, 0.8, -0.4, -0.2]], dtype=torch.float64)
    relevant = torch.tensor([[True, True, False, False]] * 2)
    expected = reference.auc_loss([0.6, 0.6], [-0.3, -0.2])
    assert losses.AUCLoss().from_scores(scores, relevant).item() == pytest.approx(expected)
    assert expected != pytest.approx(reference.auc_loss([0.0, 0.0], [0.0, 0.0]), abs=0.1)


def test_gradient_of_the_auc_loss_goes_to_the_hardest_items_only(problem):
    scores, relevant, valid = problem(4)
    leaf = scores.clone().requires_grad_()
    losses.AUCLoss().from_scores(leaf, relevant, valid).backward()
    for q, (row, rel, ok) in enumerate(zip(scores, relevant, valid, strict=True)):
        hardest = torch.zeros(13, dtype=torch.bool)
        if q < 6:
            hardest[row.masked_fill(~(rel & ok), 9).argmin()] = True
            hardest[row.masked_fill(rel | ~ok, -9).argmax()] = True
        assert (leaf.grad[q][~hardest] == 0).all()
