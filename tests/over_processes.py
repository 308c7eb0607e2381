"""What the processes of test_distributed.py do: train a small model on their share of a batch, and report."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rankgrad import distributed
from rankgrad.batches.distributed import GlobalBatch, gather_objects, gather_rows, largest, leave, on_all, on_first
from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.batches.memory import CrossBatchMemory, memory_buffers
from rankgrad.evaluation import METRICS, Protocol, Report, evaluate
from rankgrad.losses import LOSSES, SmoothAPLoss, tiles
from rankgrad.losses.baselines import CrossEntropyLoss

ROWS, CLASSES, DIM = 12, 5, 4
# Losses of which one is exact, one has statistics over the batch, and one a memory.
TILED = ("supap", "info_nce", "adaptive_roadmap", "rambo_recall", "adaptive_roadmap memory")
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
# Rows of each process: uneven, with classes that are on one process only, and a process without any.
SPLITS: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((6, 6), (11, 1)),
    3: ((5, 4, 3), (6, 0, 6)),
    4: ((3, 3, 3, 3), (1, 7, 0, 4)),
}


class Batch(NamedTuple):
    """Inputs, labels and sample numbers of one step."""

    images: Tensor
    labels: Tensor
    ids: Tensor

    def share(self, rank: int, sizes: Sequence[int]) -> Batch:
        start = sum(sizes[:rank])
        return Batch(*(column[start : start + sizes[rank]] for column in self))


def batches(steps: int = 3) -> list[Batch]:
    g = torch.Generator().manual_seed(0)
    found = []
    for _ in range(steps):
        ids = torch.randperm(2 * ROWS, generator=g)[:ROWS].sort()[0]  # sorted: whole classes lie on one process
        found.append(Batch(torch.randn(ROWS, 6, generator=g, dtype=torch.float64), ids * CLASSES // (2 * ROWS), ids))
    return found


class Learner(nn.Module):
    """A model and a loss with a share of weights of its own, as one module to wrap."""

    def __init__(self, loss: nn.Module, dropout: float = 0.0, parts: int | None = None) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, DIM)).double()
        for parameter in self.model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=g, dtype=torch.float64)
        self.loss = loss
        self.parts = parts

    def forward(self, batch: Batch) -> Tensor:
        parts = self.parts if len(batch.images) else None
        embeddings = self.model(batch.images) if parts is None else embed_in_parts(self.model, batch.images, parts)
        value: Tensor = self.loss(embeddings, batch.labels, ids=batch.ids)
        return value


class NoIds(nn.Module):
    """Cross-entropy, which knows no sample numbers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.loss = CrossEntropyLoss(CLASSES, DIM).double()

    def forward(self, embeddings: Tensor, labels: Tensor, *, ids: Tensor) -> Tensor:
        value: Tensor = self.loss(embeddings, labels)
        return value


def cases() -> dict[str, Callable[[], nn.Module]]:
    """Name -> loss: all of them, one with weights, and memories."""
    found: dict[str, Callable[[], nn.Module]] = {**LOSSES}
    found["cross_entropy"] = NoIds
    for name in ("adaptive_roadmap", "rambo_ap"):
        found[f"{name} memory"] = lambda name=name: CrossBatchMemory(LOSSES[name](), size=20, dtype=torch.float64)  # type: ignore[misc]
    return found


class Outcome(NamedTuple):
    """Loss of each step, gradients after the last one, and the buffers (memories)."""

    values: list[float]
    gradients: list[Tensor]
    buffers: dict[str, Tensor]


def run(learner: nn.Module, inner: Learner, share: Callable[[Batch], Batch]) -> Outcome:
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
    values = []
    for batch in batches():
        optimizer.zero_grad()
        value = learner(share(batch))
        value.backward()
        values.append(float(value.detach()))
        if len(values) < len(batches()):
            optimizer.step()
    gradients = [p.grad.clone() for p in inner.parameters() if p.grad is not None]
    return Outcome(values, gradients, {name: b.clone() for name, b in inner.named_buffers()})


def alone(name: str, parts: int | None = None) -> Outcome:
    """One process with the whole batch."""
    inner = Learner(cases()[name](), parts=parts)
    return run(inner, inner, lambda batch: batch)


