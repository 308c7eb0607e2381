"""Compare methods over many units by their ranks: mean ranks, Friedman's test, signed ranks, and their diagram.

A unit is a data set. Within a unit, the methods are ranked by their values. Rank 1 is the best. Equal values share
their mean rank.

* Friedman's test has the null hypothesis that all methods are equal (Friedman, JASA 1937).
* Two methods differ at the 5 % level by Nemenyi's test if their mean ranks differ by the critical difference

      CD = q sqrt(k (k + 1) / (6 N)),

  with k methods, N units and q the studentised range statistic divided by sqrt 2 (Demsar, JMLR 2006, section 3.2).
* Two methods that were chosen in advance are compared by Wilcoxon's signed-rank test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, wilcoxon  # type: ignore[import-untyped]

from rankgrad.evaluation.statistics import FEWEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PerUnit = Mapping[str, float]  # unit -> value


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks of methods over units.

    Attributes:
        ranks: method -> mean rank, the best first.
        units: number of units that have a value of every method.
        p: of Friedman's test; None with fewer than six units or three methods.
        critical: smallest difference of two mean ranks that is significant in Nemenyi's test at 5 %.
    """

    ranks: Mapping[str, float]
    units: int
    p: float | None
    critical: float


def mean_ranks(values: Mapping[str, PerUnit]) -> MeanRanks:
    """Rank the methods within each unit. A larger value is better.

    Args:
        values: method -> unit -> value. A unit is left out if any method has no value for it.

    Raises:
        ValueError: there are fewer than two methods, or no unit has values of all methods.

    >>> mean_ranks({"a": {"x": 3, "y": 2}, "b": {"x": 1, "y": 2}, "c": {"x": 2, "y": 1}}).ranks
    {'a': 1.25, 'b': 2.25, 'c': 2.5}
    """
    methods = list(values)
    common = (
        [unit for unit in values[methods[0]] if all(unit in values[method] for method in methods)] if methods else []
    )
    if len(methods) < 2 or not common:
        raise ValueError(
            f"ranks need two methods and a unit that both have; got {len(methods)} and {len(common)} units"
        )
    table = np.array([[values[method][unit] for method in methods] for unit in common])
    means = rankdata(-table, axis=1).mean(0)
    p = None
    if len(common) >= FEWEST and len(methods) > 2:
        p = float(friedmanchisquare(*table.T).pvalue)
    count = len(methods)
    q = float(studentized_range.ppf(0.95, count, np.inf)) / np.sqrt(2)
    critical = float(q * np.sqrt(count * (count + 1) / (6 * len(common))))
    ordered = sorted(zip(methods, means.tolist(), strict=True), key=lambda pair: pair[1])
    return MeanRanks(dict(ordered), len(common), p, critical)


@dataclass(frozen=True)
class SignedRanks:
    """Comparison of two methods over the same units.

    Attributes:
        difference: mean over the units of the first method minus the second.
        better: number of units in which the first method is better.
        units: number of units.
        p: of Wilcoxon's signed-rank test, two-sided; None with fewer than six units.
    """

    difference: float
    better: int
    units: int
    p: float | None


def signed_ranks(one: PerUnit, other: PerUnit) -> SignedRanks:
    """Compare two methods by Wilcoxon's signed-rank test.

    >>> signed_ranks({"x": 3.0, "y": 2.0}, {"x": 1.0, "y": 2.0})
    SignedRanks(difference=1.0, better=1, units=2, p=None)
    """
    differences = np.array([value - other[unit] for unit, value in one.items() if unit in other])
    p = None
    if len(differences) >= FEWEST:
        p = float(wilcoxon(differences, zero_method="pratt").pvalue) if differences.any() else 1.0
    return SignedRanks(float(differences.mean()), int((differences > 0).sum()), len(differences), p)


def groups(ranks: MeanRanks) -> list[tuple[str, ...]]:
    """The largest groups of methods with consecutive ranks whose first and last differ by less than the critical
    difference.

    >>> groups(MeanRanks({"a": 1.0, "b": 1.5, "c": 3.0}, 9, 0.01, 1.6))
    [('a', 'b'), ('b', 'c')]
    """
    methods, places = list(ranks.ranks), list(ranks.ranks.values())
    runs: list[tuple[str, ...]] = []
    for first in range(len(methods)):
        last = max(at for at in range(first, len(methods)) if places[at] - places[first] < ranks.critical)
        run = tuple(methods[first : last + 1])
        if len(run) > 1 and not (runs and set(run) <= set(runs[-1])):
            runs.append(run)
    return runs


def drawn(of: Mapping[str, MeanRanks], marked: Mapping[str, str] | None = None) -> Figure:
    """Critical-difference diagrams, one below the other. A bar joins methods whose difference is not significant.

    Args:
        of: metric -> mean ranks.
        marked: metric -> the method that is printed in bold.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 2.1 * len(of)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(len(of), 1))
    for ax, (metric, ranks) in zip(axes, of.items(), strict=True):
        _diagram(ax, metric, ranks, (marked or {}).get(metric))
    return figure


def _diagram(ax: object, metric: str, ranks: MeanRanks, bold: str | None) -> None:
    from matplotlib.axes import Axes

    assert isinstance(ax, Axes)
    count = len(ranks.ranks)
    half, runs = (count + 1) // 2, groups(ranks)
    ax.set(xlim=(0.4, count + 0.6), ylim=(-(half + 1.5) * 0.5, 1), yticks=[])
    ax.xaxis.tick_top()
    ax.set_xticks(range(1, count + 1))
    ax.spines[["left", "right", "bottom"]].set_visible(False)
    ax.set_title(f"{metric}: mean rank over {ranks.units} tables, CD {ranks.critical:.2f}", loc="left", fontsize=9)
    for place, (method, rank) in enumerate(ranks.ranks.items()):
        left = place < half
        height = -0.5 * (1 + (place if left else count - 1 - place)) - 0.25 * len(runs)
        end = 0.45 if left else count + 0.55
        ax.plot([rank, rank, end], [1, height, height], color="0.35", linewidth=0.8)
        side, weight = "left" if left else "right", "bold" if method == bold else "normal"
        ax.text(end, height + 0.05, f"{method} ({rank:.1f})", ha=side, va="bottom", fontsize=8, weight=weight)
    for number, run in enumerate(runs):
        height = 0.65 - 0.25 * number
        ax.plot([ranks.ranks[run[0]] - 0.04, ranks.ranks[run[-1]] + 0.04], [height] * 2, color="black", linewidth=3)


def table(values: Mapping[str, Mapping[str, PerUnit]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: method, and mean value and mean rank for each metric. The last row has Friedman's p.

    Args:
        values: metric -> method -> unit -> value.
    """
    ranked = {metric: mean_ranks(methods) for metric, methods in values.items()}
    head = ["method", *(name for metric in values for name in (metric, "mean rank"))]
    rows = []
    for method in next(iter(values.values())):
        row = [method]
        for metric, methods in values.items():
            row += [f"{np.mean(list(methods[method].values())):.1f}", f"{ranked[metric].ranks[method]:.2f}"]
        rows.append(row)
    last = ["Friedman's p"]
    for each in ranked.values():
        last += ["", "" if each.p is None else f"{each.p:.2g}"]
    return head, [*rows, last]


__all__ = ["MeanRanks", "SignedRanks", "drawn", "groups", "mean_ranks", "signed_ranks", "table"]
