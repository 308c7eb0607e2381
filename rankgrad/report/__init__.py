"""Self-contained pages about runs: numbers, curves and what the models retrieve."""

from __future__ import annotations

from .content import Content, Pictures, Space, read_run, read_runs
from .gallery import QueryExample, RetrievedItem, retrieval_gallery
from .html import write_report

__all__ = [
    "Content",
    "Pictures",
    "QueryExample",
    "RetrievedItem",
    "Space",
    "read_run",
    "read_runs",
    "retrieval_gallery",
    "write_report",
]
