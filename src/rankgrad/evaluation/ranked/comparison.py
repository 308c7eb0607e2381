"""What the values of the queries say of several runs: intervals, paired tests, the smallest difference they show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import intervals_of_means
from ..statistics import holm, paired_t_test
from .texts import Array

LEAST_P = 1e-15  # smaller ones are below what their computation resolves
POWER = 0.8  # chance to find the smallest difference that is called detectable


@dataclass(frozen=True)
class Difference:
    """One run minus another, over the queries that both have.

    Attributes:
        run, other: their names.
        measure: what was measured.
        group: of the queries; empty: all of them.
        mean: of the differences.
        low, high: interval of the mean, by Student's t.
        p: of the paired t-test, two-sided; 1 where all differences are equal.
        corrected: the same after Holm's correction, for all tests of this measure.
        detectable: a true difference of this size would have been found with a chance of 80 %: with p below
            1 - confidence after the strictest step of the correction.
        better, worse: queries on which the run is better, and worse.
        queries: all of them.
    """

    run: str
    other: str
    measure: str
    group: str
    mean: float
    low: float
    high: float
    p: float
    corrected: float
    detectable: float
    better: int
    worse: int
    queries: int


def chance(p: float) -> str:
    """A p-value in two digits.

    >>> chance(0.0412), chance(0.0)
    ('0.041', '<1e-15')
    """
    return f"{p:.2g}" if p >= LEAST_P else f"<{LEAST_P:g}"


def pairs_of(runs: Sequence[str], baseline: str | None) -> list[tuple[str, str]]:
    """(run, other) of every test: each run against the baseline, or each against all before it.

    >>> pairs_of(["a", "b", "c"], None), pairs_of(["a", "b", "c"], "b")
    ([('b', 'a'), ('c', 'a'), ('c', 'b')], [('a', 'b'), ('c', 'b')])
    """
    if baseline is not None:
        return [(run, baseline) for run in runs if run != baseline]
    return [(run, other) for place, run in enumerate(runs) for other in runs[:place]]


def differences(
    values: Mapping[str, Mapping[str, Array]],
    measures: Iterable[str],
    pairs: Sequence[tuple[str, str]],
    groups: Mapping[str, Array],
    confidence: float,
) -> list[Difference]:
    """Every pair of runs, by every measure and in every group of queries, tested.

    Args:
        values: run -> measure -> [query] float64; NaN: the run has no value there.
        measures: what is compared.
        pairs: (run, other).
        groups: name -> [member] rows of its queries.
        confidence: coverage of the intervals; a test is strict at 1 minus this.

    Returns:
        In the order of measures, groups and pairs. Pairs with fewer than two queries in common are left out.
    """
    tested: list[Difference] = []
    for measure in measures:
        tests = []
        for group, rows in groups.items():
            for run, other in pairs:
                one, two = values[run][measure][rows], values[other][measure][rows]
                both = ~(np.isnan(one) | np.isnan(two))
                if both.sum() > 1:
                    tests.append((group, run, other, one[both], two[both]))
        results = [paired_t_test(one, two, confidence) for *_, one, two in tests]
        p_values = [1.0 if result.p is None else result.p for result in results]
        corrected = holm(p_values)
        for (group, run, other, one, two), result, p, strict in zip(tests, results, p_values, corrected, strict=True):
            tested.append(
                Difference(
                    run=run,
                    other=other,
                    measure=measure,
                    group=group,
                    mean=result.mean,
                    low=result.low,
                    high=result.high,
                    p=p,
                    corrected=strict,
                    detectable=detectable(float((one - two).std(ddof=1)), len(one), (1 - confidence) / len(tests)),
                    better=int((one > two).sum()),
                    worse=int((one < two).sum()),
                    queries=len(one),
                )
            )
    return tested


def detectable(deviation: float, queries: int, level: float) -> float:
    """The smallest mean difference that a paired t-test finds with a chance of 80 %.

    (q(1 - level / 2) + q(.8)) s / sqrt(n), q the quantiles of Student's distribution with n - 1 degrees of freedom.

    Args:
        deviation: s, standard deviation of the differences.
        queries: n.
        level: of the test.

    >>> round(detectable(0.2, 50, 0.05), 3)
    0.081
    """
    from scipy import special  # type: ignore[import-untyped]

    quantiles = special.stdtrit(queries - 1, np.array([1 - level / 2, POWER]))
    return float(quantiles.sum()) * deviation / math.sqrt(queries)


def intervals(
    values: Mapping[str, Array], measures: Sequence[str], rows: Array, resamples: int, confidence: float, seed: int
) -> dict[str, tuple[float, float]]:
    """Measure -> interval of its mean by the bootstrap over queries.

    Args:
        values: measure -> [query]; NaN: there is no value.
        measures: those that are wanted.
        rows: [member] queries that count.
        resamples: how often they are drawn; 0: no intervals.
        confidence: coverage.
        seed: of what is drawn.
    """
    if not resamples or not measures:
        return {}
    table = np.stack([values[name][rows] for name in measures], axis=1)
    table = table[~np.isnan(table).any(1)]
    if not len(table):
        return {}
    columns = dict(zip(measures, table.T, strict=True))
    return intervals_of_means(columns, np.arange(len(table)), np.ones(len(table)), resamples, confidence, seed)
