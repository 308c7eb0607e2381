"""What settings files read with `${default:...}`, `${rate:}` and the like: the table `files.defaults`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..files import defaults


def register_resolvers() -> None:
    """Register the resolvers with which settings files read the table of defaults."""
    resolvers: dict[str, Callable[..., Any]] = {
        "resize_for": lambda size: round(size * 256 / 224),  # the usual 256 before a crop of 224, at any size
        "default": lambda name: getattr(defaults, name.upper()),
        "trained": lambda *, _root_: defaults.trained_before(_root_.model),
        "pixels": lambda name, *, _root_: _pixels(_root_)[name],
        # null: it follows from the number of steps, see `defaults.share_kept`
        "average": lambda *, _root_: None if _fine_tuned(_root_) else 1.0,
        "samples_per_class": lambda *, _root_: (
            defaults.SAMPLES_FINE_TUNED if _fine_tuned(_root_) else defaults.SAMPLES_PER_CLASS
        ),
        "rate": lambda *, _root_: _rate(_root_).lr,
        "head_lr_factor": lambda *, _root_: _rate(_root_).head_lr_factor,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


def rate(
    model: Mapping[str, Any], optimizer: str, init: str | None = None, frozen: bool | None = False
) -> defaults.Rate:
    """The default learning rate.

    Args:
        model: settings of the model.
        optimizer: name of the optimiser.
        init: run or file of weights whose model replaces it.
        frozen: whether only a new head is trained.

    >>> rate({"kind": "timm", "pretrained": True}, "adamw").lr
    0.0003
    """
    trained = bool(init or model.get("trained")) or defaults.trained_before(model)
    kind = model.get("like") or model["kind"]
    if init is not None:
        from ..models.record import kind_in

        kind = kind_in(Path(init), model["kind"])
    return defaults.rate_of(kind, optimizer, trained=trained, frozen=bool(frozen))


def _rate(config: DictConfig) -> defaults.Rate:
    return rate(config.model, config.optimizer.name, config.get("init"), config.get("frozen"))


def _fine_tuned(config: DictConfig) -> bool:
    """Whether a pretrained network is trained, and not only a head on its features."""
    return defaults.trained_before(config.model) and not config.get("frozen")


def _pixels(config: DictConfig) -> dict[str, Any]:
    from ..models.timm import ImagePixels, pixels_of

    pixels = asdict(ImagePixels() if config.get("init") is not None else pixels_of(config.model))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pixels.items()}
