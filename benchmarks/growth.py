"""Growth of time and memory: of large batches by tiles and with one matrix, of long lists, and of many lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad import ops
from rankgrad.losses import InfoNCELoss, LambdaLoss, SupAPLoss
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of, exponent
from rankgrad_papers.timing.growth import BATCH, LENGTH, LISTS, titles
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

from .tiles import forced

DIM, PER_CLASS = 64, 4
HITS, LENGTH_OF_LISTS = 10, 1_000
#: A batch with one matrix is measured up to this size; several copies of the matrix are needed.
LARGEST_MATRIX = 8_192
ROUNDS = 3

OF_BATCHES = {"softmax": InfoNCELoss(normalize=False), "supap": SupAPLoss(normalize=False)}
IN_BATCHES = [f"{loss}, {way}" for loss in OF_BATCHES for way in ("matrix", "tiles")]
OF_LISTS: dict[str, Callable[..., Tensor]] = {
    "softmax": InfoNCELoss(tau=1.0).from_scores,
    "supap": SupAPLoss(tau=0.1).from_scores,
    "lambda": LambdaLoss(k=10).from_scores,
    "soft_rank": lambda scores, relevant: ops.soft_rank(scores)[relevant].mean(),
}


def growth(options: Options) -> Result:
    """Growth of time and peak memory with the batch, with the length of a list, and with the number of lists."""
    batches = options.pick(
        quick=[16, 32], cpu=[1_024, 2_048, 4_096, 8_192, 16_384], gpu=[2_048, 4_096, 8_192, 16_384, 32_768]
    )
    lengths = options.pick(
        quick=[20, 40], cpu=[1_000, 10_000, 100_000, 1_000_000], gpu=[10_000, 100_000, 1_000_000, 10_000_000]
    )
    lists = options.pick(quick=[2, 4], cpu=[16, 64, 256, 1_024], gpu=[64, 256, 1_024, 4_096])
    items = 20 if options.quick else LENGTH_OF_LISTS
    tables = [
        *_tables(BATCH, "B", IN_BATCHES, [(size, 1) for size in batches], options),
        *_tables(LENGTH, "n", [*OF_LISTS], [(size, 1) for size in lengths], options),
        *_tables(LISTS, "lists", [*OF_LISTS], [(items, many) for many in lists], options),
    ]
    memory_of_tiles = next(row[-1] for row in tables[1].rows if row[0] == "softmax, tiles")
    checks = []
    if isinstance(memory_of_tiles, float):
        checks = [Check("Memory of the softmax by tiles, exponent with the batch", memory_of_tiles, 1.2)]
    return Result(tables, checks)


def _tables(
    axis: str, head: str, names: Sequence[str], shapes: Sequence[tuple[int, int]], options: Options
) -> list[ResultTable]:
    """The time and the memory of cases, for shapes (items, lists)."""
    sizes = [items if axis != LISTS else many for items, many in shapes]
    timed = [_times(names, items, many, options) for items, many in shapes]
    time: list[list[Cell]] = [[name, *(each[name].ms if name in each else None for each in timed)] for name in names]
    peaks: list[list[Cell]] = [
        [
            name,
            *(
                memory.peak_mib(CASES, f"growth {name}", items, many, device=options.device, module="benchmarks.case")
                if _runs(name, items)
                else None
                for items, many in shapes
            ),
        ]
        for name in names
    ]
    columns = ("loss", *(f"{head}={size}" for size in sizes), "exponent")
    return [
        ResultTable(title, columns, [[*row, exponent(sizes, row[1:])] for row in rows], note)
        for title, rows, note in zip(titles(axis), (time, peaks), (NOTES[axis], MEMORY_NOTE), strict=True)
    ]


NOTES = {
    BATCH: (
        f"Forward and backward, embeddings [B, {DIM}] float32, {PER_CLASS} per class. The exponent is that between the "
        f"two largest measured sizes. One matrix of scores is measured up to B={LARGEST_MATRIX:,}."
    ),
    LENGTH: f"Forward and backward to the scores of one list of n items, of which {HITS} are relevant.",
    LISTS: f"Forward and backward to the scores of lists of {LENGTH_OF_LISTS:,} items, of which {HITS} are relevant.",
}
MEMORY_NOTE = "Rise of the peak in a fresh process, the gradient included; on a GPU that of the allocator."


def _runs(name: str, items: int) -> bool:
    return not name.endswith("matrix") or items <= LARGEST_MATRIX


def _times(names: Sequence[str], items: int, many: int, options: Options) -> dict[str, Timing]:
    actions = {name: _action(name, items, many, options.device) for name in names if _runs(name, items)}
    return alternate(actions, ROUNDS, f"growth {items:,} x {many:,}", clock_of(options.device))


def _action(name: str, items: int, many: int, device: torch.device) -> Action:
    """Forward and backward of a case."""
    generator = torch.Generator().manual_seed(0)
    loss, _, way = name.partition(", ")
    if way:
        labels = torch.arange(items) // PER_CLASS
        leaf = F.normalize(torch.randn(items, DIM, generator=generator)).to(device).requires_grad_()
        call = partial(OF_BATCHES[loss], labels=labels.to(device))
    else:
        relevant = torch.zeros(many, items, dtype=torch.bool)
        relevant.scatter_(1, torch.rand(many, items, generator=generator).topk(HITS).indices, True)
        leaf = torch.randn(many, items, generator=generator).to(device).requires_grad_()
        call = partial(OF_LISTS[loss], relevant=relevant.to(device))

    def act() -> None:
        leaf.grad = None
        with forced(way):
            call(leaf).backward()

    return act


def _peak(name: str, items: int, many: int, device: torch.device = CPU) -> int:
    _action(name, 16, 1, device)()  # the first call loads code
    return memory.peak_rise(_action(name, items, many, device), device)


CASES: memory.Cases = {f"growth {name}": partial(_peak, name) for name in (*IN_BATCHES, *OF_LISTS)}
