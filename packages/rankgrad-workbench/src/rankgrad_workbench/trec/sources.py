"""The arguments for runs, judgements and groups of queries -> `Source`, and rows of each group."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files.tables.formats import read_rows
from .files import RUN, FileKind, read
from .lists import Array, Source, from_mapping

Run = str | os.PathLike[str] | Source | Mapping[Any, Mapping[Any, float]]
Groups = str | os.PathLike[str] | Mapping[str, str]
_ENDINGS = re.compile(r"(?<=.)(\.(trec|run|res|txt|csv|tsv|jsonl?|parquet|gz))+$")


def runs_of(runs: Any) -> dict[str, Source]:
    """Name -> lists of each run.

    Args:
        runs: name -> run, or one or several files, named after the files.

    Raises:
        ValueError: there is no run, or a run is given twice.
    """
    if isinstance(runs, Mapping):
        named = {str(name): source_of(run, str(name), RUN) for name, run in runs.items()}
    else:
        sources = [source_of(run, "", RUN) for run in _listed(runs)]
        short = [_ENDINGS.sub("", Path(each.name).name) for each in sources]
        # files of the same name in different folders are named by their paths
        names = [one if short.count(one) == 1 else each.name for one, each in zip(short, sources, strict=True)]
        named = dict(zip(names, sources, strict=True))
        if len(named) < len(sources):
            raise ValueError(f"a run was given twice: {', '.join(names)}")
    if not named:
        raise ValueError("runs must have at least one run; got none")
    return named


def _listed(runs: Any) -> list[Any]:
    return [runs] if isinstance(runs, (str, os.PathLike, Source)) else [*runs]


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
        "runs (by name) and judgements must be files, mappings query -> document -> number, or results of "
        f"from_columns, from_matrix or from_scores; got {type(given).__name__}"
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
    rows = [*read_rows(path, None)] or [(str(path), {})]
    for place, row in rows:
        if not row.get("query") or not row.get("group"):
            raise ValueError(f"{place} must have a query and a group, in columns of these names; got {dict(row)}")
    return [(str(row["query"]), str(row["group"])) for _, row in rows]
