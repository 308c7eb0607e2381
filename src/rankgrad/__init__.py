"""rankgrad: train embeddings, detectors and rankers with losses that are made for ranking metrics.

>>> import torch
>>> from rankgrad import losses
>>> loss = losses.ROADMAPLoss()
>>> embeddings = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1])).float()
>>> loss(embeddings, labels=torch.tensor([0, 0, 1, 1]))  # both classes found, scores beyond both thresholds
tensor(0.)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import losses, metrics, ranks
    from .losses import penalties
    from .ranks import blackbox_rank, relaxations, relevance
    from .ranks.types import Ranks
    from .tasks.retrieval.fit import fit as fit
    from .tasks.scores.fit import fit_scores as fit_scores
    from .tasks.search.fit import fit_search as fit_search
    from .workbench import trec as trec

#: Public name -> its module, or the module that has it. All are imported on first use: some need more than torch.
_PLACES = {
    "Ranks": "ranks.types",
    "blackbox_rank": "ranks",
    "fit": "tasks.retrieval.fit",
    "fit_scores": "tasks.scores.fit",
    "fit_search": "tasks.search.fit",
}
_MODULES = {
    "adapters": "adapters",
    "datasets": "datasets",
    "detection": "losses.detection",
    "distributed": "batches.distributed",
    "evaluation": "evaluation",
    "large_batch": "batches.large_batch",
    "losses": "losses",
    "memory": "batches.memory",
    "metrics": "metrics",
    "ops": "ranks.ops",
    "penalties": "losses.penalties",
    "ranks": "ranks",
    "relaxations": "ranks.relaxations",
    "relevance": "ranks.relevance",
    "scores": "scores",
    "search": "search",
    "testing": "testing",
    "trec": "workbench.trec",
}

__all__ = [
    "Ranks",
    "__version__",
    "blackbox_rank",
    "losses",
    "metrics",
    "penalties",
    "ranks",
    "relaxations",
    "relevance",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: torch takes seconds, training needs more than torch."""
    if name not in {*_PLACES, *_MODULES}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f".{_PLACES.get(name) or _MODULES[name]}", __name__)
    except ModuleNotFoundError as error:
        from .common.extras import missing

        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    globals()[name] = getattr(module, name) if name in _PLACES else module
    return globals()[name]


def __dir__() -> list[str]:
    """Name what is public, `fit` too; it is not in `__all__`, as `import *` works without the packages of training."""
    private = {"TYPE_CHECKING", "Any", "annotations", "import_module"}
    return sorted({*globals(), *__all__, *_PLACES, *_MODULES} - private)
