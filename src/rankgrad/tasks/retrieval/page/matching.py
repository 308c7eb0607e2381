"""Finds the same queries in several runs, by the names of their images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....workbench.html.text import enumeration
from .retrieved import RetrievalRun, Space


@dataclass(frozen=True, eq=False)
class Matching:
    """The row of each common query in each run.

    Attributes:
        rows: for each run, [query] long, its rows of the matched queries, in the order of the first run with
            embeddings; empty for a run without embeddings.
        notes: queries that could not be matched.
    """

    rows: tuple[Tensor, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        """Number of matched queries."""
        return max((len(rows) for rows in self.rows), default=0)


def match(runs: Sequence[RetrievalRun]) -> Matching:
    r"""The queries that all runs with embeddings have in common, by name and class.

    >>> from rankgrad.tasks.retrieval.page import Content
    >>> def run(name, names, labels):
    ...     space = Space(torch.eye(len(names)), torch.tensor(labels), tuple(names), ("one", "two"))
    ...     return Content(name, space=space)
    >>> found = match([run("A", "abcd", [0, 0, 1, 1]), run("B", "dcbx", [1, 0, 0, 0])])
    >>> found.rows
    (tensor([1, 3]), tensor([2, 0]))
    >>> print(*found.notes, sep="\n")
    2 of 4 queries of A are not in B: a, c
    2 of 4 queries of B are not in A: c, x
    """
    spaces = {index: run.space for index, run in enumerate(runs) if run.space is not None}
    if len(spaces) < 2:
        rows = tuple(torch.arange(len(run.space.queries) if run.space else 0) for run in runs)
        return Matching(rows, ())
    places, notes = {}, []
    for index, space in spaces.items():
        places[index], repeated = _by_name(space)
        if repeated:
            notes.append(
                f"{len(repeated)} names of {runs[index].name} belong to several {space.noun} and are not matched: "
                f"{enumeration(repeated)}"
            )
    first = next(iter(spaces))
    common = [key for key in places[first] if all(key in known for known in places.values())]
    for index, known in places.items():
        lacking = [key for key in known if any(key not in other for other in places.values())]
        if lacking:
            others = [runs[other].name for other, place in places.items() if any(key not in place for key in lacking)]
            notes.append(
                f"{len(lacking):,} of {len(known):,} queries of {runs[index].name} are not in "
                f"{enumeration(others)}: {enumeration([name for name, _ in lacking])}"
            )
    if not common:
        notes.append(
            "No query is in all runs, so the runs are not shown side by side. The examples are queries of "
            f"{runs[first].name} only."
        )
        alone = tuple(torch.arange(len(spaces[first].queries) if i == first else 0) for i in range(len(runs)))
        return Matching(alone, tuple(notes))
    same = ([places[index][key] for key in common] if index in places else [] for index in range(len(runs)))
    return Matching(tuple(torch.tensor(rows, dtype=torch.long) for rows in same), tuple(notes))


def _by_name(space: Space) -> tuple[dict[tuple[str, str], int], list[str]]:
    """({(name, class): row}, names of several queries)."""
    times = Counter(space.names)
    classes = [space.class_names[label] for label in space.labels.tolist()]
    known = {
        (name, kind): row for row, (name, kind) in enumerate(zip(space.names, classes, strict=True)) if times[name] == 1
    }
    return known, [name for name, count in times.items() if count > 1]
