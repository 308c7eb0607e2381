"""Compares two runs on the same queries: the mean of their differences, with an interval and a test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....common.checks import coverage
from ....evaluation.statistics import FEWEST

Array = npt.NDArray[np.float64]

DRAWS = 2000


@dataclass(frozen=True)
class Paired:
    """Difference between a run and another one.

    Attributes:
        mean: of the differences; > 0: the run is better.
        low, high: confidence interval of the mean.
        p: p-value of the randomisation test; None for fewer than six groups.
        better, worse: number of queries on which the run is better, and worse.
        queries: number of queries.
    """

    mean: float
    low: float
    high: float
    p: float | None
    better: int
    worse: int
    queries: int


def paired_difference(
    run: Array, other: Array, group: npt.NDArray[np.int64] | None = None, *, confidence: float = 0.95, seed: int = 0
) -> Paired:
    r"""Mean of run - other over the same queries, its interval by bootstrap, and a randomisation test.

    Queries of a class are not independent, because they retrieve one another. So the bootstrap draws whole groups, and
    the test flips the signs of whole groups. With S_g the sum of the differences of group g, p is the fraction of
    random signs s_g = ±1 with \|Σ s_g S_g\| ≥ \|Σ S_g\|; the observed signs count as one of them. (This is Fisher's
    randomisation test. Smucker, Allan and Carterette, CIKM 2007, compare it with other tests for rankings.) With ten
    groups or fewer, all signs are tried and p is exact. With fewer than six there is no p: it could not be below
    2 / 2^5 = .06.

    Args:
        run: [query] values of one run, higher is better.
        other: [query] values of the other run.
        group: [query] class of each query; None: each query is its own group.
        confidence: coverage of the interval.
        seed: of the 2000 random draws.

    Raises:
        ValueError: lengths differ, or there is no query.

    >>> found = paired_difference(np.array([0.9, 0.8, 0.7]), np.array([0.7, 0.8, 0.6]))
    >>> round(found.mean, 3), found.better, found.worse, found.queries
    (0.1, 2, 0, 3)
    """
    group = np.arange(len(run)) if group is None else group
    if not (len(run) == len(other) == len(group) > 0):
        raise ValueError(
            f"need values of the same queries, at least one; got {len(run)}, {len(other)} and {len(group)} groups"
        )
    coverage(confidence)
    difference = np.asarray(run, dtype=np.float64) - other
    number = np.unique(group, return_inverse=True)[1]
    size = np.bincount(number).astype(np.float64)
    sums = np.bincount(number, weights=difference)
    generator = np.random.default_rng(seed)
    means, chance = np.empty(DRAWS), np.empty(DRAWS)
    few = 2 ** min(len(size), 62) <= DRAWS  # try all signs once; p is then exact
    step = max(1, 2**22 // len(size))  # draws at once
    for start in range(0, DRAWS, step):
        part = slice(start, min(start + step, DRAWS))
        shape = (part.stop - start, len(size))
        drawn = generator.integers(len(size), size=shape)
        means[part] = sums[drawn].sum(1) / size[drawn].sum(1)
        if not few:
            chance[part] = np.where(generator.integers(2, size=shape, dtype=np.int8), sums, -sums).sum(1)
    if few:
        chance = np.where(np.arange(2 ** len(size))[:, None] >> np.arange(len(size)) & 1, sums, -sums).sum(1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    total = abs(sums.sum())
    as_far = int((np.abs(chance) >= total * (1 - 1e-9)).sum())
    p = as_far / len(chance) if few else (1 + as_far) / (1 + DRAWS)
    return Paired(
        mean=float(difference.mean()),
        low=low,
        high=high,
        p=p if len(size) >= FEWEST else None,
        better=int((difference > 0).sum()),
        worse=int((difference < 0).sum()),
        queries=len(difference),
    )
