"""An index of embeddings."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Make an index of embeddings. `rankgrad search` then finds what is like a picture or a sentence.

  rankgrad index photos.npz -o photos.index               exact: compares every image
  rankgrad index photos.npz -o photos.index --kind hnsw   for millions of images: compares only a part
  rankgrad index photos.npz -o photos.index --kind ivfpq  for more than memory holds

EMB is an npz of `rankgrad embed`. The index is a folder with index.json and a file of vectors. An index that is not
exact is measured against the exact result when it is built. Needs faiss: the extra "search".
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("embeddings", type=Path, metavar="EMB")
    parser.add_argument("-o", "--out", type=Path, help="folder to write (default: EMB with the ending .index)")
    parser.add_argument("--kind", choices=("exact", "hnsw", "ivf", "ivfpq"), default="exact")
    parser.add_argument(
        "--effort",
        type=int,
        help="how much is searched: candidates of hnsw (default: 64); cells of ivf and ivfpq (default: one in 16)",
    )


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write an index."""
    from ..index.builder import build
    from ..index.embedder import Embedded

    out = arguments.embeddings.with_suffix(".index") if arguments.out is None else arguments.out
    index = build(Embedded.load(arguments.embeddings, mapped=True), arguments.kind, effort=arguments.effort)
    index.save(out)
    size = sum(file.stat().st_size for file in out.iterdir())
    what = "texts" if index.texts else "images"
    print(f"wrote {out}: {len(index):,} {what}, {index.dim} dimensions, {index.kind}, {size / 1e6:.1f} MB")
    if index.measured is not None:
        sample = index.measured
        print(
            f"finds {100 * sample.recall:.1f} % of the {sample.k} nearest ({sample.queries} rows asked), "
            f"{sample.faster:.1f} times as fast as exact search"
        )
    if index.origin is None:
        print(
            f"{arguments.embeddings} does not say which model made it: this index can be asked from Python with "
            f"vectors, not with {what}"
        )