def together(name: str, rank: int, sizes: Sequence[int], parts: int | None = None) -> Outcome:
    """This process's part of the same."""
    return _shared(Learner(GlobalBatch(cases()[name]()), parts=parts), rank, sizes)


def _shared(inner: Learner, rank: int, sizes: Sequence[int]) -> Outcome:
    ignored = memory_buffers(inner)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(inner, ignored)  # type: ignore[no-untyped-call]
    return run(DistributedDataParallel(inner), inner, lambda batch: batch.share(rank, sizes))


def together_by_tiles(name: str, rank: int, sizes: Sequence[int]) -> tuple[Outcome, list[int]]:
    """The same by tiles of three rows; and how many tiles there were, of each loss in the loss."""
    before, (tiles.WORTH, tiles.TILE) = (tiles.WORTH, tiles.TILE), (1, 3 * ROWS)
    try:
        inner = Learner(GlobalBatch(cases()[name]()))
        found = _shared(inner, rank, sizes)
    finally:
        tiles.WORTH, tiles.TILE = before
    counts = [int(module.stats["tiles"]) for module in inner.modules() if "tiles" in getattr(module, "stats", {})]
    return found, counts


def _work(rank: int, processes: int, folder: str) -> None:
    warnings.simplefilter("error")
    # of torch's own DDP, on torch 2.15: told to people who write its C++
    warnings.filterwarnings("default", category=FutureWarning, module="torch")
    torch.set_num_threads(1)
    # what hangs is an error after the timeout, instead of a test that never ends
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=processes, timeout=limit)
    found: dict[str, Any] = {}
    for sizes in SPLITS[processes]:
        for name in cases():
            found[f"{name} {sizes}"] = together(name, rank, sizes)
        for name in TILED:
            found[f"{name} {sizes} by tiles"] = together_by_tiles(name, rank, sizes)
        found[f"in parts {sizes}"] = together("smooth_ap", rank, sizes, parts=2)
    found["references"] = against(rank, processes)
    found["order"] = gather_rows(torch.full((rank, 1), rank)).flatten().tolist()
    found["flags"] = gather_rows(torch.tensor([rank % 2 == 0])).tolist()
    found["unsigned"] = [gather_rows(torch.tensor([rank + 7], dtype=kind)).tolist() for kind in UNSIGNED]
    found["even"] = gather_rows(torch.tensor([float(rank)]), even=True).tolist()
    found["evaluation"] = evaluated(shared=True)
    found["codes"] = evaluated_codes(shared=True)
    found["objects"] = gather_objects({"rank": rank})
    found["first"] = on_first(lambda: f"from {rank}")
    found["largest"] = largest([rank, -rank])
    for what, work in {
        "first fails": lambda: on_first(_fail),
        "widths differ": lambda: gather_rows(torch.zeros(1, 2 + rank)),
        "nan on one": lambda: GlobalBatch(LOSSES["supap"]())(
            torch.full((2, 2), torch.nan if rank == 1 else 1.0), torch.tensor([0, 0])
        ),
        **mistakes(rank),
    }.items():
        try:
            work()
            found[what] = "nothing"
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            found[what] = f"{type(error).__name__}: {error}"
    found["after all mistakes"] = gather_rows(torch.tensor([rank])).tolist()
    found["without a host of its own"] = by_another_group(rank)
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    leave()


