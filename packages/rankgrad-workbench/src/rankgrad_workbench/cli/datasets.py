"""List, describe, draw and check data sets."""

from __future__ import annotations

import argparse
import inspect
import shlex
from collections.abc import Callable
from pathlib import Path

from .paths import require

HELP = """\
List the data sets, describe one, draw sample images of one, or check that a published data set is complete.

  rankgrad datasets                                     list all data sets
  rankgrad datasets glyphs --sheet glyphs.png           describe one, and draw sample images of some classes
  rankgrad datasets folder --root PHOTOS                describe your images, and how rankgrad train divides them
  rankgrad datasets text --root mine.csv data.load.text=question data.load.label=intent
  rankgrad datasets search --root FOLDER                queries, documents and judgements, for train task=search
  rankgrad datasets check cub --root CUB_200_2011       check files and counts (cub: in a clone pip install ./papers)
  rankgrad datasets check cub --root CUB_200_2011 --images    also decode every image
"""
SETTINGS, GOES_ON = True, False


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="[check] NAME [KEY=VALUE]",
        help="name of a data set, and its settings. With check before the name: check that the data is complete",
    )
    # not a Path, which would shorten ./null to null, and null means no path
    parser.add_argument("--root", help="folder or file of the data set")
    parser.add_argument("--images", action="store_true", help="with check: decode every image (slow)")
    parser.add_argument("--sheet", type=Path, help="write a PNG that shows some images of some classes")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """List, describe, draw or check data sets."""
    from rankgrad.common.checks import spelled
    from rankgrad.common.plugins import registered

    from ..datasets import DATASETS, find
    from ..settings.spelling import as_options

    words, given = ([word for word in arguments.words if ("=" in word) == setting] for setting in (False, True))
    given += settings
    check = words[:1] == ["check"]
    names = words[1:] if check else words
    # not imported
    others = {name: plugin for name, plugin in registered("datasets", DATASETS).items() if not name.startswith("_")}
    if not words:
        for name, load in DATASETS.items():
            print(f"{name:12} {(load.__doc__ or '').splitlines()[0]}")
        for name, plugin in others.items():
            print(f"{name:12} from {plugin.distribution} {plugin.version}")
        return
    if names == ["search"]:
        _describe_search(arguments, given)
        return
    known = [*DATASETS, *others]
    if len(names) != 1:
        raise ValueError(f"name one data set; got {' '.join(names) or 'none'}. Known: {', '.join(known)}")
    name = names[0]
    if name not in known:
        raise _unknown(name, known)
    load = find(name)
    _check_root(name, load, arguments.root, given)
    if check:
        if given:
            raise ValueError(f"a check takes no settings; leave out {' '.join(given)}")
        with spelled(as_options({})):
            _check_dataset(name, load, arguments)
        return
    if arguments.images:
        raise ValueError(f"--images needs check: rankgrad datasets check {name} --root DIR --images")
    from ..settings import compose, make
    from .outputs import check_output

    check_output(arguments.sheet, "--sheet", endings=(".png",))
    root = [] if arguments.root is None else [f"data.root={arguments.root}"]
    table = make(compose([f"data={name}", *root, *given]).data.load, slot="data")
    print(table.summary())
    if arguments.sheet:
        from ..datasets import Table, contact_sheet

        if not isinstance(table, Table):
            raise ValueError(f"--sheet draws images, and {name} is {table.takes}")
        contact_sheet(table, arguments.sheet)
        print(f"wrote {arguments.sheet}")


def _unknown(name: str, known: list[str]) -> ValueError:
    """The error about a name of no data set; it may be a place of files."""
    from ..files.at_path import check_unpacked, is_search, tables_in
    from ..files.elsewhere import unknown
    from ..files.tables.formats import of_arrays

    check_unpacked(name)
    place, tables = Path(name), tables_in(name)
    if is_search(name):
        kind = "search"
    elif place.suffix in of_arrays():
        kind = "table"
    else:
        kind = "text" if tables or place.is_file() else "folder"
    where = shlex.quote(str(place / tables[0]) if tables and kind != "search" else name)
    hint = f". To describe these files: rankgrad datasets {kind} --root {where}"
    return ValueError(unknown("data set", name, known) + (hint if place.exists() else ""))


def _check_root(name: str, load: Callable[..., object], root: str | None, given: list[str]) -> None:
    """Raise if a data set lacks its place, or has one that it does not read."""
    from rankgrad.common.text import shown

    from ..files.at_path import check_unpacked, is_search

    from_files = "root" in inspect.signature(load).parameters
    if from_files and root is None:
        raise ValueError(f"{name} is read from files: give their place with --root DIR")
    if root is None:
        return
    if not from_files:
        raise ValueError(f"{name} is built in and reads no files; leave out --root")
    if not given and is_search(root):
        raise ValueError(
            f"{shown(root)} holds queries and documents. To describe them: rankgrad datasets search "
            f"--root {shlex.quote(root)}"
        )
    check_unpacked(root)


def _describe_search(arguments: argparse.Namespace, settings: list[str]) -> None:
    if arguments.root is None:
        raise ValueError("search is read from files: give their place with --root DIR")
    require("a folder, or a file of judgements", Path(arguments.root).expanduser())
    from ..settings import compose, plain, typed
    from ..tasks.search.division import collection_of
    from ..tasks.search.settings import SearchSettings

    config = compose(["task=search", f"data.root={arguments.root}", *settings])
    print(collection_of(typed(SearchSettings, plain(config))).summary())


def _check_dataset(name: str, load: Callable[..., object], arguments: argparse.Namespace) -> None:
    look = getattr(load, "inspect", None)
    if look is None:
        raise ValueError(f"{name} has no official layout to check. To describe it: rankgrad datasets {name}")
    if arguments.sheet:
        raise ValueError(f"check draws no sheet. To draw one: rankgrad datasets {name} --root DIR --sheet FILE")
    observations = look(Path(arguments.root), arguments.images)
    print(observations)
    if observations.wrong:
        raise ValueError(f"{name} differs from the published data set in {observations.wrong} point(s), listed above")
