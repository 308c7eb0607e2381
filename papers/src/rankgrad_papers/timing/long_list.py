"""RaMBO's AP loss of one long list, compared with sorting and copying the list. The sizes are those of table 6."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from rankgrad import losses

from . import memory
from .clocks import CPU, Action, Timing, alternate, clock_of
from .references import printed_rambo_ap
from .results import Cell, Check, Options, Result, ResultTable

OURS, SORTS, PRINTED, COPY = "ours", "two argsorts", "as printed", "copy"
# Above this length, Algorithm 1 as printed takes minutes.
LONGEST_PRINTED = 10_000_000
# Length -> milliseconds that RaMBO's table 6 prints for one Xeon Gold core at 2.2 GHz, and for a Tesla V100.
PAPER = {100_000: (33.0, 1.3), 1_000_000: (331.0, 7.0), 10_000_000: (3860.0, 61.0), 100_000_000: (36400.0, 620.0)}


def long_list(options: Options) -> Result:
    """RaMBO's AP loss of one long list, forward and backward, compared with sorting and with copying the list."""
    lengths = options.pick(
        quick=[2_000, 20_000], cpu=[100_000, 1_000_000] + [10_000_000, 100_000_000] * options.long, gpu=list(PAPER)
    )
    rows: list[list[Cell]] = []
    checks = []
    for dtype in (torch.float32, torch.float64):
        for n in lengths if dtype == torch.float32 else lengths[:2]:
            for p, least in ((10, 10.0), (min(10_000, n // 10), 3.0)):
                times = _times(n, p, dtype, options)
                rows.append([f"{n:,}, {p:,}, {_kind(dtype)}", *_ratios(times, n * dtype.itemsize)])
                if dtype == torch.float32 and n == 1_000_000 and options.device.type == "cpu":
                    what = f"two argsorts over RaMBO AP, {n:,} scores, {p:,} positives"
                    checks.append(Check(what, 1 / times[OURS].over(times[SORTS]), least, at_most=False))
                if dtype == torch.float32 and n == max(PAPER) and options.device.type == "cuda":
                    checks.append(Check(f"RaMBO AP, {n:,} scores, {p:,} positives, ms", times[OURS].ms, 50.0))
    columns = (
        "scores, positives",
        "ours: ms",
        f"{SORTS}: ms",
        f"{PRINTED}: ms",
        f"{COPY}: GB/s",
        f"{SORTS} / ours",
        f"{PRINTED} / ours",
        f"ours / {COPY}",
    )
    note = (
        "One list, RaMBOAPLoss.from_scores forward and backward. 'Two argsorts' is torch.argsort twice and nothing "
        "else. 'As printed' is Algorithm 1: two rankings, each an argsort of an argsort, with the gradient; up to "
        f"{LONGEST_PRINTED:,} scores. 'Copy' copies the scores into an existing tensor. This is the least time for "
        "reading them and writing a gradient; its GB/s count both." + _paper(lengths, options)
    )
    return Result([ResultTable("Long lists", columns, rows, note), _memory_table(lengths, options)], checks)


def _ratios(times: dict[str, Timing], size: int) -> list[Cell]:
    """Cells of a row, for a list of this many bytes."""
    ours = times[OURS]
    printed = times.get(PRINTED)
    return [
        ours.ms,
        times[SORTS].ms,
        None if printed is None else printed.ms,
        2 * size / (1e6 * times[COPY].ms),
        1 / ours.over(times[SORTS]),
        None if printed is None else 1 / ours.over(printed),
        ours.over(times[COPY]),
    ]


def _paper(lengths: list[int], options: Options) -> str:
    column = 0 if options.device.type == "cpu" else 1
    machine = ("one Xeon Gold core", "a Tesla V100")[column]
    known = ", ".join(f"{PAPER[n][column]:,g} ms ({n:,})" for n in lengths if n in PAPER)
    return f" The paper's table 6 has, on {machine}: {known}." if known else ""


def _kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _list(n: int, p: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    scores = torch.randn(1, n, generator=generator, dtype=dtype, device=device).requires_grad_()
    relevant = torch.zeros(1, n, dtype=torch.bool, device=device)
    # p is far smaller than n, so 2 p draws have at least p different values
    drawn = torch.randint(n, (2 * p,), generator=generator, device=device)
    distinct = torch.unique(drawn)
    order = torch.randperm(len(distinct), generator=generator, device=device)
    relevant[0, distinct[order[:p]]] = True
    return scores, relevant


def _ours(scores: Tensor, relevant: Tensor) -> None:
    scores.grad = None
    losses.RaMBOAPLoss().from_scores(scores, relevant).backward()  # type: ignore[no-untyped-call]


def _sorts(scores: Tensor, relevant: Tensor) -> None:
    for _ in range(2):
        torch.argsort(scores.detach(), descending=True)


def _printed(scores: Tensor, relevant: Tensor) -> None:
    scores.grad = None
    printed_rambo_ap(scores[0], relevant[0]).backward()  # type: ignore[no-untyped-call]


ACTIONS = {OURS: _ours, SORTS: _sorts, PRINTED: _printed}


def _times(n: int, p: int, dtype: torch.dtype, options: Options) -> dict[str, Timing]:
    scores, relevant = _list(n, p, dtype, options.device)
    actions: dict[str, Action] = {
        name: partial(action, scores, relevant)
        for name, action in ACTIONS.items()
        if name != PRINTED or n <= LONGEST_PRINTED
    }
    copied = torch.empty_like(scores, requires_grad=False)
    actions[COPY] = lambda: copied.copy_(scores.detach())
    return alternate(actions, options.rounds, f"long_list n={n:,} p={p:,}", clock_of(options.device))


def _memory_table(lengths: list[int], options: Options) -> ResultTable:
    rows: list[list[Cell]] = []
    for n in lengths:
        p = min(10_000, n // 10)
        cells: list[Cell] = []
        for name in ACTIONS:
            skipped = name == PRINTED and n > LONGEST_PRINTED
            cells.append(None if skipped else memory.peak_mib(CASES, f"long_list {name}", n, p, device=options.device))
        rows.append([f"{n:,}, {p:,}", 4 * n / memory.MIB, *cells])
    columns = ("scores, positives", "scores: MiB", *(f"{name}: MiB" for name in ACTIONS))
    note = (
        "Rise of the peak beyond the float32 scores and the relevance. It includes the gradient, which is as large as "
        "the scores."
    )
    return ResultTable("Long lists: peak memory", columns, rows, note)


def _peak(name: str, n: int, p: int, device: torch.device = CPU) -> int:
    ACTIONS[name](*_list(1_000, 10, torch.float32, device))  # the first call loads code
    scores, relevant = _list(n, p, torch.float32, device)
    return memory.peak_rise(lambda: ACTIONS[name](scores, relevant), device)


CASES: memory.Cases = {f"long_list {name}": partial(_peak, name) for name in ACTIONS}
