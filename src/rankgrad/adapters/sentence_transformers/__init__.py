"""Rank losses, class batches and exact evaluation inside the trainer of sentence-transformers.

The classes follow the conventions of that library: a loss has the model, the training arguments take the class of a
batch sampler, and an evaluator returns a dict.
"""

try:
    from .batches import ClassBatchSampler
    from .evaluation import GradedRetrievalEvaluator, RetrievalEvaluator
    from .losses import CachedSentenceTransformersLoss, SentenceTransformersLoss
except ModuleNotFoundError as error:
    from ...common.extras import missing

    raise ModuleNotFoundError(missing(error.name or "sentence_transformers"), name=error.name) from None

from ..trainer_loss import SavesLoss as SavesLoss

__all__ = [
    "SentenceTransformersLoss",
    "CachedSentenceTransformersLoss",
    "ClassBatchSampler",
    "RetrievalEvaluator",
    "GradedRetrievalEvaluator",
]
