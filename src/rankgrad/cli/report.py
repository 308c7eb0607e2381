"""A page about runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from .trust import add_trust

HELP = """\
Write one HTML file about a run, or about several runs side by side on the same queries.

  rankgrad report runs/glyphs-...                         writes its report.html again
  rankgrad report runs/roadmap runs/pnp -o compared.html  metrics, curves, pictures, classes and maps side by side
  rankgrad report x.npz y.npz --images PHOTOS             embeddings from elsewhere, with pictures
  rankgrad report x.parquet                               the same from the columns embedding and label
  rankgrad report RUN --map tsne                          a map by t-SNE (slower)
  rankgrad report runs/voc-ap runs/voc-cross_entropy      detectors; these pages have no map and no queries

The HTML file needs no network and no other file. An unfinished run is shown as far as it is. If the images of a run
were moved, its page has no pictures. An npz or parquet holds what `rankgrad evaluate` takes, and names; rows with the
same name are compared.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_OR_FILE", help="folder of a run, or embeddings")
    parser.add_argument(
        "-o", "--out", type=Path, help="file to write (default: report.html, in the run or, for several runs, here)"
    )
    parser.add_argument("--title", help="heading of the page (default: data and runs)")
    parser.add_argument("--map", choices=("pca", "tsne"), default="pca", help="method of the map (default: pca)")
    parser.add_argument(
        "--queries", type=int, default=4000, help="queries that are used at most; of more, a sample (default: 4000)"
    )
    parser.add_argument("--points", type=int, default=2000, help="points of the map at most (default: 2000)")
    parser.add_argument("-k", "--items", type=int, default=10, help="neighbours shown for each query (default: 10)")
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of the images that an npz or parquet names")
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the page and say where it is."""
    from ..config import packages
    from ..report import read_runs, write_report

    alone = len(arguments.runs) == 1 and arguments.runs[0].is_dir()
    out = arguments.out or (arguments.runs[0] if alone else Path()) / "report.html"
    path = write_report(
        out,
        read_runs(arguments.runs, trust=packages(arguments.trust), images=arguments.images),
        title=arguments.title,
        projection=arguments.map,
        queries=arguments.queries,
        points=arguments.points,
        items=arguments.items,
    )
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
