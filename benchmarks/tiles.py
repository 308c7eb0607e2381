"""Losses of large batches, with one matrix of scores and by tiles, compared with the bare matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.losses import LOSSES, tiles
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

DIM = 256
NAMES = ("info_nce", "supap", "adaptive_roadmap")
WAYS = ("matrix", "tiles")
PRODUCTS = "products"
#: A batch of this size is measured by tiles alone, and its time on some of its queries against all of it.
LARGEST, SOME = 32_768, 1_024
ROUNDS = 2  # each takes seconds


def large_batch(options: Options) -> Result:
    """Losses of large batches: one matrix of scores or tiles of it, over the matrix products of scores and gradient."""
    sizes = options.pick(quick=[48, 96], cpu=[4_096, LARGEST], gpu=[4_096, 8_192, LARGEST])
    most = sizes[-1]
    timed = {
        (size, each): _times(size, each, most, options)
        for size in sizes
        for each in ((4, 64) if size == most else (4,))
    }
    rows: list[list[Cell]] = []
    for (size, each), times in timed.items():
        for name in NAMES:
            found = [times.get(f"{name} {way}") for way in WAYS]
            ratios = [None if time is None else time.over(times[PRODUCTS]) for time in found]
            queries = size if size < most or options.long else min(SOME, size)
            peaks = [
                None
                if time is None
                else memory.peak_mib(
                    CASES, f"{name} {way}", size, each, queries, device=options.device, module="benchmarks.case"
                )
                for way, time in zip(WAYS, found, strict=True)
            ]
            rows.append([f"{name}, B={size:,}, {each} per class", times[PRODUCTS].ms, *ratios, *peaks])
    columns = ("batch", "products: ms", "matrix: x products", "tiles: x products", "matrix: MiB", "tiles: MiB")
    part = "the time is that" if options.long else "time and memory are those"
    about = (
        f"Unit embeddings [B, {DIM}] float32, forward and backward to them. The products are those of the scores and "
        f"of the gradient on both sides, by the same tiles of {tiles.TILE:,} scores. From {tiles.WORTH:,} scores on, "
        f"tiles are chosen. Memory is the rise of the peak in a fresh process, gradients included. At B={most:,}, "
        f"{part} of {min(SOME, most):,} of the queries against all items."
    )
    last = [row for row in rows if f"B={most:,}" in str(row[0])]
    checks = [
        Check(f"Tiles over the products, B={most:,}, the slowest", max(float(row[3] or 0) for row in last), 4.0),
        Check(f"Memory by tiles, B={most:,}, MiB, the largest", max(float(row[5] or 0) for row in last), 1_000),
    ]
    return Result([ResultTable("Large batches", columns, rows, about)], checks)


def _batch(size: int, each: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Unit embeddings around the centres of their classes, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(size) // each
    centres = torch.randn(int(labels[-1]) + 1, DIM, generator=generator)
    rows = F.normalize(centres[labels] + 1.5 * torch.randn(size, DIM, generator=generator))
    return rows.to(device).requires_grad_(), labels.to(device)


def _times(size: int, each: int, most: int, options: Options) -> dict[str, Timing]:
    embeddings, labels = _batch(size, each, options.device)
    queries = min(size, SOME) if size == most else size
    actions: dict[str, Action] = {PRODUCTS: partial(_products, embeddings.detach(), queries)}
    for name in NAMES:
        for way in WAYS if size < most else WAYS[1:]:
            actions[f"{name} {way}"] = partial(_step, name, way, embeddings, labels, queries)
    return alternate(actions, ROUNDS, f"large batch B={size}, {each} per class", clock_of(options.device))


def _products(rows: Tensor, queries: int) -> None:
    """The products of a loss by tiles: scores, and the gradient by both sides."""
    gradient = torch.zeros_like(rows)
    many = max(tiles.TILE // len(rows), 1)
    for start in range(0, queries, many):
        some = rows[start : min(start + many, queries)]
        scores = some @ rows.T
        gradient[start : start + len(some)].addmm_(scores, rows)
        gradient.addmm_(scores.T, some)


def _step(name: str, way: str, embeddings: Tensor, labels: Tensor, queries: int) -> None:
    """Forward and backward of the first queries against the batch."""
    embeddings.grad, given = None, {}
    if queries < len(labels):
        ids = torch.arange(len(labels), device=labels.device)
        given = {"ref_emb": embeddings, "ref_labels": labels, "ids": ids[:queries], "ref_ids": ids}
    with forced(way):
        LOSSES[name]()(embeddings[:queries], labels[:queries], **given).backward()


@contextmanager
def forced(way: str) -> Iterator[None]:
    """Compute losses by "tiles" or with one "matrix", whatever the size; "" leaves the choice to them."""
    if not way:
        yield
        return
    before, tiles.WORTH = tiles.WORTH, 0 if way == "tiles" else 2**62
    try:
        yield
    finally:
        tiles.WORTH = before


def _peak(name: str, way: str, size: int, each: int, queries: int, device: torch.device = CPU) -> int:
    """Peak memory over the embeddings, in bytes."""
    embeddings, labels = _batch(size, each, device)
    return memory.peak_rise(lambda: _step(name, way, embeddings, labels, queries), device)


CASES: memory.Cases = {f"{name} {way}": partial(_peak, name, way) for name in NAMES for way in WAYS}
