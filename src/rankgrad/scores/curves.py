"""The curves of one ranked list as points: ROC, precision and recall, gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.checks import Numbers, integer, tensor
from .one_list import RankedRows

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Curve:
    """Points of a curve, from left to right.

    Attributes:
        x: [point] in 0 .. 1.
        y: [point] in 0 .. 1.
    """

    x: Array
    y: Array

    @property
    def points(self) -> list[tuple[float, float]]:
        """(x, y) of each point."""
        return list(zip(self.x.tolist(), self.y.tolist(), strict=True))


@dataclass(frozen=True)
class Curves:
    """The curves of a list, from the highest score to the lowest.

    Attributes:
        roc: false positive rate -> true positive rate, from (0, 0) to (1, 1).
        precision_recall: recall -> precision, from the first relevant row on.
        gain: fraction of all rows from the top -> fraction of the relevant rows among them, from (0, 0) to (1, 1).
    """

    roc: Curve
    precision_recall: Curve
    gain: Curve


def curves_of(scores: Numbers, relevant: Numbers, *, most: int = 300) -> Curves:
    """The curves of one list. Rows with equal scores are one step of a curve.

    Args:
        scores: [row] finite floats.
        relevant: [row] bool, or grades: a row with a grade above 0 is relevant.
        most: largest number of points of a curve. Further points are left out, evenly along the curve.

    Raises:
        ValueError: the shapes differ, a score is not finite, or there is no relevant or no irrelevant row.

    >>> curves = curves_of([0.9, 0.8, 0.5, 0.1], [1, 0, 1, 0])
    >>> curves.roc.points
    [(0.0, 0.0), (0.0, 0.5), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0)]
    >>> curves.gain.points
    [(0.0, 0.0), (0.25, 0.5), (0.5, 0.5), (0.75, 1.0), (1.0, 1.0)]
    """
    integer(most, "most is a number of points", low=2)
    values = tensor(scores, "scores").detach().cpu().double().numpy()
    hit = tensor(relevant, "relevant").detach().cpu().numpy() > 0
    if values.ndim != 1 or values.shape != hit.shape:
        raise ValueError(f"scores and relevant must be [row]; got {values.shape} and {hit.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"scores must be finite; that of row {int((~np.isfinite(values)).argmax())} is not")
    if hit.all() or not hit.any():
        raise ValueError(
            f"{int(hit.sum())} of {len(hit)} rows are relevant; curves need a relevant and an irrelevant row"
        )
    groups = RankedRows.of(values, hit).groups()
    found, passed = (np.append(0.0, counts[0]) for counts in (groups.found, groups.passed))
    recall, taken = found / found[-1], (found + passed) / len(hit)
    start = int(found.searchsorted(1))  # the first group with a relevant row
    precision = found[start:] / (found + passed)[start:]
    return Curves(
        roc=_thinned(passed / passed[-1], recall, most),
        precision_recall=_thinned(recall[start:], precision, most),
        gain=_thinned(taken, recall, most),
    )


def _thinned(x: Array, y: Array, most: int) -> Curve:
    """At most `most` points, evenly along the curve. The first and the last point stay."""
    if len(x) <= most:
        return Curve(x, y)
    length = np.append(0.0, np.cumsum(np.abs(np.diff(x)) + np.abs(np.diff(y))))
    kept = np.unique(length.searchsorted(np.linspace(0, length[-1], most), side="left").clip(max=len(x) - 1))
    return Curve(x[kept], y[kept])


__all__ = ["Curve", "Curves", "curves_of"]
