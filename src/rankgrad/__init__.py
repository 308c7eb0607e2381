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
    from rankgrad_workbench import datasets as datasets
    from rankgrad_workbench import trec as trec
    from rankgrad_workbench.tasks.retrieval.fit import fit as fit
    from rankgrad_workbench.tasks.scores.fit import fit_scores as fit_scores
    from rankgrad_workbench.tasks.search.fit import fit_search as fit_search

    from . import losses, metrics, ranks
    from .losses import penalties
    from .ranks import blackbox_rank, relaxations, relevance
    from .ranks.types import Ranks

#: Public name -> its module, or module:name. All are imported on first use: some need more than torch, and those of the
#: packages beside the library are found if these are installed.
_PLACES = {
    "Ranks": "rankgrad.ranks.types:Ranks",
    "adapters": "rankgrad.adapters",
    "blackbox_rank": "rankgrad.ranks:blackbox_rank",
    "datasets": "rankgrad_workbench.datasets",
    "detection": "rankgrad_detection.losses",
    "distributed": "rankgrad.batches.distributed",
    "evaluation": "rankgrad.evaluation",
    "fit": "rankgrad_workbench.tasks.retrieval.fit:fit",
    "fit_scores": "rankgrad_workbench.tasks.scores.fit:fit_scores",
    "fit_search": "rankgrad_workbench.tasks.search.fit:fit_search",
    "large_batch": "rankgrad.batches.large_batch",
    "losses": "rankgrad.losses",
    "memory": "rankgrad.batches.memory",
    "metrics": "rankgrad.metrics",
    "ops": "rankgrad.ranks.ops",
    "penalties": "rankgrad.losses.penalties",
    "ranks": "rankgrad.ranks",
    "relaxations": "rankgrad.ranks.relaxations",
    "relevance": "rankgrad.ranks.relevance",
    "search": "rankgrad.search",
    "testing": "rankgrad.testing",
    "trec": "rankgrad_workbench.trec",
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
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, inside = _PLACES[name].partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        from .common.extras import missing

        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None
    globals()[name] = getattr(found, inside) if inside else found
    return globals()[name]


def __dir__() -> list[str]:
    """Name what is public, `fit` too; it is not in `__all__`, as `import *` works without the packages of training."""
    private = {"TYPE_CHECKING", "Any", "annotations", "import_module"}
    return sorted({*globals(), *__all__, *_PLACES} - private)
