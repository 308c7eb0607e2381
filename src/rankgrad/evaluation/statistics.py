"""What values of several seeds or queries say: their mean and spread, and whether two methods differ."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = Sequence[float] | npt.NDArray[np.float64]


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the standard deviation with n - 1 in the denominator; None for a single value.

    >>> spread([1.0, 2.0, 3.0]), spread([5.0])
    ((2.0, 1.0), (5.0, None))
    """
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class PairedDifference:
    """One method minus another, over the same seeds or queries.

    Attributes:
        mean: of the differences.
        t: statistic of Student's test; None where all differences are equal, and t would divide by rounding noise.
        p: two-sided p-value; None where t is.
        low, high: confidence interval of the mean; the mean itself where all differences are equal.
        n: pairs.
    """

    mean: float
    t: float | None
    p: float | None
    low: float
    high: float
    n: int


def paired_t_test(one: Values, other: Values, confidence: float = 0.95) -> PairedDifference:
    """Student's paired t-test of one - other: t = mean / (std / sqrt(n)), with n - 1 degrees of freedom.

    The confidence interval is mean ± q std / sqrt(n), q the (1 + confidence) / 2 quantile of the same distribution.
    Both take the differences to be normal; over few of them, that cannot be checked.

    Args:
        one: values of a method, one per seed or query.
        other: values of the other method, of the same seeds or queries in the same order.
        confidence: that the interval holds the true mean, 0 .. 1.

    Raises:
        ValueError: fewer than two pairs, or lists of different length.

    >>> found = paired_t_test([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])  # differences of mean 2 and std 1
    >>> found.mean, round(found.t, 4), round(found.p, 4), round(found.low, 2), round(found.high, 2)
    (2.0, 3.4641, 0.0742, -0.48, 4.48)
    """
    from scipy import special  # type: ignore[import-untyped]

    if len(one) != len(other) or len(one) < 2:
        raise ValueError(f"a paired test needs two lists of two or more values; got {len(one)} and {len(other)}")
    differences = np.subtract(one, other, dtype=np.float64)
    mean, n = math.fsum(differences) / len(differences), len(differences)
    if np.ptp(differences) <= 1e-12:
        return PairedDifference(mean, None, None, mean, mean, n)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    half = error * float(special.stdtrit(n - 1, (1 + confidence) / 2))
    p = 2 * float(special.stdtr(n - 1, -abs(mean / error)))
    return PairedDifference(mean, mean / error, p, mean - half, mean + half, n)


def caution(seeds: int) -> str:
    """What must be said of a paired test over so few seeds; "" where it can be read as it stands.

    >>> caution(1)
    'One seed cannot tell a difference between losses from chance. Give more, such as seeds=0..4.'
    """
    if seeds == 1:
        return "One seed cannot tell a difference between losses from chance. Give more, such as seeds=0..4."
    if seeds == 2:
        return (
            "Two seeds are few, and this test is weak: its interval is the mean ± 12.7 standard errors, so a real "
            "difference is easily missed. Give more, such as seeds=0..4."
        )
    return ""


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests at once: p-values to be compared with the level asked for, in the same order.

    With p_(1) <= ... <= p_(m), the i-th becomes max over j <= i of min(1, (m - j + 1) p_(j)). The chance of any false
    finding is then at most the level, however the tests depend on each other (Holm, "A simple sequentially rejective
    multiple test procedure", Scandinavian Journal of Statistics 6, 1979).

    Raises:
        ValueError: a p-value outside 0 .. 1.

    >>> holm([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise ValueError(f"p-values lie in 0 .. 1; got {wrong[0]}")
    corrected, highest = list(p_values), 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[place]))
        corrected[place] = highest
    return corrected
