"""List the data sets, describe one, draw sample images of one, or check that a published data set is complete.

  rankgrad datasets                                     list all data sets
  rankgrad datasets glyphs --sheet glyphs.png           describe one, and draw sample images of some classes
  rankgrad datasets folder --root PHOTOS                describe your images, and how rankgrad train divides them
  rankgrad datasets text --root mine.csv data.load.text=question data.load.label=intent
  rankgrad datasets search --root FOLDER                queries, documents and judgements, for train task=search
  rankgrad datasets check cub --root CUB_200_2011       check files and counts (cub: in a clone pip install ./papers)
  rankgrad datasets check cub --root CUB_200_2011 --images    also decode every image

Settings of a data set are those of `rankgrad train`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .arguments import require

SETTINGS, GOES_ON = True, False


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    what = "name of a data set, and its settings. With check before the name: check that the data is complete"
    parser.add_argument("words", nargs="*", metavar="[check] NAME [KEY=VALUE]", help=what)
    parser.add_argument("--root", help="folder or file of the data set, as data.root=")
    parser.add_argument("--images", action="store_true", help="with check: decode every image (slow)")
    parser.add_argument("--sheet", type=Path, help="write a PNG that shows some images of some classes")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """List, describe, draw or check data sets."""
    from rankgrad.common.plugins import registered

    from ..datasets import DATASETS, find

    names, given = ([word for word in arguments.words if ("=" in word) == setting] for setting in (False, True))
    given += settings if arguments.root is None else [f"data.root={arguments.root}", *settings]
    if not names:
        for name, load in DATASETS.items():
            print(f"{name:12} {(load.__doc__ or '').splitlines()[0]}")
        for name, plugin in registered("datasets", DATASETS).items():  # not imported
            if not name.startswith("_"):
                print(f"{name:12} from {plugin.distribution} {plugin.version}")
    elif names[0] == "check":
        _check(find(" ".join(names[1:])), arguments)
    elif arguments.images:
        raise ValueError("--images is for rankgrad datasets check")
    else:
        if names != ["search"]:
            find(" ".join(names))
        _describe(names[0], given, arguments.sheet)


def _describe(name: str, settings: list[str], sheet: Path | None) -> None:
    from rankgrad.common.checks import spelled

    from ..datasets import Table, contact_sheet
    from ..settings import check_paths, compose, make, plain, typed
    from ..settings.spelling import as_keys
    from ..tasks.search.division import collection_of
    from ..tasks.search.settings import SearchSettings
    from .outputs import check_output

    check_output(sheet, "--sheet", endings=(".png",))
    config = compose(["task=search" if name == "search" else f"data={name}", *settings])
    check_paths(config)
    with spelled(as_keys("data.load", {"root": "data.root"})):
        rows: Any = (
            collection_of(typed(SearchSettings, plain(config)))
            if name == "search"
            else make(config.data.load, slot="data")
        )
    print(rows.summary())
    if sheet:
        if not isinstance(rows, Table):
            raise ValueError("--sheet draws images, and these are none")
        contact_sheet(rows, sheet)
        print(f"wrote {sheet}")


def _check(load: Callable[..., object], arguments: argparse.Namespace) -> None:
    look, root = getattr(load, "inspect", None), arguments.root
    if look is None or root is None:
        raise ValueError("only data sets with an official layout are checked, and --root DIR is their place")
    require("the folder of the data set", Path(root))
    observations = look(Path(root), arguments.images)
    print(observations)
    if observations.wrong:
        raise ValueError(f"this differs from the published data set in {observations.wrong} point(s), listed above")
