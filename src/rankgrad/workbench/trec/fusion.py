"""Reciprocal rank fusion of runs, and runs as files of TREC."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path

import numpy as np

from ...common.checks import integer, number
from ...common.files import atomic_write, shown
from .given import Run, runs_of, source
from .placing import pair_keys, ranks_in_lists, refuse_wrong_lists
from .reading import RUN
from .rows import ListRows, Source
from .texts import Array

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
        rows = run.whole()
        worth = (weight / (k + _ranked(rows, run))).tolist()
        places = iter(zip(rows.documents.words(), worth, strict=True))
        for query, size in zip(rows.queries, rows.sizes.tolist(), strict=True):
            listed = terms.setdefault(query, {})
            for _ in range(size):
                document, term = next(places)
                listed.setdefault(document, []).append(term)
    # the exact sum does not depend on the order of the runs, so equal scores stay equal
    return {query: _best({name: fsum(each) for name, each in listed.items()}, depth) for query, listed in terms.items()}


def write_run(run: Run, path: str | os.PathLike[str], tag: str = "rankgrad") -> Path:
    """Write a run as a file of TREC: `query Q0 document rank score tag`, best document first.

    Args:
        run: a run, as in `evaluate`.
        path: the file; it is replaced. NAME.gz is compressed.
        tag: name of the system, in every line.

    Raises:
        ValueError: a name is empty, has white space, or is a query that begins with #, which this kind of file cannot
            hold; or the run is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_run({"q": {"a": 0.5, "b": 2.0}}, Path(folder, "mine.run"), "mine").read_text(), end="")
    q Q0 b 1 2.0 mine
    q Q0 a 2 0.5 mine
    """
    path, given = Path(path), source(run, "the run", RUN)
    rows = given.whole()
    rank = _ranked(rows, given)
    order = np.lexsort((rank, rows.groups))
    queries, documents, scores = rows.queries, rows.documents.words(), rows.values.tolist()
    for what, names in (("query", queries), ("document", documents), ("tag", [tag])):
        wrong = next((name for name in names if len(name.split()) != 1 or name.split()[0] != name), None)
        if wrong is not None:
            raise ValueError(
                f"the {what} {shown(wrong)!r} is empty or has white space, which separates the fields of a run file. "
                "Rename it"
            )
    wrong = next((name for name in queries if name.startswith("#")), None)
    if wrong is not None:
        raise ValueError(f"the query {shown(wrong)!r} begins with #, as a comment in a run file does. Rename it")
    places = zip(order.tolist(), rows.groups[order].tolist(), rank[order].tolist(), strict=True)
    lines = (f"{queries[query]} Q0 {documents[row]} {place} {scores[row]!r} {tag}\n" for row, query, place in places)
    text = "".join(lines).encode("utf-8", "surrogatepass")
    with atomic_write(path) as file:
        file.write(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def _ranked(rows: ListRows, run: Source) -> Array:
    """[row] ranks of all documents in their lists."""
    refuse_wrong_lists(pair_keys(rows.documents.keys(), rows.groups), rows, run)
    return ranks_in_lists(rows, rows.values, rows.groups, np.arange(len(rows)))


def _best(scores: dict[str, float], depth: int | None) -> dict[str, float]:
    """The documents of highest score; of equal scores the later name, in the order of bytes."""
    order = sorted(scores, key=lambda name: (scores[name], name.encode("utf-8", "surrogatepass")), reverse=True)
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
