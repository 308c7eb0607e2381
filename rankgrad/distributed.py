r"""Training on W processes: the loss and gradient of one process that holds the concatenated batch.

A rank loss is no sum over images: the rank of an item depends on every other one. So each process gathers the
embeddings of all (`gather_rows`), computes the loss of the whole batch, and gets the same number L. The gradient needs
nothing else. What L asks of an image is asked by every process, and the backward pass of the gathering adds these up:
W times dL/d(embedding), at the process that has the image's graph. DistributedDataParallel then takes the mean over the
processes of each weight's gradient: 1/W of the sum. The two factors cancel, and nothing is multiplied by hand.

This holds for every loss, whatever it does with the batch. Its price is that all processes do the loss's work, which
`rankgrad bench` shows to be a few per cent of a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .ranks import computed
from .ranks.second_order import refuse_graph

T = TypeVar("T")


def world() -> tuple[int, int]:
    """(rank, processes) of the group that is running, (0, 1) where there is none.

    >>> world()
    (0, 1)
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather_rows(rows: Tensor, *, even: bool = False) -> Tensor:
    """The rows of all processes, one process after the other, on each of them; with gradient.

    The gradient that reaches a process is the sum of what all processes ask of its rows (see the top of this file).

    Args:
        rows: [row, ...] of any dtype, with as many rows as this process has: none, if need be. All else must agree
            between the processes.
        even: promise that all have equally many rows; spares the exchange of the numbers, and so a synchronisation
            with a GPU. A broken promise is undefined behaviour of the communication library.

    Returns:
        [rows of all, ...]; without a process group, the rows themselves.

    Raises:
        ValueError: on every process, if shape or dtype differ (not checked with `even`).

    >>> gather_rows(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if world()[1] == 1:
        return rows
    sizes = [len(rows)] * world()[1] if even else _sizes(rows)
    gathered: Tensor = _GatherRows.apply(rows, sizes)
    return gathered


def _sizes(rows: Tensor) -> list[int]:
    """Rows of each process; raises on all of them if the rest differs."""
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]
    kind = dtypes.index(rows.dtype) if rows.dtype in dtypes else -1
    rest = [*rows.shape[1:], 0, 0][:2] if rows.dim() <= 3 else [-1, -1]
    mine = torch.tensor([len(rows), rows.dim(), *rest, kind], device=_device(rows))
    found = [torch.empty_like(mine) for _ in range(world()[1])]
    dist.all_gather(found, mine)
    table = torch.stack(found).tolist()
    if any(row[1:] != table[0][1:] for row in table):
        shapes = ", ".join(f"process {r}: [{n}, ...] {d}-d, {a} x {b}" for r, (n, d, a, b, _) in enumerate(table))
        raise ValueError(f"rows to gather must agree in width and dtype on all processes; got {shapes}")
    return [row[0] for row in table]


def _device(tensor: Tensor) -> torch.device:
    """Where this group can move a tensor: a group of NCCL alone knows no CPU."""
    if tensor.device.type == "cpu" and dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return tensor.device


def _all_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    """Gather without gradient; what is shorter is padded on the way."""
    sent = rows.detach()
    if sent.dtype == torch.bool:
        sent = sent.to(torch.uint8)  # not every communication library moves booleans
    most = max(sizes)
    if len(sent) < most:
        sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
    sent = sent.to(_device(rows)).contiguous()
    found = [torch.empty_like(sent) for _ in sizes]
    dist.all_gather(found, sent)
    return torch.cat([part[:size] for part, size in zip(found, sizes, strict=True)]).to(rows.device, rows.dtype)


class _GatherRows(torch.autograd.Function):
    """All rows forward; backward the sum over the processes, of which each keeps its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return _all_rows(rows, sizes)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        refuse_graph("embeddings were gathered across processes; take gradient penalties on one process")
        total = upstream.to(_device(upstream)).contiguous().clone()
        dist.all_reduce(total)
        start = sum(ctx.sizes[: world()[0]])
        return total[start : start + ctx.sizes[world()[0]]].to(upstream.device), None


class GlobalBatch(nn.Module):
    """A loss over the batches of all processes: what one process would compute on the concatenated batch.

    Without a process group it is the loss itself. Under DistributedDataParallel (Lightning's DDP, torchrun) the
    gradient of the weights equals that of one process, if the model treats every image by itself (no batch norm, or
    SyncBatchNorm). A memory belongs inside: `GlobalBatch(CrossBatchMemory(loss, size))` keeps the same entries on every
    process. Log the value of any process: they are equal.

    Args:
        loss: called as loss(embeddings, labels), with ids=... if ids are given.
        even: all processes have equally many images in every batch, see `gather_rows`.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> loss = GlobalBatch(SmoothAPLoss())
    >>> loss(torch.eye(4)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])) < 1e-6
    tensor(True)
    """

    def __init__(self, loss: nn.Module, *, even: bool = False) -> None:
        super().__init__()
        self.loss, self.even = loss, even

    @property
    def stats(self) -> dict[str, Tensor]:
        """Statistics of the loss, over the whole batch; {} if it keeps none."""
        found: dict[str, Tensor] = getattr(self.loss, "stats", {})
        return found

    def forward(self, embeddings: Tensor, labels: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Loss of the batch of all processes, the same on each.

        Args:
            embeddings: [row, dim] of this process; may have no rows.
            labels: of these, any kind that the loss takes; the classes may differ between the processes.
            ids: [row] sample numbers.
        """
        if world()[1] > 1:
            # half precision would round the sum of the gradients
            embeddings = gather_rows(computed(embeddings), even=self.even)
            labels = gather_rows(labels, even=self.even)
            ids = None if ids is None else gather_rows(ids, even=self.even)
        value: Tensor = self.loss(embeddings, labels) if ids is None else self.loss(embeddings, labels, ids=ids)
        return value


def on_first(work: Callable[[], T]) -> T:
    """Do something on the first process only; all get its result, or raise its error.

    Args:
        work: what to do; its result must be picklable. Its `Exception` is raised on every process.

    >>> on_first(lambda: 1 + 1)
    2
    """
    rank, processes = world()
    if processes == 1:
        return work()
    result: list[Any] = [None, None]
    if rank == 0:
        try:
            result[0] = work()
        except Exception as error:
            result[1] = error
    dist.broadcast_object_list(result, src=0)
    if result[1] is not None:
        raise result[1]
    value: T = result[0]
    return value


def gather_objects(mine: T) -> list[T]:
    """What each process has, in the order of the processes, on all of them; must be picklable.

    >>> gather_objects("a")
    ['a']
    """
    if world()[1] == 1:
        return [mine]
    found: list[Any] = [None] * world()[1]
    dist.all_gather_object(found, mine)
    return found


def share(count: int) -> slice:
    """The positions among `count` that are this process's to work on: every W-th.

    >>> list(range(5))[share(5)]
    [0, 1, 2, 3, 4]
    """
    rank, processes = world()
    return slice(rank, count, processes)
