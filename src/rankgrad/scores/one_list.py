"""Exact metrics of one list of rows in the order of their scores, and of its bootstrap resamples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import closest, list_length, number
from ..evaluation.measures import PARTIAL

Array = npt.NDArray[Any]
AT_ONCE = 2**18  # numbers in a chunk of draws: they fit into the cache of a processor


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in the order of their scores, highest first, counted in groups. Rows with equal scores are in one group.

    Consecutive irrelevant rows, without a relevant row between them, are also in one group. No metric here needs more
    detail.

    Attributes:
        irrelevant: [draw, group] rows.
        relevant: [draw, group] rows.
    """

    irrelevant: Array
    relevant: Array

    @cached_property
    def found(self) -> Array:
        """[draw, group] number of relevant rows up to and including the group."""
        return np.cumsum(self.relevant, axis=1)

    @cached_property
    def passed(self) -> Array:
        """[draw, group] number of irrelevant rows up to and including the group."""
        return np.cumsum(self.irrelevant, axis=1)

    @cached_property
    def seen(self) -> Array:
        """[draw, group] number of all rows up to and including the group."""
        return self.found + self.passed

    def average_precision(self) -> Array:
        """[draw] AP, NaN without a relevant row. Equal scores count as above one another, as in scikit-learn."""
        found = self.found
        return _over(np.sum(self.relevant * found / np.maximum(self.seen, 1), axis=1), found[:, -1])

    def roc_auc(self, fpr: float = 1.0) -> Array:
        """[draw] area under the ROC curve up to a false positive rate, divided by that rate.

        Between rows with equal scores the curve is a straight line. NaN if all rows are relevant, or none is.
        """
        most = fpr * self.passed[:, -1]
        last = np.sum(self.passed < most[:, None], axis=1)  # the group that reaches the rate
        upto, of_last = np.arange(last.max()), (np.arange(len(last)), last)
        irrelevant, relevant, found = (each[:, : len(upto)] for each in (self.irrelevant, self.relevant, self.found))
        whole = np.where(upto < last[:, None], irrelevant * (found - relevant / 2), 0).sum(1)
        irrelevant, relevant, found = (each[of_last] for each in (self.irrelevant, self.relevant, self.found))
        within = most - (self.passed[of_last] - irrelevant)
        part = within * (found - relevant + relevant * _over(within, irrelevant, otherwise=0.0) / 2)
        return _over(whole + part, most * self.found[:, -1])

    def listed(self, k: int) -> Array:
        """[draw] number of relevant rows among the first k. Of equal scores, the irrelevant rows come first."""
        end = np.sum(self.seen < k, axis=1).max() + 1  # no draw needs a later group
        relevant = self.relevant[:, :end]
        return np.asarray(np.clip(k - (self.seen[:, :end] - relevant), 0, relevant).sum(1))

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
        bounds: [2 group + 1] the first row of each part in this order. Each group has two parts: its irrelevant rows,
            then its relevant rows.
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
        new = np.append(True, ordered[1:] != ordered[:-1])  # the first row of each score
        level = np.cumsum(new) - 1
        has_hit = np.bincount(level, weights=hit) > 0
        joined = ~has_hit & np.append(False, ~has_hit[:-1])  # only irrelevant rows, as in the group before
        first = np.flatnonzero(new)[~joined]
        group = (np.cumsum(~joined) - 1)[level]
        hits = np.bincount(group, weights=hit).astype(np.int64)
        after = np.append(first[1:], len(scores))
        return cls(np.append(np.stack([first, after - hits], axis=1).ravel(), len(scores)))

    def groups(self) -> Groups:
        """The rows themselves, as a single draw."""
        sizes = np.diff(self.bounds)[None]
        return Groups(sizes[:, ::2], sizes[:, 1::2])

    def draws(self, resamples: int, seed: int) -> Iterator[Groups]:
        """Yield the draws of a bootstrap, several at a time. Each draw has as many rows, drawn with replacement.

        Args:
            resamples: number of draws.
            seed: seed of the draws.
        """
        generator, count, parts = np.random.default_rng(seed), int(self.bounds[-1]), len(self.bounds) - 1
        kind = np.int32 if count < 2**31 else np.int64
        part = np.repeat(np.arange(parts, dtype=kind), np.diff(self.bounds))  # [row]
        step = max(1, AT_ONCE // parts)
        for start in range(0, resamples, step):
            sizes = np.empty((min(step, resamples - start), parts), dtype=np.int64)
            for draw in range(len(sizes)):
                drawn = generator.integers(count, size=count, dtype=kind)
                sizes[draw] = np.bincount(part[drawn], minlength=parts)
            yield Groups(sizes[:, ::2], sizes[:, 1::2])


Reading = Callable[[Groups], Array]
LENGTHS: dict[str, Callable[[Groups, int], Array]] = {"P": Groups.precision, "found": Groups.recall}


def reading(name: str) -> Reading:
    """The function that computes a metric of one list.

    Args:
        name: "AP", "ROC AUC", "ROC AUC@FPR=f" with a false positive rate f, "P@k" or "found@k" with a length k.

    Raises:
        ValueError: the metric is unknown.

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
        k = list_length(int(length), f"{name!r} ends in a list length")
        return lambda groups: LENGTHS[kind](groups, k)
    known = ["AP", "ROC AUC", f"{PARTIAL}0.05", "P@100", "found@100"]
    raise ValueError(
        f"unknown metric {name!r} of one list{closest(name, known)} Known: {', '.join(known)}, with any rate or length"
    )


def _rate(name: str) -> float:
    try:
        return number(float(name[len(PARTIAL) :]), name, above=0, high=1)
    except ValueError:
        raise ValueError(f"{name!r} must end in a false positive rate in (0, 1], such as {PARTIAL}0.05") from None
