"""What must hold for every loss, swept over the tables; the formulas themselves are loops in reference.py."""

from __future__ import annotations

import copy
import decimal
import inspect
import math
import pickle

import pytest
import reference
import torch
from naming import stable
from sweeps import ADAPTIVE, CALIBRATED, GLOBAL
from torch import Tensor

from rankgrad import losses, metrics, penalties
from rankgrad.losses import LOSSES, RANK_LOSSES, RankLoss
from rankgrad.ranks import Soft, exact_ranks
from rankgrad.ranks.relaxations import AutogradStep, Exponential, Heaviside, Sigmoid, Softplus, SupStep
from rankgrad.ranks.relevance import shared_levels
from rankgrad.ranks.types import Ranks

BLACKBOX = [name for name, cls in LOSSES.items() if "lambda_" in inspect.signature(cls).parameters]
SMOOTH = [name for name in LOSSES if name not in BLACKBOX]
RELAXED = [name for name in RANK_LOSSES if name not in BLACKBOX]
GRADED = [name for name, cls in LOSSES.items() if cls.graded]


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def value_and_gradient(loss: torch.nn.Module, scores: Tensor, *lists: Tensor) -> tuple[Tensor, Tensor]:
    leaf = scores.detach().clone().requires_grad_()
    value = loss.from_scores(leaf, *lists)
    value.backward()
    return value.detach(), leaf.grad


# --------------------------------------------------------------------------------------- values: the papers' formulas


def per_query(cost):
    return lambda rows: reference.mean_over_queries(cost, rows)


def rambo_value(cost, margin: float = 0.02):
    def value(s: list[float], g: list[float]) -> float:
        y = [x - margin / 2 if gain > 0 else x + margin / 2 for x, gain in zip(s, g, strict=True)]
        rank = reference.rk(y)
        total = 0.0
        for i in reference.relevant_of(g):
            above = [g[j] for j in range(len(g)) if rank[j] < rank[i]]
            total += cost(sum(x >= g[i] for x in above), sum(x < g[i] for x in above))[0]
        return total / len(reference.relevant_of(g))

    return per_query(value)


def roadmap(rows, step, weight=0.5, **calibration):
    supap = reference.mean_over_queries(reference.ap_loss(reference.heaviside, step), rows)
    return (1 - weight) * supap + weight * reference.calibration(rows, **calibration)


def sup(**options):
    return per_query(reference.ap_loss(reference.heaviside, reference.h_minus(**options)))


def pnp(variant: str = "Dq", tau: float = 0.01, **numbers: float):
    return per_query(reference.penalty_loss(reference.pnp(variant, **numbers), reference.sigmoid(tau)))


def soft(cost):
    return lambda rows: reference.over_lists_told_apart(cost, rows)


DEFAULTS = {
    "roadmap": lambda rows: roadmap(rows, reference.h_minus()),
    "adaptive_roadmap": lambda rows: roadmap(rows, reference.h_minus(), 0.75, **reference.thresholds(rows)),
    "adaptive_triplet": reference.adaptive_triplet,
    "supap": sup(),
    "smooth_ap": per_query(reference.ap_loss(reference.sigmoid(0.01), reference.sigmoid(0.01))),
    "info_nce": per_query(reference.penalty_loss(math.log1p, reference.exponential(0.04))),
    "pnp": pnp(),
    "rambo_recall": rambo_value(reference.recall_cost("loglog")),
    "rambo_ap": rambo_value(reference.ap_cost),
    "fastap": per_query(reference.fastap_loss()),
    "softbin_ap": per_query(reference.softbin_loss()),
    "roc_auc": reference.pairs_loss,
    "auc": lambda rows: reference.auc_loss(*reference.hardest(rows)),
    "lambda": per_query(reference.lambda_loss()),
    "list_net": per_query(reference.list_net_loss()),
    "sl_at_k": per_query(reference.sl_at_k_loss()),
    "list_distillation": soft(reference.list_distillation_loss()),
    "margin_mse": soft(reference.margin_mse_loss()),
    "grade_bce": reference.grade_bce_loss,
    "recall_at_k": per_query(reference.recall_loss((1, 2, 4, 8, 16), 0.01, 1.0)),
    "suprecall": per_query(
        reference.recall_loss((1, 2, 4, 8, 16), 0.01, 1.0, (reference.heaviside, reference.h_minus()), clip=False)
    ),
    "supndcg": per_query(reference.ndcg_loss(reference.heaviside, reference.h_minus(), "exp2")),
    "ndcg": per_query(reference.ndcg_loss(reference.sigmoid(0.01), reference.sigmoid(0.01))),
    "h_ap": per_query(reference.hap_loss(reference.h_minus())),
    "calibration": lambda rows: reference.calibration(rows),
    "spearman": reference.spearman,
}
VARIANTS = [
    (losses.SmoothAPLoss(tau=0.1), per_query(reference.ap_loss(reference.sigmoid(0.1), reference.sigmoid(0.1)))),
    *(
        (losses.SupAPLoss(**options), sup(**options))
        for options in (
            {"tau": 0.05, "rho": 10.0, "delta": 0.1},
            {"offset": 1.44},
            {"start": 0.0, "offset": 1.0},
            {"tie": "official"},
        )
    ),
    *((losses.PNPLoss(v, tau=0.05, alpha=2.0, b=4.0), pnp(v, 0.05, alpha=2.0, b=4.0)) for v in "O Iu Ib Ds Dq".split()),
    (
        losses.PNPLoss(lambda r: r**2, tau=0.05),
        per_query(reference.penalty_loss(lambda r: r**2, reference.sigmoid(0.05))),
    ),
    (losses.RecallAtKLoss(k=(1, 3), tau1=0.1), per_query(reference.recall_loss((1, 3), 0.1, 1.0))),
    (
        losses.RecallAtKLoss(k=(2, 5), tau1=0.05, tau2=(0.5, 2.0)),
        per_query(reference.recall_loss((2, 5), 0.05, (0.5, 2.0))),
    ),
    (
        losses.RecallAtKLoss(k=(1, 2), tau1=0.1, tau2=4.0, clip=False),
        per_query(reference.recall_loss((1, 2), 0.1, 4.0, clip=False)),
    ),
    (
        losses.SupRecallLoss(k=(1, 2), tau2=(4.0, 3.0), clip=True),
        per_query(
            reference.recall_loss((1, 2), 0.01, (4.0, 3.0), (reference.heaviside, reference.h_minus()), clip=True)
        ),
    ),
    (
        losses.SupNDCGLoss(0.002, 500.0, 0.01, gain="linear"),
        per_query(reference.ndcg_loss(reference.heaviside, reference.h_minus(0.002, 500.0, 0.01))),
    ),
    (
        losses.NDCGLoss(tau=0.1, gain="exp2"),
        per_query(reference.ndcg_loss(reference.sigmoid(0.1), reference.sigmoid(0.1), "exp2")),
    ),
    (
        losses.HAPLoss(tau=0.05, rho=10.0, delta=0.1),
        per_query(reference.hap_loss(reference.h_minus(0.05, 10.0, 0.1))),
    ),
    (losses.FastAPLoss(bins=4), per_query(reference.fastap_loss(4))),
    (losses.FastAPLoss(bins=1), per_query(reference.fastap_loss(1))),
    (losses.SoftBinAPLoss(bins=7, low=-0.2, high=0.8), per_query(reference.softbin_loss(7, -0.2, 0.8))),
    (
        losses.AUCLoss(step=0.25, slope=9.0, t_min=-0.5, pad_steps=2),
        lambda rows: reference.auc_loss(*reference.hardest(rows), 0.25, 9.0, -0.5, 1.0, 2),
    ),
    (losses.CalibrationLoss(0.5, 0.2), lambda rows: reference.calibration(rows, 0.5, 0.2)),
    (
        losses.CalibrationLoss(0.5, 0.2, "avg_non_zero"),
        lambda rows: reference.calibration(rows, 0.5, 0.2, "avg_non_zero"),
    ),
    (
        losses.ROADMAPLoss(tau=0.05, weight=0.2, alpha=0.5, beta=0.2, aggregation="avg_non_zero"),
        lambda rows: roadmap(rows, reference.h_minus(0.05), 0.2, alpha=0.5, beta=0.2, aggregation="avg_non_zero"),
    ),
    (losses.RaMBORecallLoss(margin=0.25, weight="log"), rambo_value(reference.recall_cost("log"), 0.25)),
    (losses.RaMBORecallLoss(weight=(1.0, 0.5)), rambo_value(reference.recall_cost((1.0, 0.5)))),
    (losses.ROCAUCLoss(tau=0.1), lambda rows: reference.pairs_loss(rows, 0.1)),
    (losses.ListNetLoss(tau=0.1), per_query(reference.list_net_loss(0.1))),
    *(
        (losses.SLatKLoss(k, tau, steep), per_query(reference.sl_at_k_loss(k, tau, steep)))
        for k, tau, steep in ((1, 0.2, 1.0), (3, 0.2, 0.1), (5, 1.0, 3.0), (9, 0.1, 0.5))
    ),
    (losses.ListDistillationLoss(0.2, teacher_tau=0.5), soft(reference.list_distillation_loss(0.2, 0.5))),
    (losses.MarginMSELoss(tau=0.1), soft(reference.margin_mse_loss(0.1))),
    (losses.GradeBCELoss(1.0, center=0.0), lambda rows: reference.grade_bce_loss(rows, 1.0, 0.0)),
    (losses.LambdaLoss(k=3, tau=0.1), per_query(reference.lambda_loss("ndcg", 3, 0.1))),
    (losses.LambdaLoss(k=1, gain="linear"), per_query(reference.lambda_loss("ndcg", 1, gain="linear"))),
    (losses.LambdaLoss("map", tau=0.1), per_query(reference.lambda_loss("map", tau=0.1))),
    (losses.LambdaLoss("precision", 3), per_query(reference.lambda_loss("precision", 3))),
    (losses.LambdaLoss("mrr"), per_query(reference.lambda_loss("mrr"))),
    # Compositions that no paper has written.
    (
        RankLoss(Soft(Heaviside(), SupStep()), metric=metrics.ndcg),
        per_query(reference.ndcg_loss(reference.heaviside, reference.h_minus())),
    ),
    (
        RankLoss(Soft(Sigmoid(0.1), Exponential(0.2)), metric=metrics.average_precision),
        per_query(reference.ap_loss(reference.sigmoid(0.1), lambda t: math.exp(t / 0.2))),
    ),
    (
        RankLoss(Soft(Heaviside(), Exponential(0.1)), penalty=penalties.Log()),
        per_query(reference.penalty_loss(math.log1p, lambda t: math.exp(t / 0.1))),
    ),
    (
        RankLoss(Soft(Heaviside(), Softplus(0.1)), metric=metrics.hierarchical_ap),
        per_query(reference.hap_loss(lambda t: math.log2(1 + math.exp(t / 0.1)))),
    ),
    (
        RankLoss(Soft(Sigmoid(0.1), lambda d: torch.tanh(d) + 1), metric=metrics.average_precision),
        per_query(reference.ap_loss(reference.sigmoid(0.1), lambda t: math.tanh(t) + 1)),
    ),
    (
        RankLoss(Soft(Heaviside(), AutogradStep(lambda d: d.atan() + 2)), penalty=penalties.Power(1.0)),
        per_query(reference.penalty_loss(lambda r: 1 - 1 / (1 + r), lambda t: math.atan(t) + 2)),
    ),
    (
        RankLoss(exact_ranks, metric=metrics.average_precision),
        per_query(reference.ap_loss(reference.heaviside, reference.heaviside)),
    ),
]


