"""Find the images that are most similar to a picture, or the texts that are most similar to a sentence.

  rankgrad search RUN query.png                      search the test images of the run
  rankgrad search RUN "where is my card"             search its test texts, or the documents of a run of task=search
  rankgrad search query.png --index photos.index     search your own images, after rankgrad embed and index
  rankgrad search a.png b.png --index photos.index -k 20 --html page.html
  rankgrad search FOLDER --index photos.index --json
  rankgrad search query.png --index photos.index --min-score auto   nothing, if nothing is like the query
  rankgrad search "where is my card" --index sentences.index
  rankgrad search documents.index "which wing is hot"      of task=search: the query with its own prompt and encoder

The model that made the index also embeds the query. A different model is an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import add_machine, add_trust, machine, require

if TYPE_CHECKING:
    from ..index.query import Answer


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    what = "image files, folders of images, or sentences; without --index the first one is a run or an index"
    add("queries", nargs="+", metavar="QUERY", help=what)
    add("--index", type=Path, help="file that rankgrad index or embed wrote, or a run")
    add("-k", type=int, default=10, help="number of results (default: 10)")
    what = "leave out results with a lower score; auto: below the threshold of the run's held-out queries"
    add("--min-score", type=_score, metavar="SCORE", help=what)
    add("--html", type=Path, metavar="FILE", help="html file to write, with the pictures")
    add("--json", action="store_true", help="print json instead of a table")
    add("--model", type=Path, metavar="RUN", help="path of the model, if it was moved")
    add("--images", type=Path, metavar="DIR", help="folder of the gallery's images, if they were moved")
    add_machine(parser)
    add_trust(parser)


def _score(word: str) -> float | str:
    return word if word == "auto" else float(word)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the results."""
    require("an index, and what it names", arguments.index, arguments.model, arguments.images)
    import sys

    from rankgrad.common.text import shown

    from ..index.gallery import Index, index_of_run
    from ..index.query import answers_of_run, find, query_files
    from ..runs.folder import Run
    from ..settings import packages
    from .outputs import check_output

    device, trust = machine(arguments), packages(arguments.trust)
    place, queries = searched(arguments.index, arguments.queries)
    check_output(arguments.html, "--html", place, *map(Path, queries), endings=(".html", ".htm"))
    if Run(place).kind == "search":
        _tell(arguments, answers_of_run(place, queries, arguments.k, trust=trust, device=device), {"run": place})
        return
    index = index_of_run(place, trust) if Run(place).config.is_file() else Index.load(place)
    if arguments.images and index.texts:
        raise ValueError(f"--images is for an index of images; {shown(place)} holds texts")
    asked = queries if index.texts else query_files(queries)
    embedder = index.embedder(arguments.model, trust=trust, device=device)
    if arguments.images:
        index = index.at(arguments.images)
    if index.origin is not None and not index.texts and not index.origin.root.exists():
        print(f"{shown(index.origin.root)} does not exist; were the images moved? --images DIR", file=sys.stderr)
    answers = find(asked, index, arguments.k, embedder=embedder, min_score=arguments.min_score)
    what = "texts" if index.texts else "images"
    _tell(arguments, answers, {"index": place, what: f"{len(index):,}", "model": embedder.weights})


def _tell(arguments: argparse.Namespace, answers: Sequence[Answer], facts: Mapping[str, object]) -> None:
    """Print the results, and write the page."""
    import json

    from ..index.query import as_records, as_text, write_answers

    told = json.dumps(as_records(answers), indent=1) if arguments.json else as_text(answers)
    if arguments.html:  # before the results are printed, as `| head` ends the command
        write_answers(arguments.html, answers, facts=facts)
        told += "" if arguments.json else f"\n\nwrote {arguments.html}"
    print(told)


def searched(index: Path | None, given: list[str]) -> tuple[Path, list[str]]:
    """The index or run that is searched, and the queries.

    Raises:
        ValueError: no index and no run is named, or there is no query.
    """
    from rankgrad.common.text import shown

    from ..files.tables.written import VECTORS
    from ..runs.folder import Run

    if index is not None:
        return index, given
    place, queries = Path(given[0]), given[1:]
    of_file = place.is_file() and place.suffix.lower() in VECTORS
    if not (of_file or Run(place).config.is_file()):
        raise ValueError(
            f"{shown(place)} is no index, and no run whose test items can be searched. To search your own: rankgrad "
            "embed RUN DIR_OR_FILE -o mine.npz, then rankgrad index mine.npz, then rankgrad search mine.index QUERY"
        )
    if not queries:
        raise ValueError(f"there is no query for {shown(place)}: rankgrad search {shown(place)} QUERY")
    return place, queries
