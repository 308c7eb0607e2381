"""Losses of a batch against the matrix product of its scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad import losses
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of
from rankgrad_papers.timing.references import cube_smooth_ap, cube_sup_ap
from rankgrad_papers.timing.results import DIM, PER_CLASS, Cell, Check, Options, Result, ResultTable

from .peers import pml_losses

GEMM = "GEMM"
# Timed with a given number of positives as well: then the program does not wait for the GPU.
PROMISED = ("roadmap", "supap", "smooth_ap", "rambo_ap")


def in_batch(options: Options) -> Result:
    """Time of the losses of a batch, compared with the matrix product of its scores, forward and backward."""
    sizes = options.pick(quick=(16, 32), cpu=(128, 384, 1024), gpu=(384, 1024, 2048, 4096))
    measured = {size: _times(size, options) for size in sizes}
    names = list(dict.fromkeys(name for times in measured.values() for name in times))

    def row(name: str) -> list[Cell]:
        cells: list[Cell] = [name]
        for times in measured.values():
            mine = times.get(name)
            cells += [None, None] if mine is None else [mine.ms, mine.over(times[GEMM])]
        return cells

    heads = tuple(text for size in sizes for text in (f"B={size}: ms", "x GEMM"))
    note = (
        f"Embeddings [B, {DIM}] float32, {PER_CLASS} per class, normalize=False. Forward, and backward to them. "
        f"GEMM is E @ E.T and its backward. h_ap has two levels of labels, {PER_CLASS} classes per super-label. 'As "
        "printed' is the formula with all differences in one tensor [B, B, B]; it runs where that takes up to 1/4 GiB. "
        "PML is pytorch-metric-learning"
        + (", which normalises inside." if pml_losses() else ": not installed, so left out.")
    )
    middle = measured[sizes[1]]
    checks = [Check(f"SupAP over GEMM, B={sizes[1]}", middle["supap"].over(middle[GEMM]), 3.0)]
    return Result([ResultTable("In-batch losses", ("loss", *heads), [row(n) for n in names], note)], checks)


def batch(size: int, device: torch.device = CPU) -> tuple[Tensor, Tensor]:
    """Unit embeddings [size, DIM] with a gradient, and labels."""
    generator = torch.Generator().manual_seed(0)
    embeddings = F.normalize(torch.randn(size, DIM, generator=generator), dim=1).to(device).requires_grad_()
    return embeddings, torch.arange(size, device=device) // PER_CLASS


def step(embeddings: Tensor, loss: Callable[[Tensor, Tensor], Tensor], labels: Tensor) -> None:
    """Forward, and backward to the embeddings."""
    embeddings.grad = None
    loss(embeddings, labels).backward()  # type: ignore[no-untyped-call]


def gemm(embeddings: Tensor) -> Action:
    """The product of all rows, forward and backward: every loss of the batch needs it."""
    size = len(embeddings)
    upstream = torch.randn(size, size, generator=torch.Generator().manual_seed(1)).to(embeddings.device)

    def act() -> None:
        embeddings.grad = None
        (embeddings @ embeddings.T).backward(upstream)  # type: ignore[no-untyped-call]

    return act


def _times(size: int, options: Options) -> dict[str, Timing]:
    embeddings, labels = batch(size, options.device)
    hierarchy = torch.stack([labels // PER_CLASS, labels], 1)
    actions: dict[str, Action] = {GEMM: gemm(embeddings)}
    for name, make in losses.LOSSES.items():
        actions[name] = partial(step, embeddings, make(normalize=False), hierarchy if name == "h_ap" else labels)
    if options.device.type != "cpu" or options.quick:  # on a CPU the given number changes nothing
        for name in PROMISED:
            promising = losses.LOSSES[name](normalize=False, positives=PER_CLASS - 1)
            actions[f"{name}, positives={PER_CLASS - 1}"] = partial(step, embeddings, promising, labels)
    cube_fits = 4 * size**3 <= 2**28
    if cube_fits:
        actions["SupAP as printed"] = partial(step, embeddings, cube_sup_ap, labels)
        actions["Smooth-AP as printed"] = partial(step, embeddings, cube_smooth_ap, labels)
    for name, theirs in pml_losses().items():
        if cube_fits or name != "SmoothAPLoss":  # their code also forms a cube
            actions[f"PML {name}"] = partial(step, embeddings, theirs, labels)
    return alternate(actions, options.rounds, f"in_batch B={size}", clock_of(options.device))