def test_every_loss_of_the_table_has_a_loop_to_be_compared_with():
    assert set(DEFAULTS) == set(LOSSES) and set(RANK_LOSSES) <= set(LOSSES)


@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_of_ragged_lists_equals_plain_loops(problem, name, ties):
    for seed in range(3):
        lists = problem(seed, ties=ties)
        value = LOSSES[name]().from_scores(*lists)
        assert value.item() == pytest.approx(DEFAULTS[name](reference.lists(*lists)), rel=1e-10)


@pytest.mark.parametrize("name", GRADED)
def test_loss_of_graded_lists_equals_plain_loops(problem, name):
    for seed, ties in ((0, False), (1, True)):
        lists = problem(seed, ties=ties, graded=True)
        value = LOSSES[name]().from_scores(*lists)
        assert value.item() == pytest.approx(DEFAULTS[name](reference.lists(*lists)), rel=1e-10)


@pytest.mark.parametrize("case", VARIANTS, ids=lambda case: stable(case[0]))
def test_loss_with_options_equals_plain_loops(problem, case):
    loss, by_hand = case
    for seed, ties in ((0, False), (1, True)):
        lists = problem(seed, ties=ties)
        expected = pytest.approx(by_hand(reference.lists(*lists)), rel=1e-10)
        assert loss.from_scores(*lists).item() == expected
    if loss.graded:
        lists = problem(2, graded=True)
        assert loss.from_scores(*lists).item() == pytest.approx(by_hand(reference.lists(*lists)), rel=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_batch_against_itself_is_the_loss_of_its_cosines_without_the_diagonal(batch, name):
    embeddings, labels, *_ = batch()
    same = labels.unsqueeze(1) == labels.unsqueeze(0)
    rows = reference.lists(reference.cosines(embeddings, embeddings), same, ~torch.eye(10, dtype=torch.bool))
    assert LOSSES[name]()(embeddings, labels).item() == pytest.approx(DEFAULTS[name](rows), rel=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_queries_against_references_are_the_loss_of_their_cosines(batch, name):
    embeddings, labels, refs, ref_labels = batch()
    same = labels.unsqueeze(1) == ref_labels.unsqueeze(0)
    rows = reference.lists(reference.cosines(embeddings, refs), same)
    value = LOSSES[name]()(embeddings, labels, ref_emb=refs, ref_labels=ref_labels)
    assert value.item() == pytest.approx(DEFAULTS[name](rows), rel=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_without_normalisation_scores_are_dot_products(batch, name):
    embeddings, labels, *_ = batch()
    embeddings = embeddings / 3
    same = labels.unsqueeze(1) == labels.unsqueeze(0)
    valid = ~torch.eye(10, dtype=torch.bool)
    loss = LOSSES[name](normalize=False)
    torch.testing.assert_close(loss(embeddings, labels), loss.from_scores(embeddings @ embeddings.T, same, valid))


# ---------------------------------------------------------------------------------------------------------- gradients

# Blackbox gradients are those of another function (test_ranks, test_rambo_theory). SupAP, H-AP and ROADMAP have
# pieces that are constant almost everywhere, where differences see the same zero.
GRADCHECKED = {
    **{name: [LOSSES[name]()] for name in SMOOTH},
    "pnp": [losses.PNPLoss(variant, tau=0.05) for variant in ("Dq", "Ds", "Ib", "Iu", "O")],
    "composed": [
        RankLoss(Soft(Sigmoid(0.1), Exponential(0.2)), metric=metrics.ndcg),
        RankLoss(Soft(Heaviside(), Softplus(0.1)), penalty=penalties.LogLog()),
        RankLoss(Soft(Sigmoid(0.1), torch.tanh), metric=metrics.average_precision),
    ],
    "aggregated": [
        losses.CalibrationLoss(0.5, 0.2, "avg_non_zero"),
        losses.ROADMAPLoss(alpha=0.5, beta=0.2, aggregation="avg_non_zero"),
        losses.AUCLoss(pad_steps=2),
        losses.RecallAtKLoss(k=(1, 2), rank_query=True),
        losses.SoftBinAPLoss(bins=7, low=-0.2, high=0.8),
    ],
}


@pytest.mark.parametrize("name", GRADCHECKED)
def test_gradient_by_scores_is_that_of_the_value(problem, name):
    scores, relevant, valid = problem(2)
    for loss in GRADCHECKED[name]:
        loss.from_scores(scores + 0.01, relevant, valid)  # thresholds that follow the scores are between them,
        loss.eval()  # and stay there
        leaf = scores.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda s, loss=loss: loss.from_scores(s, relevant, valid), leaf, fast_mode=True)


@pytest.mark.parametrize("name", [n for n in GRADED if n in SMOOTH])
def test_gradient_of_graded_lists_is_that_of_the_value(problem, name):
    scores, gains, valid = problem(3, graded=True)
    loss = LOSSES[name]()
    assert torch.autograd.gradcheck(
        lambda s: loss.from_scores(s, gains, valid), scores.requires_grad_(), fast_mode=True
    )


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_by_embeddings_and_references_is_that_of_the_value(batch, name):
    embeddings, labels, refs, ref_labels = batch(1)
    loss = LOSSES[name]()
    loss(refs, ref_labels)
    loss.eval()  # with thresholds of other scores
    embeddings.requires_grad_(), refs.requires_grad_()
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), embeddings)
    assert torch.autograd.gradcheck(
        lambda e, r: loss(e, labels, ref_emb=r, ref_labels=ref_labels), (embeddings, refs), fast_mode=True
    )


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_by_embeddings_is_the_chain_rule_over_the_score_gradient(batch, name):
    embeddings, labels, refs, ref_labels = batch(2)
    loss = LOSSES[name]()
    a, b = embeddings.clone().requires_grad_(), refs.clone().requires_grad_()
    loss(a, labels, ref_emb=b, ref_labels=ref_labels).backward()
    c, d = embeddings.clone().requires_grad_(), refs.clone().requires_grad_()
    scores = torch.nn.functional.normalize(c, dim=1) @ torch.nn.functional.normalize(d, dim=1).T
    again = LOSSES[name]()  # a state of the first call would shift a threshold that stands on a score
    again.from_scores(scores, labels.unsqueeze(1) == ref_labels.unsqueeze(0)).backward()
    torch.testing.assert_close((a.grad, b.grad), (c.grad, d.grad))
    assert (a.grad != 0).any()


