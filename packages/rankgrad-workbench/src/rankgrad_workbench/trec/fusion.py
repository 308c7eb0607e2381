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
    weights: Mapping[str, float] | Sequence[float] | None = None,
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
        weights: run -> weight, or weights in the order of the runs, > 0; None: 1 for each.

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
    terms: dict[str, dict[str, list[float]]] = {}
    for run, weight in zip(sources.values(), _weights(weights, list(sources)), strict=True):
        for each in run.whole():
            listed = terms.setdefault(each.query, {})
            worth = (weight / (k + ranks_in_list(each.documents, each.values))).tolist()
            for document, term in zip(each.documents, worth, strict=True):
                listed.setdefault(document, []).append(term)
    # the exact sum does not depend on the order of the runs, so equal scores stay equal
    return {query: _best({name: fsum(each) for name, each in listed.items()}, depth) for query, listed in terms.items()}


def _best(scores: dict[str, float], depth: int | None) -> dict[str, float]:
    """The documents of highest score; of equal scores the later name."""
    order = sorted(scores, key=lambda name: (scores[name], name), reverse=True)
    return {name: scores[name] for name in order[:depth]}


def _weights(given: Mapping[str, float] | Sequence[float] | None, names: Sequence[str]) -> list[float]:
    if given is None:
        return [1.0] * len(names)
    if isinstance(given, Mapping):
        if {*given} != {*names}:
            raise ValueError(f"weights must be for the runs {', '.join(map(shown, names))}; got {', '.join(given)}")
        given = [given[name] for name in names]
    if len(given) != len(names):
        raise ValueError(f"weights must be {len(names)} numbers, one for each run; got {len(given)}")
    return [number(weight, "the weight of a run", low=1e-30) for weight in given]
