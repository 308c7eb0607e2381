"""One list of rows in the order of their scores: its metrics, exactly, and again for rows that are drawn anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import closest, number
from ..evaluation.measures import PARTIAL

Array = npt.NDArray[Any]
AT_ONCE = 2**18  # numbers of a chunk of draws: they stay in the cache of a processor


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in the order of their scores, the highest first, counted in groups. Rows of one score are in one group.

    Irrelevant rows that follow one another with no relevant row between them are in one group too: no metric here asks
    for more.

    Attributes:
        irrelevant: [draw, group] rows.
        relevant: [draw, group] rows.
    """

    irrelevant: Array
    relevant: Array

    @cached_property
    def found(self) -> Array:
        """[draw, group] relevant rows up to the group, its own included."""
        return np.cumsum(self.relevant, axis=1)

    @cached_property
    def passed(self) -> Array:
        """[draw, group] irrelevant rows up to the group, its own included."""
        return np.cumsum(self.irrelevant, axis=1)

    def average_precision(self) -> Array:
        """[draw] AP: rows of one score count as above one another, as in scikit-learn; NaN without a relevant row."""
        found = self.found
        listed = np.maximum(found + self.passed, 1)
        return _over(np.sum(self.relevant * found / listed, axis=1), found[:, -1])

    def roc_auc(self, fpr: float = 1.0) -> Array:
        """[draw] area under the ROC curve up to a false positive rate, divided by that rate.

        Within rows of one score the curve is straight. NaN where all rows are relevant, or none is.
        """
        found, passed = self.found, self.passed
        within = np.clip(fpr * passed[:, -1:] - (passed - self.irrelevant), 0, self.irrelevant)
        share = _over(within, self.irrelevant, otherwise=0.0)
        area = np.sum(within * (found - self.relevant + self.relevant * share / 2), axis=1)
        return _over(area, fpr * passed[:, -1] * found[:, -1])

    def listed(self, k: int) -> Array:
        """[draw] relevant rows among the first k. Of rows of one score the irrelevant ones come first."""
        found, passed = self.found, self.passed
        return np.asarray(np.clip(k - (passed + found - self.relevant), 0, self.relevant).sum(1))

    def precision(self, k: int) -> Array:
        """[draw] `listed`, divided by k."""
        return _over(self.listed(k), np.float64(k))

    def recall(self, k: int) -> Array:
        """[draw] `listed`, divided by all relevant rows; NaN without one."""
        return _over(self.listed(k), self.relevant.sum(1))


def _over(numerator: Array, denominator: Array, otherwise: float = np.nan) -> Array:
    result = np.full(np.shape(numerator), otherwise)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


@dataclass(frozen=True, eq=False)
class RankedRows:
    """The rows of one list, sorted.

    Attributes:
        bounds: [2 group + 1] the first row of each part in the order; a group is its irrelevant and its relevant rows.
    """

    bounds: Array

    @classmethod
    def of(cls, scores: Array, relevant: Array) -> RankedRows:
        """Sort rows.

        Args:
            scores: [row] finite.
            relevant: [row] bool.
        """
        order = np.lexsort((relevant, -scores))
        ordered, hit = scores[order], relevant[order]
        new = np.append(True, ordered[1:] != ordered[:-1])  # a row begins rows of another score
        level = np.cumsum(new) - 1
        has_hit = np.bincount(level, weights=hit) > 0
        joined = ~has_hit & np.append(False, ~has_hit[:-1])  # nothing but irrelevant rows, as in the group before
        first = np.flatnonzero(new)[~joined]
        group = (np.cumsum(~joined) - 1)[level]
        hits = np.bincount(group, weights=hit).astype(np.int64)
        after = np.append(first[1:], len(scores))
        return cls(np.append(np.stack([first, after - hits], axis=1).ravel(), len(scores)))

    def groups(self) -> Groups:
        """The rows as they are; one draw."""
        sizes = np.diff(self.bounds).astype(np.float64)[None]
        return Groups(sizes[:, ::2], sizes[:, 1::2])

    def draws(self, resamples: int, seed: int) -> Iterator[Groups]:
        """As many rows, drawn with replacement: some draws at a time.

        Args:
            resamples: how many draws.
            seed: of the draws.
        """
        generator, count = np.random.default_rng(seed), int(self.bounds[-1])
        step = max(1, AT_ONCE // len(self.bounds))
        for start in range(0, resamples, step):
            sizes = np.empty((min(step, resamples - start), len(self.bounds) - 1))
            for draw in range(len(sizes)):
                drawn = generator.integers(count, size=count, dtype=np.int32 if count < 2**31 else np.int64)
                upto = np.append(0, np.cumsum(np.bincount(drawn, minlength=count)))
                sizes[draw] = np.diff(upto[self.bounds])
            yield Groups(sizes[:, ::2], sizes[:, 1::2])


Reading = Callable[[Groups], Array]
LENGTHS: dict[str, Callable[[Groups, int], Array]] = {"P": Groups.precision, "found": Groups.recall}


def reading(name: str) -> Reading:
    """How a metric is read off one list.

    Args:
        name: "AP", "ROC AUC", "ROC AUC@FPR=f" with a false positive rate f, "P@k" or "found@k" with a length k.

    Raises:
        ValueError: there is no metric of that name.

    >>> groups = RankedRows.of(np.array([0.9, 0.8, 0.1]), np.array([True, False, True])).groups()
    >>> reading("P@2")(groups), reading("ROC AUC")(groups)
    (array([0.5]), array([0.5]))
    """
    kind, _, length = name.partition("@")
    if name == "AP":
        return Groups.average_precision
    if name == "ROC AUC":
        return Groups.roc_auc
    if name.startswith(PARTIAL):
        return partial(Groups.roc_auc, fpr=_rate(name))
    if kind in LENGTHS and length.isdecimal() and int(length):
        return lambda groups: LENGTHS[kind](groups, int(length))
    known = ["AP", "ROC AUC", f"{PARTIAL}0.05", "P@100", "found@100"]
    raise ValueError(
        f"unknown metric {name!r} of one list{closest(name, known)} Known: {', '.join(known)}, with any rate or length"
    )


def _rate(name: str) -> float:
    try:
        return number(float(name[len(PARTIAL) :]), name, above=0, high=1)
    except ValueError:
        raise ValueError(f"{name!r} must end in a false positive rate in (0, 1], such as {PARTIAL}0.05") from None
