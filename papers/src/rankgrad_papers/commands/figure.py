"""Draw a figure for a paper or a talk: the images that finished runs retrieve for the same queries.

  rankgrad figure --run RUN -o retrieved.png                     four random queries
  rankgrad figure --run RUN RUN --show differ -o retrieved.pdf   queries that only some of the runs get right
  rankgrad figure --run RUN --show failures --queries 6 -k 10    queries that every run gets wrong

The figures of the papers are drawn by rankgrad paper-figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .paper_figure import add_examples, add_picture, drawn_examples


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    what = "file to write: .png, .pdf or .svg"
    parser.add_argument("-o", "--out", type=Path, default=Path("retrieved.png"), help=what)
    add_examples(parser, required=True)
    add_picture(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Draw the figure."""
    from rankgrad_workbench.cli.outputs import check_output

    from .. import figure_style as style

    style.check_format(arguments.out)
    check_output(arguments.out, "-o")
    drawn = drawn_examples(arguments)
    print(drawn.found)
    print(f"wrote {style.save(drawn.drawing, arguments.out, arguments.dpi)}")
