"""Draw a figure for a paper or a talk: the images that finished runs retrieve for the same queries.

  rankgrad figure --run RUN -o retrieved.png                     four random queries
  rankgrad figure --run RUN RUN --show differ -o retrieved.pdf   queries that only some of the runs get right
  rankgrad figure --run RUN --show failures --queries 6 -k 10    queries that every run gets wrong

The figures of the papers are drawn by rankgrad paper-figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rankgrad_workbench.cli.arguments import add_trust


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    # the name `run` is taken by the function that does the work
    parser.add_argument(
        "--run", dest="runs", type=Path, nargs="+", metavar="RUN", required=True, help="folders of finished runs"
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("retrieved.png"), help="file to write: .png, .pdf or .svg"
    )
    parser.add_argument(
        "--show", choices=("random", "failures", "differ"), default="random", help="queries to show (default: random)"
    )
    parser.add_argument("--queries", type=int, default=4, help="number of queries (default: 4)")
    parser.add_argument("-k", type=int, default=8, help="images per query (default: 8)")
    parser.add_argument("--seed", type=int, default=0, help="seed that draws the queries (default: 0)")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="folder of the images, if they were moved")
    parser.add_argument("--dpi", type=int, default=200, help="dots per inch of a png (default: 200)")
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Draw the figure."""
    from rankgrad_workbench.cli.outputs import check_output
    from rankgrad_workbench.settings import packages

    from .. import figure_style as style
    from ..analysis import retrieved as examples

    if arguments.dpi < 1:
        raise ValueError(f"--dpi is a number of dots per inch, such as 200; got {arguments.dpi}")
    style.check_format(arguments.out)
    check_output(arguments.out, "-o")
    examples_shown = examples.compute(
        arguments.runs,
        choice=arguments.show,
        queries=arguments.queries,
        k=arguments.k,
        seed=arguments.seed,
        data_root=arguments.data_root,
        trust=packages(arguments.trust),
    )
    print(examples_shown)
    print(f"wrote {style.save(examples.draw(examples_shown), arguments.out, arguments.dpi)}")
