"""Every loss, by class and by name. Adding one = a class, a row in `LOSSES`, a golden value."""

from __future__ import annotations

from torch import nn

from ..checks import closest
from .auc import AUCLoss
from .average_precision import SmoothAPLoss, SupAPLoss
from .base import RetrievalLoss
from .graded import HAPLoss, NDCGLoss, RecallAtKLoss
from .histogram import FastAPLoss, SoftBinAPLoss
from .pnp import PNPLoss
from .rambo import RaMBOAPLoss, RaMBORecallLoss
from .rank_loss import RankLoss
from .roadmap import CalibrationLoss, ROADMAPLoss
from .spearman import SpearmanLoss
from .sup_rank import SupNDCGLoss, SupRecallLoss

LOSSES: dict[str, type[nn.Module]] = {
    "roadmap": ROADMAPLoss,
    "supap": SupAPLoss,
    "smooth_ap": SmoothAPLoss,
    "pnp": PNPLoss,
    "rambo_recall": RaMBORecallLoss,
    "rambo_ap": RaMBOAPLoss,
    "fastap": FastAPLoss,
    "softbin_ap": SoftBinAPLoss,
    "auc": AUCLoss,
    "recall_at_k": RecallAtKLoss,
    "suprecall": SupRecallLoss,
    "ndcg": NDCGLoss,
    "supndcg": SupNDCGLoss,
    "h_ap": HAPLoss,
    "spearman": SpearmanLoss,
    "calibration": CalibrationLoss,
}

# Those that see only differences of scores: adding a constant to a row changes nothing.
RANK_LOSSES: list[str] = [
    *("supap", "smooth_ap", "pnp", "rambo_recall", "rambo_ap", "recall_at_k", "suprecall"),
    *("ndcg", "supndcg", "h_ap", "spearman"),
]


def find(name: str) -> type[nn.Module]:
    """The class of a loss by its name in `LOSSES`; a misspelt name is answered with the closest ones.

    >>> find("smooth_ap").__name__
    'SmoothAPLoss'
    """
    if name not in LOSSES:
        # class names and any capitals count as attempts at the short name
        classes = {cls.__name__.lower(): key for key, cls in LOSSES.items()}
        hint = closest(classes.get(str(name).lower(), str(name).lower()), LOSSES)
        raise ValueError(f"unknown loss {name!r}{hint} Known: {', '.join(sorted(LOSSES))}")
    return LOSSES[name]


__all__ = [
    "LOSSES",
    "RANK_LOSSES",
    "AUCLoss",
    "CalibrationLoss",
    "FastAPLoss",
    "HAPLoss",
    "NDCGLoss",
    "PNPLoss",
    "RankLoss",
    "RaMBOAPLoss",
    "RaMBORecallLoss",
    "RecallAtKLoss",
    "RetrievalLoss",
    "ROADMAPLoss",
    "SmoothAPLoss",
    "SoftBinAPLoss",
    "SpearmanLoss",
    "SupAPLoss",
    "SupNDCGLoss",
    "SupRecallLoss",
    "find",
]
