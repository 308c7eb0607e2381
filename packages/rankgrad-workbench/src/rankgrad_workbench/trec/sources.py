"""The arguments for runs, judgements and groups of queries -> `Source`, and rows of each group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import shown

from ..files.tables.formats import read_rows
from .files import RUN, FileKind, read
from .lists import Array, Source, from_mapping

Run = str | os.PathLike[str] | Source | Mapping[Any, Mapping[Any, float]]
Groups = str | os.PathLike[str] | Mapping[str, str]
ENDINGS = (".gz", ".trec", ".run", ".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".res")


def runs_of(runs: Any) -> dict[str, Source]:
    """Name -> lists of each run.

    Args:
        runs: name -> run, or one or several files, named after the files.

    Raises:
        TypeError: this is a single run without a name.
        ValueError: there is no run, or a run is given twice.
    """
    if isinstance(runs, Mapping):
        single = next((each for each in runs.values() if isinstance(each, Mapping) and each), None)
        if single is not None and not isinstance(next(iter(single.values())), Mapping):
            raise TypeError(
                "runs must be a mapping from the name of a run to the run; got one run, a mapping from queries to "
                "documents: pass {'a name': run}"
            )
        named = {str(name): source_of(run, str(name), RUN) for name, run in runs.items()}
    else:
        listed = [runs] if isinstance(runs, (str, os.PathLike, Source)) else [*runs]
        sources = [source_of(run, "", RUN) for run in listed]
        short = [run.name if isinstance(run, Source) else _stem(Path(run)) for run in listed]
        # files of the same name in different folders are named by their paths
        names = [one if short.count(one) == 1 else each.name for one, each in zip(short, sources, strict=True)]
        named = dict(zip(names, sources, strict=True))
        if len(named) < len(sources):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the run {twice!r} was given twice")
    if not named:
        raise ValueError("runs must have at least one run; got none")
    return named


def _stem(path: Path) -> str:
    """Name of a file without the usual endings."""
    name = path.name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name or path.name


def source_of(given: Any, name: str, kind: FileKind) -> Source:
    """The lists of a file, of a mapping or of a `Source`.

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
    pairs = [*given.items()] if isinstance(given, Mapping) else _group_file(Path(given))
    row = {query: place for place, query in enumerate(queries)}
    members: dict[str, set[int]] = {}
    for query, group in pairs:
        if str(query) in row:
            members.setdefault(str(group), set()).add(row[str(query)])
    if not members:
        raise ValueError(f"none of the {len(pairs)} queries with a group is judged")
    return {group: np.array(sorted(rows)) for group, rows in sorted(members.items())}


def _group_file(path: Path) -> list[tuple[str, str]]:
    rows = [*read_rows(path, None)]
    head = list(rows[0][1]) if rows else []
    if not {"query", "group"} <= set(head):
        raise ValueError(
            f"{shown(path)} must have a header with the columns query and group, and rows below it; it has "
            f"{', '.join(map(shown, head)) or 'nothing'}"
        )
    for place, row in rows:
        if not row["query"] or not row["group"]:
            raise ValueError(f"{place} must have a query and a group")
    return [(str(row["query"]), str(row["group"])) for _, row in rows]
