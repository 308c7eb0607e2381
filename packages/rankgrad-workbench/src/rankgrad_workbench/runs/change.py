"""What training changed: the metrics after training against those before it, tested on the same queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankgrad.evaluation.json_report import DIFFERENCE, NUMBERS
from rankgrad.evaluation.report import Report
from rankgrad.evaluation.statistics import FEWEST, PairedDifference, paired_over_groups

from ..files.defaults import trained_before

LEVEL = 0.05
# Shapes of what is read of a report.
SHAPES: Mapping[str, Any] = {
    **{name: Report.shapes[name] for name in ("values", "intervals", "per_query", "uncounted")},
    "per_class": (Report.shapes["per_class"], {}),  # a detector's is an object
    **{"counts": NUMBERS, "settings": {}, "tests": [DIFFERENCE]},
}
ALIKE = 0.05  # share of the gallery that one network, and not the other, gives the embedding of an earlier item


@dataclass(frozen=True)
class Change:
    """A metric after training minus the same before training.

    Attributes:
        metric: its name.
        before, after: its values.
        found: the paired difference; None: there are no values of single queries, or too few.
        over: what was paired: "classes" or "queries".
    """

    metric: str
    before: float
    after: float
    found: PairedDifference | None
    over: str = ""

    @property
    def p(self) -> float | None:
        """The p-value; None: there is no test."""
        return None if self.found is None else self.found.p

    @property
    def certain(self) -> bool:
        """Whether the test finds a difference."""
        return self.p is not None and self.p <= LEVEL

    def __str__(self) -> str:
        test = "" if self.found is None or self.p is None else f"; p {self.p:.2g} over {self.found.n:,} {self.over}"
        return f"{self.metric} {100 * self.after:.1f} (before training {100 * self.before:.1f}{test})"


def change(before: Mapping[str, Any], after: Mapping[str, Any], metric: str) -> Change | None:
    """What training changed in a metric. The test is over classes, or over queries if there are fewer than six classes.

    Args:
        before: content of the report of the network before training: "values", and if it has them "per_query",
            "per_class", "uncounted", "settings".
        after: likewise, after training; a search has "tests".
        metric: name of a metric.

    Returns:
        None if one of the two has no such metric.

    >>> queries = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    >>> before, after = ({"values": {"AP": x}, "per_query": {"AP": [x * q for q in queries]}} for x in (0.5, 1.0))
    >>> print(change(before, after, "AP"))
    AP 100.0 (before training 50.0; p 0.031 over 6 queries)
    """
    was, now = (each["values"].get(metric) for each in (before, after))
    if was is None or now is None:
        return None
    return Change(metric, was, now, *_paired(before, after, metric))


def _paired(before: Mapping[str, Any], after: Mapping[str, Any], metric: str) -> tuple[PairedDifference | None, str]:
    """The paired difference, and what was paired."""
    for test in after.get("tests", ()):
        if (test["run"], test["other"], test["metric"]) == ("trained", "before training", metric):
            parts = {name: test[name] for name in ("mean", "low", "high", "better", "worse")}
            count = int(after.get("counts", {}).get("queries", 0))
            return PairedDifference(p=test["corrected"], n=count, detectable=None, **parts), "queries"
    reports = (after, before)
    if any(each.get("settings", {}).get("weights") or isinstance(each.get("per_class"), dict) for each in reports):
        return None, ""  # the metrics are weighted means, or those of a detector
    one, other = (
        {row.get("class", row["name"]): row for row in each.get("per_class", ()) if row.get(metric) is not None}
        for each in reports
    )
    both = [name for name in one if name in other]
    counts = [one[name]["counted"] for name in both]
    # with several classes for a row, these are no groups
    if len(both) >= FEWEST and sum(counts) == after.get("counts", {}).get("counted"):
        means = [[of[name][metric] for name in both] for of in (one, other)]
        return paired_over_groups(means[0], means[1], weight=counts), "classes"
    queries = [np.array(each.get("per_query", {}).get(metric, ()), dtype=np.float64) for each in reports]
    for values, each in zip(queries, reports, strict=True):
        values[np.asarray(each.get("uncounted", ()), dtype=np.int64)] = np.nan
    if len(queries[0]) == len(queries[1]):
        known = ~np.isnan(queries).any(0)
        if known.sum() >= FEWEST:
            return paired_over_groups(queries[0][known], queries[1][known]), "queries"
    return None, ""


def told(before: Mapping[str, Any], after: Mapping[str, Any], metric: str, network: str) -> str:
    """A remark on a change that no test confirms; empty if it is certain, or nothing can be said.

    Args:
        before: see `change`.
        after: likewise.
        metric: name of the main metric.
        network: "untouched" or "untrained".
    """
    found = change(before, after, metric)
    if found is None:
        return ""
    if alike := blind(before, after):
        return (
            f"The {network} network gives {alike:,} items of the gallery the embedding of another item: it cannot tell "
            "these data apart, so it is no baseline"
        )
    said, gain = found.found, 100 * (found.after - found.before)
    if said is None or found.p is None or found.certain:
        few = 0 < after.get("counts", {}).get("counted", 0) < FEWEST
        return f"{metric} {gain:+.1f} by training: too few queries to tell this from chance" if few else ""
    return (
        f"No measurable difference by training: {metric} {gain:+.1f} ({100 * said.low:+.1f} to {100 * said.high:+.1f}, "
        f"p {found.p:.2g} over {said.n:,} {found.over})"
    )


def blind(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Number of items that only the network before training gives the embedding of another item or no direction; 0 if
    they are few. Such a network could not work, so being better than it says nothing.
    """
    counts, then = before.get("counts", {}), after.get("counts", {})
    more = sum(counts.get(name, 0) - then.get(name, 0) for name in ("duplicates", "zero_vectors"))
    return int(more) if more > ALIKE * counts.get("gallery", 0) > 0 else 0


def network(config: Mapping[str, Any]) -> str:
    """What the network of a run is before training: "untouched" if it was trained before, else "untrained".

    >>> network({"model": {"kind": "timm", "pretrained": True}}), network({"model": {"kind": "convnet"}})
    ('untouched', 'untrained')
    """
    model = config.get("model")
    trained = isinstance(model, Mapping) and "kind" in model and trained_before(model)
    return "untouched" if trained or config.get("init") else "untrained"
