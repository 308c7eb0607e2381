"""Training runs: one runner for every task, with its state, data, callbacks and evaluation."""

from ..runs.embeddings import save_embeddings
from ..settings import plain as plain
from .callbacks import EvaluateEvery as EvaluateEvery
from .data import SetEpoch as SetEpoch
from .data import TrainingData as TrainingData
from .inference import embed
from .module import RetrievalModule as RetrievalModule
from .module import Schedule as Schedule
from .state import SaveState as SaveState

__all__ = ["embed", "save_embeddings"]
