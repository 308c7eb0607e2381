"""Exact evaluation against the matrix product of the same blocks, and against packages that compute AP."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad import metrics
from rankgrad.search import MAX_BLOCK, MEMORY, PAIR_BYTES, Candidates, rank_blocks
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of, threads
from rankgrad_papers.timing.results import DIM, PER_CLASS, Cell, Check, Options, Result, ResultTable

from . import CASE
from .peers import ap_functions

GEMM, RANKS, OURS = "GEMM", "evaluation ranks", "ours"


class Size(NamedTuple):
    """Queries, items, width of the embeddings, images per class (relevant items of a query + 1)."""

    queries: int
    items: int
    dim: int
    per_class: int

    def __str__(self) -> str:
        return f"{self.queries:,} x {self.items:,} x {self.dim}, p={self.per_class - 1:,}"


def evaluator(options: Options) -> Result:
    """Exact ranks over a large gallery, compared with the matrix product of its blocks; AP, compared with peers."""
    common = [Size(1_000, 60_000, DIM, per_class) for per_class in (PER_CLASS, 101, 1_001)]
    longer = [Size(60_000, 60_000, DIM, PER_CLASS), Size(10_000, 1_000_000, 128, PER_CLASS)]
    sizes = options.pick(
        quick=[Size(40, 2_000, DIM, PER_CLASS)], cpu=common + longer * options.long, gpu=common + longer
    )
    rows: list[list[Cell]] = []
    checks = []
    for size in sizes:
        # with more threads, the processor time of all of them and wall-clock time are measured
        for count in (1, 2) if options.device.type == "cpu" and size in common else (1,):
            with threads(count):
                times = _times(size, options)
            name = f"{size}" + (f", {count} threads" if count > 1 else "")
            ours, floor = times[RANKS], times[GEMM]
            peak = (
                memory.peak_mib(CASES, "evaluator", *size, device=options.device, module=CASE) if count == 1 else None
            )
            share = 100 * floor.wall_over(ours)
            rows.append([name, floor.wall_ms, ours.wall_ms, ours.wall_over(floor), share, ours.over(floor), peak])
            if size == common[0] and count == 1:
                checks.append(Check("evaluation ranks over GEMM, p=3", ours.over(floor), 1.6))
    note = (
        "Queries x items x width of float32 embeddings. Each query has p relevant items and is left out of its own "
        "list. Measured are the ranks of all relevant items under three rules for ties. GEMM computes the same scores "
        f"in the same blocks of up to {MAX_BLOCK} queries. Peak memory is beyond the embeddings."
    )
    columns = ("", "GEMM: wall ms", "ranks: wall ms", "x GEMM", "GEMM's share %", "x GEMM, processor time", "peak MiB")
    return Result([ResultTable("Evaluation", columns, rows, note), _peers(options)], checks)


def _times(size: Size, options: Options) -> dict[str, Timing]:
    gallery, labels = _gallery(size, options.device)
    numbers = torch.arange(size.items, device=options.device)
    block = max(1, min(MAX_BLOCK, MEMORY // (4 * size.items + PAIR_BYTES * size.per_class), size.queries))
    buffer = torch.empty(block, size.items, device=options.device)

    def gemm() -> None:
        for rows in torch.split(gallery[: size.queries], block):
            torch.mm(rows, gallery.T, out=buffer[: len(rows)])

    actions: dict[str, Action] = {GEMM: gemm, RANKS: partial(_evaluate, gallery, labels, numbers, size.queries)}
    return alternate(actions, options.rounds, f"evaluator {size}", clock_of(options.device))


def _gallery(size: Size, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    """Unit embeddings around class centres, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(size.items) // size.per_class
    centres = torch.randn(int(labels[-1]) + 1, size.dim, generator=generator)
    gallery = torch.randn(size.items, size.dim, generator=generator).mul_(2).add_(centres[labels])
    return F.normalize(gallery, dim=1, out=gallery).to(device), labels.to(device)


def _evaluate(gallery: Tensor, labels: Tensor, numbers: Tensor, queries: int) -> None:
    own = Candidates(ids=numbers[:queries], ref_ids=numbers)
    for _ in rank_blocks(gallery[:queries], labels[:queries], gallery, labels, own):
        pass


def _peak(*size: int, device: torch.device = CPU) -> int:
    small = Size(8, 64, 16, 4)
    _evaluate(*_gallery(small, device), torch.arange(small.items, device=device), small.queries)
    gallery, labels = _gallery(Size(*size), device)
    numbers = torch.arange(len(gallery), device=device)
    return memory.peak_rise(lambda: _evaluate(gallery, labels, numbers, size[0]), device)


CASES: memory.Cases = {"evaluator": _peak}


def _peers(options: Options) -> ResultTable:
    """AP of every query from one score matrix."""
    queries, items = options.pick(quick=(8, 100), cpu=(200, 5_000), gpu=(1_000, 20_000))
    generator = torch.Generator().manual_seed(0)
    relevant = (torch.rand(queries, items, generator=generator) < 0.01).to(options.device)
    relevant[:, 0] = True
    scores = torch.randn(queries, items, generator=generator).to(options.device)
    functions: dict[str, Any] = {OURS: metrics.mean_average_precision, **ap_functions()}
    actions: dict[str, Action] = {name: partial(each, scores, relevant) for name, each in functions.items()}
    times = alternate(actions, options.rounds, "evaluator: peers", clock_of(options.device))
    rows: list[list[Cell]] = [
        [name, mine.ms, mine.over(times[OURS]), float(functions[name](scores, relevant))]
        for name, mine in times.items()
    ]
    note = f"Mean AP of {queries} queries over {items:,} items each, 1 % of them relevant, from a float32 score matrix."
    return ResultTable("AP from scores", ("", "ms", "x ours", "mean AP"), rows, note)
