"""Measures a batch of a training: are the embeddings all alike, and do pairs in the wrong order get a gradient?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankgrad.losses import SumLoss
from rankgrad.ranks import Soft
from rankgrad.ranks.normalize import unit_rows
from rankgrad.ranks.relaxations import as_step

ROWS = 256  # compared images of a batch
PAIRS = 256  # relevant pairs that are compared with the irrelevant items
FLAT = 0.01  # a step is flat where its slope is below this fraction of its slope at a tie


@dataclass(frozen=True)
class Sample:
    """Measurements of one step. A value is NaN if it cannot be measured.

    Attributes:
        step: number of the step, from 0.
        loss: loss of the step.
        no_positive: share of the queries without a relevant item, in batch and memory.
        positive: mean cosine of two images of one class.
        negative: mean cosine of images of different classes.
        dimensions: participation ratio (sum l)^2 / sum l^2 of the eigenvalues l of the embeddings' covariance.
        wrong: share of the (relevant, irrelevant) pairs in the wrong order.
        saturated: share of these pairs at which the loss's step is flat; NaN for losses without a step.
        zero: share of the embeddings that are zero.
        grad_norm: norm of the gradient, before clipping.
        grad_rms: root mean square of the gradient's entries.
        update: norm of the weights' change divided by the norm of the weights, for a part of each weight matrix.
        drift: drift of a memory, see `memory`.
    """

    step: int
    loss: float
    no_positive: float = math.nan
    positive: float = math.nan
    negative: float = math.nan
    dimensions: float = math.nan
    wrong: float = math.nan
    saturated: float = math.nan
    zero: float = math.nan
    grad_norm: float = math.nan
    grad_rms: float = math.nan
    update: float = math.nan
    drift: float = math.nan


@torch.no_grad()
def look(embeddings: Tensor, labels: Tensor, step: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
    """Measure one batch: the values of `Sample` that depend only on embeddings and labels.

    Args:
        embeddings: [row, dim] float.
        labels: [row] long.
        step: the loss's step for irrelevant items, see `relaxations`; None: the loss has none.

    >>> seen = look(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    >>> seen["positive"], seen["negative"], round(seen["no_positive"], 2), seen["wrong"]
    (0.0, 0.5, 0.33, 1.0)
    """
    if labels.dim() != 1:
        labels = torch.unique(labels, dim=0, return_inverse=True)[1]
    _, number, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    no_positive = (sizes[number] == 1).float().mean()
    rows, labels = embeddings[:ROWS].float(), labels[:ROWS]
    zero = (rows == 0).all(1).float().mean()
    unit = unit_rows(rows)
    scores = unit @ unit.T
    same = labels.unsqueeze(1) == labels
    relevant = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    rest = ~same
    centred = unit - unit.mean(0)
    gram = centred @ centred.T
    dimensions = gram.trace().square() / gram.square().sum()
    query, item = relevant.nonzero(as_tuple=True)
    if len(query) > PAIRS:  # spread evenly over all queries, without random numbers
        chosen = torch.linspace(0, len(query) - 1, PAIRS, device=query.device).round().long()
        query, item = query[chosen], item[chosen]
    difference = scores[query] - scores[query, item].unsqueeze(1)
    rivals = rest[query]
    wrong = (difference >= 0) & rivals
    saturated = wrong.new_full((), torch.nan, dtype=torch.float32)
    slope = None if step is None else as_step(step).slope(difference)
    if step is not None and slope is not None:
        at_tie = as_step(step).slope(difference.new_zeros(1))
        assert at_tie is not None
        saturated = ((slope < FLAT * at_tie) & wrong).sum() / wrong.sum()  # NaN if nothing is wrong
    measured = {
        "no_positive": no_positive,
        "positive": (scores * relevant).sum() / relevant.sum(),
        "negative": (scores * rest).sum() / rest.sum(),
        "dimensions": dimensions,
        "wrong": wrong.sum() / rivals.sum(),
        "saturated": saturated,
        "zero": zero,
    }
    return dict(zip(measured, torch.stack([value.float() for value in measured.values()]).tolist(), strict=True))


def step_of(loss: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The step with which a loss counts irrelevant items. None for losses without one: losses of pairs, blackbox."""
    for module in loss.modules():  # the loss may be inside a memory, a GlobalBatch or ROADMAP
        ranks = getattr(module, "ranks", None)
        if isinstance(module, SumLoss):
            return None  # where the step of one part is flat, another part may have a gradient
        if isinstance(ranks, Soft):
            return ranks.neg
    return None
