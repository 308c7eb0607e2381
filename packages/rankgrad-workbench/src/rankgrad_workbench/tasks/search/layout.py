"""The files of a folder that hold documents, queries, judgements, or pairs of a split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from rankgrad.common.text import shown

from ...datasets.division import CALLED, split_called
from ...files.tables.formats import of_texts
from ...files.tables.parts import called, need_all
from ...files.tables.text import kind_of, stem_of

LAYOUTS = (
    "a folder with corpus.jsonl, queries.jsonl and qrels/ (BEIR, MTEB); a table (jsonl, csv, parquet) with the columns "
    "query, document and grade, or query, pos and neg, or anchor, positive and negative; or a table of names with "
    "data.load.corpus=FILE and data.load.queries=FILE"
)


def tables(folder: Path) -> dict[str, list[Path]]:
    """What the tables of a folder are called -> the files: one, or its parts. Tables in the sub-folders corpus and
    queries are called after these.

    Raises:
        ValueError: two files have the same name with other endings, or a part is missing.
    """
    files = [(called(file), file) for file in folder.iterdir()]
    for name in ("corpus", "queries"):
        files += [(name, file) for file in (folder / name).iterdir()] if (folder / name).is_dir() else []
    return _grouped((name, file) for name, file in files if file.is_file() and kind_of(file) in of_texts())


def judgements(folder: Path) -> tuple[list[tuple[Path, str]], list[str]]:
    """(files of judgements with their splits, names of files that are not read): those in qrels/, else qrels*. A file
    with another name than a split is read only if no file is named after one.

    Raises:
        ValueError: there is none.
    """
    inside = folder / "qrels"
    files = [*(inside.iterdir() if inside.is_dir() else folder.glob("qrels*"))]
    there = [file for file in files if file.is_file() and not file.name.startswith(".") and file.suffix != ".md"]
    if not there:
        raise ValueError(
            f"{shown(folder)} has no judgements: qrels/train.tsv, qrels/test.tsv, or qrels.tsv. Needed: {LAYOUTS}"
        )
    found = _grouped((re.sub("^qrels[-_.]", "", called(file)), file) for file in there)
    chosen, other = of_splits(found)
    return (chosen, other) if chosen else ([(file, "") for files in found.values() for file in files], [])


def of_splits(found: Mapping[str, list[Path]]) -> tuple[list[tuple[Path, str]], list[str]]:
    """(files that are named after a split, with it: train first; names of the other files)."""
    named = [(file, split_called(name)) for name, files in found.items() for file in files]
    # the test comes last: a query in several files is a test query
    chosen = sorted((each for each in named if each[1]), key=lambda each: list(CALLED).index(each[1]))
    return chosen, [file.name for file, split in named if not split]


def _grouped(named: Iterable[tuple[str, Path]]) -> dict[str, list[Path]]:
    """Name -> files. Parts are complete, and no two files differ only by their endings."""
    found: dict[str, list[Path]] = {}
    first: dict[Path, Path] = {}
    for name, file in sorted(named, key=lambda each: each[1]):
        before = first.setdefault(file.with_name(stem_of(file)), file)
        if before is not file:
            raise ValueError(f"{shown(file.parent)} holds {before.name} and {file.name}; keep one")
        found.setdefault(name, []).append(file)
    for files in found.values():
        need_all(files)
    return found


__all__ = ["LAYOUTS", "judgements", "of_splits", "tables"]
