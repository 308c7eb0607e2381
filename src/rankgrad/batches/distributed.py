r"""Training on W processes with the same loss and gradient as one process with the concatenated batch.

A rank loss is not a sum over images: the rank of an item depends on all other items. So each process gathers the
embeddings of all processes (`gather_rows`) and computes the same loss L of the whole batch. The gradient is then
correct without a further step. Every process computes dL/d(embedding) of every image, and the backward pass of
`gather_rows` sums these: the process that has the image's graph gets W times dL/d(embedding). DistributedDataParallel
takes the mean of each weight's gradient over the processes, which is 1/W of the sum. The two factors cancel.

This holds for every loss. The cost: all processes compute the whole loss, which takes a few per cent of a training
step in our benchmarks.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..ranks import computed
from ..ranks.first_order import refuse_graph

T = TypeVar("T")

PATIENCE = timedelta(days=7)  # how long a group waits for its slowest process; torchrun ends all when one fails


def world() -> tuple[int, int]:
    """(rank, number of processes) of the current process group, (0, 1) without a group.

    >>> world()
    (0, 1)
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def started() -> int:
    """Number of processes that torchrun or `runs.launch` started together, including this one; 0 if neither did."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 0


@contextmanager
def group(backend: str = "gloo", timeout: timedelta | None = None) -> Iterator[None]:
    """A context with a process group of the processes that were started together. One process needs no group.

    Args:
        backend: as in `torch.distributed.init_process_group`.
        timeout: time limit of collective operations; None: torch's default.
    """
    processes = started()
    if processes <= 1:
        yield
        return
    dist.init_process_group(backend, timeout=timeout)
    try:
        yield
    finally:
        leave()


def leave() -> None:
    """Destroy the process group.

    A thread of the group frees the tensors of its last operation. For this it needs Python's interpreter lock, which
    torch 2.6 holds while it waits for that thread to end. A short sleep lets the thread finish first.
    """
    time.sleep(0.1)
    dist.destroy_process_group()


def gather_rows(rows: Tensor, *, even: bool = False) -> Tensor:
    """The rows of all processes, in the order of the processes, on each process; with gradient.

    The gradient of a process's rows is the sum over all processes (see the top of this file).

    First the shapes and dtypes of all processes are compared on the host: a collective operation on tensors that do not
    fit would hang or mix them up. Nothing waits for a GPU.

    Args:
        rows: [row, ...] of any dtype. The number of rows may differ between the processes, and may be 0. Dtype and
            other dimensions must be equal on all processes.
        even: a promise that all processes have the same number of rows.

    Returns:
        [rows of all processes, ...]. Without a process group: `rows`.

    Raises:
        ValueError: on every process, if shapes or dtypes differ, only some of the rows require a gradient, or the
            promise is broken.

    >>> gather_rows(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if world()[1] == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows, _agreed({"rows": rows}, even))
    return gathered


SIZES = 6  # largest number of dimensions of a tensor
KIND, GRAPH, DTYPE, DIMS, ROWS = range(5)  # places in the description of a value, see `_described`; more sizes follow
NONE, TENSOR, OTHER = range(3)  # values of KIND
DTYPES = {zlib.crc32(str(d).encode()): str(d) for d in vars(torch).values() if isinstance(d, torch.dtype)}


def _agreed(batch: Mapping[str, object], even: bool) -> list[int]:
    """Number of rows of each process. Raises on all processes if their tensors do not fit together.

    Args:
        batch: name -> [row, ...], or None if not given. All tensors of one process must have the same number of rows.
        even: whether the number of rows must be the same on all processes.
    """
    mine = torch.tensor([_described(value) for value in batch.values()])
    answers = [torch.empty_like(mine) for _ in range(world()[1])]
    dist.all_gather(answers, mine, group=_host_group())
    everyone: list[list[list[int]]] = torch.stack(answers).tolist()
    processes = range(len(everyone))
    for at, name in enumerate(batch):
        here = [process[at] for process in everyone]
        told = ", ".join(f"process {r}: {_told(here[r])}" for r in processes)
        if any(entry[KIND] == OTHER for entry in here):
            raise TypeError(f"{name} must be a tensor [row, ...] on all processes; got {told}")
        if any(entry[KIND] != here[0][KIND] for entry in here):
            raise ValueError(f"{name} must be given on all processes or on none; got {told}")
        if any(entry[DTYPE:ROWS] + entry[ROWS + 1 :] != here[0][DTYPE:ROWS] + here[0][ROWS + 1 :] for entry in here):
            raise ValueError(f"{name} must have the same width and dtype on all processes; got {told}")
        if len({entry[GRAPH] for entry in here}) > 1:  # the backward pass of one process would wait for the others
            without = ", ".join(str(r) for r in processes if not here[r][GRAPH])
            raise ValueError(f"{name} must require a gradient on all processes or on none; without: process {without}")
    given = [name for at, name in enumerate(batch) if everyone[0][at][KIND] == TENSOR]
    counts = [[entry[ROWS] for entry in process if entry[KIND] == TENSOR] for process in everyone]
    for r in processes:
        if len(set(counts[r])) > 1:
            raise ValueError(f"{', '.join(given)} must have one row per sample; process {r} has {counts[r]}")
    rows = [count[0] for count in counts if count]
    if even and len(set(rows)) > 1:
        raise ValueError(f"even=True needs the same number of rows on all processes; got {rows}. Leave even out.")
    return rows


