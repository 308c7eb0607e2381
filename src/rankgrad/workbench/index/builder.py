"""Embeddings of a gallery -> an `Index`, and the recall of an index that searches only a part of the gallery.

An exact index is the default; its scores equal those of `search.topk` up to rounding. A graph ("hnsw") searches only a
part of the gallery, and its recall is measured when it is built. The gallery is read block by block and may be mapped
into memory (`Embedded.load`). For vectors that do not fit in memory, take the npz of `rankgrad embed` to a vector
store of your own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...common.checks import integer
from ...common.progress import steps
from ...ranks.normalize import unit_rows
from .disk import KINDS, Kind, Measured, faiss_module
from .embedder import Embedded
from .gallery import BLOCK, Index

ASKED = 1000  # rows that `measure` uses as queries
RECALL_AT = 10
LINKS = 32  # links per node of hnsw; its authors recommend 5 to 48, more for high dimensions
TILE = 2**14  # rows that are added, or compared with `ASKED` queries, at once


def build(
    gallery: Embedded,
    kind: Kind = "exact",
    *,
    normalize: bool = True,
    effort: int | None = None,
    seed: int = 0,
) -> Index:
    """An index of these embeddings, in memory; `Index.save` writes it.

    Args:
        gallery: the embeddings; see `Embedded.load`.
        kind: "exact"; or "hnsw", which searches a part of a large gallery and whose recall is measured here.
        normalize: search by cosine; False: by inner product, for a model that was trained without normalisation.
        effort: for "hnsw", the number of candidates kept during the search (default 64). A larger value finds more and
            takes longer.
        seed: of the queries of the measurement.

    Raises:
        ValueError: the kind is unknown, effort < 1, or embeddings are empty or not finite.
        ModuleNotFoundError: faiss is not installed.

    >>> gallery = Embedded(np.eye(3, dtype=np.float32), ("a", "b", "c"), np.array([0, 0, 1]), ("cat", "dog"))
    >>> index = build(gallery)
    >>> scores, rows = index.topk(torch.tensor([[0.1, 0.9, 0.0]]), 2)
    >>> [index.names[row] for row in rows[0].tolist()]
    ['b', 'a']
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of index {kind!r}; known: {', '.join(KINDS)}")
    if effort is not None:
        effort = integer(effort, "effort is the number of searched candidates", low=1)
    if effort is not None and kind == "exact":
        raise ValueError("an exact index always searches everything: effort is for hnsw")
    if 0 in gallery.embeddings.shape:  # faiss ends the process
        raise ValueError(f"a gallery needs embeddings [row, dim] with numbers; got {gallery.embeddings.shape}")
    vectors = _vectors(gallery, kind, effort, normalize)
    index = Index(
        *(vectors, gallery.names, gallery.labels, gallery.class_names, kind, normalize, gallery.origin),
        texts=gallery.texts,
    )
    return index if kind == "exact" else replace(index, measured=measure(index, gallery.embeddings, seed=seed))


def _blocks(embeddings: npt.NDArray[np.float32], normalize: bool) -> Iterator[Tensor]:
    """Blocks of the rows, normalised if wanted."""
    step = max(1, BLOCK // embeddings.shape[1])
    for start in range(0, len(embeddings), step):
        yield _as_compared(embeddings[start : start + step], normalize)


def _as_compared(rows: npt.NDArray[np.float32], normalize: bool) -> Tensor:
    block = torch.from_numpy(np.array(rows, np.float32))  # a copy: rows in a mapped file are read-only and not aligned
    return unit_rows(block) if normalize else block


def _vectors(gallery: Embedded, kind: Kind, effort: int | None, normalize: bool) -> Any:
    """The faiss index of a gallery.

    Raises:
        ValueError: an embedding is not finite.
    """
    vectors = _empty(gallery.embeddings.shape[1], kind, effort)
    bad, first, done = 0, -1, 0
    with steps(len(gallery.names), "indexing", "row") as advance:
        for block in (part for whole in _blocks(gallery.embeddings, normalize) for part in torch.split(whole, TILE)):
            wrong = (~block.isfinite().all(1)).nonzero().flatten()
            first = done + int(wrong[0]) if len(wrong) and first < 0 else first
            bad, done = bad + len(wrong), done + len(block)
            if not bad:
                vectors.add(block.numpy())
            advance(len(block))
    if bad:
        raise ValueError(f"embeddings must be finite; that of {gallery.names[first]} is not (first of {bad})")
    return vectors


def _empty(dim: int, kind: Kind, effort: int | None) -> Any:
    """A faiss index without rows."""
    faiss = faiss_module()
    if kind == "exact":
        return faiss.IndexFlatIP(dim)
    vectors = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    vectors.hnsw.efConstruction = 200
    vectors.hnsw.efSearch = 64 if effort is None else effort
    return vectors


def measure(index: Index, embeddings: npt.NDArray[np.float32], *, seed: int = 0) -> Measured:
    """Recall and speed of an index compared with the exact search, with rows of its gallery as queries.

    Args:
        index: the index.
        embeddings: [image, dim] from which it was built.
        seed: of the choice of queries.

    >>> rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    >>> gallery = Embedded(rows, tuple(map(str, range(50))), np.zeros(50, int), ("one",))
    >>> measure(build(gallery), rows).recall  # an exact index finds all
    1.0
    """
    count, dim = embeddings.shape
    k = min(RECALL_AT, count - 1)
    asked = np.random.default_rng(seed).choice(count, min(ASKED, count), replace=False)
    if k < 1:
        return Measured(1.0, k, len(asked), 1.0)
    queries, own = _as_compared(embeddings[asked], index.normalized), torch.from_numpy(asked).unsqueeze(1)
    best = _exact_scores(_blocks(embeddings, index.normalized), queries, k, own)
    scores, items = index.topk(queries, k + 1)
    nearest = scores.masked_fill(items == own, -torch.inf).sort(1, descending=True).values[:, :k]
    # compare scores and not rows: another row with the same score is not an error
    last = best[:, -1:]
    recall = float((nearest >= last - 1e-6 * last.abs().clamp(min=1)).double().mean())
    # time the exact search on one block in memory, and scale it to the whole gallery
    block = next(_blocks(embeddings, index.normalized)).numpy()
    flat = faiss_module().IndexFlatIP(dim)
    flat.add(block)
    times = []
    for search, share in ((replace(index, vectors=flat), len(block) / count), (index, 1.0)):
        start = time.perf_counter()
        for row in torch.split(queries[:100], 1):
            search.topk(row, k)
        times.append((time.perf_counter() - start) / share)
    return Measured(recall, k, len(asked), times[0] / max(times[1], 1e-9))


def _exact_scores(blocks: Iterable[Tensor], queries: Tensor, k: int, own: Tensor) -> Tensor:
    """[query, k] scores of the k best rows of all blocks, without each query's own row `own` [query, 1]."""
    best, start = queries.new_empty(len(queries), 0), 0
    for block in (part for whole in blocks for part in torch.split(whole, TILE)):
        scores = queries @ block.T
        here = ((own >= start) & (own < start + len(block))).squeeze(1).nonzero().flatten()
        scores[here, own[here, 0] - start] = -torch.inf
        best = torch.cat([best, scores.topk(min(k, len(block)), dim=1).values], dim=1)
        best, start = best.topk(min(k, best.shape[1]), dim=1).values, start + len(block)
    return best
