"""Time and memory of a step with ranks of a learned sorter, exact ranks with a blackbox gradient, and sigmoid ranks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from rankgrad import losses, metrics
from rankgrad.common.text import aligned

from .. import sodeep
from ..timing import memory
from ..timing.clocks import CPU, alternate

# Lists of a step: a batch of 128 images.
ROWS = 128
PER_CLASS = 4
MODULE = "rankgrad_papers.sodeep.costs"  # of the fresh processes


def costs(lengths: Sequence[int], architecture: str = "lstm_small", *, rounds: int = 5) -> str:
    """A table: processor time and peak memory of a step (forward, and backward to the scores), by length of the lists.

    The sorters are not trained, since this does not change their cost.

    Args:
        lengths: of the lists.
        architecture: of the sorters.
        rounds: of the measurement; the losses alternate.
    """
    rows = [["", "items", "ms", "x blackbox", "MiB", "weights"]]
    for items in lengths:
        candidates = _losses(items, architecture)
        actions = {name: partial(_step, loss, *_lists(items)) for name, loss in candidates.items()}
        times = alternate(actions, rounds, f"lists of {items}")
        for number, (name, loss) in enumerate(candidates.items()):
            exact = times["Spearman, blackbox" if name.startswith("Spearman") else "AP, blackbox"]
            weights = sum(p.numel() for p in loss.parameters())
            mib = memory.peak_mib(CASES, f"sorters {architecture} {number}", items, module=MODULE)
            cost = [f"{times[name].ms:.1f}", f"{times[name].over(exact):.1f}", f"{mib:.0f}"]
            rows.append([name, str(items), *cost, f"{weights:,}"])
    return aligned(rows)


def _losses(items: int, architecture: str) -> dict[str, losses.RetrievalLoss]:
    sorter = sodeep.Sorter(items, architecture).requires_grad_(False)
    return {
        "Spearman, blackbox": losses.SpearmanLoss(),
        "Spearman, sigmoid ranks": losses.SpearmanLoss(ranks=_sigmoid),
        f"Spearman, {architecture}": losses.SpearmanLoss(ranks=sorter),
        "AP, blackbox": losses.RaMBOAPLoss(),
        "AP, sigmoid ranks (Smooth-AP)": losses.SmoothAPLoss(),
        f"AP, {architecture}": losses.RankLoss(sodeep.Learned(sorter), metric=metrics.average_precision),
    }


def _lists(items: int) -> tuple[Tensor, Tensor]:
    scores = torch.randn(ROWS, items, generator=torch.Generator().manual_seed(0), requires_grad=True)
    return scores, torch.arange(items).expand(ROWS, items) < PER_CLASS


def _sigmoid(scores: Tensor, valid: Tensor | None) -> Tensor:
    return sodeep.sigmoid_ranks(scores, 0.01)


def _step(loss: nn.Module, scores: Tensor, relevant: Tensor) -> None:
    scores.grad = None
    loss.from_scores(scores, relevant).backward()  # type: ignore[operator]


def _peak(number: int, architecture: str, items: int, device: torch.device = CPU) -> int:
    """Bytes that a step needs in addition to weights and scores."""
    loss = list(_losses(items, architecture).values())[number]
    _step(loss, *_lists(8 if items > 8 else 2))  # loads code
    return memory.peak_rise(partial(_step, loss, *_lists(items)), device)


CASES: memory.Cases = {
    f"sorters {architecture} {number}": partial(_peak, number, architecture)
    for architecture in sodeep.ARCHITECTURES
    for number in range(6)
}

if __name__ == "__main__":
    memory.main(CASES, sys.argv[1:])
