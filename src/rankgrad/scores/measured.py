"""Metrics of scores: AP and ROC AUC of one list, NDCG@10 of lists by query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import losses, metrics, ranks
from .table import ScoreTable


@dataclass(frozen=True)
class ScoreReport:
    """What an evaluation found.

    Attributes:
        values: metric -> value.
        intervals: metric -> (low, high).
        counts: of rows.
        settings: of the evaluation.
        notes: what a reader of the numbers should know.
    """

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, path: Path) -> ScoreReport:
        """The report of a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def evaluate_scores(
    scores: Tensor, table: ScoreTable, *, names: Sequence[str] | None = None, bootstrap: int = 1000, seed: int = 0
) -> ScoreReport:
    """Metrics of scores [row] of a table with a label."""
    assert table.relevance is not None
    if table.query is None:
        hits, scores = (table.relevance > 0).unsqueeze(0), scores.unsqueeze(0)
        values = {
            "AP": float(metrics.average_precision(scores, hits)),
            "ROC AUC": float(metrics.roc_auc(scores, hits)),
        }
        return ScoreReport(values)
    exact = losses.RankLoss(ranks.exact_ranks, metric=lambda r: metrics.ndcg(r, k=10, gain="exp2"))
    return ScoreReport({"NDCG@10": 1 - float(exact.from_lists(scores, table.relevance, table.query))})


__all__ = ["ScoreReport", "evaluate_scores"]
