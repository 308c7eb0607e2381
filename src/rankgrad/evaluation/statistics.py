"""Statistics of values from several seeds or queries: means, intervals, and tests of the difference of two methods."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..common.checks import coverage, integer, one_of

Array = npt.NDArray[Any]
Values = Sequence[float] | npt.NDArray[np.float64]

FEW_DRAWN = 10  # classes, queries or rows; intervals of a bootstrap from fewer get a note
FEWEST = 6  # pairs for a p-value: with fewer, it depends on normality that cannot be checked
FEWEST_SEEDS = 4  # for words such as "ahead": with three, an interval of the mean is +- 2.5 standard deviations
DRAWS = 2000  # of a bootstrap or of random signs, for the difference of two runs
POWER = 0.8  # probability with which a test finds a difference of the detectable size


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals of means are drawn: percentiles of the means over resampled queries.

    Attributes:
        resamples: number of resamples; 0: no intervals.
        confidence: coverage of the intervals, in (0, 1).
        seed: seed of the draws.
        by: what is drawn where queries have classes. "class" draws whole classes. Its intervals are wider and more
            correct, because queries of a class retrieve each other and are not independent. "query" draws queries as
            if they were independent, as for queries of several classes or of none.

    >>> Bootstrap(confidence=95)
    Traceback (most recent call last):
        ...
    ValueError: confidence is a coverage and must be between 0 and 1, such as 0.95; got 95
    """

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0
    by: Literal["class", "query"] = "class"

    def __post_init__(self) -> None:
        integer(self.resamples, "bootstrap is a number of resamples", low=0)
        integer(self.seed, "seed is the seed of the bootstrap", low=0)
        coverage(self.confidence)
        one_of(self.by, "by", ("class", "query"))

    @classmethod
    def of(cls, given: Bootstrap | int) -> Bootstrap:
        """The argument `intervals`, which may be a number of resamples alone."""
        return given if isinstance(given, Bootstrap) else cls(given)

    def settings(self) -> dict[str, Any]:
        """What a report keeps of it."""
        numbers = {"bootstrap": int(self.resamples), "confidence": float(self.confidence), "seed": int(self.seed)}
        return numbers | {"resample": self.by}


