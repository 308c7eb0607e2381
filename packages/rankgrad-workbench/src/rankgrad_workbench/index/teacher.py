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
from ..files.tables.written import write_columns
from ..models.foreign_settings import check_files
from ..tasks.search.reading import table_texts
from .parts import begun

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
    kind = out.suffix.lower()
    if kind not in WRITTEN:
        raise ValueError(f"{shown(out)} is not one of {', '.join(WRITTEN)}: give such a file")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no folder {shown(out.parent)} to write {out.name} into")
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no file {shown(file)}. Queries and documents are needed in one table, such as a jsonl"
        )
    rows = [(place, dict(row)) for place, row in read_rows(file, delimiter)]
    if not rows:
        raise ValueError(f"{shown(file)} has no rows")
    texts, column = table_texts(rows, query, document)
    if column == "scores" and kind in (".csv", ".tsv"):
        raise ValueError(f"{shown(out)} cannot hold the lists of scores of this file: write .jsonl or .parquet")
    pairs = [(asked, text) for asked, documents in texts for text in documents]
    if not pairs:
        raise ValueError(f"{shown(file)} has no pair of a query and a document")
    made, digest = _loaded(model, max_tokens, download, device)

    def scored(part: range) -> npt.NDArray[np.float32]:
        found = made.predict(
            pairs[part.start : part.stop], batch_size=size, activation_fn=nn.Identity(), show_progress_bar=False
        )
        values = np.asarray(found, np.float32)
        if not np.isfinite(values).all():
            bad = part.start + int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"the score of pair {bad + 1:,} is {values[bad - part.start]}: is the model damaged?")
        return values[:, None]

    of = {"model": digest, "file": sha256_of(file), "columns": [query, document], "max_tokens": max_tokens}
    with begun(out, of) as parts:
        part = parts.kept("rows", lambda: SAVED * size, lambda kept: type(kept) is int and kept > 0)
        whole = parts.filled(len(pairs), part, scored, "scoring", "pair")
        values = iter(np.concatenate([*whole.pieces])[:, 0].tolist())
        for (_, row), (_, documents) in zip(rows, texts, strict=True):
            found = [next(values) for _ in documents]
            row[column] = found if column == "scores" else found[0]
        on_first(lambda: _write(out, [row for _, row in rows], delimiter))
    return len(pairs), column


def _loaded(
    model: str | Path, max_tokens: int | None, download: bool, device: torch.device | str | None
) -> tuple[Any, str]:
    """The cross-encoder, and what tells its files from others."""
    try:
        from sentence_transformers import CrossEncoder
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    folder = Path(model)
    if not folder.is_dir():
        if not download:
            raise FileNotFoundError(
                f"there is no folder {shown(model)}; --download takes a model of this name from the hub"
            )
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(str(model), allow_patterns=["*.json", "*.txt", "*.safetensors", "*.model"]))
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
    except OSError:
        raise
    except Exception as error:  # torch, json, safetensors and transformers each raise their own
        raise ValueError(f"{shown(model)} is not a CrossEncoder, or it is damaged ({error})") from None
    if made.num_labels != 1:
        raise ValueError(
            f"{shown(model)} gives {made.num_labels} numbers for a pair; a cross-encoder with one label is needed"
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return made, "".join(sha256_of(path)[:16] for path in files if path.suffix in (".json", ".safetensors", ".bin"))


def _write(out: Path, rows: Sequence[Mapping[str, Any]], delimiter: str | None) -> None:
    """The rows as a file."""
    if out.suffix.lower() == ".jsonl":
        write_text(out, "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows))
        return
    sign = "\t" if out.suffix.lower() == ".tsv" or delimiter == "\\t" else delimiter or ","
    names = dict.fromkeys(name for row in rows for name in row)
    write_columns(out, {name: [row.get(name) for row in rows] for name in names}, sign)


__all__ = ["score_file"]
