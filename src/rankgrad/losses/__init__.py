"""Every loss, by class and by name. Which one for which case: docs/choosing-a-loss.md."""

# A new loss needs a class, a row in `loss_names.LOSSES`, an import here, a reference in the tests, and `make tables`.
# Its signature gives its settings. Its attributes give its row in docs/losses.md.

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from ..common import loss_names
from ..common.checks import closest
from ..common.plugins import registered
from .adaptive_triplet import AdaptiveTripletLoss
from .auc import AUCLoss
from .average_precision import SmoothAPLoss, SupAPLoss
from .base import RetrievalLoss, still
from .distillation import GradeBCELoss, ListDistillationLoss, MarginMSELoss
from .graded import HAPLoss, NDCGLoss, RecallAtKLoss
from .histogram import FastAPLoss, SoftBinAPLoss
from .info_nce import InfoNCELoss
from .lambda_loss import LambdaLoss
from .list_net import ListNetLoss, SLatKLoss
from .pnp import PNPLoss
from .rambo import RaMBOAPLoss, RaMBORecallLoss
from .rank_loss import RankLoss
from .roadmap import AdaptiveROADMAPLoss, CalibrationLoss, ROADMAPLoss
from .roc import ROCAUCLoss
from .spearman import SpearmanLoss
from .sum import SumLoss
from .sup_rank import SupNDCGLoss, SupRecallLoss


def _named(place: str) -> type[RetrievalLoss]:
    module, _, name = place.partition(":")
    kind: type[RetrievalLoss] = getattr(import_module(module), name)
    return kind


#: Name -> class of every loss.
LOSSES: dict[str, type[RetrievalLoss]] = {name: _named(place) for name, place in loss_names.LOSSES.items()}

#: Names of the losses that depend only on score differences. A constant added to a row changes nothing.
RANK_LOSSES: list[str] = [name for name, kind in LOSSES.items() if kind.differences_only]


def settings(name: str) -> dict[str, Any]:
    """The settings of a loss in the commands: the arguments of its own signature, with their defaults.

    >>> settings("smooth_ap")
    {'_target_': 'rankgrad.losses.SmoothAPLoss', 'tau': 0.01, 'include_self': False}
    """
    kind = find(name)
    parameters = inspect.signature(kind).parameters.values()
    own = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    plain: dict[str, Any] = {
        each.name: list(each.default) if isinstance(each.default, tuple) else each.default for each in own
    }
    if any(each.kind is each.VAR_KEYWORD for each in parameters):  # all losses of this library take it
        plain["include_self"] = False
    target = f"{__name__}.{kind.__name__}" if name in LOSSES else registered("losses", LOSSES)[name].target
    return {"_target_": target, **plain}


def find(name: str) -> type[RetrievalLoss]:
    """The class of a loss, by its name in `LOSSES` or in a plug-in. The error for a misspelt name suggests the closest.

    >>> find("smooth_ap").__name__
    'SmoothAPLoss'
    """
    others = {} if name in LOSSES else registered("losses", LOSSES)
    if name in others:
        kind: type[RetrievalLoss] = others[name].load()
        return kind
    if name not in LOSSES:
        # somebody may have typed the class name or capitals instead of the short name
        classes = {cls.__name__.lower(): key for key, cls in LOSSES.items()}
        given, known = str(name).lower(), [*LOSSES, *others]
        hint = closest(classes.get(given, given), known)
        raise ValueError(f"unknown loss {name!r}{hint} Known: {', '.join(sorted(known))}")
    return LOSSES[name]


__all__ = [
    "LOSSES",
    "RANK_LOSSES",
    "AUCLoss",
    "AdaptiveROADMAPLoss",
    "AdaptiveTripletLoss",
    "CalibrationLoss",
    "FastAPLoss",
    "GradeBCELoss",
    "HAPLoss",
    "LambdaLoss",
    "ListDistillationLoss",
    "ListNetLoss",
    "InfoNCELoss",
    "MarginMSELoss",
    "NDCGLoss",
    "PNPLoss",
    "RankLoss",
    "RaMBOAPLoss",
    "RaMBORecallLoss",
    "RecallAtKLoss",
    "RetrievalLoss",
    "ROADMAPLoss",
    "ROCAUCLoss",
    "SLatKLoss",
    "SmoothAPLoss",
    "SoftBinAPLoss",
    "SpearmanLoss",
    "SumLoss",
    "SupAPLoss",
    "SupNDCGLoss",
    "SupRecallLoss",
    "find",
    "settings",
    "still",
]