def _described(value: object) -> list[int]:
    """Description of a value in numbers, with the places KIND, GRAPH, DTYPE, DIMS and sizes. The first size is ROWS."""
    if value is None:
        return [NONE] + [0] * (ROWS - 1 + SIZES)
    if not isinstance(value, Tensor) or not 1 <= value.dim() <= SIZES:
        return [OTHER] + [0] * (ROWS - 1 + SIZES)
    graph, dtype = torch.is_grad_enabled() and value.requires_grad, zlib.crc32(str(value.dtype).encode())
    return [TENSOR, graph, dtype, value.dim(), *value.shape, *[0] * (SIZES - value.dim())]


def _told(entry: list[int]) -> str:
    if entry[KIND] != TENSOR:
        return "none" if entry[KIND] == NONE else "something else"
    return f"{DTYPES[entry[DTYPE]]} {entry[ROWS : ROWS + entry[DIMS]]}"


_HOST: dict[object, Any] = {}  # process group -> a group of the same processes for tensors on the host


def _host_group() -> Any:
    """A group that can send tensors on the CPU: the current one if possible."""
    group = dist.group.WORLD
    if any(part in dist.get_backend() for part in ("gloo", "mpi", "cpu")):
        return group
    if group not in _HOST:
        _HOST.clear()  # remove groups that have ended
        _HOST[group] = dist.new_group(backend="gloo")
    return _HOST[group]


def _device(tensor: Tensor) -> torch.device:
    """Device from which this group can send a tensor. NCCL cannot send from the CPU."""
    if tensor.device.type == "cpu" and dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return tensor.device


def _all_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    """Gather without gradient. Shorter tensors are padded for the transfer."""
    sent = rows.detach()
    # some communication libraries cannot send these
    if sent.dtype == torch.bool:
        sent = sent.to(torch.uint8)
    elif sent.dtype in (torch.uint16, torch.uint32, torch.uint64):
        sent = sent.long()
    most = max(sizes)
    if len(sent) < most:
        sent = torch.cat([sent, sent.new_zeros(most - len(sent), *sent.shape[1:])])
    sent = sent.to(_device(rows)).contiguous()
    gathered = [torch.empty_like(sent) for _ in sizes]
    dist.all_gather(gathered, sent)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)]).to(rows.device, rows.dtype)


