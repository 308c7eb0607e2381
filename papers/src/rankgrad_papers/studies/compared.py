"""A comparison that a hypothesis is judged by: a line of the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from ..values import difference


@dataclass(frozen=True)
class Compared:
    """A line.

    Attributes:
        data: a set, or a name for all sets.
        metric: what was measured.
        what: one minus the other.
        difference: in points.
        interval: of 95 %, over the seeds of a set, or over the sets; None with fewer than two of them.
    """

    data: str
    metric: str
    what: str
    difference: float
    interval: tuple[float, float] | None

    @classmethod
    def of(cls, data: str, metric: str, what: str, one: Mapping[str, float], other: Mapping[str, float]) -> Compared:
        """Two settings, each with its values by seed or by set. Where both have a value, it is compared."""
        effect = difference(one, other)
        if effect is None:
            return cls(data, metric, what, fmean(one.values()) - fmean(other.values()), None)
        return cls(data, metric, what, effect.mean, (effect.low, effect.high))

    def __str__(self) -> str:
        """As the commands of the verdicts print it."""
        interval = "" if self.interval is None else f" ({self.interval[0]:+.2f} to {self.interval[1]:+.2f})"
        return f"{self.data:<12}{self.metric:<32}{self.what:<48}{self.difference:+.2f}{interval}"
