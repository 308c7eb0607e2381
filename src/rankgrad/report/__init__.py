"""Self-contained pages about runs: metrics, curves, and the retrieved images or the detections."""

from __future__ import annotations

from .content import RunContent, read_runs
from .gallery import QueryExample, RetrievedItem, retrieval_gallery
from .page import write_comparison, write_report
from .retrieval import Content
from .retrieval import read as read_run
from .retrieved import Pictures, Space

__all__ = [
    "Content",
    "Pictures",
    "QueryExample",
    "RetrievedItem",
    "RunContent",
    "Space",
    "read_run",
    "read_runs",
    "retrieval_gallery",
    "write_comparison",
    "write_report",
]
