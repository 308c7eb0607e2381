"""Embeddings of a folder of images, or of a file of texts."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .machine import add_machine, machine, say
from .trust import add_trust

if TYPE_CHECKING:
    import torch

HELP = """\
Embed all images below a folder, or all texts of a file, with the model of a run.

  rankgrad embed RUN PHOTOS            images
  rankgrad embed RUN sentences.csv     texts: csv, tsv, jsonl or parquet with a column text, or txt with one per line
  rankgrad embed RUN vectors.npz       vectors, for a model that was trained with data=table

The npz holds the embeddings, names, labels and the hash of the model. Names are relative to the folder, or lines of
the file. Labels are the class folders, or the column label. `rankgrad index` and `rankgrad evaluate` read the npz.

If the command is interrupted, run it again and it continues. Started by torchrun, several processes share the work:

  torchrun --nproc-per-node=4 -m rankgrad embed RUN PHOTOS -o photos.npz --device cuda
"""


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run, or its model.pt")
    parser.add_argument("images", type=Path, metavar="DIR_OR_FILE")
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        help="npz to write (default: here, named after the folder or file)",
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=0, help="more processes that read images (default: 0)")
    parser.add_argument("--invert", action="store_true", help="embed the negatives: dark ink for a model of bright ink")
    parser.add_argument("--text", default="text", metavar="COLUMN", help="column of the texts (default: text)")
    parser.add_argument(
        "--label", default="auto", metavar="COLUMN", help="column of the classes (default: label, if there is one)"
    )
    parser.add_argument(
        "--embeddings", default="auto", metavar="COLUMN", help="column of the vectors (default: embeddings)"
    )
    parser.add_argument("--delimiter", metavar="SIGN", help="sign between the columns of a csv (default: comma)")
    add_machine(parser)
    add_trust(parser)


GOES_ON = True


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the embeddings of a folder or file, with all processes that were started together."""
    from ..checks import as_options, spelled
    from ..distributed import PATIENCE, group

    if arguments.workers < 0 or arguments.batch_size < 1:
        raise ValueError(
            "--workers is a number of processes, 0 or more, and --batch-size one of rows, 1 or more; got "
            f"{arguments.workers} and {arguments.batch_size}"
        )
    if not arguments.images.exists():
        raise FileNotFoundError(f"there is no file or folder {arguments.images}")
    device = machine(arguments)
    with group(timeout=PATIENCE), spelled(as_options({"root": "DIR_OR_FILE"})):
        _embed(arguments, device)


def _embed(arguments: argparse.Namespace, device: torch.device) -> None:
    from ..config import packages
    from ..datasets.images import skipped_lines
    from ..distributed import on_first
    from ..files import shown
    from ..index.embedder import Embedded
    from ..index.file import embed_file
    from ..index.folder import embed_folder, embeddings_file
    from ..runs.folder import Run

    out = arguments.out
    if out is None:
        out = embeddings_file(arguments.images.with_suffix("") if arguments.images.is_file() else arguments.images)
        if out.exists():  # a name that nobody chose replaces nothing but its own kind
            origin = Embedded.load(out, mapped=True).origin
            if origin is None or origin.root != Path(os.path.abspath(arguments.images)):
                raise FileExistsError(f"{out} holds embeddings of another folder: choose a file with -o")
    model, run = arguments.model, Run(arguments.model)
    if run.interrupted and run.kind == "retrieval":
        from ..training.unfinished import saved_weights

        model = on_first(lambda: saved_weights(run, packages(arguments.trust)))
        say(f"{shown(run.folder)} is not finished: this is its {model.stem.replace('-', ' ')}")
    if arguments.images.is_file():
        if arguments.invert:
            raise ValueError("--invert turns images to their negatives; a file holds texts or vectors")
        rows = embed_file(
            *(model, arguments.images, out, arguments.batch_size),
            text=arguments.text,
            label=arguments.label,
            embeddings=arguments.embeddings,
            delimiter=arguments.delimiter,
            trust=packages(arguments.trust),
            device=device,
        )
        say(f"wrote {out}: {rows} rows")
        return
    count, skipped, understood = embed_folder(
        *(model, arguments.images, out, arguments.batch_size),
        invert=arguments.invert,
        trust=packages(arguments.trust),
        device=device,
        workers=arguments.workers,
    )
    say("\n".join([shown(understood), f"wrote {out}: {count} images", *skipped_lines(skipped)]))
