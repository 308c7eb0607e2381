"""What a step costs on the ranks of a learned sorter, on exact ranks with a blackbox gradient, and on sigmoid ranks.

`python -m rankgrad.bench.sorters NUMBER ITEMS ARCHITECTURE` prints the peak of memory, in bytes, of one of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from .. import losses, metrics
from ..papers import sodeep
from .clocks import alternate
from .memory import MIB, peak_rise

# Lists of a step: a batch of 128 images.
ROWS = 128
PER_CLASS = 4


def costs(lengths: Sequence[int], architecture: str = "lstm_small", *, rounds: int = 5) -> str:
    """Text: processor time and peak of memory of a step, forward and backward to the scores, by length of the lists.

    The sorters are not trained: that does not change what they cost.

    Args:
        lengths: of the lists.
        architecture: of the sorters.
        rounds: of the clock; the losses take turns.
    """
    lines = [f"{'':32}  {'items':>6}  {'ms':>9}  {'x blackbox':>10}  {'MiB':>8}  {'weights':>11}"]
    for items in lengths:
        candidates = _losses(items, architecture)
        actions = {name: partial(_step, loss, *_lists(items)) for name, loss in candidates.items()}
        times = alternate(actions, rounds, f"lists of {items}")
        for number, (name, loss) in enumerate(candidates.items()):
            exact = times["Spearman, blackbox" if name.startswith("Spearman") else "AP, blackbox"]
            weights = sum(p.numel() for p in loss.parameters())
            lines.append(
                f"{name:32}  {items:6}  {times[name].ms:9.1f}  {times[name].over(exact):10.1f}  "
                f"{_peak(number, items, architecture) / MIB:8.0f}  {weights:11,}"
            )
    return "\n".join(lines)


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


def _peak(number: int, items: int, architecture: str) -> int:
    """Bytes that a step takes beside weights and scores, in a process that has done nothing before."""
    words = [sys.executable, "-m", __name__, str(number), str(items), architecture]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def _sigmoid(scores: Tensor, valid: Tensor | None) -> Tensor:
    return sodeep.sigmoid_ranks(scores, 0.01)


def _step(loss: nn.Module, scores: Tensor, relevant: Tensor) -> None:
    scores.grad = None
    loss.from_scores(scores, relevant).backward()  # type: ignore[operator]


if __name__ == "__main__":
    chosen = list(_losses(int(sys.argv[2]), sys.argv[3]).values())[int(sys.argv[1])]
    _step(chosen, *_lists(8 if int(sys.argv[2]) > 8 else 2))  # loads code
    print(peak_rise(partial(_step, chosen, *_lists(int(sys.argv[2])))))
