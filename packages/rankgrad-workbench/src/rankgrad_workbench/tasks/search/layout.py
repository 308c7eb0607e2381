"""The files of a folder that hold documents, queries, judgements, or pairs of a split."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
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
    found: dict[str, list[Path]] = {}
    for place in sorted(folder.iterdir()):
        inside = sorted(place.iterdir()) if place.is_dir() and place.name in ("corpus", "queries") else [place]
        for file in (each for each in inside if each.is_file() and kind_of(each) in of_texts()):
            found.setdefault(place.name if place.is_dir() else called(file), []).append(file)
    for files in found.values():
        _need_one_ending(files)
        need_all(files)
    return found


def of_splits(files: Iterable[Path], prefix: str = "") -> tuple[list[tuple[Path, str]], list[str]]:
    """(files that are named after a split, with it: train first; names of the other files).

    Args:
        files: any files.
        prefix: a word that may be before the split.
    """
    named = [(file, split_called(re.sub(rf"^{prefix}[-_.]", "", called(file)))) for file in files]
    # the test comes last: a query in several files is a test query
    chosen = sorted((each for each in named if each[1]), key=lambda each: list(CALLED).index(each[1]))
    return chosen, [file.name for file, part in named if not part]


def judgements(folder: Path) -> tuple[list[tuple[Path, str]], list[str]]:
    """(files of judgements with their splits, names of files that are not read): those in qrels/, else qrels*. A file
    with another name than a split is read only if no file is named after one.

    Raises:
        ValueError: there is none.
    """
    inside = folder / "qrels"
    found = [
        file
        for file in sorted(inside.iterdir() if inside.is_dir() else folder.glob("qrels*"))
        if file.is_file() and not file.name.startswith(".") and file.suffix != ".md"
    ]
    if not found:
        raise ValueError(
            f"{shown(folder)} has no judgements: qrels/train.tsv, qrels/test.tsv, or qrels.tsv. Needed: {LAYOUTS}"
        )
    _need_one_ending(found)
    for _, files in groupby(sorted(found, key=called), key=called):
        need_all(files)
    chosen, other = of_splits(found, "qrels")
    return (chosen, other) if chosen else ([(file, "") for file in found], [])


def _need_one_ending(files: Iterable[Path]) -> None:
    first: dict[str, Path] = {}
    for file in files:
        before = first.setdefault(stem_of(file), file)
        if before is not file:
            raise ValueError(f"{shown(file.parent)} holds {before.name} and {file.name}; keep one")


__all__ = ["LAYOUTS", "judgements", "of_splits", "tables"]
