"""Growth of time and memory with the batch size, with exponents."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rankgrad import losses
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of, exponent
from rankgrad_papers.timing.growth import MEMORY, TIME
from rankgrad_papers.timing.references import cube_smooth_ap, cube_sup_ap
from rankgrad_papers.timing.results import DIM, PER_CLASS, Cell, Check, Options, Result, ResultTable

from . import CASE
from .in_batch import GEMM, batch, gemm, step
from .peers import pml_losses

# Largest batch for code that forms a cube [B, B, B]; backward keeps about eight of them.
LARGEST_CUBE = 512
OURS = ("supap", "smooth_ap", "rambo_ap", "fastap")
PEER = "PML SmoothAPLoss"  # also a cube


def scaling(options: Options) -> Result:
    """Growth of time and peak memory with the size of the batch."""
    sizes = options.pick(
        quick=[16, 32], cpu=[64, 128, 256, 512, 1024, 2048], gpu=[64, 128, 256, 512, 1024, 2048, 4096, 8192]
    )
    timed = {size: _times(size, options) for size in sizes}
    names = list(dict.fromkeys(name for times in timed.values() for name in times))
    rows = [[name, *(times[name].ms if name in times else None for times in timed.values())] for name in names]
    peaks = [
        [_shown(case), *(_peak_mib(case, size, options) for size in sizes)]
        for case in CASES
        if case != PEER or _theirs()
    ]
    columns = ("loss", *(f"B={size}" for size in sizes), "exponent")
    tables = [
        ResultTable(TIME, columns, [_with_exponent(sizes, row) for row in rows], _note()),
        ResultTable(MEMORY, columns, [_with_exponent(sizes, row) for row in peaks], _memory_note(options)),
    ]
    growth = tables[1].rows[0][-1]
    # a square matrix has exponent 2, a cube 3; constant costs lower both
    check = Check(f"SupAP's memory, exponent at B={sizes[-1]}", growth if isinstance(growth, float) else math.nan, 2.2)
    return Result(tables, [check])


def _note() -> str:
    return (
        f"Forward and backward, embeddings [B, {DIM}] float32, {PER_CLASS} per class. The exponent is that of the "
        f"growth between the two largest measured sizes. Cubes are measured up to B={LARGEST_CUBE}."
        + ("" if pml_losses() else " pytorch-metric-learning is not installed, so left out.")
    )


def _memory_note(options: Options) -> str:
    if options.device.type != "cpu":
        return "Rise of the allocator's peak during one forward and backward pass."
    return (
        "Rise of the peak of resident memory in one forward and backward pass, in a fresh process per cell. '-' means: "
        f"not run, because the cube already takes gigabytes at {LARGEST_CUBE}."
    )


def _with_exponent(sizes: list[int], row: list[Cell]) -> list[Cell]:
    return [*row, exponent(sizes, row[1:])]


def _times(size: int, options: Options) -> dict[str, Timing]:
    embeddings, labels = batch(size, options.device)
    actions: dict[str, Action] = {GEMM: gemm(embeddings)}
    for name, loss in {**_losses(), **_theirs()}.items():
        if size <= LARGEST_CUBE or not _is_cube(name):
            actions[_shown(name)] = partial(step, embeddings, loss, labels)
    return alternate(actions, options.rounds, f"scaling B={size}", clock_of(options.device))


def _losses() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    ours = {name: losses.LOSSES[name](normalize=False) for name in OURS}
    return {**ours, "supap cube": cube_sup_ap, "smooth_ap cube": cube_smooth_ap}


def _theirs() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    return {f"PML {name}": loss for name, loss in pml_losses().items()}


def _is_cube(name: str) -> bool:
    return name.endswith("cube") or name == PEER


def _shown(name: str) -> str:
    return name.replace(" cube", " as printed")


def _peak_mib(case: str, size: int, options: Options) -> float | None:
    copies = 8 * 4 * size**3
    if _is_cube(case) and (size > LARGEST_CUBE or copies > memory.room(options.device)):
        return None
    return memory.peak_mib(CASES, case, size, device=options.device, module=CASE)


def _peak(name: str, size: int, device: torch.device = CPU) -> int:
    loss = (_theirs() if name == PEER else _losses())[name]  # loading theirs takes a second
    small, small_labels = batch(16, device)
    step(small, loss, small_labels)  # the first call loads code
    embeddings, labels = batch(size, device)
    return memory.peak_rise(lambda: step(embeddings, loss, labels), device)


CASES: memory.Cases = {name: partial(_peak, name) for name in (*OURS, "supap cube", "smooth_ap cube", PEER)}
