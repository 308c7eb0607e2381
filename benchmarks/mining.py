"""Exact search for the best 100 documents of each query, compared with the bare matrix product and with faiss."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.search import topk
from rankgrad.search.retrieval import topk_of_blocks
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, alternate, clock_of
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

DIM, BEST = 256, 100
#: Documents at a time: as many as `search.retrieve` takes.
BLOCK = 2**14
PRODUCT, FAISS = "product", "faiss IndexFlatIP"


def mining(options: Options) -> Result:
    """Exact search for the best 100 documents of each query, over the bare matrix product; beside faiss."""
    queries, documents = (20, 1_000) if options.quick else (10_000 if options.long else 1_024, 100_000)
    sides = _sides(queries, documents, options.device)
    actions: dict[str, Action] = {PRODUCT: partial(_product, *sides)}
    actions |= {name: partial(way, *sides) for name, way in WAYS.items()}
    if options.device.type == "cpu" and find_spec("faiss") is not None:
        actions[FAISS] = partial(_faiss, *sides)
    times = alternate(actions, options.rounds, "mining", clock_of(options.device))
    rows: list[list[Cell]] = []
    for name, time in times.items():
        peak = None
        if name in CASES:
            sizes = (queries, documents)
            peak = memory.peak_mib(CASES, name, *sizes, device=options.device, module="benchmarks.case")
        rows.append([name, time.ms, time.over(times[PRODUCT]), peak])
    note = (
        f"{queries:,} queries and {documents:,} documents, unit rows of {DIM} float32; the best {BEST}. The product is "
        "that of all queries and documents, 256 queries at a time. By blocks: documents come in blocks, as from a "
        "file. Memory is the rise of the peak over both sides, in a fresh process. faiss is measured if installed."
    )
    checks = [
        Check("Search over the product, the slowest", max(times[name].over(times[PRODUCT]) for name in WAYS), 1.5),
        Check("Memory of search, MiB, the largest", max(float(row[3] or 0) for row in rows), 1_000),
    ]
    return Result([ResultTable("Search for the best documents", ("way", "ms", "x product", "MiB"), rows, note)], checks)


def _sides(queries: int, documents: int, device: torch.device) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    sides = (F.normalize(torch.randn(many, DIM, generator=g)).to(device) for many in (queries, documents))
    return next(sides), next(sides)


def _product(queries: Tensor, documents: Tensor) -> None:
    scores = queries.new_empty(256, len(documents))
    for part in torch.split(queries, 256):
        torch.mm(part, documents.T, out=scores[: len(part)])


def _topk(queries: Tensor, documents: Tensor) -> None:
    topk(queries, documents, BEST)


def _blocks(queries: Tensor, documents: Tensor) -> None:
    topk_of_blocks(queries, torch.split(documents, BLOCK), BEST)


def _faiss(queries: Tensor, documents: Tensor) -> None:
    import faiss

    faiss.omp_set_num_threads(1)
    index: Any = faiss.IndexFlatIP(DIM)
    index.add(documents.numpy())
    index.search(queries.numpy(), BEST)


WAYS = {"search.topk": _topk, "search by blocks": _blocks}


def _peak(name: str, queries: int, documents: int, device: torch.device = CPU) -> int:
    """Peak memory over both sides, in bytes."""
    sides = _sides(queries, documents, device)
    return memory.peak_rise(lambda: WAYS[name](*sides), device)


CASES: memory.Cases = {name: partial(_peak, name) for name in WAYS}
