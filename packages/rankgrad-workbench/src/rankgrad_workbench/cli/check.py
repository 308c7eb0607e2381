"""Check that every file of a run or of an index exists, can be read, and is undamaged.

  rankgrad check runs/glyphs-...
  rankgrad check photos.index

The files of a finished run are compared with its checksums. `sha256sum -c checksums.sha256` does the same. The exit
status is 0 if no file is missing or damaged.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN|INDEX", help="folder of a run, or index")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print the state of each file."""
    from ..runs.check import check

    verdicts = [check(folder) for folder in arguments.folders]
    for each in verdicts:
        print(each)
    wrong = sum(len(each.wrong) for each in verdicts)
    if wrong:
        raise ValueError(f"{wrong} file(s) are missing or damaged, see above")
