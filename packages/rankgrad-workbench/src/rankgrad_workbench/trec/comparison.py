"""Comparison of several runs from their values per query: intervals, paired tests, smallest detectable difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankgrad.evaluation.statistics import FEWEST, Bootstrap, detectable, holm, intervals_of_means, paired_t_test

from .lists import Array

LEAST_P = 1e-15  # smaller p-values are below the precision of their computation
SILENT = 0.05  # a run without a list for more of the queries could not work: it is not tested


@dataclass(frozen=True)
class Difference:
    """One run minus another, over the queries that both have.

    Attributes:
        run, other: names of the runs.
        metric: name of the metric.
        mean: mean of the differences.
        low, high: interval of the mean, by Student's t.
        p: two-sided p-value of the paired t-test; 1 if all differences are equal; None for fewer than six queries.
        corrected: p after Holm's correction for all tests of this metric; None if p is None.
        detectable: size of a true difference that the test finds with a probability of 80 %, that is with p below
            1 - confidence after the strictest step of the correction; None if p is None, and if all differences are
            equal, as those of equal runs.
        better, worse: numbers of queries on which the run is better, and worse.
        queries: number of queries.
    """

    run: str
    other: str
    metric: str
    mean: float
    low: float
    high: float
    p: float | None
    corrected: float | None
    detectable: float | None
    better: int
    worse: int
    queries: int

    def is_sure(self, level: float) -> bool:
        """Whether the runs differ, with p-values that are corrected and below the level."""
        return self.corrected is not None and self.corrected < level


def chance(p: float | None) -> str:
    """A p-value with two digits.

    >>> chance(0.0412), chance(0.0), chance(None)
    ('0.041', '<1e-15', '-')
    """
    if p is None:
        return "-"
    return f"{p:.2g}" if p >= LEAST_P else f"<{LEAST_P:g}"


def is_silent(lacking: int, queries: int) -> bool:
    """Whether a run lacks the lists of too many queries to be compared: more than one, and more than 5 %.

    >>> is_silent(1, 10), is_silent(2, 40), is_silent(3, 40)
    (False, False, True)
    """
    return lacking > max(1, SILENT * queries)


def pairs_of(runs: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """(run, other) of every test: each run against the baseline, or each run against all earlier runs.

    >>> pairs_of(["a", "b", "c"], None), pairs_of(["a", "b", "c"], "b")
    ([('b', 'a'), ('c', 'a'), ('c', 'b')], [('a', 'b'), ('c', 'b')])
    """
    if baseline is not None:
        return [(run, baseline) for run in runs if run != baseline]
    return [(run, other) for place, run in enumerate(runs) for other in runs[:place]]


def differences(
    values: Mapping[str, Mapping[str, Array]],
    metrics: Iterable[str],
    pairs: Sequence[tuple[str, str]],
    confidence: float,
) -> list[Difference]:
    """Tests of every pair of runs, for every metric.

    Args:
        values: run -> metric -> [query] float64; NaN: the run has no value for this query.
        metrics: metrics to compare.
        pairs: (run, other) of each test.
        confidence: coverage of the intervals; the significance level is 1 minus this.

    Returns:
        The tests in the order of metrics and pairs. Pairs with fewer than two common queries are left out.
    """
    tested: list[Difference] = []
    for metric in metrics:
        tests = []
        for run, other in pairs:
            one, two = values[run][metric], values[other][metric]
            both = ~(np.isnan(one) | np.isnan(two))
            if both.sum() > 1:
                tests.append((run, other, one[both], two[both], paired_t_test(one[both], two[both], confidence)))
        p_values = [1.0 if each.p is None and each.n >= FEWEST else each.p for *_, each in tests]
        level = (1 - confidence) / max(sum(p is not None for p in p_values), 1)
        for (run, other, one, two, found), p, corrected in zip(tests, p_values, holm(p_values), strict=True):
            deviation = 0.0 if found.detectable is None else float((one - two).std(ddof=1))
            size = None if p is None else detectable(deviation, len(one), level)
            bounds = (found.mean, found.low, found.high, p, corrected, size)
            tested.append(Difference(run, other, metric, *bounds, found.better, found.worse, found.n))
    return tested


def intervals_over(
    values: Mapping[str, Array], metrics: Sequence[str], rows: Array, how: Bootstrap
) -> dict[str, tuple[float, float]]:
    """Metric -> interval of its mean by the bootstrap over queries.

    Args:
        values: metric -> [query]; NaN: there is no value.
        metrics: metrics that get an interval.
        rows: [member] queries that count.
        how: resamples, confidence and seed.
    """
    if not how.resamples or not metrics:
        return {}
    table = np.stack([values[name][rows] for name in metrics], axis=1)
    table = table[~np.isnan(table).any(1)]
    if not len(table):
        return {}
    one_each = np.arange(len(table))
    return intervals_of_means(dict(zip(metrics, table.T, strict=True)), one_each, np.ones(len(table)), how)
