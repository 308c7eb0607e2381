r"""Training on W processes: the loss and gradient of one process that holds the concatenated batch.

A rank loss is no sum over images: the rank of an item depends on every other one. So each process gathers the
embeddings of all (`gather_rows`), computes the loss of the whole batch, and gets the same number L. The gradient needs
nothing else. What L asks of an image is asked by every process, and the backward pass of the gathering adds these up:
W times dL/d(embedding), at the process that has the image's graph. DistributedDataParallel then takes the mean over the
processes of each weight's gradient: 1/W of the sum. The two factors cancel, and nothing is multiplied by hand.

This holds for every loss, whatever it does with the batch. Its price is that all processes do the loss's work, which
benchmarks show to be a few per cent of a training step.
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
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from .ranks import computed
from .ranks.second_order import refuse_graph

T = TypeVar("T")

STORE = (
    "RANKGRAD_STORE"  # environment variable: the file by which processes find each other that torchrun did not start
)
PATIENCE = timedelta(days=7)  # for the slowest process of a group; torchrun ends all when one fails


def world() -> tuple[int, int]:
    """(rank, processes) of the group that is running, (0, 1) where there is none.

    >>> world()
    (0, 1)
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def started() -> int:
    """How many processes torchrun, or `runs.launch`, has started together, this one included; 0: it was neither."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 0


@contextmanager
def group(backend: str = "gloo", timeout: timedelta | None = None) -> Iterator[None]:
    """The group of the processes that were started together, from here to the end; nothing if there is one process.

    Args:
        backend: as in `torch.distributed.init_process_group`.
        timeout: for what all do together; None: as torch has it.
    """
    processes = started()
    if processes <= 1:
        yield
        return
    place: dict[str, Any] = {}
    if STORE in os.environ:
        store = Path(os.environ[STORE]).as_uri()
        place = {"init_method": store, "rank": int(os.environ["RANK"]), "world_size": processes}
    dist.init_process_group(backend, timeout=timeout, **place)
    try:
        yield
    finally:
        leave()


def leave() -> None:
    """End this process's group.

    A thread of the group frees the tensors of its last operation, for which it needs the interpreter; torch 2.6 keeps
    the interpreter while it waits for that thread to end. A moment's sleep lets the thread go first.
    """
    time.sleep(0.1)
    dist.destroy_process_group()


def gather_rows(rows: Tensor, *, even: bool = False) -> Tensor:
    """The rows of all processes, one process after the other, on each of them; with gradient.

    The gradient that reaches a process is the sum of what all processes ask of its rows (see the top of this file).

    What each process brings is compared on the host first: a collective operation on tensors that do not fit would hang
    or mix them up. No GPU is waited for.

    Args:
        rows: [row, ...] of any dtype, with as many rows as this process has: none, if need be. All else must agree
            between the processes.
        even: promise that all have equally many rows.

    Returns:
        [rows of all, ...]; without a process group, the rows themselves.

    Raises:
        ValueError: on every process, if shape or dtype differ, or the promise is broken.

    >>> gather_rows(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if world()[1] == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows, _agreed({"rows": rows}, even))
    return gathered


SIZES = 6  # dimensions of a tensor that are compared
DTYPES = {zlib.crc32(str(d).encode()): str(d) for d in vars(torch).values() if isinstance(d, torch.dtype)}


def _agreed(batch: Mapping[str, object], even: bool) -> list[int]:
    """Rows of each process; raises on all of them if what they bring does not fit together.

    Args:
        batch: name -> [row, ...], or None for what is not given. All of one process must have equally many rows.
        even: the number of rows must be the same everywhere.
    """
    mine = torch.tensor([_described(value) for value in batch.values()])
    answers = [torch.empty_like(mine) for _ in range(world()[1])]
    dist.all_gather(answers, mine, group=_host_group())
    everyone: list[list[list[int]]] = torch.stack(answers).tolist()
    processes = range(len(everyone))
    for at, name in enumerate(batch):
        here = [process[at] for process in everyone]
        told = ", ".join(f"process {r}: {_told(here[r])}" for r in processes)
        if any(entry[0] == 2 for entry in here):
            raise TypeError(f"{name} must be a tensor [row, ...] on all processes; got {told}")
        if any(entry[0] != here[0][0] for entry in here):
            raise ValueError(f"{name} must be given on all processes or on none; got {told}")
        if any(entry[1:3] + entry[4:] != here[0][1:3] + here[0][4:] for entry in here):
            raise ValueError(f"{name} must agree in width and dtype on all processes; got {told}")
    given = [name for at, name in enumerate(batch) if everyone[0][at][0]]
    counts = [[entry[3] for entry in process if entry[0]] for process in everyone]
    for r in processes:
        if len(set(counts[r])) > 1:
            raise ValueError(f"{', '.join(given)} must have one row per sample; process {r} has {counts[r]}")
    rows = [count[0] for count in counts]
    if even and len(set(rows)) > 1:
        raise ValueError(f"even=True promises equally many rows on all processes; they have {rows}. Leave it out.")
    return rows


