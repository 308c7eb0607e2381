"""Smaller embeddings: a loss of their first columns, and what columns, int8 and bits cost in the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rankgrad.losses.base import still
from rankgrad.ranks.normalize import unit_rows
from rankgrad.search.retrieval import topk_of_blocks

from .collection import Collection
from .encoders import Encoders, Found, StoredRows, without_own
from .settings import SearchSettings


def loss_of_widths(
    loss: nn.Module,
    queries: Tensor,
    documents: Tensor,
    relevance: Tensor,
    valid: Tensor,
    widths: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Mean of a loss over the first w columns of the embeddings, each normalised again, and over all columns.

    So the beginning of an embedding is an embedding, too (Kusupati et al., NeurIPS 2022).

    Args:
        loss: with `from_scores`.
        queries: [query, dim] of length 1.
        documents: [document, dim] of length 1.
        relevance: [query, document].
        valid: [query, document] bool.
        widths: numbers of columns; all columns are always used. Empty: only these.

    Returns:
        The loss; [query, document] the scores of all columns.
    """
    whole: Callable[[Tensor, Tensor, Tensor], Tensor] = loss.from_scores  # type: ignore[assignment]
    narrow = [width for width in widths if width < queries.shape[1]]
    with still(loss):  # its statistics are those of all columns
        parts = [whole(first(queries, w) @ first(documents, w).T, relevance, valid) for w in narrow]
    scores = queries @ documents.T
    full = whole(scores, relevance, valid)
    return (torch.stack([*parts, full]).mean() if parts else full), scores


def first(rows: Tensor, width: int) -> Tensor:
    """[row, width] the first columns, of length 1.

    >>> first(torch.tensor([[3.0, 4.0, 5.0]]), 2)
    tensor([[0.6000, 0.8000]])
    """
    return unit_rows(rows[:, :width])


class Size(NamedTuple):
    """A smaller form of the embeddings.

    Attributes:
        bytes: of a document.
        found: the lists of the queries.
    """

    bytes: int
    found: Found


def sizes(queries: Tensor, documents: StoredRows, widths: Sequence[int], depth: int) -> dict[str, Size]:
    """The search with all columns, with fewer, with int8, and with bits.

    Queries and documents have the same form; the steps of int8 are those of the queries, and of the documents. They are
    compared by cosine, as whole embeddings are.

    Args:
        queries: [query, dim] of length 1.
        documents: [document, dim] of length 1; read by blocks.
        widths: numbers of columns.
        depth: number of documents in a list.
    """

    def search(form: Callable[[Tensor], Tensor], asked: Tensor) -> Found:
        score, row = topk_of_blocks(asked, map(form, documents.blocks()), depth)
        return Found(row.numpy(), score.double().numpy())

    def as_bits(rows: Tensor) -> Tensor:
        return unit_rows(of_bits(bits(rows), dim))

    def as_int8(ends: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
        return unit_rows(of_int8(*int8(rows, ends)))

    dim = queries.shape[1]
    found = {f"{dim} columns": Size(4 * dim, search(lambda rows: rows, queries))}
    for width in sorted({width for width in widths if width < dim}, reverse=True):
        found[f"{width} columns"] = Size(4 * width, search(partial(first, width=width), first(queries, width)))
    ends = [torch.stack([each.amin(0), each.amax(0)]) for each in documents.blocks()]
    of_documents = torch.stack(ends)[:, 0].amin(0), torch.stack(ends)[:, 1].amax(0)
    asked = as_int8((queries.amin(0), queries.amax(0)), queries)
    found["int8"] = Size(dim, search(partial(as_int8, of_documents), asked))
    found["bits"] = Size(-(-dim // 8), search(as_bits, as_bits(queries)))
    return found


def sizes_of(
    model: Encoders, corpus: StoredRows, collection: Collection, settings: SearchSettings, progress: bool = False
) -> dict[str, Size]:
    """The sizes of a model for the test queries of a collection, without the queries' own documents."""
    rows, depth = collection.rows("test"), settings.evaluation.depth
    asked = [collection.queries.texts[row] for row in rows.tolist()]
    embedded = model.embed(asked, "query", settings.evaluation.batch_size, progress)
    found = sizes(embedded, corpus, settings.widths, depth + collection.most_own)
    return {name: Size(each.bytes, without_own(each.found, collection, rows, depth)) for name, each in found.items()}


def int8(rows: Tensor, ends: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of the values of each column, in 256 equal steps from its lowest to its highest value.

    The codes are those of `quantize_embeddings` of sentence-transformers.

    Args:
        rows: [row, dim].
        ends: [dim] lowest and [dim] highest values; None: those of the rows.

    Returns:
        [row, dim] int8; [dim] lowest values; [dim] size of a step.

    >>> codes, low, step = int8(torch.tensor([[0.0], [127.5], [255.0]]))
    >>> codes.flatten(), of_int8(codes, low, step).flatten()
    (tensor([-128,   -1,  127], dtype=torch.int8), tensor([  0.5000, 127.5000, 255.5000]))
    """
    low, high = (rows.amin(0), rows.amax(0)) if ends is None else ends
    step = (high - low) / 255
    codes = ((rows - low) / step.where(step > 0, 1)).floor().clamp(0, 255) - 128
    return codes.to(torch.int8), low, step


def of_int8(codes: Tensor, low: Tensor, step: Tensor) -> Tensor:
    """[row, dim] the middle of the step of each code."""
    return low + (codes.float() + 128.5) * step


def bits(rows: Tensor) -> Tensor:
    """[row, dim / 8] uint8: a bit for each value, 1 if it is above 0; the last byte is filled with 0.

    >>> bits(torch.tensor([[0.3, -0.1, 0.2]]))
    tensor([[160]], dtype=torch.uint8)
    """
    return torch.from_numpy(np.packbits((rows > 0).numpy(), axis=1))


def of_bits(codes: Tensor, dim: int) -> Tensor:
    """[row, dim] 1 and -1. Cosines of such rows order documents by their Hamming distance."""
    return torch.from_numpy(np.unpackbits(codes.numpy(), axis=1, count=dim)).float() * 2 - 1


__all__ = ["Size", "bits", "first", "int8", "loss_of_widths", "of_bits", "of_int8", "sizes", "sizes_of"]
