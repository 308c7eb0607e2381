"""How a network wants its images: size, mean and standard deviation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..files.defaults import trained_before
from .record import read_record

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImagePixels:
    """How images were prepared when a network was trained.

    Attributes:
        mean: of each channel, for values 0 .. 1.
        std: standard deviation of each channel.
        size: height and width of an image, pixels.
    """

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    size: int = 224


@lru_cache(maxsize=16)
def timm_pixels(name: str, weights: Path | None = None) -> ImagePixels | None:
    """How timm's pretrained weights of a model want their images; None: the model or such weights are unknown.

    Args:
        name: timm's name of the model.
        weights: file or folder of the weights. A `config.json` beside them that timm wrote wins.

    >>> timm_pixels("tf_efficientnet_lite0")
    ImagePixels(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), size=224)
    >>> timm_pixels("no_such_network") is None
    True
    """
    import timm

    if weights is not None and (written := _written(weights)) is not None:
        return written
    try:
        return _as_timm_says(vars(timm.get_pretrained_cfg(name, allow_unregistered=True)))
    except (RuntimeError, TypeError):  # the model, or the weights that its name asks for, are not known
        return None


def pixels_of(model: Mapping[str, Any]) -> ImagePixels:
    """How the network of these settings wants its images. Without a pretrained network: as for ImageNet.

    >>> pixels_of({"kind": "timm", "name": "tf_efficientnet_lite0", "pretrained": True}).mean
    (0.5, 0.5, 0.5)
    """
    weights = None if model.get("weights") is None else Path(model["weights"])
    if model["kind"] == "timm" and trained_before(model):
        return timm_pixels(model["name"], weights) or ImagePixels()
    return (None if weights is None else _recorded(weights)) or ImagePixels()


def _recorded(path: Path) -> ImagePixels | None:
    """Mean and standard deviation in a file of weights of a run; None: it cannot be read, or its images had none."""
    try:
        found = read_record(path)["pixels"]
    except (OSError, ValueError):
        return None
    return ImagePixels(tuple(found["mean"]), tuple(found["std"])) if any(found["mean"]) else None


def _written(weights: Path) -> ImagePixels | None:
    """What timm's config.json in the folder of the weights says; None: there is none."""
    file = (weights if weights.is_dir() else weights.parent) / "config.json"
    try:
        return _as_timm_says(json.loads(file.read_text(encoding="utf-8"))["pretrained_cfg"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _as_timm_says(config: Mapping[str, Any]) -> ImagePixels:
    mean, std = (tuple(map(float, config[name])) for name in ("mean", "std"))
    return ImagePixels(mean, std, int(config["input_size"][-1]))