def _described(value: object) -> list[int]:
    """What is compared of a tensor, in numbers: given or not (2: no tensor), dtype, dimensions, sizes."""
    if value is None:
        return [0] * (3 + SIZES)
    if not isinstance(value, Tensor) or not 1 <= value.dim() <= SIZES:
        return [2] + [0] * (2 + SIZES)
    return [1, zlib.crc32(str(value.dtype).encode()), value.dim(), *value.shape, *[0] * (SIZES - value.dim())]


def _told(entry: list[int]) -> str:
    if entry[0] != 1:
        return ("none", "", "something else")[entry[0]]
    return f"{DTYPES[entry[1]]} {entry[3 : 3 + entry[2]]}"


_HOST: dict[object, Any] = {}  # process group -> a group of the same processes that moves what is on the host


def _host_group() -> Any:
    """A group that moves tensors on the CPU, without the GPU: the running one if it can."""
    group = dist.group.WORLD
    if any(part in dist.get_backend() for part in ("gloo", "mpi", "cpu")):
        return group
    if group not in _HOST:
        _HOST.clear()  # of groups that are gone
        _HOST[group] = dist.new_group(backend="gloo")
    return _HOST[group]


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
    gathered = [torch.empty_like(sent) for _ in sizes]
    dist.all_gather(gathered, sent)
    return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)]).to(rows.device, rows.dtype)


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
        even: all processes have equally many images in every batch; if not, it is an error.

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
        stats: dict[str, Tensor] = getattr(self.loss, "stats", {})
        return stats

    def forward(self, embeddings: Tensor, labels: Tensor, *, ids: Tensor | None = None) -> Tensor:
        """Loss of the batch of all processes, the same on each.

        Args:
            embeddings: [row, dim] of this process; may have no rows.
            labels: of these, any kind that the loss takes; the classes may differ between the processes.
            ids: [row] sample numbers, on all processes or on none.

        Raises:
            ValueError: on every process, if what they bring does not fit together.
        """
        if world()[1] > 1:
            # half precision would round the sum of the gradients
            embeddings = computed(embeddings) if isinstance(embeddings, Tensor) else embeddings
            sizes = _agreed({"embeddings": embeddings, "labels": labels, "ids": ids}, self.even)
            embeddings = _GatherRows.apply(embeddings, sizes)
            labels = _all_rows(labels, sizes)
            ids = None if ids is None else _all_rows(ids, sizes)
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
            result[1] = _sendable(error)
    dist.broadcast_object_list(result, src=0)
    if result[1] is not None:
        raise result[1]
    value: T = result[0]
    return value


def on_all(work: Callable[[], T]) -> T:
    """Do something on every process, each getting its own result; what fails on one is raised on all.

    Without that the others would wait for the one that failed, for ever. `work` itself must not communicate.

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
    """The error, or its message where it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def require_same(**values: object) -> None:
    """Raise on every process unless all have called with the same values, to the bit.

    Args:
        values: name -> tensor or array (compared wherever it is), or anything with a repr that tells all.

    Raises:
        ValueError: naming those that differ.

    >>> require_same(labels=torch.tensor([1, 2]))
    """
    if world()[1] == 1:
        return
    everyone = gather_objects({name: _fingerprint(value) for name, value in values.items()})
    differ = [name for name in values if any(process[name] != everyone[0][name] for process in everyone)]
    if differ:
        raise ValueError(
            f"all processes must call with the same input; they differ in {', '.join(differ)}. Gather what each of "
            "them has (distributed.gather_rows), or leave out shared=True."
        )


def _fingerprint(value: object) -> str:
    kind = ""
    if isinstance(value, Tensor):
        kind = f"{value.dtype} {tuple(value.shape)} "
        flat = value.detach().cpu().reshape(-1)  # numpy knows no bfloat16, but its bytes
        value = flat.view(torch.uint8).numpy() if len(flat) else np.zeros(0)
    if not isinstance(value, np.ndarray):
        return repr(value)
    if value.dtype.kind == "O":
        return repr(value.tolist())
    return f"{kind}{value.dtype} {value.shape} " + hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest()


def largest(mine: Sequence[int]) -> list[int]:
    """The largest of each number among all processes, on all of them.

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
    """What each process has, in the order of the processes, on all of them; must be picklable.

    >>> gather_objects("a")
    ['a']
    """
    if world()[1] == 1:
        return [mine]
    gathered: list[Any] = [None] * world()[1]
    dist.all_gather_object(gathered, mine)
    return gathered


def share(count: int) -> slice:
    """The positions among `count` that are this process's to work on: every W-th.

    >>> list(range(5))[share(5)]
    [0, 1, 2, 3, 4]
    """
    rank, processes = world()
    return slice(rank, count, processes)
