"""Self-contained pages about runs: metrics, curves, and the retrieved images or the detections."""

from __future__ import annotations

from ...tasks.retrieval.page.gallery import QueryExample, RetrievedItem, retrieval_gallery
from ...tasks.retrieval.page.reading import Content
from ...tasks.retrieval.page.reading import read as read_run
from ...tasks.retrieval.page.retrieved import Pictures, Space
from .content import RunContent, read_runs
from .page import write_comparison, write_report

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