def against(rank: int, processes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Value and gradients of rows against other items, such as images against texts; or of this process's part."""
    g = torch.Generator().manual_seed(3)
    rows, items = (torch.randn(7, 4, generator=g, dtype=torch.float64).requires_grad_() for _ in range(2))
    labels = torch.arange(7) % 3
    # the parts differ in length, and those of the rows from those of the items
    mine, theirs = (part.tensor_split(processes)[rank] for part in (torch.arange(7), torch.arange(7).flip(0)))
    value = GlobalBatch(SmoothAPLoss())(
        rows[mine],
        labels[mine],
        ids=mine,
        ref_emb=items[theirs],
        ref_labels=labels[theirs],
        ref_ids=theirs + 7,
    )
    value.backward()
    assert rows.grad is not None and items.grad is not None
    return value.detach(), rows.grad / processes, items.grad / processes


def mistakes(rank: int) -> dict[str, Callable[[], object]]:
    """What process 1 does differently; an error on all, and nobody waits."""
    odd = rank == 1
    loss, rows, labels = GlobalBatch(LOSSES["supap"]()), torch.eye(4), torch.arange(4) // 2
    promised = GlobalBatch(LOSSES["supap"](), even=True)
    kept, ids = 4 - odd, torch.arange(4)
    some = {"intervals": 0, "shared": True}
    return {
        "even is a lie": lambda: gather_rows(rows[:kept], even=True),
        "even is a lie of a batch": lambda: promised(rows[:kept], labels[:kept]),
        "ids on one": lambda: loss(rows, labels, ids=ids if odd else None),
        "labels of another kind": lambda: loss(rows, labels.float() if odd else labels),
        "integers on one": lambda: loss(rows.long() if odd else rows, labels),
        "labels that are a list": lambda: loss(rows, labels.tolist() if odd else labels),
        "no gradient on one": lambda: loss(rows.clone().requires_grad_(not odd), labels),
        "labels too few": lambda: loss(rows, labels[:kept]),
        "four dimensions": lambda: gather_rows(torch.zeros(1, 2, 3, 4 + odd)),
        "evaluation of other rows": lambda: evaluate(rows + odd, labels, **some),  # type: ignore[arg-type]
        "evaluation of other ids": lambda: evaluate(
            rows,
            labels,
            protocol=Protocol(ids=ids if odd else None),
            **some,  # type: ignore[arg-type]
        ),
        "evaluation by other metrics": lambda: evaluate(
            rows,
            labels,
            metrics=["R@1", f"R@{2 + odd}"],
            **some,  # type: ignore[arg-type]
        ),
        "evaluation of nan": lambda: evaluate(rows / 0, labels, **some),  # type: ignore[arg-type]
        "fails on one": lambda: on_all(lambda: _full_disk() if odd else None),
        "fails on the first in its own way": lambda: on_first(_local_error),
    }


def by_another_group(rank: int) -> list[int]:
    """As with NCCL, which moves nothing on the CPU: the sizes go by a group of their own."""
    known = dist.get_backend
    dist.get_backend = lambda group=None: "nccl"
    try:
        return distributed._agreed({"rows": torch.zeros(1 + rank, 2)}, even=False)
    finally:
        dist.get_backend = known


def _full_disk() -> None:
    raise OSError(28, "No space left on device")


def _local_error() -> None:
    class Local(Exception):
        """Not to be found by another process."""

    raise Local("only here")


def evaluated(shared: bool) -> Report:
    """Ragged classes at two levels, one of them with a single member."""
    g = torch.Generator().manual_seed(3)
    fine = torch.randint(0, 9, (41,), generator=g)
    fine[0] = 9
    embeddings = torch.randn(41, 6, generator=g, dtype=torch.float64)
    some = {"intervals": 50, "block": 7}  # blocks for all processes
    return evaluate(embeddings, torch.stack([fine // 3, fine], 1), **some, shared=shared)  # type: ignore[arg-type]


def evaluated_codes(shared: bool) -> Report:
    """Codes of +-1, whose cosines are often equal; FNMR needs the scores of all."""
    codes = torch.randint(0, 2, (50, 14), generator=torch.Generator().manual_seed(4)).float() * 2 - 1
    labels = [f"class {i % 6}" for i in range(50)]
    some = {"intervals": 0, "block": 7}
    return evaluate(codes, labels, shared=shared, metrics=[*METRICS, "FNMR@FMR=0.1", "AP@5"], **some)  # type: ignore[arg-type]


def _fail() -> None:
    raise ValueError("the first one is to blame")


def spawn(processes: int) -> list[dict[str, Any]]:
    """What each of the processes found."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # by fork they have imported everything; with a GPU autograd has threads, which do not come along
        how = "spawn" if torch.cuda.is_available() else "fork"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: of threads beside a fork
            mp.start_processes(_work, (processes, folder), nprocs=processes, start_method=how)  # type: ignore[no-untyped-call]
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(processes)]
