"""What of a gallery is like a picture, or a sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

from .machine import add_machine, machine
from .trust import add_trust

HELP = """\
Find the images that are most like a picture, or the texts that are most like a sentence.

  rankgrad search RUN query.png                      among the test images of the run
  rankgrad search RUN "where is my card"             among its test texts
  rankgrad search query.png --index photos.index     among your own images (rankgrad embed, then rankgrad index)
  rankgrad search a.png b.png --index photos.index -k 20 --html page.html
  rankgrad search FOLDER --index photos.index --json
  rankgrad search "where is my card" --index sentences.index

The model that made the index also embeds the query. Another model is refused.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "queries",
        nargs="+",
        metavar="QUERY",
        help="image files, folders of images, or sentences; without --index the first word is a run",
    )
    parser.add_argument("--index", type=Path, help="folder that rankgrad index wrote, or a run")
    parser.add_argument("-k", type=int, default=10, help="number of results (default: 10)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page with the pictures")
    parser.add_argument("--json", action="store_true", help="print json instead of a table")
    parser.add_argument("--model", type=Path, metavar="RUN", help="path of the model, if it was moved")
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of the gallery's images, if they were moved")
    add_machine(parser)
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print what was found."""
    import json

    from ..config import packages
    from ..index.builder import Index
    from ..index.page import write_answers
    from ..index.query import as_records, as_text, find, query_files
    from ..index.run import index_of_run
    from ..runs.folder import Run

    device = machine(arguments)
    if arguments.html and not arguments.html.parent.is_dir():
        raise FileNotFoundError(f"no folder {arguments.html.parent} to write {arguments.html.name} into")
    place, queries = searched(arguments.index, arguments.queries)
    index = index_of_run(place, packages(arguments.trust)) if Run(place).config.is_file() else Index.load(place)
    asked = queries if index.texts else query_files(queries)
    embedder = index.embedder(arguments.model, trust=packages(arguments.trust), device=device)
    if arguments.images:
        index = index.at(arguments.images)
    answers = find(asked, index, arguments.k, embedder=embedder)
    print(json.dumps(as_records(answers), indent=1) if arguments.json else as_text(answers))
    if arguments.html:
        facts = {
            "index": place,
            "texts" if index.texts else "images": f"{len(index):,}",
            "model": embedder.weights,
            "search": index.kind,
        }
        write_answers(arguments.html, answers, facts=facts)
        if not arguments.json:
            print(f"\nwrote {arguments.html}")


def searched(index: Path | None, given: list[str]) -> tuple[Path, list[str]]:
    """The index or run that is searched, and what it is asked with.

    Raises:
        ValueError: neither is named, or there is nothing to ask.
    """
    from ..files import shown
    from ..runs.folder import Run

    if index is not None:
        return index, given
    first, *queries = given
    if not Run(Path(first)).config.is_file():
        raise ValueError(
            f"search where? {shown(first)} is no run. Either rankgrad search RUN {shown(first)}, among what the run "
            f"was tested on; or rankgrad embed RUN DIR, rankgrad index DIR.npz and then rankgrad search {shown(first)} "
            "--index DIR.index"
        )
    if not queries:
        raise ValueError(f"what to look for in {shown(first)}? rankgrad search {shown(first)} QUERY")
    return Path(first), queries