@pytest.mark.parametrize("name", LOSSES)
def test_references_that_need_no_gradient_get_none(batch, name):
    embeddings, labels, refs, ref_labels = batch()
    with_gradient = embeddings.clone().requires_grad_()
    other = refs.clone().requires_grad_()
    LOSSES[name]()(with_gradient, labels, ref_emb=other, ref_labels=ref_labels).backward()
    alone = embeddings.clone().requires_grad_()
    LOSSES[name]()(alone, labels, ref_emb=refs, ref_labels=ref_labels).backward()
    assert refs.grad is None and other.grad is not None
    torch.testing.assert_close(alone.grad, with_gradient.grad)
    LOSSES[name]()(embeddings, labels, ref_emb=other, ref_labels=ref_labels).backward()  # and the other way round
    assert embeddings.grad is None


@pytest.mark.parametrize("name", LOSSES)
def test_scores_that_need_no_gradient_give_a_value_all_the_same(problem, name):
    lists = problem()
    value = LOSSES[name]().from_scores(*lists)
    assert not value.requires_grad
    torch.testing.assert_close(value, value_and_gradient(LOSSES[name](), *lists)[0])


# ------------------------------------------------------------------------------------------------------ order, offset


@pytest.mark.parametrize("name", RANK_LOSSES)
def test_only_score_differences_matter(problem, name):
    scores, relevant, valid = problem()
    shifted = scores + torch.arange(9.0, dtype=torch.float64).unsqueeze(1) - 2  # another constant in each row
    value, gradient = value_and_gradient(LOSSES[name](), scores, relevant, valid)
    torch.testing.assert_close(value_and_gradient(LOSSES[name](), shifted, relevant, valid), (value, gradient))
    torch.testing.assert_close(gradient.sum(1), torch.zeros(9, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in RANK_LOSSES])
def test_losses_outside_rank_losses_do_see_absolute_scores(problem, name):
    scores, relevant, valid = problem()
    loss = LOSSES[name]()
    assert abs(loss.from_scores(scores + 0.13, relevant, valid) - loss.from_scores(scores, relevant, valid)) > 1e-4


@pytest.mark.parametrize("name", LOSSES)
def test_order_of_items_and_of_queries_does_not_matter(problem, name):
    scores, relevant, valid = problem()
    generator = torch.Generator().manual_seed(5)
    rows, columns = torch.randperm(9, generator=generator), torch.randperm(13, generator=generator)
    value, gradient = value_and_gradient(LOSSES[name](), scores, relevant, valid)
    moved = [t[rows][:, columns] for t in (scores, relevant, valid)]
    expected = (value, gradient[rows][:, columns])
    torch.testing.assert_close(value_and_gradient(LOSSES[name](), *moved), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_permutation_of_the_batch_permutes_the_gradient(batch, name):
    embeddings, labels, *_ = batch()
    order = torch.randperm(10, generator=torch.Generator().manual_seed(1))
    first, second = embeddings.clone().requires_grad_(), embeddings[order].clone().requires_grad_()
    one, two = LOSSES[name]()(first, labels), LOSSES[name]()(second, labels[order])
    torch.testing.assert_close(one, two)
    one.backward(), two.backward()
    torch.testing.assert_close(first.grad[order], second.grad)


@pytest.mark.parametrize("name", LOSSES)
def test_items_that_are_not_valid_do_not_exist(problem, name):
    scores, relevant, valid = problem()
    value, gradient = value_and_gradient(LOSSES[name](), scores, relevant, valid)
    other = torch.where(valid, scores, seeded(9, 13))
    flipped = torch.where(valid, relevant, ~relevant)
    torch.testing.assert_close(value_and_gradient(LOSSES[name](), other, flipped, valid), (value, gradient))
    assert (gradient[~valid] == 0).all()


# --------------------------------------------------------------------------------------------------------- monotonic


# The weights of LambdaLoss follow the ranks: a pair that becomes wrong may weigh less than it did. The targets of a
# soft loss can be exceeded in both directions.
@pytest.mark.parametrize("name", [name for name in RANK_LOSSES if name != "lambda" and not LOSSES[name].soft])
def test_raising_an_irrelevant_score_never_lowers_a_rank_loss(problem, name):
    for seed in range(2):
        scores, relevant, valid = problem(seed)
        loss = LOSSES[name](reduction="none")
        before = loss.from_scores(scores, relevant, valid)
        for item in range(13):
            for rise in (0.01, 0.3, 2.0):
                raised = scores.clone()
                raised[:, item] += rise * (~relevant & valid)[:, item]
                assert (loss.from_scores(raised, relevant, valid) >= before - 1e-12).all()


@pytest.mark.parametrize("name", ["supap", "h_ap"])
def test_relevant_items_are_never_pushed_down_nor_irrelevant_ones_up(problem, name):
    for seed in range(5):
        scores, relevant, valid = problem(seed)
        _, gradient = value_and_gradient(LOSSES[name](tau=0.05), scores, relevant, valid)
        assert (gradient[relevant & valid] <= 0).all() and (gradient[~relevant & valid] >= 0).all()


def test_supap_is_never_below_the_exact_loss_also_with_ties(problem):
    supap, exact = (
        losses.SupAPLoss(reduction="none"),
        RankLoss(exact_ranks, metric=metrics.average_precision, reduction="none"),
    )
    for seed in range(20):
        lists = problem(seed, ties=seed % 2 == 0)
        assert (supap.from_scores(*lists) >= exact.from_scores(*lists) - 1e-12).all()
    tie = torch.tensor([[0.5, 0.5]]), torch.tensor([[True, False]])
    assert supap.from_scores(*tie) >= exact.from_scores(*tie) == 0.5
    assert losses.SupAPLoss(tie="official").from_scores(*tie) < exact.from_scores(*tie)  # so the option is named


def test_hap_is_never_below_the_exact_loss(problem):
    hap, exact = losses.HAPLoss(), RankLoss(exact_ranks, metric=metrics.hierarchical_ap)
    for seed in range(10):
        lists = problem(seed, ties=seed % 2 == 0, graded=True)
        assert hap.from_scores(*lists) >= exact.from_scores(*lists) - 1e-12


def test_hap_of_binary_gains_is_supap(problem):
    scores, relevant, valid = problem(4)
    expected = value_and_gradient(losses.SupAPLoss(), scores, relevant, valid)
    torch.testing.assert_close(value_and_gradient(losses.HAPLoss(), scores, relevant, valid), expected)
    torch.testing.assert_close(value_and_gradient(losses.HAPLoss(), scores, relevant.double(), valid), expected)
    # scale of the gains does not matter
    torch.testing.assert_close(value_and_gradient(losses.HAPLoss(), scores, relevant * 0.25, valid), expected)


def levels_of(relevant: Tensor, seed: int) -> Tensor:
    """1 .. 3 shared levels for each relevant item."""
    g = torch.Generator().manual_seed(seed)
    return relevant * torch.randint(1, 4, relevant.shape, generator=g)


@pytest.mark.parametrize("tau", [0.01, 0.1])
def test_hap_of_levels_equals_plain_loops_in_either_order(problem, tau):
    for seed in range(5):
        scores, relevant, valid = problem(seed, ties=seed % 2 == 1)
        levels = levels_of(relevant, seed)
        rows = reference.lists(scores, levels, valid)
        by_level, by_gain = (
            reference.hap_loss_by_level(reference.h_minus(tau)),
            reference.hap_loss(reference.h_minus(tau)),
        )
        wanted = reference.mean_over_queries(by_level, rows)
        assert losses.HAPLoss(tau=tau).from_scores(scores, levels, valid).item() == pytest.approx(wanted, rel=1e-10)
        rows = [(s, [level / g.count(level) for level in g]) for s, g in rows]
        wanted = reference.mean_over_queries(by_gain, rows)
        value = losses.HAPLoss(tau=tau, order="gain").from_scores(scores, levels, valid)
        assert value.item() == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("order", ["level", "gain"])
def test_gradient_of_hap_of_levels_is_that_of_the_value(problem, order):
    scores, relevant, valid = problem(3)
    loss, levels = losses.HAPLoss(order=order, tau=0.05), levels_of(relevant, 0)
    value = lambda s: loss.from_scores(s, levels, valid)  # noqa: E731
    assert torch.autograd.gradcheck(value, scores.requires_grad_(), fast_mode=True)


def test_lone_sibling_between_items_of_the_own_class_goes_down_by_level_and_up_by_gain():
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.75, 0.1]], dtype=torch.float64)
    levels = torch.tensor([[2, 2, 2, 2, 1, 0]])
    gains = torch.tensor([[0.25, 0.25, 0.25, 0.25, 0.5, 0.0]], dtype=torch.float64)

    def slope(relevant: Tensor, **options: str) -> float:
        return value_and_gradient(losses.HAPLoss(**options), scores, relevant)[1][0, 4].item()

    assert slope(levels) > 0 > slope(levels, order="gain")
    assert slope(gains) == slope(gains, order="gain") == slope(levels, order="gain")
    labels, mine = torch.tensor([[0, 0]] * 4 + [[0, 1], [1, 2]]), torch.tensor([[0, 0]])
    refs, query = scores.T.contiguous(), torch.ones(1, 1, dtype=torch.float64)
    for order in ("level", "gain"):
        loss = losses.HAPLoss(order=order, normalize=False)
        value = loss(query, mine, ref_emb=refs, ref_labels=labels)
        torch.testing.assert_close(value, loss.from_scores(scores, levels))


