"""Embeds a file of texts or vectors with the model of a run, into one npz or parquet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from rankgrad.batches.distributed import on_first

from ..datasets.rows import Rows
from ..datasets.tabular import AUTO
from ..datasets.text import TextTable, read_texts, text_table
from ..datasets.vectors import has_labels, load_table
from ..files import Pieces
from ..files.tables.text import stem_of
from ..runs.embeddings import save_embeddings
from ..tasks.search.reading import beginning, read_named
from ..tasks.search.sizes import first
from .embedder import Embedder
from .gallery import Origin, check_place
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
    queries: bool = False,
    width: int | None = None,
    trust: Sequence[str] = (),
    device: torch.device | str | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Embed the rows of a file with the model of a run, in parts as `embed_folder`.

    A run of task=search embeds the documents, or the queries, of a file or of a collection, each with its prompt; see
    `tasks.search.reading.read_named`. Of long texts, the file holds the beginning.

    The file holds embeddings of length 1, names (the lines of the file), labels with class_names, the texts, and for
    queries its `Origin`.

    Args:
        source: folder of a run on texts or vectors, or its model.pt.
        file: for a model of texts csv, tsv, jsonl, parquet, or txt with a text per line; for a model of vectors npz or
            parquet.
        out: npz or parquet to write.
        batch_size: rows at once.
        text: column of the texts.
        label: column of the classes; "auto": the usual column, if it exists; None: no classes.
        embeddings: column of the vectors, see `load_table`.
        delimiter: of a csv, see `read_texts`.
        queries: for a run of task=search: embed queries, not documents.
        width: for a run of task=search: write the first columns; None: all columns.
        trust: packages of your own classes that the model's settings may name, see `Embedder`.
        device: where the model computes; None: on the CPU.

    Returns:
        The number of rows; what was left out of the file, one sentence each.

    Raises:
        FileNotFoundError: the file, the run, or the folder of `out` does not exist.
        ValueError: the model takes images; or the file is wrong (the message names the row).
    """
    check_place(out)
    embedder = Embedder.load(source, trust=trust)
    takes, of_search = embedder.model.inputs.takes, embedder.asked is not None
    if takes == "images":
        raise ValueError(f"{source} takes images: give a folder of images; {file} is a file")
    if queries and not of_search:
        raise ValueError(f"--queries is for a run of task=search; {source} embeds all texts alike")
    if width is not None and not (of_search and width in range(1, embedder.model.embedding_size + 1)):
        size = embedder.model.embedding_size
        raise ValueError(f"--width is for a run of task=search, and a number of its {size} columns; got {width}")
    table: Rows
    notes: tuple[str, ...] = ()
    if of_search:
        named = read_named(file, "queries" if queries else "corpus", AUTO if text == "text" else text, delimiter)
        rows, notes = len(named), named.notes
        table = text_table(stem_of(file), named.texts, None, ["test"] * rows, named.names)
        embedder = embedder.asked or embedder if queries else embedder
    elif takes == "texts":
        table = read_texts(file, text, label, delimiter)
    else:
        table = load_table(file, embeddings, None if label == AUTO and not has_labels(file) else label, split=None)
    classes = [table.class_names[label] for label in table.label.tolist()]
    threshold = threshold_of(embedder.weights, classes)
    origin = Origin(Path(os.path.abspath(file)), embedder.weights, embedder.sha256, threshold=threshold)
    side = {"side": "query" if queries else "document", "width": width} if of_search else {}
    of = on_first(lambda: {"model": embedder.sha256, "file": str(origin.root), **side, **table.fingerprint()})
    with begun(out, of) as parts:
        pieces = parts.embed(embedder, table, batch_size=batch_size, device=device)
        if width is not None:
            narrow = (first(torch.from_numpy(piece), width).numpy() for piece in pieces.pieces)
            pieces = Pieces((len(table), width), pieces.dtype, narrow)
        kept = replace(table, texts=tuple(map(beginning, table.texts))) if isinstance(table, TextTable) else table
        on_first(partial(save_embeddings, out, pieces, kept if of_search else table, {"origin": str(origin)}))
    return len(table), notes
