"""Soft ranks beside torchsort, which compiles C++: forward and backward."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rankgrad import ops
from rankgrad_papers.timing.clocks import Action, alternate, clock_of
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

KINDS: dict[str, ops.Regularization] = {"l2": "quadratic", "kl": "entropic"}


def soft_ranks(options: Options) -> Result:
    """Soft ranks of lists of several lengths, beside torch's sort and torchsort if it is installed."""
    shapes = [(1, 50), (4, 20)] if options.quick else [(1, 5000), (64, 5000), (512, 100), (1, 100_000)]
    rows: list[list[Cell]] = []
    ratios = []
    for shape in shapes:
        scores = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(options.device)
        weights = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(options.device)
        for theirs, ours in KINDS.items():
            for strength in (1e-4, 1e-2, 1.0):
                actions = {
                    "rankgrad": _step(partial(ops.soft_rank, strength=strength, regularization=ours), scores, weights),
                    "sort": _step(lambda s: s.sort(dim=1).values, scores, weights),
                }
                if importlib.util.find_spec("torchsort") is not None:
                    import torchsort

                    of_torchsort = partial(torchsort.soft_rank, regularization=theirs, regularization_strength=strength)
                    actions["torchsort"] = _step(of_torchsort, scores, weights)
                what = f"{shape[0]} x {shape[1]:,}, {ours}, {strength:g}"
                times = alternate(actions, options.rounds, f"soft_ranks: {what}", clock_of(options.device))
                over = times["rankgrad"].over(times["torchsort"]) if "torchsort" in times else None
                if over is not None and shape == (1, 5000) and ours == "quadratic":
                    ratios.append(over)
                rows.append([what, times["rankgrad"].ms, times["rankgrad"].over(times["sort"]), over])
    note = "Forward and backward, float32 normal scores. The last column needs torchsort."
    table = ResultTable("Soft ranks", ("lists, regularisation, strength", "ms", "x sort", "x torchsort"), rows, note)
    checks = (
        [Check("a list of 5,000, quadratic: over torchsort, the middle one", sorted(ratios)[1], 1.0)] if ratios else []
    )
    return Result([table], checks)


def _step(rank: Callable[[Tensor], Tensor], scores: Tensor, weights: Tensor) -> Action:
    leaf = scores.detach().requires_grad_()

    def act() -> None:
        leaf.grad = None
        (rank(leaf) * weights).sum().backward()  # type: ignore[no-untyped-call]

    return act