def test_order_of_levels_changes_nothing_where_gains_grow_with_them(problem):
    scores, relevant, valid = problem(1)
    levels = relevant.long() + (relevant & (torch.arange(13) == relevant.long().argmax(1, keepdim=True))).long()
    levels = levels.masked_fill(~valid, 0)
    by_level = value_and_gradient(losses.HAPLoss(), scores, levels, valid)
    by_gain = value_and_gradient(losses.HAPLoss(order="gain"), scores, levels, valid)
    assert torch.equal(by_level[0], by_gain[0]) and torch.equal(by_level[1], by_gain[1])


def test_levels_of_sup_ndcg_are_its_gains(problem):
    scores, relevant, valid = problem(1)
    levels = levels_of(relevant, 0)
    loss = losses.SupNDCGLoss()
    torch.testing.assert_close(
        value_and_gradient(loss, scores, levels, valid), value_and_gradient(loss, scores, levels.double(), valid)
    )


def test_sup_ndcg_is_never_below_the_exact_loss(problem):
    sup = losses.SupNDCGLoss(gain="linear")
    exact = RankLoss(exact_ranks, metric=metrics.ndcg)
    for seed in range(10):
        lists = problem(seed, ties=seed % 2 == 0, graded=True)
        assert sup.from_scores(*lists) >= exact.from_scores(*lists) - 1e-12


def test_recall_held_at_k_has_no_gradient_there_and_goes_on_otherwise():
    scores, relevant = torch.full((1, 9), 0.5, dtype=torch.float64), torch.ones(1, 9, dtype=torch.bool)
    relevant[0, 8] = False
    for make in (losses.RecallAtKLoss, losses.SupRecallLoss):
        held, free = make(k=(2,), tau2=10.0, clip=True), make(k=(2,), tau2=10.0, clip=False)
        value, gradient = value_and_gradient(held, scores, relevant)
        assert value == 0 and (gradient == 0).all()
        value, gradient = value_and_gradient(free, scores, relevant)
        assert value < 0 and gradient[0, 8] > 0


def test_gradient_of_hap_comes_from_items_of_less_gain_only(problem):
    scores, _, valid = problem()
    level = torch.where(valid, 1.0, 0.0).double()  # everything that exists is equally relevant
    assert (value_and_gradient(losses.HAPLoss(), scores, level, valid)[1] == 0).all()


# ---------------------------------------------------------------------------------------------------- tau -> 0, limits


def count_limit(s: list[float], g: list[float], ks: tuple[int, ...]) -> float:
    """Recall@k with exact ranks and a count whose step is 1/2 at rank = k."""
    recalls = []
    for k in ks:
        ranks = [reference.ranking(s).index(i) + 1 for i in reference.relevant_of(g)]
        recalls.append(min(k, sum((r < k) + 0.5 * (r == k) for r in ranks)) / min(k, len(ranks)))
    return 1 - sum(recalls) / len(recalls)


LIMITS = {
    "smooth_ap": (losses.SmoothAPLoss(tau=1e-7), reference.ap_loss(reference.heaviside, reference.heaviside)),
    "ndcg": (losses.NDCGLoss(tau=1e-7), lambda s, g: 1 - reference.ndcg(s, g)),
    "ndcg_exp2": (losses.NDCGLoss(tau=1e-7, gain="exp2"), lambda s, g: 1 - reference.ndcg(s, g, gain="exp2")),
    "pnp_o": (losses.PNPLoss("O", tau=1e-7), reference.penalty_loss(lambda r: r, reference.heaviside)),
    "pnp_dq": (losses.PNPLoss(tau=1e-7), reference.penalty_loss(reference.pnp("Dq"), reference.heaviside)),
    "recall_at_k": (
        losses.RecallAtKLoss(k=(1, 2, 4), tau1=1e-7, tau2=1e-7),
        lambda s, g: count_limit(s, g, (1, 2, 4)),
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_vanishing_temperature_gives_the_exact_metric(problem, name):
    loss, exact = LIMITS[name]
    for seed in range(3):
        lists = problem(seed, graded="ndcg" in name)
        assert loss.from_scores(*lists).item() == pytest.approx(
            reference.mean_over_queries(exact, reference.lists(*lists)), rel=1e-9
        )


# AUC and Recall@k keep the tails of their sigmoids; NDCG's relevant items are level here, and share a rank of 1 + 1/2
# or the last of their places; no permutation correlates fully with two levels of gain (test_spearman has the value). A
# softmax has no 0, and a sigmoid half a score away keeps a tail.
NEVER_NOTHING = (
    *("auc", "roc_auc", "lambda", "list_net", "recall_at_k", "suprecall", "ndcg", "supndcg", "spearman"),
    *("list_distillation", "grade_bce", "sl_at_k"),
)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in NEVER_NOTHING])
def test_perfect_scores_cost_nothing(name):
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    embeddings = torch.nn.functional.one_hot(labels).double().requires_grad_()
    value = LOSSES[name]()(embeddings, labels)
    value.backward()
    # a sigmoid one score unit below costs exp(-100)
    assert value.item() == pytest.approx(0, abs=1e-9) and embeddings.grad.abs().max() < 1e-9


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("b", [1e-20, 1e-6, 0.01, 2.0, 1e6])
def test_pnp_ib_keeps_its_digits_where_b_r_is_small(b, dtype, tolerance):
    """b R - log(1 + b R) is about (b R)^2 / 2. In float32 the difference was 0 for b = 1e-6, as was the gradient."""
    above = torch.tensor([1e-8, 1e-4, 0.01, 0.5, 3.0, 1e3], dtype=dtype, requires_grad=True)
    value = penalties.Rational(b)(above)
    (slope,) = torch.autograd.grad(value.sum(), above)
    with decimal.localcontext() as context:
        context.prec = 90
        factor = decimal.Decimal(b)
        exact = [(factor * r - (1 + factor * r).ln()) / factor**2 for r in map(decimal.Decimal, above.tolist())]
    wanted = torch.tensor([float(each) for each in exact], dtype=torch.float64)
    torch.testing.assert_close(value.detach().double(), wanted, rtol=tolerance, atol=0)
    wide = above.detach().double()
    torch.testing.assert_close(slope.double(), wide / (1 + b * wide), rtol=tolerance, atol=0)


