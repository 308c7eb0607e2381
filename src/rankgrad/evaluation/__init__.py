"""Embeddings and labels -> `Report`: exact values of every retrieval metric, with intervals, tables and notes.

The metrics are the functions of `metrics.py`, which training also uses. The ranks come from `search.rank_blocks`, which
never stores the whole score matrix: 60 000 x 60 000 needs a few hundred MB.
"""

from .report import Report
from .retrieval import evaluate

__all__ = ["evaluate", "Report"]
