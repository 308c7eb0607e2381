"""The arguments for runs, judgements and groups of queries -> sources of rows, and rows of each group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...common.files import shown
from ...tables.delimited import delimited
from .reading import RUN, FileKind, read
from .rows import Source, from_mapping
from .texts import Array

Run = str | os.PathLike[str] | Source | Mapping[Any, Mapping[Any, float]]
Groups = str | os.PathLike[str] | Mapping[str, str]


def runs_of(runs: Any) -> dict[str, Source]:
    """Name -> rows of each run.

    Args:
        runs: name -> run, or one or several files, named after the files.

    Raises:
        TypeError: this is a single run without a name.
        ValueError: there is no run, or a run is given twice.
    """
    if isinstance(runs, (str, os.PathLike, Source)):
        runs = [runs]
    if isinstance(runs, Mapping):
        single = next((each for each in runs.values() if isinstance(each, Mapping) and each), None)
        if single is not None and not isinstance(next(iter(single.values())), Mapping):
            raise TypeError(
                "runs must be a mapping from the name of a run to the run; got one run, a mapping from queries to "
                "documents: pass {'a name': run}"
            )
        named = {str(name): source(run, str(name), RUN) for name, run in runs.items()}
    else:
        sources = [source(run, "", RUN) for run in runs]
        short = [run.name if isinstance(run, Source) else _called(Path(run)) for run in runs]
        # files of the same name in different folders are named by their paths
        called = [one if short.count(one) == 1 else each.name for one, each in zip(short, sources, strict=True)]
        named = dict(zip(called, sources, strict=True))
        if len(named) < len(sources):
            twice = next(name for name in called if called.count(name) > 1)
            raise ValueError(f"the run {twice!r} was given twice")
    if not named:
        raise ValueError("runs must have at least one run; got none")
    return named


def _called(path: Path) -> str:
    """Name of a file without the usual endings."""
    name = path.name.removesuffix(".gz")
    for ending in (".trec", ".run", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".res"):
        name = name.removesuffix(ending)
    return name or path.name


def source(given: Any, name: str, kind: FileKind) -> Source:
    """The rows of a file, of a mapping or of a `Source`.

    Args:
        given: one of these.
        name: name of a mapping in messages.
        kind: RUN or QRELS.

    Raises:
        FileNotFoundError: the file does not exist.
        TypeError: this is none of these.
    """
    if isinstance(given, Source):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read(given, kind)
    if isinstance(given, Mapping):
        return from_mapping(given, repr(name))
    raise TypeError(
        "runs and judgements must be files, mappings query -> document -> number, or results of from_columns, "
        f"from_matrix or from_scores; got {type(given).__name__}"
    )


def groups_of(given: Groups, queries: Sequence[str]) -> dict[str, Array]:
    """Group -> rows of its queries. Queries without judgements are left out.

    Args:
        given: query -> group, or a csv with the columns query and group.
        queries: the judged queries.

    Raises:
        ValueError: the csv lacks these columns, or none of its queries is judged.
    """
    if isinstance(given, Mapping):
        pairs = [(str(query), str(group)) for query, group in given.items()]
    else:
        pairs = _group_file(Path(given))
    row = {query: place for place, query in enumerate(queries)}
    members: dict[str, set[int]] = {}
    for query, group in pairs:
        if query in row:
            members.setdefault(group, set()).add(row[query])
    if not members:
        raise ValueError(f"none of the {len(pairs)} queries with a group is judged")
    return {group: np.array(sorted(rows)) for group, rows in sorted(members.items())}


def _group_file(path: Path) -> list[tuple[str, str]]:
    rows = delimited(path, show=False)
    _, head = next(rows, (1, []))
    if not {"query", "group"} <= set(head):
        raise ValueError(
            f"{shown(path)} must have a header with the columns query and group; it has "
            f"{', '.join(map(shown, head)) or 'nothing'}"
        )
    pairs = []
    for line, fields in rows:
        query, group = fields[head.index("query")], fields[head.index("group")]
        if not query or not group:
            raise ValueError(f"{shown(path)}, line {line} must have a query and a group")
        pairs.append((query, group))
    return pairs
