"""Make an index of embeddings. `rankgrad search` then finds the images or texts that are most similar to a query.

  rankgrad index photos.npz -o photos.index      for rankgrad search
  rankgrad index photos.npz -o photos.parquet    for the vector store that you have; rankgrad search reads it, too

EMB is a file that `rankgrad embed` wrote, or any npz or parquet with embeddings and names. The index is one file, in
which every row has length 1. It is searched exactly: a query is compared with every row.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .arguments import require


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("embeddings", type=Path, metavar="EMB", help="npz or parquet, see rankgrad embed")
    what = "index, npz or parquet to write (default: EMB with the ending .index)"
    parser.add_argument("-o", "--out", type=Path, help=what)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write an index."""
    require("an npz or parquet of rankgrad embed", arguments.embeddings)
    from rankgrad.common.text import shown

    from ..index.gallery import Index, check_place
    from .outputs import check_output

    source = arguments.embeddings
    if source.is_dir():
        how = "rankgrad embed RUN DIR -o new.npz, then rankgrad index new.npz. A run needs no index"
        raise IsADirectoryError(f"{shown(source)} is a folder, and an index is made of embeddings: {how}")
    out = source.with_suffix(".index") if arguments.out is None else arguments.out
    check_output(out, "-o", source)
    check_place(out)
    index = Index.load(source)
    index.save(out)
    what = "texts" if index.texts else "images"
    print(f"wrote {shown(out)}: {len(index):,} {what}, {index.dim} dimensions, {out.stat().st_size / 1e6:.1f} MB")
    if index.origin is None:
        how = f"can be searched from Python with vectors, but not with {what}"
        print(f"{shown(source)} does not name its model: this index {how}")
