"""Exact metrics of one list of rows in the order of their scores, and of its bootstrap resamples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import closest
from ..evaluation import measures
from ..ranks.types import Ranks, TiedRanks

Array = npt.NDArray[Any]
AT_ONCE = 2**18  # numbers in a chunk of draws: they fit into the cache of a processor


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in the order of their scores, highest first, counted in groups. Rows with equal scores are in one group.

    Consecutive irrelevant rows, without a relevant row between them, are also in one group. No metric of one list needs
    more detail.

    Attributes:
        irrelevant: [draw, group] rows.
        relevant: [draw, group] rows.
    """

    irrelevant: Array
    relevant: Array

    @cached_property
    def found(self) -> Array:
        """[draw, group] float64, number of relevant rows up to and including the group."""
        return np.cumsum(self.relevant, axis=1, dtype=np.float64)

    @cached_property
    def passed(self) -> Array:
        """[draw, group] float64, number of irrelevant rows up to and including the group."""
        return np.cumsum(self.irrelevant, axis=1, dtype=np.float64)

    @cached_property
    def ranks(self) -> TiedRanks:
        """Ranks of the relevant rows; the queries are the draws. Of equal scores, `index` has the irrelevant first."""
        at = np.flatnonzero(self.relevant)
        draw, group = map(torch.from_numpy, np.divmod(at, self.relevant.shape[1]))
        times, tied, found, passed = (
            torch.from_numpy(each.ravel()[at]).double()
            for each in (self.relevant, self.irrelevant, self.found, self.passed)
        )
        total, gain = torch.from_numpy(self.found[:, -1].copy()), torch.ones_like(times)

        def ranks(above_pos: Tensor, above_neg: Tensor) -> RepeatedRanks:
            return RepeatedRanks(draw, group, gain, above_pos, above_neg, len(total), times=times, total=total)

        return TiedRanks(
            pessimistic=ranks(found - 1, passed),
            optimistic=ranks(found - times, passed - tied),
            index=ranks(found - times, passed),
        )

    def values(self, name: str) -> Array:
        """[draw] a metric. NaN where it is undefined: without a relevant row, or for ROC AUC without an irrelevant one.

        Args:
            name: see `check_name`.
        """
        part = _Draws(self.ranks, self.ranks, torch.from_numpy(self.passed[:, -1].copy()))
        values = measures.reading(name)(part)
        if not name.startswith("P@"):  # 0 without a relevant row
            values = values.where(self.ranks.index.counted, torch.nan)
        if measures.needs_irrelevant(name):
            values = values.where(part.irrelevant > 0, torch.nan)
        return np.asarray(values.numpy())


class _Draws(NamedTuple):
    """See `measures.RankedQueries`."""

    ranks: TiedRanks
    graded: TiedRanks
    irrelevant: Tensor


@dataclass(frozen=True)
class RepeatedRanks(Ranks):
    """Ranks of relevant rows with equal scores: an entry stands for several rows.

    Attributes:
        times: [pair] float, number of rows. Where ranks break ties, they are those of the first of these rows.
        total: [query] float, number of relevant rows.
    """

    times: Tensor = field(kw_only=True)
    total: Tensor = field(kw_only=True)

    @property
    def num_relevant(self) -> Tensor:
        """[query] number of relevant rows."""
        return self.total

    def sum_per_query(self, values: Tensor) -> Tensor:
        """[query] sum over all rows."""
        return super().sum_per_query(values * self.times)

    def found(self, k: int) -> Tensor:
        """[query] number of relevant rows among the first k."""
        return super().sum_per_query((k + 1 - self.rank).clamp(min=0).minimum(self.times))


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
            irrelevant, relevant = np.empty((2, min(step, resamples - start), parts // 2), dtype=np.int64)
            for draw in range(len(relevant)):
                drawn = generator.integers(count, size=count, dtype=kind)
                sizes = np.bincount(part[drawn], minlength=parts)
                irrelevant[draw], relevant[draw] = sizes[::2], sizes[1::2]
            yield Groups(irrelevant, relevant)


def check_name(name: str) -> None:
    """Raise unless this is a metric of one list.

    Args:
        name: "AP", "ROC AUC", "ROC AUC@FPR=f" with a false positive rate f, "P@k" or "Recall@k" with a length k.

    Raises:
        ValueError: the metric is unknown.

    >>> RankedRows.of(np.array([0.9, 0.8, 0.1]), np.array([True, False, True])).groups().values("P@2")
    array([0.5])
    """
    if name not in ("AP", "ROC AUC") and not name.startswith((measures.PARTIAL, "P@", "Recall@")):
        known = ["AP", "ROC AUC", f"{measures.PARTIAL}0.05", "P@100", "Recall@100"]
        raise ValueError(
            f"unknown metric {name!r} of one list{closest(name, known)} Known: {', '.join(known)}, with any rate or "
            "length"
        )
    measures.reading(name)
