"""Embeds a file of texts or vectors with the model of a run, into one npz."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from ...batches.distributed import on_first
from ...datasets.rows import Rows
from ...datasets.tabular import AUTO
from ...datasets.text import read_texts
from ...datasets.vectors import has_labels, load_table
from ..runs.embeddings import save_embeddings
from .embedder import Embedder, Origin
from .parts import begun
from .threshold import threshold_of


def embed_file(
    source: Path,
    file: Path,
    out: Path,
    batch_size: int = 256,
    *,
    text: str = "text",
    label: str | None = AUTO,
    embeddings: str = AUTO,
    delimiter: str | None = None,
    trust: Sequence[str] = (),
    device: torch.device | str | None = None,
) -> int:
    """Embed the rows of a file with the model of a run; returns their number. It works in parts, as `embed_folder`.

    The npz holds embeddings, names (the lines of the file), labels with class_names, and the texts. For an index, it
    also holds the absolute file as `root`, and `model` with its `sha256`.

    Args:
        source: folder of a run on texts or vectors, or its model.pt.
        file: for a model of texts csv, tsv, jsonl, parquet, or txt with a text per line; for a model of vectors npz or
            parquet.
        out: npz to write.
        batch_size: rows at once.
        text: column of the texts.
        label: column of the classes; "auto": the usual column, if it exists; None: no classes.
        embeddings: column of the vectors, see `load_table`.
        delimiter: of a csv, see `read_texts`.
        trust: packages of your own classes that the model's settings may name, see `Embedder`.
        device: where the model computes; None: on the CPU.

    Raises:
        FileNotFoundError: the file, the run, or the folder of `out` does not exist.
        ValueError: the model takes images; or the file is wrong (the message names the row).
    """
    if not out.parent.is_dir() or out.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: give a file in an existing folder")
    embedder = Embedder.load(source, trust=trust)
    takes = embedder.model.inputs.takes
    if takes == "images":
        raise ValueError(f"{source} takes images: give a folder of images; {file} is a file")
    table: Rows = (
        read_texts(file, text, label, delimiter)
        if takes == "texts"
        else load_table(file, embeddings, None if label == AUTO and not has_labels(file) else label, split=None)
    )
    origin = Origin(
        Path(os.path.abspath(file)),
        embedder.weights,
        embedder.sha256,
        threshold=threshold_of(embedder.weights),
    )
    of = on_first(lambda: {"model": embedder.sha256, "file": str(origin.root), **table.fingerprint()})
    with begun(out, of) as parts:
        pieces = parts.embed(embedder, table, batch_size=batch_size, device=device)
        on_first(partial(save_embeddings, out, pieces, table, origin.columns()))
    return len(table)
