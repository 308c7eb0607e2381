"""rankgrad: train embeddings and detectors on the metric you report.

>>> import torch
>>> from rankgrad import losses
>>> loss = losses.ROADMAPLoss()
>>> embeddings = torch.nn.functional.one_hot(torch.tensor([0, 0, 1, 1])).float()
>>> loss(embeddings, labels=torch.tensor([0, 0, 1, 1]))  # both classes found, scores beyond both thresholds
tensor(0.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import losses, metrics, penalties, ranks, relaxations, relevance
from ._version import __version__
from .ranks import blackbox_rank
from .types import Ranks

if TYPE_CHECKING:
    from .training.fit import fit as fit


def __getattr__(name: str) -> Any:
    """Import `fit` when it is first asked for: training needs more than torch."""
    if name != "fit":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .training.fit import fit
    except ModuleNotFoundError as error:
        from .extras import missing

        raise ModuleNotFoundError(missing(error.name or "lightning"), name=error.name) from None
    globals()["fit"] = fit
    return fit


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