def test_soft_recall_count_of_perfect_scores_keeps_the_tail_of_its_sigmoids():
    # one relevant item at rank 1: sigmoid((k - 1) / tau2) at k = 1 is 1/2 for every temperature
    perfect = torch.tensor([[0.9, 0.1]]), torch.tensor([[True, False]])
    assert losses.RecallAtKLoss(k=(1,), tau2=1e-3).from_scores(*perfect).item() == pytest.approx(0.5)


# -------------------------------------------------------------------------------------- nothing relevant, one query


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in CALIBRATED])
def test_no_relevant_item_gives_zero_and_finite_gradient(problem, name):
    scores, relevant, valid = problem()
    for lists in ((torch.zeros_like(relevant), valid), (relevant, torch.zeros_like(valid))):
        loss = LOSSES[name]()
        value, gradient = value_and_gradient(loss, scores, *lists)
        assert value == 0 and (gradient == 0).all()
        assert not loss.stats["counted"].any()


@pytest.mark.parametrize("name", LOSSES)
def test_no_nan_appears_inside_the_backward_pass_of_lists_without_items(problem, name):
    scores, relevant, valid = problem()
    valid[0] = False
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        value_and_gradient(LOSSES[name](), scores, relevant, valid)


@pytest.mark.parametrize("name", CALIBRATED)
def test_no_relevant_item_leaves_only_the_calibration_of_the_others(problem, name):
    scores, relevant, valid = problem()
    value, gradient = value_and_gradient(LOSSES[name](), scores, torch.zeros_like(relevant), valid)
    rows = reference.lists(scores, torch.zeros_like(relevant), valid)
    assert value.item() == pytest.approx(DEFAULTS[name](rows)) and value > 0
    assert gradient.isfinite().all()
    value, gradient = value_and_gradient(LOSSES[name](), scores, relevant, torch.zeros_like(valid))
    assert value == 0 and (gradient == 0).all()


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in CALIBRATED])
def test_query_without_relevant_items_has_exactly_no_gradient_and_changes_nothing(problem, name):
    scores, relevant, valid = problem()
    loss = LOSSES[name]()
    value, gradient = value_and_gradient(loss, scores, relevant, valid)
    assert (gradient[7:] == 0).all()
    assert not loss.stats["counted"][7:].any()
    expected = value_and_gradient(LOSSES[name](), scores[:7], relevant[:7], valid[:7])
    torch.testing.assert_close((value, gradient[:7]), expected)


@pytest.mark.parametrize("name", CALIBRATED)
def test_calibration_counts_every_query(problem, name):
    loss = LOSSES[name]()
    loss.from_scores(*problem())
    assert loss.stats["counted"].all()


def test_parts_of_roadmap_are_in_its_statistics(problem):
    loss, lists = losses.ROADMAPLoss(weight=0.3), problem()
    value = loss.from_scores(*lists)
    supap, calibration = losses.SupAPLoss().from_scores(*lists), losses.CalibrationLoss().from_scores(*lists)
    torch.testing.assert_close((loss.stats["supap"], loss.stats["calibration"]), (supap, calibration))
    torch.testing.assert_close(value, 0.7 * supap + 0.3 * calibration)


@pytest.mark.parametrize("name", LOSSES)
def test_statistics_tell_a_batch_without_pairs_to_learn_from_a_batch_that_is_solved(name, problem, batch):
    embeddings, *_ = batch()
    loss = LOSSES[name]()
    for labels, kinds in (
        (torch.zeros(10, dtype=torch.long), (True, False)),
        (torch.arange(10), (False, True)),
        (torch.arange(10) // 2, (True, True)),
    ):
        loss(embeddings, labels)
        found = loss.stats["has_relevant"], loss.stats["has_irrelevant"]
        assert [each.tolist() for each in found] == [[kind] * 10 for kind in kinds]
    scores, relevant, valid = problem()
    for hits in (relevant, relevant * 0.5) if loss.graded else (relevant,):
        loss.from_scores(scores, hits, valid)
        assert torch.equal(loss.stats["has_relevant"], (relevant & valid).any(1))
        assert torch.equal(loss.stats["has_irrelevant"], (~relevant & valid).any(1))
    query = torch.tensor([5, 5, 3, 3, 4, 4, 5])
    loss.from_lists(scores[0, :7], torch.tensor([1, 0, 1, 1, 0, 0, 0]).bool(), query)
    assert loss.stats["has_relevant"].tolist() == [True, False, True]
    assert loss.stats["has_irrelevant"].tolist() == [False, True, True]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


ON_THREADS = ("supap", "info_nce", "rambo_recall")  # the others take seconds each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ON_THREADS else [pytest.mark.slow]) for name in LOSSES]
)
def test_gradient_on_several_threads_is_the_same_each_time_to_the_bit(name, two_threads):
    g = torch.Generator().manual_seed(0)
    scores, relevant = torch.rand(3, 2000, generator=g), torch.rand(3, 2000, generator=g) < 0.05
    first, *others = (value_and_gradient(LOSSES[name](), scores, relevant) for _ in range(6))
    assert all(torch.equal(each, wanted) for other in others for each, wanted in zip(other, first, strict=True))


@pytest.mark.parametrize("name", LOSSES)
def test_statistics_are_detached_and_of_the_last_call(problem, batch, name):
    embeddings, labels, *_ = batch()
    loss = LOSSES[name]()
    loss(embeddings.requires_grad_(), labels)
    assert loss.stats["zero_rows"] == 0 and len(loss.stats["counted"]) == 10
    first = loss.stats
    loss.from_scores(*problem())
    assert loss.stats is not first and len(loss.stats["counted"]) == 9 and "zero_rows" not in loss.stats
    assert not any(t.requires_grad for t in loss.stats.values())


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "auc"])
def test_lists_without_irrelevant_items_follow_the_formula(name, problem):
    scores, relevant, _ = problem()
    lists = scores[6:7], relevant[6:7], relevant[6:7]
    value, gradient = value_and_gradient(LOSSES[name](), *lists)
    assert value.item() == pytest.approx(DEFAULTS[name](reference.lists(*lists)), abs=1e-12)
    assert gradient.isfinite().all()


