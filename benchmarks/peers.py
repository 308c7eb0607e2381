"""Packages for the same task, if they are installed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor, nn

# Distributions that are compared; their versions are given with the results.
PEERS = ("pytorch-metric-learning", "torchmetrics", "scikit-learn")


def installed(name: str) -> str | None:
    """Version of a distribution, None if it is not installed.

    >>> installed("no-such-distribution") is None
    True
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def pml_losses() -> dict[str, nn.Module]:
    """Losses of pytorch-metric-learning that have a counterpart here, {} if it is not installed."""
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from its imports
        from pytorch_metric_learning import losses as pml

        return {
            "SmoothAPLoss": pml.SmoothAPLoss(temperature=0.01),
            "FastAPLoss": pml.FastAPLoss(num_bins=10),
            "MultiSimilarityLoss": pml.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
        }


def ap_functions() -> dict[str, Callable[[Tensor, Tensor], float]]:
    """Mean AP of (scores, relevant) by the packages that are installed."""
    known = {"torchmetrics": ("torchmetrics RetrievalMAP", _torchmetrics_ap), "sklearn": ("scikit-learn", _sklearn_ap)}
    return {name: function for module, (name, function) in known.items() if importlib.util.find_spec(module)}


def _torchmetrics_ap(scores: Tensor, relevant: Tensor) -> float:
    from torchmetrics.retrieval import RetrievalMAP

    query = torch.arange(len(scores), device=scores.device).unsqueeze(1).expand_as(relevant)
    above_zero = scores.sigmoid()  # it ignores items whose score is not above 0
    metric = RetrievalMAP().to(scores.device)
    return float(metric(above_zero.flatten(), relevant.flatten(), indexes=query.flatten()))


def _sklearn_ap(scores: Tensor, relevant: Tensor) -> float:
    from sklearn.metrics import average_precision_score

    pairs = zip(relevant.cpu().numpy(), scores.cpu().numpy(), strict=True)
    return float(sum(average_precision_score(r, s) for r, s in pairs) / len(scores))
