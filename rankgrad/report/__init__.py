"""Self-contained pages about a run: numbers, curves and what the model retrieves."""

from __future__ import annotations

from .html import QueryExample, ReportLike, RetrievedItem, retrieval_gallery, write_report

__all__ = ["QueryExample", "ReportLike", "RetrievedItem", "retrieval_gallery", "write_report"]
