"""A cross-encoder scores the pairs of a file, for the losses that learn from a teacher."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from rankgrad.batches.distributed import on_first
from rankgrad.common.checks import integer
from rankgrad.common.extras import missing
from rankgrad.common.text import shown

from ..datasets.tabular import AUTO
from ..files import sha256_of, write_text
from ..files.tables.formats import read_rows
from ..files.tables.written import need_ending, write_columns
from ..models.foreign_settings import check_files
from ..tasks.search.reading import table_texts
from .embed import begun

WRITTEN = (".jsonl", ".csv", ".tsv", ".parquet")
SAVED = 8  # batches after which scores are on the disk


def score_file(
    model: str | Path,
    file: Path,
    out: Path,
    *,
    query: str = AUTO,
    document: str = AUTO,
    delimiter: str | None = None,
    batch_size: int = 32,
    max_tokens: int | None = None,
    download: bool = False,
    device: torch.device | str | None = None,
) -> tuple[int, str]:
    """Copy a file of queries and documents, with a column of the logits of a cross-encoder.

    A row with lists of documents (pos, neg, ...) gets a list `scores`, another row a number: `score`; `teacher` where
    the reader would take `score` as the grade. The work is done in parts. If it is interrupted, the same call goes on.

    Args:
        model: folder of a CrossEncoder of sentence-transformers with one label; with `download` also a name on the hub.
        file: jsonl, csv, tsv or parquet, see `tasks.search.reading`.
        out: file to write, in one of these formats; rows with lists need jsonl or parquet.
        query: column of the queries; "auto": the usual ones.
        document: column of the documents; "auto": the usual ones.
        delimiter: of a csv.
        batch_size: pairs at once.
        max_tokens: pairs are cut after this number of tokens; None: the model's limit.
        download: read the model from the hub if it is no folder.
        device: where the model computes; None: on the CPU.

    Returns:
        The number of pairs, and the name of the column.

    Raises:
        FileNotFoundError: the file or the model does not exist.
        ValueError: a row is damaged, the model has several labels, or a score is not finite.
    """
    size = integer(batch_size, "batch_size is a number of pairs", low=1)
    need_ending(out, WRITTEN)
    if not file.is_file() or not out.parent.is_dir():
        raise FileNotFoundError(f"there is no file {shown(file)}, or no folder {shown(out.parent)} to write into")
    rows = [(place, dict(row)) for place, row in read_rows(file, delimiter)]
    texts, column = table_texts(rows, query, document) if rows else ([], "score")
    pairs = [(asked, text) for asked, documents in texts for text in documents]
    if not pairs:
        raise ValueError(f"{shown(file)} has no pair of a query and a document")
    if column == "scores" and out.suffix.lower() in (".csv", ".tsv"):
        raise ValueError(f"{shown(out)} cannot hold the lists of scores of this file: write .jsonl or .parquet")
    made, digest = _loaded(model, max_tokens, download, device)

    def scored(part: range) -> npt.NDArray[np.float32]:
        found = made.predict(
            pairs[part.start : part.stop], batch_size=size, activation_fn=nn.Identity(), show_progress_bar=False
        )
        if not np.isfinite(found).all():
            raise ValueError(f"a score of pair {part.start + 1:,} or later is not finite: is the model damaged?")
        return np.asarray(found, np.float32)[:, None]

    of = {"model": digest, "file": sha256_of(file), "columns": [query, document], "max_tokens": max_tokens}
    with begun(out, of, lambda: {"rows": SAVED * size}) as parts:
        whole = parts.filled(len(pairs), scored, "scoring", "pair")
        values = iter(np.concatenate([*whole.pieces])[:, 0].tolist())
        for (_, row), (_, documents) in zip(rows, texts, strict=True):
            found = [next(values) for _ in documents]
            row[column] = found if column == "scores" else found[0]
        on_first(lambda: _write(out, [row for _, row in rows]))
    return len(pairs), column


def _loaded(
    model: str | Path, max_tokens: int | None, download: bool, device: torch.device | str | None
) -> tuple[Any, str]:
    """The cross-encoder, and what tells its files from others."""
    try:
        from huggingface_hub import snapshot_download
        from sentence_transformers import CrossEncoder
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    folder = Path(model)
    if download and not folder.is_dir():
        folder = Path(snapshot_download(str(model), allow_patterns=["*.json", "*.txt", "*.safetensors", "*.model"]))
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {shown(model)}; --download takes a model from the hub")
    check_files(folder, str(model))
    try:
        # the activation of a file is never imported: logits are wanted
        made: Any = CrossEncoder(
            str(folder),
            device=str(device or "cpu"),
            local_files_only=True,
            trust_remote_code=False,
            activation_fn=nn.Identity(),
            max_length=max_tokens,
        )
    except Exception as error:  # torch, json, safetensors and transformers each raise their own
        raise ValueError(f"{shown(model)} is not a CrossEncoder, or it is damaged ({error})") from None
    if made.num_labels != 1:
        raise ValueError(f"{shown(model)} gives {made.num_labels} numbers for a pair; one label is needed")
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".safetensors", ".bin"))
    return made, "".join(sha256_of(path)[:16] for path in files)


def _write(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The rows as a file."""
    if out.suffix.lower() == ".jsonl":
        write_text(out, "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows))
    else:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        write_columns(out, columns, "\t" if out.suffix.lower() == ".tsv" else ",")


__all__ = ["score_file"]
