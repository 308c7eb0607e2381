"""Measures the error of a sorter's ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from rankgrad.common.text import aligned
from rankgrad.metrics import spearman
from rankgrad.ranks import blackbox_rank
from rankgrad.ranks.types import Scores

from .networks import Sorter, unit_range
from .training import KINDS


@dataclass(frozen=True)
class RankError:
    """The error of the ranks of some lists, compared with the exact ranks.

    Attributes:
        kind: the distribution of the scores.
        mean: mean distance, in ranks.
        most: largest distance, in ranks.
        correlation: Spearman's correlation with the exact order, mean over the lists.
        sigmoid: mean distance of sigmoid ranks, for comparison. Their tau is .01, for scores that span 2 like cosines.
        moved: mean change of an item's rank when its list is shuffled.
    """

    kind: str
    mean: float
    most: float
    correlation: float
    sigmoid: float
    moved: float


def cosines(rows: int, items: int, generator: Generator) -> Tensor:
    """[row, item] cosines in a batch of classes of four images. No sorter is trained on these."""
    classes = -(-items // 4)
    cosines = []
    for _ in range(rows):
        centres = torch.randn(classes, 16, generator=generator).repeat_interleave(4, 0)[:items]
        unit = nn.functional.normalize(centres + 0.7 * torch.randn(items, 16, generator=generator), dim=1)
        query = unit[torch.randint(items, (1,), generator=generator)] + 0.2 * torch.randn(1, 16, generator=generator)
        cosines.append(nn.functional.normalize(query, dim=1) @ unit.T)
    return torch.cat(cosines)


@torch.no_grad()
def rank_errors(sorter: Sorter, items: int | None = None, *, rows: int = 256, seed: int = 1) -> list[RankError]:
    """The error of the ranks for each kind of scores and for cosines, on vectors that are not in the training data.

    Args:
        sorter: the sorter to be tested.
        items: length of the lists; None: the sorter's own.
        rows: lists of each kind.
        seed: of the lists.
    """
    items = sorter.items if items is None else items
    kinds = {name: make for name, (_, make) in KINDS.items()} | {"cosines (not trained on)": cosines}
    errors = []
    for name, make in kinds.items():
        generator = torch.Generator().manual_seed(seed)
        scores = make(rows, items, generator)
        exact, ranks = blackbox_rank(scores, 1.0), sorter(scores)
        order = torch.rand(rows, items, generator=generator).argsort(1)
        moved = sorter(scores.gather(1, order)) - ranks.gather(1, order)
        away = (ranks - exact).abs()
        errors.append(
            RankError(
                name,
                float(away.mean()),
                float(away.max()),
                float(spearman(-ranks, scores).mean()),
                float((sigmoid_ranks(unit_range(scores), 0.01) - exact).abs().mean()),
                float(moved.abs().mean()),
            )
        )
    return errors


def sigmoid_ranks(scores: Scores, tau: float) -> Tensor:
    """[list, item] ranks of all items by sigmoid steps, 1 + sum_{j != i} sigmoid((s_j - s_i) / tau): O(n^2) a list.

    >>> sigmoid_ranks(torch.tensor([[0.0, 9.0]]), 0.1)
    tensor([[2., 1.]])
    """
    differences = scores.unsqueeze(1) - scores.unsqueeze(2)
    return 0.5 + torch.sigmoid(differences / tau).sum(2)  # the sigmoid of an item with itself is 0.5


def table(sorter: Sorter, lengths: Iterable[int]) -> str:
    """`rank_errors` as text, for lists of some lengths."""
    rows = [("scores", "items", "mean error", "% of n", "largest", "correlation", "sigmoid's mean", "shuffled: moves")]
    for items in dict.fromkeys(lengths):
        rows += [
            (
                *(e.kind, str(items), f"{e.mean:.2f}", f"{100 * e.mean / items:.1f}", f"{e.most:.1f}"),
                *(f"{e.correlation:.4f}", f"{e.sigmoid:.2f}", f"{e.moved:.2f}"),
            )
            for e in rank_errors(sorter, items)
        ]
    about = f"{sorter!r}: {sum(p.numel() for p in sorter.parameters()):,} weights"
    if sorter.facts:
        about += f", {sorter.facts['steps']:,.0f} steps in {sorter.facts['seconds']:.0f} s"
    return f"{about}\n\n{aligned(rows)}"
