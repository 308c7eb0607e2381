"""A score below which a search has found nothing: measured on the held-out rows of the run that made the model.

The best of many right items scores higher than the only one. So the threshold is measured with as many right items for
each held-out query as the classes of the index have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rankgrad.ranks.normalize import unit_rows
from rankgrad.ranks.relevance import as_labels

from ..files import read_npz
from ..runs.folder import Run
from ..settings import parsed

SHARE = 0.95  # of the queries have a right item above the threshold
ASKED = 1000  # held-out queries that are measured
FEWEST = 19  # with fewer queries, even the lowest of their scores does not stand for `SHARE` of all


@dataclass(frozen=True)
class Threshold:
    """A score, and for what it holds.

    Attributes:
        score: cosine; `SHARE` of the held-out queries have a right item with at least this score.
        wrong: fraction of the held-out queries that have a wrong item with at least this score: what a query without
            any right item in the gallery would show.
        queries: number of held-out queries with which it was measured.
        fewest: smallest number of right items that one of them had.
        most: largest number of right items.
        others: largest number of wrong items.
    """

    score: float
    wrong: float
    queries: int
    fewest: int
    most: int
    others: int

    def __post_init__(self) -> None:
        """Refuse what a damaged file may hold."""
        counts = (self.queries, self.fewest, self.most, self.others)
        if (
            type(self.score) is not float
            or type(self.wrong) is not float
            or any(type(each) is not int for each in counts)
        ):
            raise ValueError(f"a threshold has two fractions and four counts; got {vars(self)}")
        if not (math.isfinite(self.score) and 0 <= self.wrong <= 1):
            raise ValueError(f"a threshold is a finite score and a fraction; got {self.score}, {self.wrong}")

    def __str__(self) -> str:
        """What it means, in words."""
        many = f"{self.fewest:,}" if self.fewest == self.most else f"{self.fewest:,} to {self.most:,}"
        return (
            f"{self.score:.4f}: {SHARE:.0%} of {self.queries:,} held-out queries of the run, each with {many} right "
            f"item{'' if self.most == 1 else 's'}, have one with this score or more, {self.wrong:.0%} a wrong one of "
            f"{self.others:,}"
        )


def threshold_of(weights: Path, classes: Sequence[str] | None = None) -> Threshold | None:
    """The threshold of the run in whose folder these weights are, for an index.

    Args:
        weights: the model.pt of a run.
        classes: [row] the classes of the index, "" where there is none. A held-out query is compared with as many right
            items as a class of the index has, drawn at random, and with as many wrong ones. Without any class, it is
            compared with one right item, so that the threshold holds for any number of them. None: the index is the
            held-out gallery of the run itself.

    Returns:
        The threshold; None: it cannot be measured, because the run has no embeddings of held-out rows, or fewer than
        `FEWEST` of these have a right item.
    """
    run = Run(weights.parent)
    if weights.name != run.weights.name or not (run.config.is_file() and run.embeddings.is_file()):
        return None  # its embeddings are not of these weights, such as those of a step
    if parsed(run.config).get("evaluation", {}).get("split") == "train":
        return None
    columns = read_npz(run.embeddings, "embeddings", "labels")
    apart = "ref_embeddings" in columns
    of = "ref_" if apart else ""
    asked, items = (
        unit_rows(torch.from_numpy(np.ascontiguousarray(columns[f"{name}embeddings"], np.float32))) for name in ("", of)
    )
    labels, item_labels = as_labels(columns["labels"], columns[f"{of}labels"])
    sizes = None if classes is None else [*Counter(name for name in classes if name).values()] or [1]
    draw = torch.Generator().manual_seed(0)
    found: list[tuple[float, float, int, int]] = []
    drawn = torch.randperm(len(asked), generator=draw)[:ASKED]
    blocks = (zip(rows.tolist(), asked[rows] @ items.T, strict=True) for rows in torch.split(drawn, 100))
    for row, scores in (pair for block in blocks for pair in block):
        own = labels[row]
        relevant = item_labels == own if own.ndim == 0 else (item_labels & own).any(1)
        others = torch.ones(len(items), dtype=torch.bool)
        if not apart:
            others[row] = False
        right, wrong = scores[relevant & others], scores[~relevant & others]
        if classes is not None and sizes is not None:
            size = sizes[int(torch.randint(len(sizes), (), generator=draw))]
            right, wrong = _some(right, size, draw), _some(wrong, len(classes) - size, draw)
        if len(right):
            highest = float(wrong.max()) if len(wrong) else -math.inf
            found.append((float(right.max()), highest, len(right), len(wrong)))
    if len(found) < FEWEST:
        return None
    best, worst, rights, wrongs = zip(*found, strict=True)
    # of one more query, the score is below the n-th lowest with a probability of n / (queries + 1)
    score = sorted(best)[int((1 - SHARE) * (len(found) + 1) + 1e-9) - 1]
    share = sum(each >= score for each in worst) / len(found)
    return Threshold(score, share, len(found), min(rights), max(rights), max(wrongs))


def _some(scores: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """So many of the scores, drawn at random; all of them if there are fewer."""
    return scores[torch.randperm(len(scores), generator=draw)[:count]] if count < len(scores) else scores


__all__ = ["Threshold", "threshold_of"]
