"""Statistics over seeds, against scipy and against definitions."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import torch
from scipy import stats

from rankgrad import trec
from rankgrad.evaluation import Bootstrap, evaluate
from rankgrad.evaluation.graded import evaluate_graded
from rankgrad.evaluation.statistics import FEWEST, caution, holm, paired_over_groups, paired_t_test, spread
from rankgrad.scores import JudgedRows
from rankgrad.scores.evaluation import evaluate_scores


@pytest.mark.parametrize("n", [2, 3, 6, 10, 200])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_paired_t_test_and_its_interval_are_scipys(n, confidence):
    one, other = np.random.default_rng(n).normal(size=(2, n))
    found, expected = paired_t_test([*one], [*other], confidence), stats.ttest_rel(one, other)
    assert found.n == n and found.mean == pytest.approx(float((one - other).mean()))
    assert found.p == (pytest.approx(expected.pvalue, rel=1e-9) if n >= FEWEST else None)
    interval = expected.confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


def test_the_paired_t_test_is_that_of_the_textbook():
    ours, theirs = [64.0, 63.5, 64.6, 64.1, 63.9, 63.6, 64.5], [62.0, 62.4, 62.1, 62.9, 61.8, 62.2, 63.5]
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    t = statistics.mean(differences) / (statistics.stdev(differences) / math.sqrt(7))
    found = paired_t_test(ours, theirs)
    assert found.mean == pytest.approx(11.3 / 7)
    # two-sided p with 6 degrees of freedom, by the closed form of Student's distribution there
    x = t / math.sqrt(6 + t * t)
    assert found.p == pytest.approx(1 - x * (1 + (1 - x * x) / 2 + 3 * (1 - x * x) ** 2 / 8), rel=1e-6)


def test_equal_differences_have_no_p():
    found = paired_t_test([1.0, 2.0] * 3, [0.5, 1.5] * 3)
    assert (found.mean, found.p, found.low, found.high) == (0.5, None, 0.5, 0.5)


@pytest.mark.parametrize("scale", [1e-13, 1.0, 1e9])
def test_the_unit_of_the_values_does_not_change_the_test(scale):
    """What counts as equal differences is relative to the values: 1e-13 of one unit is 0.1 of another."""
    one, other = np.array([0.6, 0.7, 0.8, 0.5, 0.9, 0.7]), np.array([0.5, 0.7, 0.6, 0.5, 0.7, 0.6])
    assert paired_t_test(scale * one, scale * other).p == pytest.approx(paired_t_test(one, other).p)
    constant = paired_t_test(scale * one + 0.1 * scale, scale * one)
    assert constant.p is None and constant.low == constant.high == pytest.approx(0.1 * scale)


def test_fewer_than_six_pairs_have_an_interval_and_no_p():
    one = [2.0 + pair**2 for pair in range(FEWEST)]
    assert FEWEST == 6 and paired_t_test(one, [1.0] * FEWEST).p is not None and not caution(FEWEST)
    few = paired_t_test(one[1:], [1.0] * (FEWEST - 1))
    assert few.p is None and few.low < few.mean < few.high and "p-value" in caution(few.n)


@pytest.mark.parametrize("bad", [0, 1, 95, -0.5, float("nan"), "0.95", None])
def test_a_confidence_is_between_0_and_1_in_every_evaluation(bad):
    """Of two evaluations, one took 1, whose interval went from the least to the greatest resample."""
    rows, classes = torch.eye(4), [0, 0, 1, 1]
    table = JudgedRows(torch.tensor([1.0, 0.0, 1.0, 0.0]))
    for call in (
        lambda: paired_t_test([1.0, 2.0], [3.0, 5.0], bad),
        lambda: paired_over_groups(np.array([1.0, 2.0]), np.array([3.0, 5.0]), confidence=bad),
        lambda: evaluate(rows, classes, intervals=Bootstrap(confidence=bad)),
        lambda: evaluate_graded(rows, rows, [{0: 1}] * 4, intervals=Bootstrap(confidence=bad)),
        lambda: evaluate_scores(np.arange(4.0), table, intervals=Bootstrap(confidence=bad)),
        lambda: trec.evaluate({"a": {"q": {"x": 1.0}}}, {"q": {"x": 1}}, intervals=Bootstrap(confidence=bad)),
    ):
        with pytest.raises(ValueError, match="confidence is a coverage and must be"):
            call()


@pytest.mark.parametrize(("one", "other"), [([], []), ([1.0], [2.0]), ([1.0, 2.0], [1.0])])
def test_too_few_pairs_are_an_error(one, other):
    with pytest.raises(ValueError, match="two or more values; got"):
        paired_t_test(one, other)


def rejected(p_values: list[float], level: float) -> list[bool]:
    """Holm's procedure as he gives it: test the smallest p-value at level / m, and so on, until one is kept."""
    found = [False] * len(p_values)
    for done, place in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[place] > level / (len(p_values) - done):
            break
        found[place] = True
    return found


@pytest.mark.parametrize("seed", range(20))
def test_holms_p_values_reject_what_his_procedure_rejects(seed):
    g = np.random.default_rng(seed)
    p_values = [float(p) for p in g.uniform(size=8) ** 3]
    corrected = holm(p_values)
    for level in g.uniform(size=50):
        assert [p <= level for p in corrected] == rejected(p_values, level)
    bonferroni = [min(1.0, 8 * p) for p in p_values]
    assert all(p <= c <= b for p, c, b in zip(p_values, corrected, bonferroni, strict=True))


def test_holm_of_nothing_and_of_one_changes_nothing_and_no_p_value_is_above_one():
    assert holm([None]) == [None] and holm([0.3, None, 0.2]) == [0.4, None, 0.4]
    assert holm([]) == [] and holm([0.3]) == [0.3] and holm([0.9, 0.8]) == [1.0, 1.0]
    with pytest.raises(ValueError, match=r"p-values must be in 0 .. 1; got 1.5"):
        holm([0.1, 1.5])


def test_the_spread_is_numpys_with_one_degree_of_freedom_taken():
    values = [*np.random.default_rng(0).normal(size=7)]
    assert spread(values) == pytest.approx((np.mean(values), np.std(values, ddof=1)))
