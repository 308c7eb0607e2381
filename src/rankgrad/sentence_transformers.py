"""Inside sentence-transformers: losses, class batches and evaluators. See docs/sentence-transformers.md."""

from .adapters.sentence_transformers import (
    CachedRankLoss,
    ClassBatchSampler,
    GradedRetrievalEvaluator,
    RankLoss,
    RetrievalEvaluator,
)

__all__ = ["CachedRankLoss", "ClassBatchSampler", "GradedRetrievalEvaluator", "RankLoss", "RetrievalEvaluator"]
