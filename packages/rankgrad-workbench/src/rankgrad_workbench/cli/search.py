"""Search a gallery for images or texts that are similar to a query."""

from __future__ import annotations

import argparse
from pathlib import Path

from .machine import add_machine, machine
from .paths import require
from .trust import add_trust

HELP = """\
Find the images that are most similar to a picture, or the texts that are most similar to a sentence.

  rankgrad search RUN query.png                      search the test images of the run
  rankgrad search RUN "where is my card"             search its test texts
  rankgrad search query.png --index photos.index     search your own images, after rankgrad embed and index
  rankgrad search a.png b.png --index photos.index -k 20 --html page.html
  rankgrad search FOLDER --index photos.index --json
  rankgrad search query.png --index photos.index --min-score auto   nothing, if nothing is like the query
  rankgrad search "where is my card" --index sentences.index
  rankgrad search documents.index "which wing is hot"      of task=search: the query with its own prompt and encoder

The model that made the index also embeds the query. A different model is an error.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "queries",
        nargs="+",
        metavar="QUERY",
        help="image files, folders of images, or sentences; without --index the first one is a run or an index",
    )
    parser.add_argument("--index", type=Path, help="file that rankgrad index or embed wrote, or a run")
    parser.add_argument("-k", type=int, default=10, help="number of results (default: 10)")
    parser.add_argument(
        "--min-score",
        type=_score,
        metavar="SCORE",
        help="leave out results with a lower score; auto: below the threshold of the run's held-out queries",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="html file to write, with the pictures")
    parser.add_argument("--json", action="store_true", help="print json instead of a table")
    parser.add_argument("--model", type=Path, metavar="RUN", help="path of the model, if it was moved")
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of the gallery's images, if they were moved")
    add_machine(parser)
    add_trust(parser)


def _score(word: str) -> float | str:
    return word if word == "auto" else float(word)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the results."""
    require("an index, and what it names", arguments.index, arguments.model)
    import json
    import sys

    from rankgrad.common.text import shown

    from ..index.gallery import Index
    from ..index.page import write_answers
    from ..index.query import as_records, as_text, find, query_files
    from ..index.run import index_of_run
    from ..runs.folder import Run
    from ..settings import packages
    from .outputs import check_output

    device = machine(arguments)
    if arguments.html and not arguments.html.parent.is_dir():
        raise FileNotFoundError(f"no folder {arguments.html.parent} to write {arguments.html.name} into")
    if arguments.images and not arguments.images.is_dir():
        raise NotADirectoryError(
            f"--images is the folder of the gallery's images; {shown(arguments.images)} is no folder"
        )
    place, queries = searched(arguments.index, arguments.queries)
    check_output(arguments.html, "--html", place, *map(Path, queries), endings=(".html", ".htm"))
    index = index_of_run(place, packages(arguments.trust)) if Run(place).config.is_file() else Index.load(place)
    if arguments.images and index.texts:
        raise ValueError(f"--images is for an index of images; {shown(place)} holds texts")
    asked = queries if index.texts else query_files(queries)
    embedder = index.embedder(arguments.model, trust=packages(arguments.trust), device=device)
    if arguments.images:
        index = index.at(arguments.images)
    if index.origin is not None and not index.texts and not index.origin.root.exists():
        print(
            f"{shown(index.origin.root)}, the folder of the gallery's images, does not exist. If it was moved, give it "
            "with --images DIR",
            file=sys.stderr,
        )
    answers = find(asked, index, arguments.k, embedder=embedder, min_score=arguments.min_score)
    told = json.dumps(as_records(answers), indent=1) if arguments.json else as_text(answers)
    if arguments.html:  # before the results are printed, as `| head` ends the command
        facts = {
            "index": place,
            "texts" if index.texts else "images": f"{len(index):,}",
            "model": embedder.weights,
        }
        write_answers(arguments.html, answers, facts=facts)
        told += "" if arguments.json else f"\n\nwrote {arguments.html}"
    print(told)


def searched(index: Path | None, given: list[str]) -> tuple[Path, list[str]]:
    """The index or run that is searched, and the queries.

    Raises:
        ValueError: no index and no run is named, or there is no query.
    """
    from rankgrad.common.text import shown

    from ..files.tables.vectors import VECTORS
    from ..runs.folder import Run

    if index is not None:
        return index, given
    first, *queries = given
    if Run(Path(first)).kind == "search":
        run = shown(first)
        raise ValueError(
            f"{run} holds encoders; index the documents first: rankgrad embed {run} CORPUS -o documents.npz, then "
            'rankgrad index documents.npz, then rankgrad search documents.index "QUESTION"'
        )
    place = Path(first)
    if not (Run(place).config.is_file() or (place.is_file() and place.suffix.lower() in VECTORS)):
        raise ValueError(
            f"{shown(first)} is not the folder of a run, and no index. To search the test items of a run: rankgrad "
            f"search RUN {shown(first)}. To search your own: rankgrad embed RUN DIR, then rankgrad index DIR.npz, then "
            f"rankgrad search {shown(first)} --index DIR.index"
        )
    if not queries:
        raise ValueError(f"there is no query for {shown(first)}: rankgrad search {shown(first)} QUERY")
    return place, queries
