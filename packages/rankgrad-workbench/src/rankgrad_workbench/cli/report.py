"""Write one HTML page about a run, or a page that compares several runs on the same queries.

  rankgrad report runs/glyphs-...                         write the report.html of a run again
  rankgrad report runs/roadmap runs/pnp -o compared.html  compare metrics, curves, pictures, classes and maps
  rankgrad report x.npz y.npz --images PHOTOS             embeddings of other software, with pictures
  rankgrad report x.parquet                               embeddings in the columns embedding and label
  rankgrad report RUN --map tsne                          draw the map by t-SNE (slower)
  rankgrad report runs/voc-ap runs/voc-cross_entropy      detectors; their pages have no map and no queries

The HTML file needs no network and no other file. The page of an unfinished run shows what exists so far. If the images
of a run were moved, its page has no pictures. An npz or parquet needs the arrays that `rankgrad evaluate` reads, and
names. Rows with the same name are compared.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import add_trust, require


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN_OR_FILE", help="folder of a run, or embeddings")
    add("-o", "--out", type=Path, help="file to write (default: report.html, in the run or, for several runs, here)")
    add("--title", help="heading of the page (default: names of the data and the runs)")
    add("--map", choices=("pca", "tsne"), default="pca", help="method of the map (default: pca)")
    add("--queries", type=int, default=4000, help="most queries; of more, a sample is used (default: 4000)")
    add("--points", type=int, default=2000, help="largest number of points on the map (default: 2000)")
    add("-k", "--items", type=int, default=10, help="neighbours shown for each query (default: 10)")
    add("--images", type=Path, metavar="DIR", help="folder of the images that an npz or parquet names")
    add_trust(parser)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the page and print its path."""
    require("folders of runs, or files of embeddings", *arguments.runs)
    require("the folder of the images", arguments.images)
    from ..report.content import Extent, read_runs
    from ..report.writing import write_report
    from ..settings import packages
    from .outputs import check_output

    alone = len(arguments.runs) == 1 and arguments.runs[0].is_dir()
    out = arguments.out or (arguments.runs[0] if alone else Path()) / "report.html"
    check_output(arguments.out, "-o", *arguments.runs, endings=(".html", ".htm"))
    if arguments.out is None and not alone and out.exists():  # that of a run's folder is the run's
        raise FileExistsError(f"{out} exists; name the page with -o")
    runs = read_runs(arguments.runs, trust=packages(arguments.trust), images=arguments.images)
    extent = Extent(arguments.map, arguments.queries, arguments.points, arguments.items)
    path = write_report(out, runs, title=arguments.title, extent=extent)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
