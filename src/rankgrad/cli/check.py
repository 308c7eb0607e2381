"""Is a run or an index complete and undamaged?"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Check every file of a run or of an index: is it there, can it be read, and is it as it was written?

  rankgrad check runs/glyphs-...
  rankgrad check photos.index

A finished run has a file of checksums. `sha256sum -c checksums.sha256` compares them too. The exit status is 0 if all
files are well.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("folders", type=Path, nargs="+", metavar="RUN|INDEX", help="folder of a run or of an index")


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Print what was found."""
    from ..runs.check import check

    verdicts = [check(folder) for folder in arguments.folders]
    for each in verdicts:
        print(each)
    wrong = sum(len(each.wrong) for each in verdicts)
    if wrong:
        raise ValueError(f"{wrong} file(s) are missing or damaged, see above")
