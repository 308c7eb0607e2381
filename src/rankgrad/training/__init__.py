"""Training runs: one runner for every task, with its state, data, callbacks and evaluation."""

from ..config import plain
from ..runs.embeddings import save_embeddings
from .callbacks import EvaluateEvery
from .data import SetEpoch, TrainingData
from .inference import embed
from .module import RetrievalModule, Schedule
from .retrieval import evaluate_model
from .state import SaveState

__all__ = [
    "EvaluateEvery",
    "RetrievalModule",
    "SaveState",
    "Schedule",
    "SetEpoch",
    "TrainingData",
    "embed",
    "evaluate_model",
    "plain",
    "save_embeddings",
]
