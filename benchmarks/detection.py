"""The detection loss of the 320,000 elements that RaMBO names, with the scores of 7 batches.

We take them as 8 images x 2000 proposals x 20 classes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch.nn import functional as F

from rankgrad_detection.losses import DetectionAPLoss, one_hot_targets
from rankgrad_papers.timing import memory
from rankgrad_papers.timing.clocks import CPU, Action, Timing, alternate, clock_of
from rankgrad_papers.timing.results import Cell, Check, Options, Result, ResultTable

from . import CASE

OURS, WHOLE, SORTS, CE = "ours", "without filter", "two argsorts", "cross-entropy"
# By how much the score of a proposal's own class exceeds the others, in standard deviations of these.
STATES = {0: "fresh", 4: "trained", 6: "separated"}
# One proposal of this many is on an object.
PER_OBJECT = 16
MARGIN = 0.15


class Size(NamedTuple):
    """Proposals of a batch, classes, batches in the memory, advantage of the correct class."""

    proposals: int
    classes: int
    batches: int
    advantage: int

    def __str__(self) -> str:
        return f"{self.proposals:,} x {self.classes}, memory {self.batches}, {STATES[self.advantage]}"


def detection(options: Options) -> Result:
    """DetectionAPLoss of all proposals of a batch, forward and backward, against sorting the lists it ranks."""
    shapes = options.pick(
        quick=[(64, 4)],
        cpu=[(16_000, 20)] + [(4_096, 80), (134_400, 80)] * options.long,
        gpu=[(16_000, 20), (4_096, 80), (134_400, 80)],
    )
    rows: list[list[Cell]] = []
    peaks: list[list[Cell]] = []
    checks = []
    for shape in shapes:
        for batches in (0, 7):
            for advantage in STATES:
                size = Size(*shape, batches, advantage)
                times = _times(size, options)
                ours = times[OURS]
                rows.append(
                    [
                        str(size),
                        *(times[name].ms for name in (OURS, WHOLE, SORTS, CE)),
                        1 / ours.over(times[SORTS]),
                        times[WHOLE].over(ours),
                        100 * _kept(size, options.device),
                    ]
                )
                if batches and shape == (16_000, 20) and options.device.type == "cpu":
                    what = f"two argsorts over the loss, {size}"
                    checks.append(Check(what, 1 / ours.over(times[SORTS]), 3.0, at_most=False))
            cells = [
                memory.peak_mib(CASES, f"detection {name}", *size, device=options.device, module=CASE)
                for name in ACTIONS
            ]
            peaks.append([str(size), 4 * shape[0] * shape[1] / memory.MIB, *cells])
    columns = (
        "proposals x classes",
        *(f"{name}: ms" for name in (OURS, WHOLE, SORTS, CE)),
        f"{SORTS} / ours",
        f"{WHOLE} / ours",
        "kept: %",
    )
    note = (
        "DetectionAPLoss of float32 scores, forward and backward, writing to the memory included. Scores are normal; "
        f"one proposal in {PER_OBJECT} lies on an object, and scores more for its class: by 0 (fresh), 4 (trained) or "
        "6 (separated). Two argsorts: torch.argsort twice of the lists that are ranked, memory included, nothing else. "
        "Without filter: prefilter=False. Kept: entries of the classes' lists that are not below all relevant ones. "
        "Cross-entropy, of the proposals alone: what a detector computes otherwise. RaMBO names 5 ms for 320,000 "
        "elements on a GPU."
    )
    peak_note = (
        "Rise of the peak over scores, targets and a full memory; the gradient, as large as the scores, is in it."
    )
    peak_columns = ("proposals x classes", "scores: MiB", *(f"{name}: MiB" for name in ACTIONS))
    return Result(
        [
            ResultTable("Detection loss", columns, rows, note),
            ResultTable("Detection loss: memory", peak_columns, peaks, peak_note),
        ],
        checks,
    )


class _Step:
    """A batch, and a loss whose memory is full of similar batches."""

    def __init__(self, size: Size, device: torch.device, prefilter: bool = True) -> None:
        generator = torch.Generator(device).manual_seed(0)
        self.loss = DetectionAPLoss(margin=MARGIN, memory=size.batches, prefilter=prefilter).to(device)
        for step in range(size.batches + 1):
            labels = torch.randint(1, 1 + size.classes, (size.proposals,), generator=generator, device=device)
            on_object = torch.rand(size.proposals, generator=generator, device=device) < 1 / PER_OBJECT
            self.labels = labels * on_object
            self.targets = one_hot_targets(self.labels, size.classes, "first")
            noise = torch.randn(size.proposals, size.classes, generator=generator, device=device)
            scores = noise + size.advantage * self.targets
            if step < size.batches:
                self.loss(scores, self.targets)
        self.scores = scores.requires_grad_()
        self.lists = torch.cat([self.scores.detach().T, *(held.scores for held in self.loss.memory.held())], 1)

    def ours(self) -> None:
        self.scores.grad = None
        self.loss(self.scores, self.targets).backward()

    def cross_entropy(self) -> None:
        self.scores.grad = None
        logits = torch.cat([torch.zeros_like(self.scores[:, :1]), self.scores], 1)
        F.cross_entropy(logits, self.labels).backward()  # type: ignore[no-untyped-call]

    def sorts(self) -> None:
        for what in (self.lists, self.scores.detach().flatten()):
            for _ in range(2):
                torch.argsort(what, dim=-1, descending=True)


def _action(name: str, size: Size, device: torch.device) -> Action:
    step = _Step(size, device, prefilter=name != WHOLE)
    return {SORTS: step.sorts, CE: step.cross_entropy}.get(name, step.ours)


ACTIONS = (OURS, WHOLE, SORTS)


def _times(size: Size, options: Options) -> dict[str, Timing]:
    actions = {name: _action(name, size, options.device) for name in (*ACTIONS, CE)}
    return alternate(actions, options.rounds, f"detection {size}", clock_of(options.device))


def _kept(size: Size, device: torch.device) -> float:
    """Fraction of the entries of the classes' lists that the filter keeps."""
    step = _Step(size, device)
    targets = torch.cat([step.targets.T, *(held.targets for held in step.loss.memory.held())], 1)
    lowest = step.lists.masked_fill(~targets, torch.inf).amin(1, keepdim=True) - MARGIN
    return float((step.lists >= lowest).float().mean())


def _peak(name: str, proposals: int, classes: int, batches: int, advantage: int, device: torch.device = CPU) -> int:
    _action(name, Size(64, 4, 2, advantage), device)()  # the first call loads code
    return memory.peak_rise(_action(name, Size(proposals, classes, batches, advantage), device), device)


CASES: memory.Cases = {f"detection {name}": partial(_peak, name) for name in ACTIONS}
