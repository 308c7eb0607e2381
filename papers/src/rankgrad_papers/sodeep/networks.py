"""SoDeep's sorters: networks that compute the ranks of a list (Engilberge et al., CVPR 2019)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from rankgrad.common.checks import integer
from rankgrad.ranks import computed, exact_ranks
from rankgrad.ranks.types import Mask, Ranks, Scores


@dataclass(frozen=True)
class Architecture:
    """The architecture of a sorter.

    Attributes:
        cell: the recurrent network that reads the list in both directions; None: fully connected hidden layers.
        hidden: width of a direction, or of a hidden layer.
        layers: number of layers.
        mixes: True: the rank of an item is a weighted sum of the states at all positions. There is a weight for each
            pair of positions, so the list has a fixed length. False: the rank is the sum of the states at the item's
            own position.
        squashed: whether the last step is a sigmoid.
    """

    cell: Literal["lstm", "gru"] | None
    hidden: int
    layers: int
    mixes: bool
    squashed: bool = False


ARCHITECTURES: dict[str, Architecture] = {
    "lstm_small": Architecture("lstm", 32, 2, mixes=True),  # ours: the paper's, narrow enough for a CPU
    "lstm": Architecture("lstm", 128, 2, mixes=True),
    "lstmla": Architecture("lstm", 512, 2, mixes=True),  # the paper's default
    "grup": Architecture("gru", 128, 6, mixes=True, squashed=True),
    "gruc": Architecture("gru", 32, 6, mixes=False, squashed=True),
    "grus": Architecture("gru", 4, 1, mixes=False),
    "mlp": Architecture(None, 2048, 2, mixes=True),
}


# The score of absent items: below all scores, which are in [-1, 1].
ABSENT = -1.5


def architecture_of(items: int, architecture: str) -> Architecture:
    """The architecture of that name; checks that it can sort lists of so many items."""
    integer(items, "items is the length of the lists to be sorted", low=2)
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}. Known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[architecture]


class Sorter(nn.Module):
    r"""A network from scores to ranks, trained by `train_sorter`.

    Args:
        items: length of the lists. Shorter lists are padded with absent items.
        architecture: one of `ARCHITECTURES`.

    Attributes:
        facts: facts of its training: "steps", "seconds", "error" (mean distance to the exact rank on vectors
            not trained on, in ranks).
    """

    def __init__(self, items: int = 20, architecture: str = "lstm_small") -> None:
        super().__init__()
        self.plan = plan = architecture_of(items, architecture)
        self.items, self.architecture = items, architecture
        self.facts: dict[str, float] = {}
        self.recurrent: nn.LSTM | nn.GRU | None = None
        if plan.cell is None:
            widths = [items] + [plan.hidden] * plan.layers
            layers: list[nn.Module] = []
            for before, after in itertools.pairwise(widths):
                layers += [nn.Linear(before, after), nn.ReLU()]
            self.head: nn.Module = nn.Sequential(*layers, nn.Linear(plan.hidden, items))
            return
        kind = nn.LSTM if plan.cell == "lstm" else nn.GRU
        self.recurrent = kind(1, plan.hidden, plan.layers, batch_first=True, bidirectional=True)
        # the paper calls it a convolution over all states with a channel for each position
        self.head = nn.Linear(items * 2 * plan.hidden, items) if plan.mixes else nn.Identity()

    def forward(self, scores: Scores, valid: Mask | None = None) -> Tensor:
        """Ranks of every item of every list.

        Args:
            scores: [list, item] float, at most `items` items unless the architecture takes any number.
            valid: [list, item] bool; absent items are below all others, and get rank 0 here.

        Returns:
            [list, item] ranks, about 1 (largest score) .. n, not whole numbers; float32, float64 for float64 scores.

        Raises:
            ValueError: too many items.
        """
        if scores.dim() != 2 or not scores.is_floating_point():
            raise ValueError(f"scores must be a float tensor [list, item]; got {scores.dtype} {tuple(scores.shape)}")
        columns = scores.shape[1]
        if self.plan.mixes and columns > self.items:
            raise ValueError(
                f"this sorter ranks lists of at most {self.items} items, and these have {columns}: its weights belong "
                f"to positions. Train one for them, sodeep.load_sorter(items={columns}); take an architecture that has "
                f"no length ({', '.join(n for n, a in ARCHITECTURES.items() if not a.mixes)}); or use blackbox ranks, "
                "which are exact at any length"
            )
        wide = computed(scores)
        rows = unit_range(wide, valid).to(next(self.parameters()).dtype)
        if self.plan.mixes and columns < self.items:
            rows = nn.functional.pad(rows, (0, self.items - columns), value=ABSENT)
        share = self._share(rows)[:, :columns]
        ranks = (share * rows.shape[1]).to(wide.dtype)
        return ranks if valid is None else ranks.masked_fill(~valid, 0)

    def _share(self, rows: Tensor) -> Tensor:
        """[list, item] rank / n, from scores in [-1, 1]."""
        if self.recurrent is None:
            share: Tensor = self.head(rows)
        elif not len(rows) or not rows.shape[1]:  # recurrent networks do not accept empty lists
            return rows
        else:
            states = self.recurrent(rows.unsqueeze(2))[0]
            share = self.head(states.flatten(1)) if self.plan.mixes else states.sum(2)
        return share.sigmoid() if self.plan.squashed else share

    def train(self, mode: bool = True) -> Sorter:
        """Set the mode. The recurrent part stays in training mode, because cuDNN has gradients only in this mode.

        It has no dropout and no batch norm, so both modes compute the same result.
        """
        super().train(mode)
        if self.recurrent is not None:
            self.recurrent.train()
        return self

    def __repr__(self) -> str:
        return f"Sorter(items={self.items}, architecture={self.architecture!r})"


def unit_range(scores: Scores, valid: Mask | None = None) -> Scores:
    """Lists scaled to [-1, 1] by their least and largest valid score; absent items get `ABSENT`.

    >>> unit_range(torch.tensor([[3.0, 5.0, 4.0], [7.0, 7.0, 7.0]]))
    tensor([[-1.,  1.,  0.],
            [-1., -1., -1.]])
    """
    if not scores.shape[1]:
        return scores
    if valid is None:
        low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    else:
        low = scores.masked_fill(~valid, torch.inf).amin(1, keepdim=True)
        high = scores.masked_fill(~valid, -torch.inf).amax(1, keepdim=True)
    differ = high > low  # false in a list of one item and in an empty list
    low, span = torch.where(differ, low, scores), torch.where(differ, high - low, 1)
    rows = 2 * (scores - low) / span - 1
    return rows if valid is None else rows.masked_fill(~valid, ABSENT)


class Learned(nn.Module):
    r"""Ranks of the relevant items by a sorter, for `RankLoss`; see `ranks.Soft`, `ranks.Blackbox` for other ranks.

        above_neg_i = max(0, rank_i - 1 - above_pos_i)
    with rank_i of the sorter among all valid items, and above_pos_i, the items of at least its gain above it, exact and
    without gradient, as in RaMBO and SupAP. (Ours; the paper sums the ranks of relevant items and has no AP.) Ranks of
    a network can be inconsistent. Where rank_i is smaller than 1 + above_pos_i, above_neg_i is 0 and
    there is no gradient.

    Args:
        sorter: (scores, valid) -> [query, item] ranks, from `load_sorter`.

    >>> from rankgrad import blackbox_rank
    >>> exact = Learned(lambda scores, valid: blackbox_rank(scores, 1.0))  # anything that ranks
    >>> exact(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[True, False, True]])).rank
    tensor([2., 3.])
    """

    def __init__(self, sorter: Callable[[Scores, Mask | None], Tensor]) -> None:
        super().__init__()
        self.sorter = sorter

    def forward(self, scores: Scores, relevant: Tensor, valid: Mask | None = None) -> Ranks:
        """Ranks of the relevant items of a batch of lists."""
        exact = exact_ranks(scores, relevant, valid, ties="index")
        rank = self.sorter(scores, valid)[exact.query, exact.item]
        above_pos = exact.above_pos.to(rank.dtype)
        above_gain = None if exact.above_gain is None else exact.above_gain.to(rank.dtype)
        above_neg = (rank - 1 - above_pos).clamp(min=0)
        return replace(exact, above_pos=above_pos, above_neg=above_neg, above_gain=above_gain)

    def __repr__(self) -> str:
        return f"Learned({self.sorter!r})"
