"""A page about runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from .trust import add_trust

HELP = """\
Write one HTML file about a run, or about several side by side on the same queries.

  rankgrad report runs/glyphs-...                         its own report.html, written anew
  rankgrad report runs/roadmap runs/pnp -o compared.html  metrics, curves, pictures, classes and maps beside one another
  rankgrad report x.npz y.npz --images PHOTOS             embeddings that were made elsewhere, with pictures or texts
  rankgrad report x.parquet                               the same in columns embedding and label
  rankgrad report RUN --map tsne                          neighbours stay neighbours; takes some seconds
  rankgrad report runs/bccd-ap runs/bccd-cross_entropy    detectors, on the same images; no map, no queries

The file needs no network and nothing beside it. A run that is not finished is shown as far as it is; one whose images
were moved is shown without pictures. Such a file holds what rankgrad evaluate takes, names that are the same in each of
them, and texts where the rows are texts.
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_OR_FILE", help="folder of a run, or embeddings")
    parser.add_argument(
        "-o", "--out", type=Path, help="file to write; default: report.html in the run, or here for several runs"
    )
    parser.add_argument("--title", help="heading of the page; default: data and runs")
    parser.add_argument("--map", choices=("pca", "tsne"), default="pca", help="how the map is made (default: pca)")
    parser.add_argument("--queries", type=int, default=4000, help="asked at most, drawn from more (default: 4000)")
    parser.add_argument("--points", type=int, default=2000, help="of the map, at most (default: 2000)")
    parser.add_argument("-k", "--items", type=int, default=10, help="shown per query (default: 10)")
    parser.add_argument("--images", type=Path, metavar="DIR", help="where the images are that such a file names")
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
