"""Embeddings of a folder of images."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "Embeddings of all images below a folder, with the model of a run."


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run, or its model.pt")
    parser.add_argument("images", type=Path, metavar="DIR")
    parser.add_argument("-o", "--out", type=Path, required=True, help="npz to write; labels are the sub-folders")
    parser.add_argument("--batch-size", type=int, default=256)


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the embeddings of a folder."""
    from ..run import embed_folder

    count, skipped = embed_folder(arguments.model, arguments.images, arguments.out, arguments.batch_size)
    print(f"wrote {arguments.out}: {count} images" + (f", {len(skipped)} files skipped:" if skipped else ""))
    for path, reason in skipped:
        print(f"  {path}: {reason}")
