"""Operators of a loss that compute, and on a GPU their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from rankgrad import losses
from rankgrad_papers.timing.clocks import Action, alternate, event_clock
from rankgrad_papers.timing.results import PER_CLASS, Cell, Options, Result, ResultTable

from .in_batch import GEMM, batch, gemm, step
from .peers import pml_losses

# Losses whose kernels are listed, and how many of them.
LISTED = ("roadmap", "supap", "rambo_ap")
LARGEST = 10
# A copy from the GPU to the host: the program waits there until everything before it is done.
WAIT = "Memcpy DtoH"


def launches(options: Options) -> Result:
    """Number of operators of a loss, forward and backward. On a GPU also its kernels, their time, and what waits."""
    size = options.pick(quick=16, cpu=384, gpu=384)
    actions = _actions(size, options)
    on_gpu = options.device.type == "cuda"
    times = alternate(actions, options.rounds, "launches", event_clock) if on_gpu else {}
    rows: list[list[Cell]] = []
    tables = []
    for name, action in actions.items():
        action()  # the first call loads code
        row: list[Cell] = [name, float(operators(action))]
        if on_gpu:
            traced = kernels(_traced(action))
            busy = sum(kernel.ms for kernel in traced)
            waits = sum(kernel.name.startswith(WAIT) for kernel in traced)
            row += [float(len(traced)), float(waits), busy, times[name].ms]
            tables += [_largest(name, traced)] if name in LISTED else []
        rows.append(row)
    note = (
        f"Forward and backward of {size} embeddings, {PER_CLASS} per class, with a promised number of relevant items. "
        "An operator is a call of torch that computes or copies; views and empty tensors are left out. h_ap and "
        f"supndcg have two levels of labels, {PER_CLASS} classes per super-label. "
    ) + (
        "Kernels, copies among them, of one step by torch.profiler; waits: copies to the host; ms: between two events, "
        "in a queue that holds nothing else."
        if on_gpu
        else "Counted on a CPU, which processes long lists in smaller blocks than a GPU."
    )
    columns = ("loss", "operators", *(("kernels", "waits", "kernels: ms", "ms") if on_gpu else ()))
    return Result([ResultTable("What a loss asks of a device", columns, rows, note), *tables])


def _actions(size: int, options: Options) -> dict[str, Action]:
    embeddings, labels = batch(size, options.device)
    hierarchy = torch.stack([labels // PER_CLASS, labels], 1)
    actions: dict[str, Action] = {GEMM: gemm(embeddings)}
    for name, make in losses.LOSSES.items():
        positives = PER_CLASS**2 - 1 if make.levels else PER_CLASS - 1
        loss = make(normalize=False, positives=positives)
        actions[name] = partial(step, embeddings, loss, hierarchy if make.levels else labels)
    theirs: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = pml_losses()
    return actions | {f"PML {name}": partial(step, embeddings, loss, labels) for name, loss in theirs.items()}


class _Counted(TorchDispatchMode):
    """Operators that are called inside, by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        if not (func.is_view or name == "_unsafe_view" or name.startswith("empty")):
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


def operators(action: Action) -> int:
    """How many operators an action calls that compute or copy; views and empty tensors cost a device nothing.

    >>> x = torch.ones(2, 3)
    >>> operators(lambda: (x.T @ x).sum())
    2
    """
    with _Counted() as counted:
        action()
    return sum(counted.calls.values())


class Kernel(NamedTuple):
    """One operation of a GPU."""

    name: str
    ms: float


def _traced(action: Action) -> Any:
    """The profiler's events of one complete call."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        action()
        torch.cuda.synchronize()
    return trace.events()


def kernels(events: Iterable[Any]) -> list[Kernel]:
    """The profiler's events on a GPU: kernels, copies and fills, in order."""
    on_gpu = [event for event in events if event.device_type.name == "CUDA"]
    return [Kernel(event.name, event.time_range.elapsed_us() / 1e3) for event in on_gpu]


def _largest(name: str, traced: list[Kernel]) -> ResultTable:
    """The kernels of a step that take the most time, calls of the same one together."""
    spent: dict[str, list[float]] = {}
    for kernel in traced:
        spent.setdefault(kernel.name, []).append(kernel.ms)
    whole = max(sum(kernel.ms for kernel in traced), 1e-9)
    largest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:LARGEST]
    rows: list[list[Cell]] = [[each, float(len(ms)), sum(ms), 100 * sum(ms) / whole] for each, ms in largest]
    note = f"The {LARGEST} largest kernels of a step; %: of the time of all kernels."
    return ResultTable(f"{name}: kernels", ("kernel", "calls", "ms", "%"), rows, note)
