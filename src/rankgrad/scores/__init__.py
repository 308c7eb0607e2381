"""Scores of rows: exact metrics of one list or of queries, curves, batches of lists, rows to hold out, a small network.

>>> import torch
>>> from rankgrad.scores import JudgedRows, evaluate_scores
>>> rows = JudgedRows.of([2, 0, 1, 0], query=["a", "a", "b", "b"])
>>> evaluate_scores(torch.tensor([0.9, 0.1, 0.2, 0.8]), rows, intervals=0).values["MRR"]
0.75
"""

from __future__ import annotations

from .curves import Curves as Curves
from .curves import curves_of as curves_of
from .evaluation import ScoreReport as ScoreReport
from .evaluation import evaluate_scores as evaluate_scores
from .rows import JudgedRows as JudgedRows

__all__ = ["Curves", "JudgedRows", "ScoreReport", "curves_of", "evaluate_scores"]
