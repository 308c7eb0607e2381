"""Inside the Trainer of transformers: loss, class batches, metrics. See docs/transformers.md."""

from .adapters.transformers import ClassBatchTrainer, EmbeddingModel, RankLoss, RetrievalMetrics

__all__ = ["ClassBatchTrainer", "EmbeddingModel", "RankLoss", "RetrievalMetrics"]
