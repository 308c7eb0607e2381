"""Rows that are held out: drawn by query where there are queries, else stratified by label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..checks import integer, number, setting

Array = npt.NDArray[Any]


def held_out(
    relevance: Array, query: Array | None, fraction: float, seed: int, *, name: str = "test_fraction"
) -> npt.NDArray[np.bool_]:
    """[row] bool, True for the rows that are held out.

    With queries, whole queries are drawn: of those with a relevant row and of those without, the same fraction.
    Without queries, rows are drawn: of each grade, the same fraction. A kind of two or more gives one at least, and
    keeps one.

    Args:
        relevance: [row] grades >= 0.
        query: [row] ids from 0 on; None: rows are drawn.
        fraction: of the queries or rows, in (0, 1).
        seed: of the draw, 0 .. 2**32 - 1.
        name: what the caller calls the fraction, for messages.

    Raises:
        ValueError: no fraction, or fewer than two queries, or fewer than two relevant or irrelevant rows.

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
                f"there are {relevant} relevant and {len(relevance) - relevant} irrelevant rows; to hold rows out "
                "takes two of each. Give more rows"
            )
    else:
        queries = int(query.max()) + 1
        if queries < 2:
            raise ValueError("there is one query; to hold queries out takes two. Give more queries")
        kinds = (np.bincount(query, weights=relevance, minlength=queries) > 0).astype(np.int64)
    drawn = np.zeros(len(kinds), dtype=bool)
    integer(seed, f"{setting('seed')} begins the random numbers of the division", low=0, high=2**32 - 1)
    generator = np.random.RandomState(seed)  # numpy promises never to change its stream
    for kind in range(int(kinds.max()) + 1):
        members = generator.permutation(np.flatnonzero(kinds == kind))
        if len(members) > 1:
            drawn[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
    return drawn if query is None else drawn[query]
