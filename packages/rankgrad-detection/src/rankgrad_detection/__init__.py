"""Detectors trained on Average Precision: the losses of `rankgrad.detection` in torchvision's models.

Importing this module imports nothing else: rankgrad reads the names of its plug-ins without torch. Import data,
evaluation and training from their own modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .adapter import LossHandle, use_ap_loss

__all__ = ["LossHandle", "__version__", "use_ap_loss"]


def __getattr__(name: str) -> Any:
    """Import a name of the adapter when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import adapter

    return getattr(adapter, name)
