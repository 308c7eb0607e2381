"""Embedding a batch in parts: the time of the second forward pass, and the memory that is saved."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rankgrad.batches.large_batch import embed_in_parts
from rankgrad.losses import ROADMAPLoss
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, alternate, clock_of
from rankgrad_papers.timing.results import Cell, Options, Result, ResultTable

from . import CASE

WHOLE = 0  # as the size of a part


def sub_batch(options: Options) -> Result:
    """A training step on a whole batch, compared with the step in parts (`sub_batch`): time and peak memory."""
    batch, side = options.pick(quick=(8, 32), cpu=(256, 64), gpu=(512, 224))
    sizes = [WHOLE, batch // 2, batch // 8]
    step = _stepping(batch, side, options.device)
    actions = {str(size): (lambda size=size: step(size)) for size in sizes}
    times = alternate(actions, options.rounds, "sub_batch", clock_of(options.device))
    whole = times[str(WHOLE)]
    rows: list[list[Cell]] = []
    for size in sizes:
        mine = times[str(size)]
        peak = memory.peak_mib(CASES, "sub_batch", batch, side, size, device=options.device, module=CASE)
        rows.append([f"parts of {size}" if size else "whole", mine.ms, mine.over(whole), peak])
    note = (
        f"resnet18 of timm with frozen batch norm, {batch} images of {side} x {side}, ROADMAP; forward and backward. "
        "Both have the same gradient. Peak memory is beyond network and images."
    )
    return Result([ResultTable("Step in parts", ("", "ms", "x whole", "peak MiB"), rows, note)])


def _stepping(batch: int, side: int, device: torch.device) -> Callable[[int], None]:
    """A forward and backward pass with parts of this size."""
    from rankgrad_workbench.models.timm import timm_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = timm_model("resnet18", embedding_size=128, freeze_batch_norm=True).train().to(device)
    images = torch.rand(batch, 3, side, side, device=device)
    labels = torch.arange(batch, device=device) // 4
    loss = ROADMAPLoss()

    def step(size: int) -> None:
        model.zero_grad()
        embeddings: Tensor = model(images) if size == WHOLE else embed_in_parts(model, images, size)
        loss(embeddings, labels).backward()

    return step


def _peak(batch: int, side: int, size: int, device: torch.device = CPU) -> int:
    _stepping(4, side, device)(2)  # the first call loads code
    step = _stepping(batch, side, device)
    return memory.peak_rise(lambda: step(size), device)


CASES: memory.Cases = {"sub_batch": _peak}
