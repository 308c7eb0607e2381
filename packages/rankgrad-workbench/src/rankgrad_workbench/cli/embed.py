"""Embed all images in a folder and its sub-folders, or all texts of a file, with the model of a run.

  rankgrad embed RUN PHOTOS            images
  rankgrad embed RUN sentences.csv     texts: csv, tsv, jsonl or parquet with a column text, or txt with one per line
  rankgrad embed RUN vectors.npz       vectors, for a model that was trained with data=table
  rankgrad embed RUN corpus.jsonl      task=search: documents with names and texts, or those of a collection
  rankgrad embed RUN queries.jsonl --queries    its queries, with their prompt and encoder

  rankgrad embed model=timm model.name=NAME model.weights=FILE PHOTOS     a pretrained network as it is, without a run
  rankgrad embed model=sentence_transformer model.name=FOLDER sentences.csv

A network without a run is written beside it, NAME.model.pt, because a search needs it for new pictures.

The command writes an npz or a parquet with the embeddings, names, labels and the hash of the model. Embeddings have
length 1, so an inner product is the cosine. The name of an image is its path in the folder, and its label is its class
folder. The name of a text is its line in the file, and its label is in the column label. `rankgrad search`, `index` and
`evaluate` read the file.

If the command is interrupted, run it again and it continues. To share the work between several processes, start them
with torchrun:

  torchrun --nproc-per-node=4 -m rankgrad embed RUN PHOTOS -o photos.npz --device cuda
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import add_machine, add_trust, machine, require, say

if TYPE_CHECKING:
    import torch


def options(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add = parser.add_argument
    add("model", type=Path, nargs="?", metavar="RUN", help="folder of a run, or its model.pt")
    add("images", type=Path, metavar="DIR_OR_FILE", help="folder of images, or file of texts or vectors")
    add("-o", "--out", type=Path, help="npz or parquet to write (default: an npz named after DIR_OR_FILE)")
    add("--batch-size", type=int, default=256, help="rows in a batch (default: 256)")
    add("--workers", type=int, default=0, help="additional processes that read images (default: 0)")
    add("--invert", action="store_true", help="invert images: for dark ink, if the model was trained on bright ink")
    add("--text", default="text", metavar="COLUMN", help="column of the texts (default: text)")
    add("--label", default="auto", metavar="COLUMN", help="column of the classes (default: label, if it exists)")
    add("--embeddings", default="auto", metavar="COLUMN", help="column of the vectors (default: embeddings)")
    add("--delimiter", metavar="SIGN", help="column separator of a csv (default: comma)")
    add("--queries", action="store_true", help="for a run of task=search: embed queries (default: documents)")
    add("--width", type=int, metavar="N", help="for a run of task=search: write the first N columns (default: all)")
    add_machine(parser)
    add_trust(parser)


GOES_ON = True
NETWORKS = True  # takes settings of a model in place of a run


def run(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Write the embeddings of a folder or file. Several processes share the work."""
    from rankgrad.batches.distributed import PATIENCE, group
    from rankgrad.common.checks import integer, spelled

    from ..runs.folder import Run, check_kind
    from ..settings.spelling import as_options
    from .outputs import check_output

    integer(arguments.workers, "--workers counts processes that read images", low=0)
    integer(arguments.batch_size, "--batch-size counts rows", low=1)
    require("a folder of images, or a file of texts or vectors", arguments.images)
    if (arguments.model is None) != bool(settings):
        raise ValueError(
            "give the folder of a run, or a network that was trained before: model=timm model.name=NAME "
            "model.weights=FILE" + (f"; got {arguments.model} and {settings[0]}" if settings else "")
        )
    if arguments.model is not None:
        if Run(arguments.model).kind != "search":
            check_kind(arguments.model, "retrieval")
        check_output(arguments.out, "-o", arguments.images, arguments.model)
    device = machine(arguments)
    with group(timeout=PATIENCE), spelled(as_options({"root": "DIR_OR_FILE"})):
        _embed(arguments, settings, device)


def _embed(arguments: argparse.Namespace, settings: list[str], device: torch.device) -> None:
    from rankgrad.common.text import shown

    from ..datasets.images import skipped_lines
    from ..index.file import embed_file
    from ..index.folder import embed_folder, embeddings_file
    from ..runs.folder import Run
    from ..settings import packages

    trust = packages(arguments.trust)
    images = arguments.images
    out = arguments.out or embeddings_file(images.with_suffix("") if images.is_file() else images)
    if arguments.out is None and out.exists():
        raise FileExistsError(f"{out} exists; name the file with -o")
    model = _weights(arguments, settings, out, trust)
    common: dict[str, Any] = dict(batch_size=arguments.batch_size, trust=trust, device=device)
    if arguments.images.is_file() or Run(model).kind == "search" or arguments.queries or arguments.width:
        if arguments.invert:
            raise ValueError("--invert is for images; a file holds texts or vectors")
        columns = {name: getattr(arguments, name) for name in ("text", "label", "embeddings", "delimiter")}
        searched = {"queries": arguments.queries, "width": arguments.width}
        rows, notes = embed_file(model, arguments.images, out, **columns, **searched, **common)
        say("\n".join([f"wrote {out}: {rows} rows", *notes]))
        return
    count, skipped, understood = embed_folder(
        model, arguments.images, out, invert=arguments.invert, workers=arguments.workers, **common
    )
    say("\n".join([shown(understood), f"wrote {out}: {count} images", *skipped_lines(skipped)]))


def _weights(arguments: argparse.Namespace, settings: list[str], out: Path, trust: tuple[str, ...]) -> Path:
    """The model that embeds: that of the run, its last one if it is not finished, or a network without a run."""
    from rankgrad.batches.distributed import on_first
    from rankgrad.common.text import shown

    from ..index.gallery import check_place
    from ..runs.folder import Run

    check_place(out)
    model: Path | None = arguments.model
    if model is None:
        from ..tasks.retrieval.saved import untouched_weights

        model = on_first(lambda: untouched_weights(settings, arguments.images, out.with_suffix(".model.pt")))
        say(f"{shown(model)}: the network as it is, without training")
    run = Run(model)
    if run.interrupted and run.kind == "retrieval":
        from ..tasks.retrieval.saved import saved_weights

        model = on_first(lambda: saved_weights(run, trust))
        say(f"{shown(run.folder)} is not finished; its model at {model.stem.replace('-', ' ')} is used")
    return model
