"""Means over the queries that count, their intervals, and a table of the groups of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import Array
from .levels import RankedLevel
from .measures import needs_irrelevant
from .report import Row
from .statistics import Bootstrap, intervals_of_means

Names = Sequence[str] | Mapping[int, str] | Mapping[str, str] | None


@dataclass(frozen=True)
class Counting:
    """Which queries count in the means, and their weights.

    Attributes:
        inside: [query] bool, True if the query counts.
        weight: [query] float64.
        all_relevant: [query] bool, True if the query has no irrelevant item, and so no ROC AUC and no fall-out.
    """

    inside: Array
    weight: Array
    all_relevant: Array

    @classmethod
    def of(cls, level: RankedLevel, weight: Array, without_relevant: str) -> Counting:
        """The queries with a relevant item ("skip"), or all queries."""
        inside = level.counted if without_relevant == "skip" else np.ones_like(level.counted)
        return cls(inside, weight, level.all_relevant)

    @property
    def weighed(self) -> Array:
        """[query] bool, the queries that count with a positive weight."""
        return self.inside & (self.weight > 0)

    def means(self, per_query: Mapping[str, Array]) -> dict[str, float]:
        """Metric -> weighted mean; without the metrics that no query with a positive weight has."""
        means = {}
        for name, value in per_query.items():
            kept = self.of_metric(name)
            if kept.any():
                means[name] = float((value[kept] * self.weight[kept]).sum() / self.weight[kept].sum())
        return means

    def of_metric(self, name: str) -> Array:
        """[query] bool, the queries that count with a positive weight in a metric."""
        return self.weighed & ~self.all_relevant if needs_irrelevant(name) else self.weighed

    def intervals(self, per_query: Mapping[str, Array], group: Array, how: Bootstrap) -> dict[str, tuple[float, float]]:
        """Metric -> interval of its mean. Queries of the same `group` are drawn together."""
        intervals: dict[str, tuple[float, float]] = {}
        if not how.resamples or not per_query:
            return intervals
        for kept in np.unique([self.of_metric(name) for name in per_query], axis=0):  # metrics of the same queries
            columns = {name: of[kept] for name, of in per_query.items() if (self.of_metric(name) == kept).all()}
            if kept.any():
                intervals |= intervals_of_means(columns, group[kept], self.weight[kept], how)
        return {name: intervals[name] for name in per_query if name in intervals}


def numbered(labels: Array) -> tuple[Array, Array]:
    """([row] number of its label, [number] label)."""
    shown, number = np.unique(labels, return_inverse=True)
    return number, shown


def group_table(
    kind: str, group: Array, shown: Array, names: Names, per_query: Mapping[str, Array], counting: Counting
) -> tuple[Row, ...]:
    """One row per group with a query: label, name, sizes, and the mean of each metric over its counted queries."""
    if group.ndim == 2:
        query, group = group.nonzero()
    else:
        query = np.arange(len(group))
    kept = counting.inside[query]
    queries = np.bincount(group, minlength=len(shown))
    counted = np.bincount(group[kept], minlength=len(shown))
    means = {}
    for name, value in per_query.items():
        used = counting.weight[query] * counting.of_metric(name)[query]
        size = np.bincount(group, weights=used, minlength=len(shown))
        total = np.bincount(group, weights=used * value[query], minlength=len(shown))
        means[name] = np.where(size > 0, total / np.where(size > 0, size, 1), np.nan)
    rows = []
    for g in np.flatnonzero(queries).tolist():
        label, sizes = shown[g].item(), {"queries": int(queries[g]), "counted": int(counted[g])}
        row: Row = {kind: label, "name": _name(label, names, kind)} | sizes
        rows.append(row | {name: None if np.isnan(mean[g]) else float(mean[g]) for name, mean in means.items()})
    return tuple(rows)


def _name(label: int | str, names: Names, kind: str) -> str:
    if names is None:
        return str(label)
    if isinstance(names, Mapping):
        known: dict[Any, str] = dict(names)
    elif isinstance(label, str):
        raise ValueError(f"{kind} {label!r} is a string, so the names must be a mapping from label to name; got a list")
    else:
        known = dict(enumerate(names))
    if label not in known:
        raise ValueError(
            f"no name for {kind} {label}: got {len(names)} names. Every label of the queries needs a name."
        )
    return str(known[label])
