"""Make an index of embeddings."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Make an index of embeddings. `rankgrad search` then finds the images or texts that are most similar to a query.

  rankgrad index photos.npz -o photos.index               exact: compares a query with every image
  rankgrad index photos.npz -o photos.index --kind hnsw   for millions of images: compares with a part of them

EMB is an npz that `rankgrad embed` wrote. The index is a folder with index.json and a file of vectors. An approximate
index is compared with exact search when it is built. The command needs faiss: pip install "rankgrad[search]".
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("embeddings", type=Path, metavar="EMB", help="npz that rankgrad embed wrote")
    parser.add_argument("-o", "--out", type=Path, help="folder to write (default: EMB with the ending .index)")
    parser.add_argument("--kind", choices=("exact", "hnsw"), default="exact", help="kind of index (default: exact)")
    parser.add_argument(
        "--effort",
        type=int,
        help="number of candidates of hnsw (default: 64); a higher value finds more and takes longer",
    )


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write an index."""
    from ..index.builder import build
    from ..index.embedder import Embedded

    if arguments.embeddings.is_dir():
        raise IsADirectoryError(_instead(arguments.embeddings))
    out = arguments.embeddings.with_suffix(".index") if arguments.out is None else arguments.out
    index = build(Embedded.load(arguments.embeddings, mapped=True), arguments.kind, effort=arguments.effort)
    index.save(out)
    size = sum(file.stat().st_size for file in out.iterdir())
    what = "texts" if index.texts else "images"
    print(f"wrote {out}: {len(index):,} {what}, {index.dim} dimensions, {index.kind}, {size / 1e6:.1f} MB")
    if index.measured is not None:
        sample = index.measured
        print(
            f"finds {100 * sample.recall:.1f} % of the {sample.k} nearest ({sample.queries} rows as queries), "
            f"{sample.faster:.1f} times as fast as exact search"
        )
    if index.origin is None:
        print(
            f"{arguments.embeddings} does not name its model: this index can be searched from Python with vectors, "
            f"but not with {what}"
        )


def _instead(folder: Path) -> str:
    """What to do with a folder, since an index is made of embeddings."""
    import shlex

    from ...common.files import shown
    from ..index.disk import HEAD
    from ..runs.folder import Run

    name = shlex.quote(str(folder))
    if (folder / HEAD).is_file():
        return f"{shown(folder)} is an index already. Search it: rankgrad search QUERY --index {name}"
    if Run(folder).config.is_file():
        return (
            f"{shown(folder)} is the folder of a run, which needs no index: rankgrad search {name} QUERY. To index "
            f"other data with its model: rankgrad embed {name} DIR_OR_FILE -o NEW.npz, then rankgrad index NEW.npz"
        )
    npz = shlex.quote(f"{folder.resolve().name}.npz")
    return (
        f"{shown(folder)} is a folder; an index is made of embeddings. Embed it first: rankgrad embed RUN "
        f"{name} -o {npz}, then rankgrad index {npz}"
    )
