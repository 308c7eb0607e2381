"""A score below which a search has found nothing: measured on the held-out rows of the run that made the model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ...common.files import read_npz
from ...ranks.normalize import unit_rows
from ...ranks.relevance import as_labels
from ..config import parsed
from ..runs.folder import Run

SHARE = 0.95  # of the held-out queries have a right item above the threshold
ASKED = 1000  # held-out queries that are measured


@dataclass(frozen=True)
class Threshold:
    """A score, and what it means on held-out rows.

    Attributes:
        score: cosine; `SHARE` of the held-out queries have a right item with at least this score.
        wrong: fraction of the held-out queries that have a wrong item with at least this score: what a query without
            any right item in the gallery would show.
    """

    score: float
    wrong: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.score) and 0 <= self.wrong <= 1):
            raise ValueError(f"a threshold is a finite score and a fraction; got {self.score}, {self.wrong}")

    def __str__(self) -> str:
        """What it means, in words."""
        return (
            f"{self.score:.4f}: {SHARE:.0%} of the run's held-out queries have a right item with this score or more, "
            f"{self.wrong:.0%} a wrong one"
        )


def threshold_of(weights: Path) -> Threshold | None:
    """The threshold of the run in whose folder these weights are; None: it has no embeddings of held-out rows."""
    run = Run(weights.parent)
    if not (run.config.is_file() and run.embeddings.is_file()):
        return None
    if parsed(run.config).get("evaluation", {}).get("split") == "train":
        return None
    columns = read_npz(run.embeddings, "embeddings", "labels")
    apart = "ref_embeddings" in columns
    of = "ref_" if apart else ""
    asked, items = (
        unit_rows(torch.from_numpy(np.ascontiguousarray(columns[f"{name}embeddings"], np.float32))) for name in ("", of)
    )
    labels, item_labels = as_labels(columns["labels"], columns[f"{of}labels"])
    drawn = torch.randperm(len(asked), generator=torch.Generator().manual_seed(0))[:ASKED]
    right, wrong = [], []
    for rows in torch.split(drawn, 100):
        scores, own = asked[rows] @ items.T, labels[rows]
        if own.ndim == 1:
            relevant = own[:, None] == item_labels
        else:
            relevant = own.float() @ item_labels.float().T > 0
        if not apart:
            scores[torch.arange(len(rows)), rows] = -torch.inf
        right.append(scores.masked_fill(~relevant, -torch.inf).amax(1))
        wrong.append(scores.masked_fill(relevant, -torch.inf).amax(1))
    best = torch.cat(right)
    found = best.isfinite()
    if not found.any():
        return None
    score = float(best[found].quantile(1 - SHARE, interpolation="lower"))
    return Threshold(score, float((torch.cat(wrong) >= score).double().mean()))


__all__ = ["Threshold", "threshold_of"]