BOOTSTRAP = Bootstrap()


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the standard deviation with n - 1 in the denominator; None for a single value.

    >>> spread([1.0, 2.0, 3.0]), spread([5.0])
    ((2.0, 1.0), (5.0, None))
    """
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


def intervals_of_means(
    columns: Mapping[str, Array],
    group: Array,
    weights: Array,
    how: Bootstrap,
) -> dict[str, tuple[float, float]]:
    """Name -> (low, high), percentile interval of a column's mean. The bootstrap draws groups of rows.

    Args:
        columns: name -> [row] values.
        group: [row] group; the rows of a group are drawn together, with replacement.
        weights: [row] weight of each row in the means.
        how: resamples, confidence and seed.
    """
    number = np.unique(group, return_inverse=True)[1]
    groups = int(number.max()) + 1
    size = np.bincount(number, weights=weights)
    sums = np.stack([np.bincount(number, weights=weights * column) for column in columns.values()], axis=1)
    generator = np.random.default_rng(how.seed)
    means = np.empty((how.resamples, len(columns)))
    step = max(1, 2**22 // groups)  # number of resamples at once
    for start in range(0, how.resamples, step):
        count = min(step, how.resamples - start)
        drawn = generator.integers(groups, size=(count, groups)) + groups * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * groups).reshape(count, groups).astype(np.float64)
        means[start : start + count] = (times @ sums) / (times @ size)[:, None]
    tail = (1 - how.confidence) / 2
    bounds = np.quantile(means, [tail, 1 - tail], axis=0).T.tolist()
    return {name: (low, high) for name, (low, high) in zip(columns, bounds, strict=True)}


@dataclass(frozen=True)
class PairedDifference:
    """One method minus another, over the same seeds or queries.

    Attributes:
        mean: mean of the differences.
        p: two-sided p-value; None for fewer than six pairs, and if all differences are equal (t would divide by
            rounding noise).
        low, high: confidence interval of the mean; the mean itself if all differences are equal.
        n: number of pairs.
        detectable: size of a true mean difference whose interval excludes 0 with a probability of 80 %, see
            `detectable`; None if all differences are equal, which says nothing about it, and for `paired_over_groups`.
        better, worse: number of pairs whose difference is > 0, and < 0.
    """

    mean: float
    p: float | None
    low: float
    high: float
    n: int
    detectable: float | None
    better: int = 0
    worse: int = 0


def paired_t_test(one: Values, other: Values, confidence: float = 0.95) -> PairedDifference:
    """Student's paired t-test of one - other: t = mean / (std / sqrt(n)), with n - 1 degrees of freedom.

    The confidence interval is mean ± q std / sqrt(n), where q is the (1 + confidence) / 2 quantile of the same
    distribution. Both assume that the differences are normally distributed. With few differences this cannot be
    checked, so fewer than six have an interval but no p-value.

    Args:
        one: values of a method, one per seed or query.
        other: values of the other method, for the same seeds or queries in the same order.
        confidence: probability that the interval contains the true mean, 0 .. 1.

    Raises:
        ValueError: there are fewer than two pairs, or the lists differ in length.

    >>> found = paired_t_test([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])  # differences of mean 2 and std 1
    >>> found.mean, found.p, round(found.low, 2), round(found.high, 2)
    (2.0, None, -0.48, 4.48)
    >>> round(paired_t_test([2.0, 3.0, 4.0] * 2, [1.0] * 6).p, 4)
    0.0028
    """
    from scipy import special  # type: ignore[import-untyped]

    if len(one) != len(other) or len(one) < 2:
        raise ValueError(f"a paired test needs two lists of two or more values; got {len(one)} and {len(other)}")
    coverage(confidence)
    differences = np.subtract(one, other, dtype=np.float64)
    mean, n = math.fsum(differences) / len(differences), len(differences)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    if np.ptp(differences) <= 1e-12 * max(np.abs(one).max(), np.abs(other).max()):  # equal, except for rounding
        return PairedDifference(mean, None, mean, mean, n, None, better, worse)
    deviation = float(differences.std(ddof=1))
    error = deviation / math.sqrt(n)
    half = error * float(special.stdtrit(n - 1, (1 + confidence) / 2))
    p = 2 * float(special.stdtr(n - 1, -abs(mean / error))) if n >= FEWEST else None
    found = detectable(deviation, n, 1 - confidence)
    return PairedDifference(mean, p, mean - half, mean + half, n, found, better, worse)


def paired_over_groups(
    one: Values,
    other: Values,
    group: npt.NDArray[Any] | None = None,
    weight: Values | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> PairedDifference:
    r"""Mean of one - other over the same queries, its interval by bootstrap, and a randomisation test.

    Queries of a class are not independent, because they retrieve one another. So the bootstrap draws whole groups, and
    the test flips the signs of whole groups. With S_g the sum of the differences of group g, p is the fraction of
    random signs s_g = ±1 with \|Σ s_g S_g\| ≥ \|Σ S_g\|; the observed signs count as one of them. (This is Fisher's
    randomisation test. Smucker, Allan and Carterette, CIKM 2007, compare it with other tests for rankings.) With ten
    groups or fewer, all signs are tried and p is exact. With fewer than six there is no p: it could not be below
    2 / 2^5 = .06.

    Args:
        one: [query] values of a run, higher is better.
        other: [query] values of the other run.
        group: [query] class of each query; None: each query is its own group.
        weight: [query] number of queries that a value is the mean of, such as that of a class; None: 1.
        confidence: coverage of the interval.
        seed: of the 2000 random draws.

    Raises:
        ValueError: lengths differ, or there is no query.

    >>> found = paired_over_groups([0.9, 0.8, 0.7], [0.7, 0.8, 0.6])
    >>> round(found.mean, 3), found.better, found.worse, found.n
    (0.1, 2, 0, 3)
    """
    group = np.arange(len(one)) if group is None else group
    if not (len(one) == len(other) == len(group) > 0):
        raise ValueError(
            f"need values of the same queries, at least one; got {len(one)}, {len(other)} and {len(group)} groups"
        )
    coverage(confidence)
    difference = np.subtract(one, other, dtype=np.float64)
    weights = np.ones(len(group)) if weight is None else np.asarray(weight, dtype=np.float64)
    around = intervals_of_means({"": difference}, group, weights, Bootstrap(DRAWS, confidence, seed))[""]
    sums = np.bincount(np.unique(group, return_inverse=True)[1], weights=weights * difference)
    exact, generator = 2 ** min(len(sums), 62) <= DRAWS, np.random.default_rng(seed)
    if exact:  # all signs once
        signs = 2 * (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums)) & 1) - 1
        chance = np.abs(signs @ sums)
    else:
        chance = np.array([abs(np.where(generator.random(len(sums)) < 0.5, sums, -sums).sum()) for _ in range(DRAWS)])
    as_far = int((chance >= abs(sums.sum()) * (1 - 1e-9)).sum())
    return PairedDifference(
        mean=float((weights * difference).sum() / weights.sum()),
        p=None if len(sums) < FEWEST else as_far / len(chance) if exact else (1 + as_far) / (1 + DRAWS),
        low=around[0],
        high=around[1],
        n=len(difference),
        detectable=None,
        better=int((difference > 0).sum()),
        worse=int((difference < 0).sum()),
    )


def detectable(deviation: float, pairs: int, level: float) -> float | None:
    """The smallest mean difference that a paired t-test finds with a probability of 80 %.

    (q(1 - level / 2) + q(.8)) s / sqrt(n), where q are quantiles of Student's distribution with n - 1 degrees of
    freedom.

    Args:
        deviation: s, standard deviation of the differences.
        pairs: n, number of pairs.
        level: significance level of the test.

    Returns:
        None if the deviation is 0: equal differences do not show how far others would spread.

    >>> round(detectable(0.2, 50, 0.05), 3)
    0.081
    """
    from scipy import special

    if not deviation:
        return None
    quantiles = special.stdtrit(pairs - 1, np.array([1 - level / 2, POWER]))
    return float(quantiles.sum()) * deviation / math.sqrt(pairs)


def caution(seeds: int) -> str:
    """What a comparison over so few seeds cannot show; "" for six or more.

    >>> caution(1)
    'One seed cannot tell a difference between losses from chance. Give more, such as seeds=0..5.'
    >>> caution(3)
    'Three seeds are too few to say which loss is ahead, and for a p-value. Give more, such as seeds=0..5.'
    >>> caution(4)
    'Fewer than six seeds are too few for a p-value. Give more, such as seeds=0..5.'
    """
    more = "Give more, such as seeds=0..5."
    if seeds == 1:
        return f"One seed cannot tell a difference between losses from chance. {more}"
    if seeds < FEWEST_SEEDS:
        count = {2: "Two", 3: "Three"}[seeds]
        return f"{count} seeds are too few to say which loss is ahead, and for a p-value. {more}"
    return f"Fewer than six seeds are too few for a p-value. {more}" if seeds < FEWEST else ""


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's correction for several tests at once: corrected p-values, in the same order. None is no test and stays.

    With p_(1) <= ... <= p_(m), the i-th becomes max over j <= i of min(1, (m - j + 1) p_(j)). If these are compared
    with a significance level, the probability of any false rejection is at most that level, also for dependent tests
    (Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979).

    Raises:
        ValueError: a p-value is outside 0 .. 1.

    >>> holm([0.01, 0.5, None, 0.02])
    [0.03, 0.5, None, 0.04]
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    wrong = [p for p, _ in tested if not 0 <= p <= 1]
    if wrong:
        raise ValueError(f"p-values must be in 0 .. 1; got {wrong[0]}")
    corrected, highest = list(p_values), 0.0
    for done, (p, place) in enumerate(tested):
        corrected[place] = highest = max(highest, min(1.0, (len(tested) - done) * p))
    return corrected


__all__ = ["spread", "PairedDifference", "paired_t_test", "paired_over_groups", "holm"]
