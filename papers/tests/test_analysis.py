"""The studies of `papers.analysis`: the numbers of the specification, properties, and that every figure draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import reference
import torch
from marks import slow_unless

from rankgrad import losses, metrics, relaxations
from rankgrad_papers import analysis
from rankgrad_papers import figure_style as style
from rankgrad_papers.analysis import (
    batch_bias,
    decomposability,
    gradients,
    landscapes,
    margin_collapse,
    pnp_curves,
    pnp_toy,
    schemes,
)

pytest.importorskip("matplotlib")


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ------------------------------------------------------------------------------------- RaMBO, Fig. 2: bias of batches

# size -> (mean, spread over 40 batches) of an independent draw of the same construction
BIAS = {16: 0.591, 32: 0.510, 64: 0.464, 128: 0.397, 256: 0.365, 512: 0.357, 1024: 0.344, 2048: 0.339}


def test_batches_overrate_map_the_more_the_smaller_they_are():
    bias = batch_bias.compute([16, 64, 256], batches=10)
    assert bool((bias.means.diff() < 0).all())
    assert bool((bias.means > bias.full).all())


@pytest.mark.slow
def test_bias_curve_is_that_of_an_independent_draw_within_three_standard_errors():
    bias = batch_bias.compute()
    assert bias.sizes == tuple(BIAS) and bias.items == 4000 and bias.values.shape == (8, 40)
    # both curves are means over 40 batches of one random set each; mAP of such sets varies by .004
    error = (bias.spreads.square() * 2 / 40 + 2 * 0.004**2).sqrt()
    expected = torch.tensor(list(BIAS.values()), dtype=torch.float64)
    assert bool(((bias.means - expected).abs() < 3 * error).all())
    assert bool((bias.means.diff() < 0).all()) and bool((bias.means > bias.full).all())
    assert bias.full == pytest.approx(0.336, abs=3 * 2**0.5 * 0.004)
    assert bias.spreads[0] == pytest.approx(0.087, rel=0.35) and bias.spreads[-1] == pytest.approx(0.007, rel=0.35)


def test_map_of_a_batch_is_over_the_classes_that_are_in_it():
    result = batch_bias.compute([1], items=50, classes=5, batches=3)
    assert result.values.tolist() == [[1.0, 1.0, 1.0]]  # one item is the whole list of its class


def test_bias_of_the_same_seed_is_the_same_and_of_another_is_not():
    one, two, other = (batch_bias.compute([16], items=200, batches=3, seed=s).values for s in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)


@pytest.mark.parametrize(("sizes", "batches"), [([], 3), ([0], 3), ([300], 3), ([8], 1)])
def test_bias_refuses_sizes_and_counts_that_make_no_sense(sizes, batches):
    with pytest.raises(ValueError, match=r"1 \.\. 200|at least 2 batches"):
        batch_bias.compute(sizes, items=200, batches=batches)


# ----------------------------------------------------------------------------------- ROADMAP, Figs. 1a, 7, 8: gradients


def test_three_scores_have_the_values_and_gradients_of_the_specification():
    result = gradients.toy()
    assert result.values["1 - AP"] == pytest.approx(0.41667, abs=5e-6)
    assert result.values["Smooth-AP"] == pytest.approx(0.40345, abs=5e-6)
    assert result.values["SupAP"] == pytest.approx(0.8723, abs=5e-5)
    smooth, sup = result.gradients["Smooth-AP"].tolist(), result.gradients["SupAP"].tolist()
    assert smooth[:2] == pytest.approx([-0.592, 0.592], abs=5e-4) and smooth[2] == pytest.approx(4e-5, abs=5e-6)
    assert sup == pytest.approx([-0.641, -0.454, 1.09], abs=5e-3)
    only_positive_step = result.gradients["exact step among relevant"].abs()
    assert bool((only_positive_step < 5e-5).all()) and bool((only_positive_step > 0).all())
    assert result.gradients["1 - AP"].tolist() == [0, 0, 0]


def test_smooth_ap_underrates_the_loss_and_pushes_relevant_items_apart_while_supap_does_neither():
    result = gradients.toy()
    exact = result.values["1 - AP"]
    assert result.values["Smooth-AP"] < exact < result.values["SupAP"]
    assert result.gradients["Smooth-AP"][1] > 0  # descent lowers a relevant score
    assert bool((result.gradients["SupAP"][result.relevant] < 0).all())
    assert bool((result.gradients["SupAP"][~result.relevant] > 0).all())


@pytest.mark.parametrize(
    ("figure", "shown"), [("fig7", ["Smooth-AP"]), ("fig8", ["exact step among relevant", "SupAP"])]
)
def test_a_figure_of_the_toy_shows_the_losses_of_the_papers_panels_under_the_exact_one(figure, shown):
    drawing = analysis.FIGURES[f"roadmap/{figure}"].draw(gradients.toy())
    assert [axes.get_title(loc="left").partition(":")[0] for axes in drawing.axes] == ["1 − AP", *shown]


def test_toy_values_are_those_of_plain_loops():
    scores, relevant = [0.3, 0.9, 0.31, 0.6], [True, False, True, False]
    result = gradients.toy(scores, relevant, tau=0.05)
    gains = [float(g) for g in relevant]
    steps = {
        "1 - AP": (reference.heaviside, reference.heaviside),
        "Smooth-AP": (reference.sigmoid(0.05), reference.sigmoid(0.05)),
        "exact step among relevant": (reference.heaviside, reference.sigmoid(0.05)),
        "SupAP": (reference.heaviside, reference.h_minus(tau=0.05)),
    }
    for name, (pos, neg) in steps.items():
        loss = 1.0
        for i in (0, 2):
            above_pos = sum(pos(scores[j] - scores[i]) for j in (0, 2) if j != i)
            above_neg = sum(neg(scores[j] - scores[i]) for j in (1, 3))
            loss -= (1 + above_pos) / (1 + above_pos + above_neg) / sum(gains)
        assert result.values[name] == pytest.approx(loss, abs=1e-12)


def test_delta_is_where_the_sigmoid_lacks_epsilon():
    result = gradients.steps()
    assert result.delta == pytest.approx(0.04595, abs=5e-6)
    sigmoid = relaxations.Sigmoid(result.tau)
    assert sigmoid(torch.tensor(result.delta, dtype=torch.float64)).item() == pytest.approx(0.99, abs=1e-12)
    with pytest.raises(ValueError, match="epsilon"):
        gradients.steps(epsilon=0.5)


def test_h_minus_lies_above_the_exact_step_and_keeps_its_slope():
    result = gradients.steps()
    assert bool((result.values["H-"][result.difference >= 0] >= 1).all())
    assert bool((result.values["H-"] >= result.values["H+ (exact)"] * (result.difference >= 0)).all())
    far = result.difference > result.delta
    assert bool((result.slopes["H-"][far] == 100).all()) and bool((result.slopes["sigmoid"][far] < 1).all())
    assert not result.slopes["H+ (exact)"].any()


# ---------------------------------------------------------------------- ROADMAP, eqs. 6, 8, 9, Figs. 1b, 9, 10, table 9


def test_examples_are_perfect_in_every_batch_and_show_what_they_are_named_after():
    worst, partly, calibrated = (decomposability.example(name) for name in ("worst", "partly", "calibrated"))
    assert all(set(e.batch_ap) == {1.0} for e in (worst, partly, calibrated))
    assert worst.gap == pytest.approx(worst.bound, abs=1e-12) and worst.gap > 0.1
    assert 0 < partly.gap < partly.calibrated_bound < partly.bound
    assert calibrated.gap == calibrated.calibrated_bound == 0 and calibrated.bound > 0
    with pytest.raises(ValueError, match="known: worst"):
        decomposability.example("best")


def test_figure_10_is_the_worst_case_and_figure_9_an_example_of_a_gap():
    [worst] = analysis.FIGURES["roadmap/fig10"].compute()
    assert worst.gap == pytest.approx(worst.bound, abs=1e-12)
    apart, calibrated = analysis.FIGURES["roadmap/fig9"].compute()
    assert 0 == calibrated.gap < apart.gap < apart.bound


def test_juxtaposed_batches_attain_equation_8():
    scores = torch.cat([torch.arange(5.0, dtype=torch.float64).flip(0) - 5 * b for b in range(3)])
    relevant = torch.tensor(([True] * 2 + [False] * 3) * 3)
    drawn = decomposability.Batches(scores, relevant, torch.arange(15) // 5)
    assert drawn.gap() == pytest.approx(drawn.bound(), abs=1e-12)
    assert drawn.bound() == pytest.approx(0.329004, abs=5e-7)


@pytest.fixture(scope="module")
def bounds() -> dict[str, decomposability.Bounds]:
    return {sizes: decomposability.bounds(sizes, draws=250) for sizes in ("equal", "unequal")}


@pytest.mark.parametrize("sizes", ["equal", "unequal"])
def test_bounds_hold_in_the_worst_order_of_the_batches(bounds, sizes):
    result = bounds[sizes]
    assert result.violations["eq. 8, worst order"] == result.violations["eq. 9, worst order"] == 0
    assert bool((result.bound >= result.given - 1e-12).all())
    assert bool((result.calibrated >= result.calibrated_given - 1e-12).all())


def test_bounds_fail_in_the_given_order_but_for_equation_8_with_equal_batches(bounds):
    equal, unequal = bounds["equal"].violations, bounds["unequal"].violations
    assert equal["eq. 8, given order"] == 0 < unequal["eq. 8, given order"]
    assert equal["eq. 9, given order"] > 0 and unequal["eq. 9, given order"] > 0


@pytest.mark.slow
def test_no_worst_order_bound_breaks_in_4000_draws_and_other_rates_stay_where_they_were():
    equal, unequal = decomposability.bounds("equal"), decomposability.bounds("unequal")
    assert equal.violations["eq. 8, given order"] == 0
    for result in (equal, unequal):
        assert result.violations["eq. 8, worst order"] == result.violations["eq. 9, worst order"] == 0
        assert result.tighter == pytest.approx(0.985, abs=0.02)
    # No confirmation of these rates: the specification's draws are not recorded, and ours were chosen to resemble them.
    assert equal.violations["eq. 9, given order"] / 4000 == pytest.approx(190 / 4000, rel=0.5)
    assert unequal.violations["eq. 8, given order"] / 4000 == pytest.approx(73 / 6000, rel=0.5)
    assert unequal.violations["eq. 9, given order"] / 4000 == pytest.approx(329 / 6000, rel=0.5)


def test_calibrated_batches_have_no_gap_and_no_bound():
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = decomposability.perfect_batches(rng, [(2, 3), (3, 1), (1, 4)], thresholds=(0.5, 0.5))
        assert drawn.gap() == drawn.calibrated_bound(0.5, 0.5) == 0 < drawn.bound()


def random_gaps(draws: int, batches: int = 4, irrelevant: int = 12, signal: float = 1.0) -> torch.Tensor:
    """[draw] gaps of eq. 6 where nothing is ranked perfectly: scores N(signal, 1) of four relevant items, N(0, 1)."""
    rng = np.random.default_rng(0)
    mask = torch.tensor(([True] * 4 + [False] * irrelevant) * batches)
    batch = torch.arange(len(mask)) // (4 + irrelevant)
    scores = torch.from_numpy(rng.standard_normal((draws, len(mask)))) + signal * mask
    return metrics.decomposability_gap(scores, mask.expand(draws, -1), batch)


def test_gap_is_negative_in_a_few_percent_of_random_draws():
    # sizes and signal were chosen so that the rates are those of the specification: 4.7 % and +.061
    found = random_gaps(draws=2000)
    assert (found < -1e-12).double().mean().item() == pytest.approx(0.047, abs=0.015)
    assert found.mean().item() == pytest.approx(0.061, abs=0.004)
    assert random_gaps(draws=500, batches=3, irrelevant=5, signal=2.0).min() < -0.05


def test_gap_of_two_equal_batches_can_be_negative():
    scores, relevant = torch.tensor([[0.5, 0.4, 0.9, 0.1]]), torch.tensor([[False, True, True, False]])
    gap = metrics.decomposability_gap(scores, relevant, torch.tensor([0, 0, 1, 1]))
    assert gap.item() == pytest.approx((0.5 + 1) / 2 - (1 + 2 / 3) / 2) and gap.item() < 0


def ragged_classes() -> torch.Tensor:
    """Labels of classes of 1 .. 9 images, in random order."""
    labels = torch.cat([torch.full((size,), 7 * size) for size in range(1, 10)] + [torch.arange(100, 104)])
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


@pytest.mark.parametrize("seed", range(5))
def test_every_image_is_in_one_batch_with_at_most_the_asked_images_of_a_class(seed):
    labels = torch.arange(12).repeat_interleave(10)  # 3 groups per class, 9 of 4, 4 and 2 images... in 5 batches of 32
    batch = decomposability.class_batches(labels, 32, 4, seed)
    table = torch.zeros(int(batch.max()) + 1, 12, dtype=torch.long)
    table.index_put_((batch, labels), torch.ones(120, dtype=torch.long), accumulate=True)
    assert table.max() == 4 and table.sum() == 120 and len(table) == 5
    assert table.sum(1).max() <= 32
    assert sorted((table > 0).sum(1).tolist()) == [7, 7, 7, 7, 8]  # 36 groups over 5 batches, evenly
    assert torch.equal(batch, decomposability.class_batches(labels, 32, 4, seed))
    assert not torch.equal(batch, decomposability.class_batches(labels, 32, 4, seed + 1))


def test_a_class_with_more_groups_than_batches_goes_round_again():
    labels = torch.cat([torch.zeros(40, dtype=torch.long), torch.arange(1, 9)])
    batch = decomposability.class_batches(labels, 24, 4)
    assert len(batch.unique()) == 3 and batch[:40].bincount().tolist() in ([16, 12, 12], [12, 16, 12], [12, 12, 16])


def test_gaps_of_a_set_are_those_of_its_whole_score_matrix():
    labels, embeddings = ragged_classes(), randn(len(ragged_classes()), 5, seed=1)
    batch = decomposability.class_batches(labels, 8, 4)
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    other = ~torch.eye(len(labels), dtype=torch.bool)
    expected = metrics.decomposability_gap(unit @ unit.T, labels.unsqueeze(1) == labels, batch, other)
    found = decomposability.gaps(embeddings, labels, batch)
    alone = (labels.unsqueeze(1) == labels).sum(1) == 1
    assert torch.equal(found.isnan(), alone) and alone.sum() == 5
    torch.testing.assert_close(found[~alone], expected[~alone], rtol=0, atol=1e-12)


def test_settings_of_the_gap_that_cannot_be_are_refused():
    labels = torch.arange(4).repeat_interleave(4)
    with pytest.raises(ValueError, match="multiple of per_class"):
        decomposability.class_batches(labels, 10, 4)
    with pytest.raises(ValueError, match="'equal' or 'unequal'"):
        decomposability.bounds("even")
    with pytest.raises(ValueError, match="1 .. 7, .*got 8"):
        decomposability.bounds(batches=8)


# ---------------------------------------------------------------------------------------------- PNP, Figs. 1, 3, 5


def test_ap_curves_are_loss_and_derivative_of_the_formula():
    curves = pnp_curves.compute(points=11)
    for row, pos in enumerate((0, 1, 2, 3)):
        for column, neg in enumerate(curves.above_neg.tolist()):
            assert curves.ap_loss[row, column].item() == pytest.approx(neg / (1 + pos + neg), abs=1e-12)
            assert curves.ap_slope[row, column].item() == pytest.approx((1 + pos) / (1 + pos + neg) ** 2, abs=1e-12)


def test_slopes_of_the_variants_are_the_papers_with_the_1_that_equation_6_forgets():
    curves = pnp_curves.compute()
    r = curves.above_neg
    expected = {
        "PNP-O": torch.ones_like(r),
        "PNP-Iu": 1 + torch.log1p(r),
        "PNP-Ib, b=2": r / (1 + 2 * r),
        "PNP-Ds": 1 / (1 + r),
        "PNP-Dq, α=1": (1 + r) ** -2,
        "PNP-Dq, α=2": 2 * (1 + r) ** -3,
        "PNP-Dq, α=4": 4 * (1 + r) ** -5,
    }
    assert list(curves.slopes) == list(expected)
    for name, slope in expected.items():
        torch.testing.assert_close(curves.slopes[name], slope, rtol=0, atol=1e-12)


def test_pnp_dq_with_alpha_1_is_the_loss_of_ap_without_relevant_items_in_front():
    curves = pnp_curves.compute()
    torch.testing.assert_close(curves.losses["PNP-Dq, α=1"], curves.ap_loss[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(curves.slopes["PNP-Dq, α=1"], curves.ap_slope[0], rtol=0, atol=1e-12)


def test_losses_of_ap_fall_with_more_relevant_items_in_front():
    curves = pnp_curves.compute()
    assert bool((curves.ap_loss[:, 1:].diff(dim=0) < 0).all())


def test_fig_5_compares_a_curve_that_exists():
    assert pnp_curves.compute().shown in pnp_curves.compute().slopes
    with pytest.raises(ValueError, match="among alpha"):
        pnp_curves.compute(shown=3.0)


# ----------------------------------------------------------------------------------------------- PNP, Fig. 6: the toy


@pytest.fixture(scope="module")
def short() -> pnp_toy.Toy:
    return pnp_toy.compute("ring", seeds=(0,), steps=20)


def apart(toy: pnp_toy.Toy) -> Iterator[tuple[float, float]]:
    """By how much Dq is ahead of each other loss: in the distance inside training classes, in R@1 on unseen ones."""
    dq = toy.variants.index("Dq, α=4")
    for other in range(len(toy.variants)):
        if other != dq:
            yield tuple(float((values[dq] - values[other]).mean()) for values in (toy.train_intra, toy.recall))


@pytest.mark.parametrize("layout", slow_unless({"ring"}, pnp_toy.LAYOUTS))
def test_dq_keeps_clusters_apart_where_o_draws_them_together(monkeypatch, layout):
    # One training decides nothing: its lead differs by .3 from seed to seed, and rounding is enough to change it.
    # Over twenty seeds the leads are .5 (ring) and .4 (squares) with a standard error of .07, and .23 and .28 with .04.
    monkeypatch.setattr(pnp_toy, "POINTS", 40)
    both = {name: penalty for name, penalty in pnp_toy.variants().items() if name in ("O", "Dq, α=4")}
    toy = pnp_toy.compute(layout, seeds=range(20), losses=both, steps=40)
    assert toy.train_recall.mean() > 0.9  # both have learnt their own classes
    ((distance, recall),) = apart(toy)
    assert distance > 0.1 and recall > 0


@pytest.mark.slow
@pytest.mark.parametrize("layout", list(pnp_toy.LAYOUTS))
def test_after_the_whole_training_dq_keeps_clusters_apart_better_than_o_and_i(layout):
    few = {name: penalty for name, penalty in pnp_toy.variants().items() if name not in ("Ds", "Dq, α=1")}
    toy = pnp_toy.compute(layout, seeds=range(20), losses=few)
    assert toy.train_recall.mean() > 0.98
    # the least lead of six is .31 with a standard error of .07 (squares, O)
    assert all(distance > 0 for distance, _ in apart(toy))


def test_toy_measures_are_those_of_the_metrics():
    points, labels = randn(4 * pnp_toy.POINTS, 2, seed=0), torch.arange(4).repeat_interleave(pnp_toy.POINTS)
    points = torch.nn.functional.normalize(points, dim=1)
    relevant, valid = labels.unsqueeze(1) == labels, ~torch.eye(len(labels), dtype=torch.bool)
    recall = metrics.recall_at_k(points @ points.T, relevant, 1, valid).mean().item()
    precision = metrics.map_at_r(points @ points.T, relevant, valid).mean().item()
    expected = recall, precision, metrics.dists_intra(points, labels)
    assert pnp_toy._measure(points) == pytest.approx(expected, abs=1e-12)


def test_toy_measures_unseen_classes_and_those_of_training_apart(short):
    labels = torch.arange(4).repeat_interleave(pnp_toy.POINTS)
    for split, found in (("test", short.test_intra), ("train", short.train_intra)):
        for angles, distance in zip(short.angles[split].flatten(1).double(), found[:, 0].tolist(), strict=True):
            points = torch.stack([angles.cos(), angles.sin()], dim=1)
            assert distance == pytest.approx(metrics.dists_intra(points, labels), abs=1e-5)


def test_toy_runs_do_not_touch_each_other():
    # rounding differs with the size of the stack and grows from step to step: a few steps only
    both = pnp_toy.compute("ring", seeds=(3, 4), steps=5)
    for row, name in enumerate(both.variants):
        alone = pnp_toy.compute("ring", seeds=(3,), losses={name: pnp_toy.variants()[name]}, steps=5)
        turned = both.angles["test"][row] - alone.angles["test"][0]
        assert turned.sin().abs().max() < 1e-3 and turned.cos().min() > 0.99
        assert torch.equal(both.points["train"], alone.points["train"])


def test_toy_trains_a_penalty_as_the_loss_of_that_name_does():
    """One step of Adam by hand, with `losses.PNPLoss` on the first batch."""
    from rankgrad.losses import PNPLoss

    layout = pnp_toy.LAYOUTS["ring"]
    drawn = pnp_toy._draw(layout, seed=5)
    weights = [w.clone().requires_grad_() for w in drawn.weights]
    (batch,) = drawn.batches(1)
    points = torch.cat([drawn.train[c, batch[c]] for c in range(4)])
    hidden = points
    for depth in range(3):
        hidden = hidden @ weights[2 * depth] + weights[2 * depth + 1]
        hidden = hidden.relu() if depth < 2 else hidden
    labels = torch.arange(4).repeat_interleave(layout.per_class)
    optimizer = torch.optim.Adam(weights, lr=layout.rate)
    PNPLoss("Dq", alpha=4.0)(hidden, labels).backward()
    optimizer.step()

    again = pnp_toy._draw(layout, seed=5)
    stacked = [w.unsqueeze(0).clone().requires_grad_() for w in again.weights]
    stepwise = zip(again.batches(1), strict=True)
    pnp_toy._descend(stacked, again.train.unsqueeze(0), stepwise, [pnp_toy.variants()["Dq, α=4"]], layout, 0.01)
    for mine, theirs in zip(stacked, weights, strict=True):
        # Adam's first step is the sign of the gradient: entries whose gradient is rounding may go either way
        assert ((mine[0] - theirs).abs() < 1e-6).double().mean() > 0.97


def test_toy_says_what_it_is_and_refuses_unknown_layouts(short):
    said = ("The points are ours", "illustrates this mechanism", "seeds differ widely")
    for name in ("pnp/fig6", "pnp/fig6-ring"):
        assert all(words in analysis.FIGURES[name].note for words in said)
    assert str(short).count("PNP-") == 6
    with pytest.raises(ValueError, match="known: squares, ring"):
        pnp_toy.compute("stripes")
    with pytest.raises(ValueError, match="at least one seed"):
        pnp_toy.compute(seeds=())


# ----------------------------------------------------------------------------------- RaMBO, Figs. 1, 5, 6: landscapes


def test_interpolation_is_the_difference_of_two_minima_over_all_permutations():
    a, w = randn(4, seed=0), 4 * randn(30, 4, seed=1)
    every = torch.tensor(list(itertools.permutations(range(1, 5))), dtype=torch.float64) / 4
    for lambda_ in (0.1, 1.0, 8.0):
        least = ((w + lambda_ * a) @ every.T).amin(1) - (w @ every.T).amin(1)
        torch.testing.assert_close(landscapes.interpolated(w, a, lambda_), least / lambda_, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_interpolations_lie_between_the_function_and_its_minimum(seed):
    over = landscapes.plane(ticks=31, seed=seed)
    exact = landscapes.exact(over.scores, over.weights)
    for lambda_ in (0.05, 0.5, 2.0, 50.0):
        value = landscapes.interpolated(over.scores, over.weights, lambda_)
        assert bool((value <= exact + 1e-12).all())
        assert bool((value >= over.lowest - 1e-12).all())


def test_interpolations_fall_with_lambda_from_the_function_to_its_minimum():
    over = landscapes.plane(ticks=15)
    small, large = (landscapes.interpolated(over.scores, over.weights, v) for v in (1e-9, 1e9))
    torch.testing.assert_close(small, landscapes.exact(over.scores, over.weights), rtol=0, atol=1e-6)
    torch.testing.assert_close(large, torch.full_like(large, over.lowest), rtol=0, atol=1e-6)
    ladder = [landscapes.interpolated(over.scores, over.weights, v) for v in (0.2, 0.5, 1.0, 2.0)]
    assert all(bool((b <= a + 1e-12).all()) for a, b in itertools.pairwise(ladder))


def test_interpolation_changes_gradually_where_the_function_jumps():
    found = landscapes.compute("1", ticks=61).surfaces
    jump = {name: float(values.diff(dim=0).abs().max()) for name, values in found.items()}
    assert jump["blackbox, λ=2"] < jump["blackbox, λ=0.5"] < 0.5 * jump["exact"]
    assert bool((found["exact"].diff(dim=0).abs() < 1e-12).any())  # plateaus


def test_interpolation_at_one_half_lies_seven_hundredths_below_the_function_on_the_plane_of_seed_0():
    # the specification's number is of this plane; others lie .11 to .33 below
    found = landscapes.compute("1").surfaces
    assert (found["exact"] - found["blackbox, λ=0.5"]).mean().item() == pytest.approx(0.07, abs=0.005)


def test_soft_bins_are_exact_where_all_scores_sit_on_different_centres():
    scores = torch.stack([torch.randperm(8, generator=torch.Generator().manual_seed(s)) for s in range(20)]).double()
    expected = torch.tensor([reference.rk(row) for row in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(landscapes.soft_bin_ranks(scores, 7), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(landscapes.soft_bin_ranks(scores, 14), expected, rtol=0, atol=1e-12)


def test_soft_bins_are_the_sums_of_the_formula():
    scores, bins, low, high = randn(5, 6, seed=0), 4, -3.0, 3.0
    width = (high - low) / bins
    centres = [low + width * l for l in range(bins + 1)]  # noqa: E741

    def near(x: float, l: int) -> float:  # noqa: E741
        return max(0.0, 1 - abs(x - centres[l]) / width)

    found = landscapes.soft_bin_ranks(scores, bins, low, high)
    for row, ranks in zip(scores.tolist(), found.tolist(), strict=True):
        mass = [sum(near(x, l) for x in row) for l in range(bins + 1)]  # noqa: E741
        for x, rank in zip(row, ranks, strict=True):
            assert rank == pytest.approx(sum(near(x, l) * sum(mass[l:]) for l in range(bins + 1)), abs=1e-12)  # noqa: E741


def test_more_bins_come_nearer_to_the_function():
    found = landscapes.compute("5", ticks=41).surfaces
    error = [(found[f"soft bins, {bins}"] - found["exact"]).square().mean().item() for bins in (5, 10, 20, 40)]
    assert error == sorted(error, reverse=True)


def test_figures_of_rambo_show_what_the_paper_shows():
    shown = {which: list(landscapes.compute(which, ticks=3).surfaces) for which in ("1", "5", "6")}
    assert shown["1"] == ["exact", "blackbox, λ=0.5", "blackbox, λ=2"]
    lambdas = [f"blackbox, λ={v}" for v in ("0.2", "0.5", "1", "2")]
    assert shown["5"] == ["exact", *lambdas, *(f"soft bins, {v}" for v in (5, 10, 20, 40))]
    assert shown["6"] == ["exact", "blackbox, λ=0.5", "soft bins, 10"]
    default = landscapes.compute().plane
    assert default.scores.shape == (121 * 121, 20) and default.axis[0] == -5


def test_any_callable_from_scores_to_ranks_is_a_sorter():
    def sorter(scores: torch.Tensor) -> torch.Tensor:
        return (scores.unsqueeze(1) >= scores.unsqueeze(2)).sum(2)  # exact, integers

    found = landscapes.compute("6", sorters={"SoDeep": sorter}, ticks=9).surfaces
    assert list(found) == ["exact", "blackbox, λ=0.5", "SoDeep", "soft bins, 10"]
    torch.testing.assert_close(found["SoDeep"], found["exact"], rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="'half' must give a rank for each of"):
        landscapes.compute("6", sorters={"half": lambda scores: scores[:, :5]}, ticks=3)
    with pytest.raises(ValueError, match="got sorters for figure 1"):
        landscapes.compute("1", sorters={"SoDeep": sorter}, ticks=3)


def test_landscapes_refuse_what_is_not_one():
    with pytest.raises(ValueError, match="1, 5, 6; got '2'"):
        landscapes.compute("2")
    with pytest.raises(ValueError, match="lambda_"):
        landscapes.interpolated(torch.zeros(1, 2), torch.ones(2), 0.0)
    with pytest.raises(ValueError, match="low < high"):
        landscapes.soft_bin_ranks(torch.zeros(2, 3), 4)


# ------------------------------------------------------------------------------------- RaMBO, Fig. 3: margin, collapse


@pytest.fixture(scope="module")
def collapse() -> margin_collapse.MarginCollapse:
    return margin_collapse.compute()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_scores_collapse_without_the_shift_and_keep_the_margin_with_it(collapse, seed):
    result = margin_collapse.compute(seed=seed) if seed else collapse
    start = result.without.scores[0]
    assert torch.equal(start, result.shifted.scores[0])
    assert result.without.gap[0] < 0  # the order is wrong at first
    assert 0 < result.without.gap[-1] < 0.02 and result.without.spread[-1] < 0.1
    assert result.shifted.gap[-1].item() == pytest.approx(0.2, abs=0.02)
    assert result.shifted.spread[-1] > 0.2
    assert result.shifted.disturbed_map > 0.98 > 0.9 > result.without.disturbed_map


def test_nothing_collapses_without_a_pull_but_the_gap_stays_as_small_as_it_can():
    result = margin_collapse.compute(pull=0.0)
    assert result.without.spread[-1] > 1 and 0 < result.without.gap[-1] < 0.02
    assert result.shifted.gap[-1] >= 0.2


def test_margin_study_needs_a_margin():
    with pytest.raises(ValueError, match="must be > 0; got 0"):
        margin_collapse.compute(margin=0)


# ----------------------------------------------------------------------------------------------------------- schemes


def test_every_relevant_item_behind_an_irrelevant_one_pushes_it_by_the_slope_of_the_variant():
    found = schemes.pushes()
    for item, relevant in enumerate(schemes.RELEVANT):
        behind = [other for other in range(item + 1, 6) if schemes.RELEVANT[other] and not relevant]
        front = [other for other in range(item) if relevant and not schemes.RELEVANT[other]]
        assert (int(found.behind[item]), int(found.front[item])) == (len(behind), len(front))
        for name in schemes.VARIANTS:
            assert float(found.push[name][item]) == pytest.approx(sum(float(found.pull[name][i]) for i in behind))
    end = 5  # PNP-I pulls hardest at the relevant item with most irrelevant ones in front, PNP-D least
    assert found.pull["PNP-Ib"].argmax() == end and found.pull["PNP-Dq"][[1, 2, 3, 5]].argmin() == 3
    assert found.pull["PNP-Ib"][1] == pytest.approx(1 / (1 + 2)) and found.pull["PNP-Dq"][5] == pytest.approx(2 / 27)


def test_clusters_are_drawn_together_across_a_class_by_pnp_i_alone():
    found = schemes.clusters()
    assert found.within["PNP-Ib"] == 0 and found.across["PNP-Ib"] == pytest.approx(9 / (1 + 2 * 9))
    assert found.within["PNP-Dq"] == 2 and found.across["PNP-Dq"] == pytest.approx(2 / 10**3)


def test_the_path_of_scores_ends_in_roadmaps_loss():
    found = schemes.path()
    loss = losses.ROADMAPLoss().from_scores(found.scores[None], found.relevant[None])
    assert float(loss) == pytest.approx((found.supap + found.calibration) / 2)
    assert (found.steps["H⁻, irrelevant items"] >= found.steps["H⁺, relevant items"]).all()


# ------------------------------------------------------------------------------------------- figures (see test_figure)


def test_figures_are_written_as_what_their_ending_says(tmp_path):
    with pytest.raises(ValueError, match=r"\.svg, \.png, \.pdf; got .*\.bmp"):
        style.save(style.figure(1, 1), tmp_path / "figure.bmp")


def test_every_study_has_a_title_and_an_honest_note_where_the_construction_is_ours():
    assert all(study.title and study.sees and study.seconds > 0 for study in analysis.FIGURES.values())
    ours = {"rambo/fig1", "rambo/fig2", "rambo/fig3", "rambo/fig5", "rambo/fig6", "auc/slopes", "pnp/fig6-ring"}
    ours |= {"pnp/fig2", "pnp/fig4", "roadmap/fig2"}
    assert all(analysis.FIGURES[name].note for name in ours | {"pnp/fig6", "roadmap/bounds"})
