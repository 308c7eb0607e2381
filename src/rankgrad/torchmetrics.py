"""Inside torchmetrics: the report of an evaluation as a metric. See docs/torchmetrics.md."""

from .adapters.torchmetrics import RetrievalReport

__all__ = ["RetrievalReport"]
