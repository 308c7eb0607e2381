"""One line of the verdicts: a comparison of two settings that tests a hypothesis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from ..values import difference


@dataclass(frozen=True)
class Compared:
    """A comparison of two settings.

    Attributes:
        data: name of the data set, or a name for all data sets.
        metric: name of the metric.
        what: names of the two settings, as "ONE − OTHER".
        difference: mean difference in points.
        interval: 95 % interval over the seeds of a set, or over the sets. None if there are fewer than two.
    """

    data: str
    metric: str
    what: str
    difference: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, data: str, metric: str, what: str, one: Mapping[str, float], other: Mapping[str, float]) -> Compared:
        """Compare two settings by their values of each seed or set. A seed or set without both values is left out."""
        effect = difference(one, other)
        if effect is None:
            return cls(data, metric, what, fmean(one.values()) - fmean(other.values()), None)
        return cls(data, metric, what, effect.mean, (effect.low, effect.high))

    def __str__(self) -> str:
        """As the commands of the verdicts print it."""
        interval = "" if self.interval is None else f" ({self.interval[0]:+.2f} to {self.interval[1]:+.2f})"
        return f"{self.data:<12}{self.metric:<32}{self.what:<48}{self.difference:+.2f}{interval}"