class _GatherRows(torch.autograd.Function):
    """Forward: all rows. Backward: the sum over the processes; each process keeps the gradient of its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        return _all_rows(rows, sizes)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        refuse_graph()
        total = upstream.to(_device(upstream)).contiguous().clone()
        dist.all_reduce(total)
        start = sum(ctx.sizes[: world()[0]])
        return total[start : start + ctx.sizes[world()[0]]].to(upstream.device), None


class GlobalBatch(nn.Module):
    """The loss of one process on the concatenated batches of all processes.

    Without a process group it is `loss` itself. Under DistributedDataParallel (Lightning's DDP, torchrun) the gradient
    of the weights equals that of one process, if the embedding of an image does not depend on other images (no batch
    norm, or SyncBatchNorm). Put a memory inside: `GlobalBatch(CrossBatchMemory(loss, size))` has the same entries on
    every process. The value is the same on all processes, so log that of any process.

    Args:
        loss: called as loss(embeddings, labels), and with those of the other arguments that are given.
        even: raise an error if the processes have different numbers of images in a batch.

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
        """Statistics of the loss for the whole batch; {} if it has none."""
        stats: dict[str, Tensor] = getattr(self.loss, "stats", {})
        return stats

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        ids: Tensor | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """Loss of the batch of all processes, equal on each process.

        Args:
            embeddings: [row, dim] of this process; may have no rows.
            labels: labels of these rows, of any kind that the loss takes; a tensor. The classes may differ between the
                processes.
            ids: [row] sample ids, on all processes or on none.
            ref_emb: [item, dim] other items of this process to compare the rows with, such as the texts of its images.
                The rows of all processes are compared with the items of all processes. With gradient.
            ref_labels: labels of these items.
            ref_ids: [item] their sample ids.

        Raises:
            ValueError: on every process, if the tensors of the processes do not fit together.
        """
        rows = {"embeddings": embeddings, "labels": labels, "ids": ids}
        items = {"ref_emb": ref_emb, "ref_labels": ref_labels, "ref_ids": ref_ids}
        if world()[1] > 1:
            rows = self._gathered(rows, "embeddings")
            items = self._gathered(items, "ref_emb")
        given = {name: value for name, value in (rows | items).items() if value is not None}
        value: Tensor = self.loss(given.pop("embeddings"), given.pop("labels"), **given)
        return value

    def _gathered(self, mine: Mapping[str, Tensor | None], embedded: str) -> dict[str, Tensor | None]:
        """What is given, of all processes. The rows of `embedded` keep their gradient."""
        rows, here = mine[embedded], dict(mine)
        if isinstance(rows, Tensor) and rows.is_floating_point():
            here[embedded] = computed(rows)  # half precision would round the sum of the gradients
        sizes = _agreed(here, self.even)
        gathered: dict[str, Tensor | None] = {}
        for name, value in here.items():
            if value is not None:
                gathered[name] = _GatherRows.apply(value, sizes) if name == embedded else _all_rows(value, sizes)
        return gathered


def on_first(work: Callable[[], T]) -> T:
    """Call a function on the first process only. All processes get its result, or raise its error.

    Args:
        work: the function; its result must be picklable.

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
            result[1] = _sendable(error)
    dist.broadcast_object_list(result, src=0)
    if result[1] is not None:
        raise result[1]
    value: T = result[0]
    return value


def on_all(work: Callable[[], T]) -> T:
    """Call a function on every process. Each gets its own result; if one raises an error, all raise it.

    Otherwise the other processes would wait for the failed one forever. `work` itself must not communicate.

    >>> on_all(lambda: 1 + 1)
    2
    """
    if world()[1] == 1:
        return work()
    result: list[T] = []
    failure: Exception | None = None
    try:
        result.append(work())
    except Exception as error:
        failure = _sendable(error)
    first = next((error for error in gather_objects(failure) if error is not None), None)
    if first is not None:
        raise first
    return result[0]


def _sendable(error: Exception) -> Exception:
    """The error itself, or a RuntimeError with its message if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def require_same(**values: object) -> None:
    """Raise on every process unless all processes pass exactly the same values.

    Args:
        values: name -> tensor on any device, array, or any object whose repr contains its whole value.

    Raises:
        ValueError: values differ; the message has their names.

    >>> require_same(labels=torch.tensor([1, 2]))
    """
    if world()[1] == 1:
        return
    everyone = gather_objects({name: _fingerprint(value) for name, value in values.items()})
    differ = [name for name in values if any(process.get(name) != everyone[0].get(name) for process in everyone)]
    if differ:
        raise ValueError(
            f"all processes must pass the same input; they differ in {', '.join(differ)}. Gather the input of all "
            "processes (distributed.gather_rows), or leave out shared=True."
        )


def _fingerprint(value: object) -> str:
    kind = ""
    if isinstance(value, Tensor):
        kind = f"{value.dtype} {tuple(value.shape)} "
        flat = value.detach().cpu().reshape(-1)  # numpy has no bfloat16: compare its bytes
        value = flat.view(torch.uint8).numpy() if len(flat) else np.zeros(0)
    if not isinstance(value, np.ndarray):
        return repr(value)
    if value.dtype.kind == "O":
        return repr(value.tolist())
    return f"{kind}{value.dtype} {value.shape} " + hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest()


def largest(mine: Sequence[int]) -> list[int]:
    """The elementwise maximum over all processes, on each process.

    >>> largest([0, 15])
    [0, 15]
    """
    if world()[1] == 1:
        return list(mine)
    numbers = torch.tensor(mine)
    numbers = numbers.to(_device(numbers))
    dist.all_reduce(numbers, dist.ReduceOp.MAX)
    return [int(number) for number in numbers]


def gather_objects(mine: T) -> list[T]:
    """The objects of all processes in the order of the processes, on each process. They must be picklable.

    >>> gather_objects("a")
    ['a']
    """
    if world()[1] == 1:
        return [mine]
    gathered: list[Any] = [None] * world()[1]
    dist.all_gather_object(gathered, mine)
    return gathered


def share(count: int) -> slice:
    """This process's part of `count` positions: every W-th of them.

    >>> list(range(5))[share(5)]
    [0, 1, 2, 3, 4]
    """
    rank, processes = world()
    return slice(rank, count, processes)


__all__ = ["GlobalBatch", "gather_rows", "world"]