def test_auc_learns_from_the_hardest_pair_of_a_list_and_from_nothing_else():
    scores, relevant = seeded(1, 50).tanh() / 2, torch.arange(50).unsqueeze(0) % 5 == 0
    _, gradient = value_and_gradient(losses.AUCLoss(), scores, relevant)
    hardest = {
        int(scores.masked_fill(~relevant, torch.inf).argmin()),
        int(scores.masked_fill(relevant, -torch.inf).argmax()),
    }
    assert set(gradient[0].nonzero().flatten().tolist()) == hardest


# ------------------------------------------------------------------------------------------------------- reductions

REDUCED = {
    **LOSSES,
    "rambo_recall pooled": lambda **kw: losses.RaMBORecallLoss(aggregation="pooled", **kw),
    "rambo_ap pooled": lambda **kw: losses.RaMBOAPLoss(aggregation="pooled", **kw),
    "calibration avg_non_zero": lambda **kw: losses.CalibrationLoss(0.5, 0.2, "avg_non_zero", **kw),
    "roadmap avg_non_zero": lambda **kw: losses.ROADMAPLoss(aggregation="avg_non_zero", **kw),
}


@pytest.mark.parametrize("name", REDUCED)
def test_mean_of_the_counted_rows_is_the_scalar_in_value_and_gradient(problem, name):
    scores, relevant, valid = problem()
    whole = value_and_gradient(REDUCED[name](), scores, relevant, valid)
    rows = REDUCED[name](reduction="none")
    leaf = scores.clone().requires_grad_()
    values = rows.from_scores(leaf, relevant, valid)
    counted = rows.stats["counted"]
    assert values.shape == (9,) and (values[~counted] == 0).all()
    mean = values[counted].mean()
    mean.backward()
    torch.testing.assert_close((mean.detach(), leaf.grad), whole)


@pytest.mark.parametrize("name", [name for name in SMOOTH if name not in GLOBAL])
def test_rows_alone_cost_what_they_cost_together(problem, name):
    scores, relevant, valid = problem()
    loss = LOSSES[name](reduction="none")
    together = loss.from_scores(scores, relevant, valid)
    alone = torch.cat([loss.from_scores(scores[q : q + 1], relevant[q : q + 1], valid[q : q + 1]) for q in range(9)])
    torch.testing.assert_close(alone, together)


def test_rows_of_roadmap_alone_cost_what_they_cost_together_where_all_have_a_match(problem):
    scores, relevant, valid = problem(all_counted=True)
    loss = losses.ROADMAPLoss(reduction="none")
    together = loss.from_scores(scores, relevant, valid)
    alone = torch.cat([loss.from_scores(scores[q : q + 1], relevant[q : q + 1], valid[q : q + 1]) for q in range(7)])
    torch.testing.assert_close(alone, together)


@pytest.mark.parametrize("name", BLACKBOX)
def test_row_of_a_blackbox_loss_has_the_gradient_of_the_mean_times_the_counted_queries(problem, name):
    scores, relevant, valid = problem()
    loss = LOSSES[name]()
    _, gradient = value_and_gradient(loss, scores, relevant, valid)
    leaf = scores.clone().requires_grad_()
    values = LOSSES[name](reduction="none").from_scores(leaf, relevant, valid)
    values[2].backward()
    torch.testing.assert_close(leaf.grad[2], loss.stats["counted"].sum() * gradient[2])
    assert (leaf.grad[[q for q in range(9) if q != 2]] == 0).all()


