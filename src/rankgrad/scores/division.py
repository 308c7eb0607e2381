"""Choose rows to hold out: whole queries, or without queries rows stratified by label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..common.checks import integer, number, setting

Array = npt.NDArray[Any]


def held_out(
    relevance: Array, query: Array | None, fraction: float, seed: int, *, name: str = "test_fraction"
) -> npt.NDArray[np.bool_]:
    """[row] bool, True for the rows that are held out.

    With queries, whole queries are drawn: the same fraction of those with a relevant row and of those without. Without
    queries, rows are drawn: the same fraction of each grade. If there are two or more of a kind, at least one is drawn
    and at least one is not.

    Args:
        relevance: [row] grades >= 0.
        query: [row] ids from 0 on; None: rows are drawn.
        fraction: fraction of the queries or rows, in (0, 1).
        seed: seed of the draw, 0 .. 2**32 - 1.
        name: name of the fraction in messages.

    Raises:
        ValueError: the fraction is out of range; or there are fewer than two queries, or fewer than two relevant or
            irrelevant rows.

    >>> relevance = np.array([0, 0, 0, 0, 1, 1])
    >>> test = held_out(relevance, None, 0.5, seed=0)
    >>> relevance[test].tolist(), relevance[~test].tolist()
    ([0, 0, 1], [0, 0, 1])
    """
    share = number(fraction, f"{setting(name)} is the fraction of the rows that is held out", above=0, high=1)
    if share == 1:
        raise ValueError(f"{setting(name)} must be below 1: with 1 no row is left to train on")
    if query is None:
        kinds = np.unique(relevance, return_inverse=True)[1]
        relevant = int((relevance > 0).sum())
        if min(relevant, len(relevance) - relevant) < 2:
            raise ValueError(
                f"holding out rows needs two relevant and two irrelevant rows; got {relevant} relevant and "
                f"{len(relevance) - relevant} irrelevant rows. Give more rows"
            )
    else:
        queries = int(query.max()) + 1
        if queries < 2:
            raise ValueError("holding out queries needs two queries, but there is one query. Give more queries")
        kinds = (np.bincount(query, weights=relevance, minlength=queries) > 0).astype(np.int64)
    drawn = np.zeros(len(kinds), dtype=bool)
    integer(seed, f"{setting('seed')} is the seed of the division", low=0, high=2**32 - 1)
    generator = np.random.RandomState(seed)  # numpy guarantees the numbers of RandomState
    for kind in range(int(kinds.max()) + 1):
        members = generator.permutation(np.flatnonzero(kinds == kind))
        if len(members) > 1:
            drawn[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return drawn if query is None else drawn[query]
