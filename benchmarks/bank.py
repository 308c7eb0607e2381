"""Losses of a batch against a large bank of references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankgrad import losses
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of
from rankgrad_papers.timing.references import exact_step, h_minus, pairs_ap, sigmoid_step
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

from . import CASE

FLOORS = {"supap": "floor of H-", "smooth_ap": "floor of sigmoid"}
PAIRS = ", pairs"  # evaluates every difference, also where another way would be chosen
LOSSES = ("supap", "smooth_ap", "rambo_ap", "supap, pairs", "smooth_ap, pairs")
# With this many relevant items or more, a near-linear way can be chosen.
MANY = 100
# Differences that are evaluated at once: they fit the second-level cache of a CPU, or fill a GPU.
BLOCK = {"cpu": 2**17}
LARGE_BLOCK = 2**25
# Copies of the matrix of differences in code without blocks, at the peak of forward and backward.
COPIES = 8
MOST_COPIES = 2**31


class Size(NamedTuple):
    """Queries, items of the bank, relevant items of each query."""

    queries: int
    items: int
    positives: int

    def __str__(self) -> str:
        return f"{self.queries} x {self.items:,}, p={self.positives:,}"


def bank(options: Options) -> Result:
    """Losses of queries with a bank of references, forward and backward, compared with elementwise steps of pairs."""
    sizes = options.pick(
        quick=[Size(4, 200, 3), Size(2, 200, 20)],
        cpu=[
            *(Size(128, items, positives) for items in (4_096, 60_000) for positives in (5, 20, 100)),
            Size(16, 60_000, 1_000),
            *([Size(128, 1_000_000, 5), Size(128, 1_000_000, 20), Size(16, 1_000_000, 100)] * options.long),
        ],
        gpu=[
            *(Size(128, items, positives) for items in (4_096, 60_000) for positives in (5, 20, 100, 1_000)),
            *(Size(128, 1_000_000, positives) for positives in (5, 20, 100)),
        ],
    )
    rows: list[list[Cell]] = []
    checks = []
    for size in sizes:
        times = _times(size, options)
        for name, mine in times.items():
            floor = times[FLOORS["supap" if name.startswith("supap") or name == FLOORS["supap"] else "smooth_ap"]]
            printed = times.get(f"{name} as printed")
            peak = (
                memory.peak_mib(CASES, f"bank {name}", *size, device=options.device, module=CASE)
                if name in LOSSES
                else None
            )
            rows.append(
                [
                    f"{size}: {name}",
                    mine.ms,
                    mine.over(floor),
                    None if printed is None else printed.over(mine),
                    peak,
                ]
            )
        if size[1:] == (60_000, 20):
            checks.append(Check(f"SupAP over its floor, {size}", times["supap"].over(times[FLOORS["supap"]]), 2.0))
    note = (
        "from_scores forward and backward, float32 scores, p relevant items per query. The floor is, for every pair "
        "(relevant item, item), the step forward, and the step and its slope backward, in place, in cached blocks. For "
        "every item it also copies the score and makes a fresh gradient. It computes no difference and no sum. "
        "rambo_ap forms no pairs; it is compared with the floor of the sigmoid. 'As printed' is one tensor of all "
        "(relevant item, item) differences; it runs where its copies fit into 2 GiB. 'Pairs' computes every "
        f"difference, also where many relevant items (shown from {MANY} on) could be summed in near-linear time. Peak "
        "memory is beyond scores and relevance."
    )
    columns = ("queries x items, p: loss", "ms", "x floor", "as printed / ours", "peak MiB")
    return Result([ResultTable("Against a bank", columns, rows, note)], checks)


def _lists(size: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """Scores [query, item] like cosines of a model in training, with a gradient, and relevance."""
    generator = torch.Generator(device).manual_seed(0)
    scores = 0.1 * torch.randn(size.queries, size.items, generator=generator, device=device)
    relevant = torch.zeros(scores.shape, dtype=torch.bool, device=device)
    for row in relevant:
        row[torch.randperm(size.items, generator=generator, device=device)[: size.positives]] = True
    return (scores + 0.3 * relevant).clamp_(-1, 1).requires_grad_(), relevant


def _times(size: Size, options: Options) -> dict[str, Timing]:
    scores, relevant = _lists(size, options.device)
    actions: dict[str, Action] = {
        FLOORS["supap"]: _floor(size, options.device, _h_minus),
        FLOORS["smooth_ap"]: _floor(size, options.device, _sigmoid),
    }
    for name in LOSSES:
        if name.endswith(PAIRS) and size.positives < MANY and not options.quick:
            continue
        actions[name] = partial(_step, _from_scores(name), scores, relevant)
    copies = COPIES * 4 * size.queries * size.positives * size.items
    if copies <= min(memory.room(options.device), MOST_COPIES):
        steps = {"supap": (exact_step, h_minus), "smooth_ap": (sigmoid_step, sigmoid_step)}
        for name, (pos, neg) in steps.items():
            actions[f"{name} as printed"] = partial(_step, partial(pairs_ap, pos=pos, neg=neg), scores, relevant)
    return alternate(actions, options.rounds, f"bank {size}", clock_of(options.device))


def _from_scores(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    loss: Any = losses.LOSSES[name.removesuffix(PAIRS)]()
    if name.endswith(PAIRS):
        loss.ranks = replace(loss.ranks, method="pairs")
    return partial(loss.from_scores)


def _step(loss: Callable[[Tensor, Tensor], Tensor], scores: Tensor, relevant: Tensor) -> None:
    scores.grad = None
    loss(scores, relevant).backward()  # type: ignore[no-untyped-call]


def _sigmoid(x: Tensor, value: Tensor, spare: Tensor) -> None:
    """A sigmoid forward; a sigmoid and its derivative backward."""
    torch.sigmoid(x, out=value)
    torch.sigmoid(x, out=value)
    torch.addcmul(value, value, value, value=-1, out=spare)


def _h_minus(x: Tensor, value: Tensor, spare: Tensor) -> None:
    """H- forward: a sigmoid up to the joint, a line behind it, a jump at 0; backward again the first and its slope."""
    torch.clamp(x, min=0.05, out=spare)
    torch.ge(x, 0, out=spare)
    torch.clamp(x, max=0.05, out=value).sigmoid_()
    torch.gt(x, 0.05, out=spare)
    torch.clamp(x, max=0.05, out=value).sigmoid_()
    torch.addcmul(value, value, value, value=-1, out=spare)


def _floor(size: Size, device: torch.device, step: Callable[[Tensor, Tensor, Tensor], None]) -> Action:
    comparisons = size.queries * size.positives * size.items
    block = torch.randn(min(BLOCK.get(device.type, LARGE_BLOCK), comparisons), device=device)
    value, spare = torch.empty_like(block), torch.empty_like(block)
    scores = torch.zeros(size.queries, size.items, device=device)

    def passes() -> None:
        for start in range(0, comparisons, len(block)):
            part = slice(0, min(len(block), comparisons - start))
            step(block[part], value[part], spare[part])
        gradient = torch.zeros_like(scores)
        gradient.copy_(scores)

    return passes


def _peak(name: str, queries: int, items: int, positives: int, device: torch.device = CPU) -> int:
    loss = _from_scores(name)
    _step(loss, *_lists(Size(2, 64, 2), device))  # the first call loads code
    scores, relevant = _lists(Size(queries, items, positives), device)
    return memory.peak_rise(lambda: _step(loss, scores, relevant), device)


CASES: memory.Cases = {f"bank {name}": partial(_peak, name) for name in LOSSES}
