"""Reciprocal rank fusion of runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import fsum

from rankgrad.common.checks import integer, number
from rankgrad.common.text import shown

from .judged import ranks_in_list
from .sources import Run, runs_of

RANK = 60.0  # the authors' constant


def fuse(
    runs: Mapping[str, Run] | Sequence[str | os.PathLike[str]],
    k: float = RANK,
    depth: int | None = None,
    *,
    weights: Mapping[str, float] | None = None,
) -> dict[str, dict[str, float]]:
    """One run from several, by the ranks of the documents in each: reciprocal rank fusion.

        score = sum over the runs that list the document of weight / (k + rank)

    Scores of different systems cannot be added, but ranks can (Cormack, Clarke & Büttcher, SIGIR 2009). Ranks are
    those of `evaluate`: of equal scores the later name comes first. A query that only some runs have is fused from
    these.

    Args:
        runs: two or more runs, as in `evaluate`.
        k: added to every rank, >= 0; a large k makes the first ranks count less.
        depth: number of documents that are kept for each query; None: all.
        weights: run -> weight, > 0; None: 1 for each.

    Returns:
        query -> document -> score, best first. `evaluate` and `write_run` take it.

    Raises:
        ValueError: there are fewer than two runs, a weight is missing, or a run is damaged, see `evaluate`.

    >>> fuse({"words": {"q": {"a": 9.0, "b": 7.0}}, "model": {"q": {"b": 0.8, "c": 0.7}}}, k=0)
    {'q': {'b': 1.5, 'a': 1.0, 'c': 0.5}}
    """
    sources = runs_of(runs)
    if len(sources) < 2:
        raise ValueError("fuse needs two or more runs; got one")
    k = number(k, "k is added to every rank", low=0)
    depth = None if depth is None else integer(depth, "depth is a number of documents", low=1)
    given = dict.fromkeys(sources, 1.0) if weights is None else weights
    if {*given} != {*sources}:
        raise ValueError(f"weights must be for the runs {', '.join(map(shown, sources))}; got {', '.join(given)}")
    terms: dict[str, dict[str, list[float]]] = {}
    for name, run in sources.items():
        weight = number(given[name], "the weight of a run", low=1e-30)
        for each in run.lists(together=True):
            listed = terms.setdefault(each.query, {})
            worth = (weight / (k + ranks_in_list(each.documents, each.values))).tolist()
            for document, term in zip(each.documents, worth, strict=True):
                listed.setdefault(document, []).append(term)
    # the exact sum does not depend on the order of the runs, so equal scores stay equal
    scores = {query: {name: fsum(each) for name, each in listed.items()} for query, listed in terms.items()}
    return {query: dict(sorted(each.items(), key=_by_score, reverse=True)[:depth]) for query, each in scores.items()}


def _by_score(item: tuple[str, float]) -> tuple[float, str]:
    """Of equal scores the later name is first."""
    return item[1], item[0]
