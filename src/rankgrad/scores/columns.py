"""Columns of numbers for a network: standardised, and checked for values that may stand for a missing one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LARGEST = np.finfo(np.float64).max
FAR = 100  # most standard deviations of a column per deviation of its middle values
# Programs write the extreme values of a type for a missing value: of floats, which may be rounded, and of integers.
EXTREME = np.array(
    [1.797e308, -1.797e308, 3.402e38, -3.402e38, 2.0**64, 2.0**63, -(2.0**63), 2.0**32 - 1, 2.0**31 - 1, -(2.0**31)]
)
ROUNDED = 1e-3 * np.abs(EXTREME) * (np.arange(10) < 4)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standardised columns: (value - mean) / deviation, and 0 for a missing value.

    Attributes:
        mean: [column] mean over the training rows that have a value; with `far`, the median of their different values.
        deviation: [column] their standard deviation, > 0; with `far`, the median distance from that median, times 1.48,
            which is the standard deviation of a normal distribution.
        far: [column] whether some values are so far from the others that the standard deviation, which they decide,
            would make the others equal. Then arsinh of the quotient is taken: about the quotient itself if it is small,
            and its logarithm if it is large.

    >>> rows = np.array([[20.0, 1.0], [40.0, 3.0], [np.nan, 2.0]])
    >>> Scaling.fitted(rows)(rows)[:, 0]
    array([-1.,  1.,  0.])
    """

    mean: Array
    deviation: Array
    far: Array

    @classmethod
    def fitted(cls, rows: Array) -> Scaling:
        """Of the columns of [row, column] float64."""
        scales = [_scale(column[~is_missing(column)]) for column in rows.T]
        mean, deviation, far = np.array(scales, dtype=np.float64).reshape(-1, 3).T
        return cls(mean, deviation, far > 0)

    def __call__(self, rows: Array) -> Array:
        """[row, column] the standardised values."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (rows - self.mean) / self.deviation
            scaled = np.where(self.far, np.arcsinh(np.clip(scaled, -LARGEST, LARGEST)), scaled)
        return np.where(is_missing(rows), 0, scaled)


def is_missing(values: Array) -> Array:
    """Bool: NaN, or an extreme value of a type, which programs write for a missing value.

    >>> is_missing(np.array([1.0, np.nan, 1.797e308, -(2.0**31), 2.0**31]))
    array([False,  True,  True,  True, False])
    """
    missing = np.isnan(values)
    large = np.abs(values) >= 2.0**31 - 1
    with np.errstate(over="ignore"):
        missing[large] = (np.abs(values[large][:, None] - EXTREME) <= ROUNDED).any(1)
    return missing


def _scale(given: Array) -> tuple[float, float, bool]:
    """(mean, deviation, far) of the values of a column. The deviation is 1 if all are equal, as rounding gives 1e-16.

    >>> _scale(np.array([1.0, 3.0])), _scale(np.array([0.1, 0.1, 0.1]))[1]
    ((2.0, 1.0, False), 1.0)
    """
    values = np.unique(given)
    if len(values) < 2:
        return (float(values[0]) if len(values) else 0.0), 1.0, False
    scale = float(np.abs(values).max())  # without it, the square of 1e300 overflows
    mean, deviation = float((given / scale).mean() * scale), float((given / scale).std() * scale) or 1.0
    with np.errstate(over="ignore"):  # then the width is infinite, and the deviation is taken
        middle = float(np.median(values))
        width = 1.4826 * float(np.median(np.abs(values - middle)))
    return (middle, width, True) if 0 < width < deviation / FAR else (mean, deviation, False)


def odd_values(column: Array) -> str:
    """What seems wrong with the values of a column, and may be the sign of a missing value; "" if nothing is.

    0 is what a sparse column has where nothing is written, and a value with many digits is no word for "missing": these
    are not named.

    Args:
        column: [row] float64, NaN for a missing value.

    >>> odd_values(np.array([-999.0, -999.0, 0.0, 31.0, 42.0, 87.0]))
    '2 of 6 values are -999, and the others are from 0 to 87'
    """
    missing = is_missing(column)
    extreme, given = column[missing & ~np.isnan(column)], column[~missing]
    if len(extreme):
        what = f"{len(extreme)} of {len(column)} values are extremes of a type, such as {extreme[0]:.7g}"
        return f"{what}; they are read as missing"
    values = np.unique(given)
    if len(values) < 5:
        return ""
    mean, _, far = _scale(given)
    worst = values[0] if mean - values[0] > values[-1] - mean else values[-1]
    written = round(float(worst), 2) == worst or 2 * np.count_nonzero(given == worst) <= len(given)
    if far and worst != 0 and written:
        return (
            f"some values, such as {worst:.7g}, are far from the others, which are near {mean:.7g}; the column is "
            "taken on a logarithmic scale"
        )
    for value, others in ((values[0], values[1:]), (values[-1], values[:-1])):
        count, written = np.count_nonzero(given == value), value != 0 and round(float(value), 2) == value
        if written and count > 1 and np.abs(others - value).min() > others[-1] - others[0]:
            return (
                f"{count} of {len(given)} values are {value:.7g}, and the others are from {others[0]:.7g} to "
                f"{others[-1]:.7g}"
            )
    return ""


__all__ = ["Scaling", "is_missing", "odd_values"]
