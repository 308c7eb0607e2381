"""Embeddings and labels -> `Report`: exact values of every retrieval metric, with intervals, tables and notes.

The metrics are the functions of `metrics.py`, which training also uses. The ranks come from `search.rank_blocks`, which
never stores the whole score matrix: 60 000 x 60 000 needs a few hundred MB.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .graded import evaluate_graded
    from .report import Report
    from .retrieval import METRICS, Protocol, evaluate
    from .statistics import Bootstrap

_PLACES = {"evaluate_graded": "graded", "Report": "report", "Bootstrap": "statistics"}
__all__ = ["METRICS", "Bootstrap", "Protocol", "Report", "evaluate", "evaluate_graded"]


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for: `statistics` needs numpy alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f".{_PLACES.get(name, 'retrieval')}", __name__), name)
    return globals()[name]