# -------------------------------------------------------------------------------------- scale, precision, autocast


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("scale", [65536.0, 1e-3, 2.0**-20])
def test_scale_of_the_loss_scales_the_gradient_and_nothing_else(batch, name, scale):
    embeddings, labels, *_ = batch()
    plain, scaled = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    LOSSES[name]()(plain, labels).backward()
    (scale * LOSSES[name]()(scaled, labels)).backward()
    torch.testing.assert_close(scaled.grad / scale, plain.grad, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", BLACKBOX)
def test_weighted_sum_of_blackbox_losses_has_the_weighted_sum_of_their_gradients(problem, name):
    scores, relevant, valid = problem()
    one = value_and_gradient(LOSSES[name](lambda_=1.0), scores, relevant, valid)[1]
    two = value_and_gradient(losses.SupAPLoss(), scores, relevant, valid)[1]
    leaf = scores.clone().requires_grad_()
    (
        0.3 * LOSSES[name](lambda_=1.0).from_scores(leaf, relevant, valid)
        + 5 * losses.SupAPLoss().from_scores(leaf, relevant, valid)
    ).backward()
    torch.testing.assert_close(leaf.grad, 0.3 * one + 5 * two)


@pytest.mark.parametrize("name", BLACKBOX)
def test_rows_of_a_blackbox_gradient_sum_to_zero(problem, name):
    for seed in range(3):
        for lists in (problem(seed), problem(seed, graded=True), problem(seed, ties=True)):
            _, gradient = value_and_gradient(LOSSES[name](), *lists)
            torch.testing.assert_close(gradient.sum(1), torch.zeros(9, dtype=torch.float64))
            assert (gradient != 0).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_computed_in_float32_and_lies_near_float64(problem, batch, name, dtype):
    scores, relevant, valid = problem()
    low, exact = scores.to(dtype), scores.to(dtype).double()
    value, gradient = value_and_gradient(LOSSES[name](), low, relevant, valid)
    near, near_gradient = value_and_gradient(LOSSES[name](), exact, relevant, valid)
    assert value.dtype == torch.float32 and gradient.dtype == dtype
    torch.testing.assert_close(value.double(), near, rtol=1e-4, atol=1e-5)
    largest = near_gradient.abs().max().item()
    torch.testing.assert_close(gradient.double(), near_gradient, rtol=0.02, atol=0.01 * largest)
    embeddings, labels, *_ = batch()
    value = LOSSES[name]()(embeddings.to(dtype), labels)
    assert value.dtype == torch.float32
    torch.testing.assert_close(
        value.double(), LOSSES[name]()(embeddings.to(dtype).double(), labels), rtol=1e-4, atol=1e-4
    )


def test_mean_over_very_many_relevant_items_loses_no_digits_in_float32():
    values, query = torch.full((50_000,), 0.1), torch.zeros(50_000, dtype=torch.long)
    assert float(Ranks(query, query, values, values, values, 1).mean_per_query(values)) == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("name", ["fastap", "softbin_ap"])
def test_histogram_of_a_long_list_loses_no_digits_in_float32(name):
    scores = torch.full((1, 50_000), 0.317, requires_grad=True)
    relevant = (torch.arange(50_000) % 2 == 0).unsqueeze(0)
    value, gradient = value_and_gradient(LOSSES[name](), scores, relevant)
    exact, exact_gradient = value_and_gradient(LOSSES[name](), scores.double(), relevant)
    assert float(value) == pytest.approx(float(exact), rel=2e-6)
    torch.testing.assert_close(
        gradient.double(), exact_gradient, rtol=1e-4, atol=1e-5 * float(exact_gradient.abs().max())
    )


@pytest.mark.parametrize("alpha", [1.0, 4.0, 20.0])
def test_slope_of_pnp_dq_keeps_its_digits_where_many_irrelevant_items_are_above(alpha):
    above = torch.logspace(-5, 1.5, 40, requires_grad=True)
    value = penalties.Power(alpha)(above)
    (slope,) = torch.autograd.grad(value.sum(), above)
    exact = above.detach().double()
    torch.testing.assert_close(slope.double(), alpha * (1 + exact) ** -(alpha + 1), rtol=1e-5, atol=0)
    torch.testing.assert_close(value.double(), -torch.expm1(-alpha * exact.log1p()), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_float32_stays_float32_and_float64_stays_float64(problem, name):
    scores, relevant, valid = problem()
    value, gradient = value_and_gradient(LOSSES[name](), scores, relevant, valid)
    assert value.dtype == gradient.dtype == torch.float64
    single, single_gradient = value_and_gradient(LOSSES[name](), scores.float(), relevant, valid)
    assert single.dtype == single_gradient.dtype == torch.float32
    torch.testing.assert_close(single.double(), value, rtol=1e-4, atol=1e-5)
    atol = 1e-3 * gradient.abs().max().item()
    torch.testing.assert_close(single_gradient.double(), gradient, rtol=1e-3, atol=atol)


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_changes_nothing(problem, batch, name):
    embeddings, labels, refs, ref_labels = (t.float() if t.is_floating_point() else t for t in batch())
    scores, relevant, valid = problem()

    def run(enabled: bool) -> list[Tensor]:
        loss, leaf = LOSSES[name](), embeddings.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            values = [
                loss(leaf, labels),
                loss(leaf, labels, ref_emb=refs, ref_labels=ref_labels),
                loss.from_scores(scores.float(), relevant, valid),
            ]
        sum(values).backward()  # outside, as torch asks: inside, autocast rounds the products of any backward pass
        return [*values, leaf.grad]

    for one, two in zip(run(False), run(True), strict=True):
        assert two.dtype == torch.float32
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", LOSSES)
def test_result_is_the_same_every_time(batch, name):
    embeddings, labels, *_ = batch()
    first, second = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    loss = LOSSES[name]()
    loss(first, labels).backward(), loss(second, labels).backward()
    assert torch.equal(first.grad, second.grad)


@pytest.mark.parametrize("name", LOSSES)
def test_inputs_are_left_alone(problem, batch, name):
    lists, (embeddings, labels, refs, ref_labels) = problem(), batch()
    before = [t.clone() for t in (*lists, embeddings, labels, refs, ref_labels)]
    LOSSES[name]().from_scores(*lists)
    LOSSES[name]()(embeddings, labels, ref_emb=refs, ref_labels=ref_labels)
    for old, new in zip(before, (*lists, embeddings, labels, refs, ref_labels), strict=True):
        assert torch.equal(old, new)


# ----------------------------------------------------------------------------------- which pairs exist: ids and masks


@pytest.mark.parametrize("name", LOSSES)
def test_same_sample_on_both_sides_is_never_its_own_match(batch, name):
    embeddings, labels, refs, ref_labels = batch()
    ids, ref_ids = torch.arange(10), torch.arange(100, 111)
    memory, memory_labels = torch.cat([refs, embeddings]), torch.cat([ref_labels, labels])
    value = LOSSES[name]()(
        embeddings, labels, ref_emb=memory, ref_labels=memory_labels, ids=ids, ref_ids=torch.cat([ref_ids, ids])
    )
    valid = torch.cat([torch.ones(10, 11, dtype=torch.bool), ~torch.eye(10, dtype=torch.bool)], dim=1)
    expected = LOSSES[name]()(embeddings, labels, ref_emb=memory, ref_labels=memory_labels, valid=valid)
    torch.testing.assert_close(value, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_copies_of_a_sample_in_one_batch_are_not_matches(batch, name):
    embeddings, labels, *_ = batch()
    alone = int((labels == 0).nonzero())  # the one member of its class
    copies = torch.tensor([0, 1, alone])
    twice, labels = torch.cat([embeddings, embeddings[copies]]), torch.cat([labels, labels[copies]])
    ids = torch.cat([torch.arange(10), copies])
    valid = ids.unsqueeze(1) != ids.unsqueeze(0)
    torch.testing.assert_close(
        LOSSES[name]()(twice, labels, ids=ids), LOSSES[name]()(twice, labels, valid=valid), rtol=0, atol=0
    )
    assert (LOSSES[name]()(twice, labels, ids=ids) - LOSSES[name]()(twice, labels)).abs() > 1e-6


@pytest.mark.parametrize("name", LOSSES)
def test_include_self_is_relevance_with_ones_on_the_diagonal_and_everything_valid(batch, name):
    embeddings, labels, *_ = batch()
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    same = labels.unsqueeze(1) == labels.unsqueeze(0)
    expected = LOSSES[name]().from_scores(unit @ unit.T, same)
    torch.testing.assert_close(LOSSES[name](include_self=True)(embeddings, labels), expected)
    # with references there is no diagonal, and the option says nothing
    against = {"ref_emb": embeddings[:4], "ref_labels": labels[:4]}
    assert torch.equal(
        LOSSES[name](include_self=True)(embeddings, labels, **against), LOSSES[name]()(embeddings, labels, **against)
    )


@pytest.mark.parametrize("name", LOSSES)
def test_multi_hot_labels_match_where_a_class_is_shared(batch, name):
    embeddings = batch().embeddings
    tags = torch.rand(10, 4, generator=torch.Generator().manual_seed(0)) < 0.35
    shared = torch.tensor([[any(a and b for a, b in zip(p, q, strict=True)) for q in tags] for p in tags])
    torch.testing.assert_close(LOSSES[name]()(embeddings, tags), LOSSES[name]()(embeddings, relevant=shared))


LEVELLED = [name for name, cls in LOSSES.items() if cls.levels]


@pytest.mark.parametrize("name", LEVELLED)
def test_hierarchical_labels_give_levels_where_levels_mean_something(batch, name):
    embeddings, fine, refs, ref_fine = batch()
    labels, ref_labels = torch.stack([fine // 2, fine], 1), torch.stack([ref_fine // 2, ref_fine], 1)
    loss = LOSSES[name]()
    torch.testing.assert_close(loss(embeddings, labels), loss(embeddings, relevant=shared_levels(labels, labels)))
    torch.testing.assert_close(
        loss(embeddings, labels, ref_emb=refs, ref_labels=ref_labels),
        loss(embeddings, ref_emb=refs, relevant=shared_levels(labels, ref_labels)),
    )


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in LEVELLED])
def test_hierarchical_labels_give_gains_where_gains_mean_something_and_their_finest_level_elsewhere(batch, name):
    embeddings, fine, refs, ref_fine = batch()
    labels, ref_labels = torch.stack([fine // 2, fine], 1), torch.stack([ref_fine // 2, ref_fine], 1)
    eye = torch.eye(10, dtype=torch.bool)
    if name in GRADED:
        gains = reference.happier_gains(labels, labels, ~eye)
        ref_gains = reference.happier_gains(labels, ref_labels, None)
    else:
        gains, ref_gains = fine.unsqueeze(1) == fine, fine.unsqueeze(1) == ref_fine
    loss = LOSSES[name]().eval()
    torch.testing.assert_close(loss(embeddings, labels), loss(embeddings, relevant=gains), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        loss(embeddings, labels, ref_emb=refs, ref_labels=ref_labels),
        loss(embeddings, ref_emb=refs, relevant=ref_gains),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize("name", LOSSES)
def test_indices_tuple_of_all_pairs_is_the_batch_and_of_triplets_the_same(batch, name):
    embeddings, labels, *_ = batch()
    same, eye = labels.unsqueeze(1) == labels.unsqueeze(0), torch.eye(10, dtype=torch.bool)
    a1, p = (same & ~eye).nonzero(as_tuple=True)
    a2, n = (~same).nonzero(as_tuple=True)
    loss = LOSSES[name]()
    expected = loss(embeddings, labels, valid=None)
    if name not in CALIBRATED:
        torch.testing.assert_close(loss(embeddings, labels, (a1, p, a2, n)), expected)
    triplets = [(a, b, c) for a, b in zip(a1, p, strict=True) for d, c in zip(a2, n, strict=True) if a == d]
    anchors, positives, negatives = (torch.stack(column) for column in zip(*triplets, strict=True))
    kept = same & ~eye
    kept = kept | (~same & kept.any(1, keepdim=True))
    torch.testing.assert_close(
        loss(embeddings, indices_tuple=(anchors, positives, negatives)),
        loss(embeddings, relevant=same & ~eye, valid=kept),
    )


def test_indices_tuple_leaves_only_its_pairs(batch):
    embeddings = batch().embeddings
    one = torch.tensor
    value = losses.SmoothAPLoss(tau=0.1)(embeddings, indices_tuple=(one([0, 0]), one([4, 5]), one([0]), one([7])))
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    s = (unit @ unit.T)[0, [4, 5, 7]].tolist()
    step = reference.sigmoid(0.1)
    assert value.item() == pytest.approx(reference.ap_loss(step, step)(s, [1.0, 1.0, 0.0]))


def test_tensors_of_an_indices_tuple_stay_where_they_are(batch):
    embeddings, pairs = batch().embeddings, tuple(map(torch.tensor, ([0], [4], [6])))
    wanted = losses.SupAPLoss()(embeddings, indices_tuple=pairs)
    with torch.device("meta"):  # the default device for new tensors
        torch.testing.assert_close(losses.SupAPLoss()(embeddings, indices_tuple=pairs), wanted)


@pytest.mark.parametrize("name", LOSSES)
def test_valid_further_restricts_which_items_exist(batch, name):
    embeddings, labels, *_ = batch()
    valid = torch.rand(10, 10, generator=torch.Generator().manual_seed(3)) < 0.7
    same, eye = labels.unsqueeze(1) == labels.unsqueeze(0), torch.eye(10, dtype=torch.bool)
    torch.testing.assert_close(
        LOSSES[name]()(embeddings, labels, valid=valid), LOSSES[name]()(embeddings, relevant=same, valid=valid & ~eye)
    )


def test_query_in_its_own_ranking_is_an_irrelevant_item_of_rank_one(batch):
    embeddings, labels, *_ = batch()
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    same, eye = labels.unsqueeze(1) == labels.unsqueeze(0), torch.eye(10, dtype=torch.bool)
    value = losses.RecallAtKLoss(k=(1, 2, 99), rank_query=True)(embeddings, labels)
    capped = losses.RecallAtKLoss(k=(1, 2, 10)).from_scores(unit @ unit.T, same & ~eye)
    torch.testing.assert_close(value, capped)
    by_relation = losses.RecallAtKLoss(k=(1, 2, 99), rank_query=True)(embeddings, relevant=same)
    torch.testing.assert_close(by_relation, capped)
    with pytest.raises(ValueError, match="rank_query .* include_self"):
        losses.RecallAtKLoss(rank_query=True, include_self=True)


# ----------------------------------------------------------------------------------------- objects: repr, pickle, names


OPTIONS = {
    "roadmap": {"tau": 0.02, "delta": "auto", "weight": 0.25, "aggregation": "avg_non_zero"},
    "adaptive_roadmap": {"tau": 0.02, "weight": 0.25, "quantiles": (0.4, 0.9)},
    "adaptive_triplet": {"margin": 0.4, "weight": 0.25, "quantiles": (0.4, 0.9)},
    "supap": {"rho": 10.0, "offset": 1.44, "tie": "official"},
    "smooth_ap": {"tau": 0.05, "reduction": "none"},
    "info_nce": {"tau": 0.02, "pull": 0.9},
    "pnp": {"variant": "Ib", "b": 4.0},
    "rambo_recall": {"lambda_": 0.2, "margin": 0.05, "weight": (1.0, 0.5), "aggregation": "pooled", "both_ranks": True},
    "rambo_ap": {"lambda_": 0.2, "normalized_ranks": False},
    "fastap": {"bins": 5},
    "softbin_ap": {"bins": 25, "low": 0.0},
    "roc_auc": {"tau": 0.5, "fpr": 0.2},
    "auc": {"step": 0.25, "slope": 10.0, "pad_steps": 2},
    "lambda": {"measure": "ndcg", "k": 3, "tau": 0.5, "gain": "linear"},
    "list_net": {"tau": 0.5},
    "sl_at_k": {"k": 3, "tau": 0.5, "tau_weight": 2.0},
    "list_distillation": {"tau": 0.5, "teacher_tau": 2.0},
    "margin_mse": {"tau": 0.5, "normalize": False},
    "grade_bce": {"tau": 0.5, "center": 0.0, "highest": 2.0},
    "recall_at_k": {"k": (1, 4), "tau2": (0.5, 1.0), "clip": False, "rank_query": True},
    "suprecall": {"k": (1, 4), "tau2": (0.5, 1.0), "rho": 10.0, "clip": True},
    "supndcg": {"tau": 0.002, "rho": 500.0, "delta": 0.01, "gain": "linear"},
    "ndcg": {"gain": "exp2"},
    "h_ap": {"tau": 0.05, "order": "gain", "normalize": False},
    "calibration": {"alpha": 0.8, "include_self": True, "check_finite": True},
    "spearman": {"lambda_": 0.5, "normalized_ranks": False},
}


@pytest.mark.parametrize("name", LOSSES)
def test_printed_arguments_build_the_loss_again(name):
    for options in ({}, OPTIONS[name]):
        loss = LOSSES[name](**options)
        again = eval(f"{type(loss).__name__}({loss.extra_repr()})", vars(losses))
        assert again.extra_repr() == loss.extra_repr()
        for option, value in options.items():
            assert f"{option}={value!r}" in repr(loss) and getattr(again, option) == value


@pytest.mark.parametrize("name", LOSSES)
def test_loss_survives_pickle_copy_and_state_dict(problem, name):
    lists = problem()
    loss = LOSSES[name](**OPTIONS[name])
    value = loss.from_scores(*lists)
    for again in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert again.stats == {}
        assert again.extra_repr() == loss.extra_repr()
        assert torch.equal(again.from_scores(*lists), value)
    assert set(loss.state_dict()) == ({"calibration.running"} if name in ADAPTIVE else set())
    LOSSES[name](**OPTIONS[name]).load_state_dict(loss.state_dict())


@pytest.mark.parametrize("name", LOSSES)
def test_copy_reads_its_own_options(name, problem):
    # a copied loss must not keep hold of the loss it was copied from
    loss = LOSSES[name]()
    again = copy.deepcopy(loss)
    held = getattr(again, "metric", None)
    assert getattr(held, "__self__", again) is again


@pytest.mark.parametrize("name", LOSSES)
def test_misspelt_option_is_a_type_error(name):
    with pytest.raises(TypeError, match="taau"):
        LOSSES[name](taau=0.1)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("smoothap", "smooth_ap"),
        ("recall_at_1", "recall_at_k"),
        ("roadmp", "roadmap"),
        ("SupAP", "supap"),
    ],
)
def test_misspelt_loss_is_answered_with_the_closest_and_all_names(wrong, right):
    with pytest.raises(ValueError, match=f"unknown loss '{wrong}'; did you mean '{right}'") as error:
        losses.find(wrong)
    assert all(name in str(error.value) for name in LOSSES)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_found_by_its_name_and_is_public(name):
    assert losses.find(name) is LOSSES[name]
    assert LOSSES[name].__name__ in losses.__all__


def test_roadmaps_ends_of_lambda_and_rho_are_the_losses_that_they_name():
    g = torch.Generator().manual_seed(0)
    scores, relevant = torch.rand(6, 40, dtype=torch.float64, generator=g), torch.rand(6, 40, generator=g) > 0.7
    supap, calibration = losses.SupAPLoss(), losses.CalibrationLoss()
    for weight, alone in ((0.0, supap), (1.0, calibration)):
        both = losses.ROADMAPLoss(weight=weight)
        torch.testing.assert_close(both.from_scores(scores, relevant), alone.from_scores(scores, relevant))
    # rho = 0: still a bound, and an irrelevant item far above a relevant one has no gradient, as with a sigmoid
    flat = losses.SupAPLoss(rho=0.0)
    exact = 1 - metrics.average_precision(exact_ranks(scores, relevant))
    assert (losses.SupAPLoss(rho=0.0, reduction="none").from_scores(scores, relevant) >= exact).all()
    leaf = torch.tensor([[0.1, 0.9]], dtype=torch.float64, requires_grad=True)
    flat.from_scores(leaf, torch.tensor([[True, False]])).backward()
    torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf), rtol=0, atol=1e-12)


def test_rho_0_on_long_lists_is_what_it_is_pair_by_pair():
    g = torch.Generator().manual_seed(0)
    scores, relevant = torch.rand(2, 50_000, generator=g), torch.zeros(2, 50_000, dtype=torch.bool)
    relevant[:, ::400] = True
    value = losses.SupAPLoss(rho=0.0).from_scores(scores, relevant)
    torch.testing.assert_close(value, losses.SupAPLoss(rho=1e-9).from_scores(scores, relevant), rtol=1e-6, atol=0)
