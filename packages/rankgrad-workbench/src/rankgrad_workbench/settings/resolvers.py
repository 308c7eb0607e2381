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
        "resize_for": _resize_for,
        "resize_at": lambda size, *, _root_: resized_for(size, _root_.data),
        "size_of_use": lambda *, _root_: _size_of_use(_root_),
        "shorter_side": lambda *, _root_: _shorter_side(_root_.data),
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


def _resize_for(size: int) -> int:
    """The usual 256 before a crop of 224, at any size."""
    return round(size * 256 / 224)


def resized_for(size: int, data: Mapping[str, Any]) -> Any:
    """`data.resize` for images of another size than `data.size`.

    >>> resized_for(224, {"size": 64, "resize": 73}), resized_for(128, {"size": 64, "resize": [64, 80]})
    (256, [128, 160])
    """
    at, resize = data["size"], data["resize"]
    if size == at or resize is None:
        return resize
    if resize == _resize_for(at):
        return _resize_for(size)
    return round(resize * size / at) if isinstance(resize, int) else [round(side * size / at) for side in resize]


def _size_of_use(config: DictConfig) -> int | None:
    """Size of the images of a trained network, see `defaults.LARGER`. None: the data are no photographs."""
    size: int | None = config.data.get("size")
    own = own_size(config) if config.data.get("resize") is not None else None
    return size if size is None or own is None else max(size, min(own, round(defaults.LARGER * size)))


def own_size(config: Mapping[str, Any]) -> int | None:
    """The size of images with which the network was pretrained; None: it was not, or it takes one size only."""
    from ..models.timm import pixels_of

    model = config["model"]
    if config.get("init") is not None or model["kind"] != "timm" or not defaults.trained_before(model):
        return None
    pixels = pixels_of(model)
    return None if pixels.fixed else pixels.size


def _shorter_side(data: DictConfig) -> Any:
    """The shorter side of images that are read: the larger one of those of training and evaluation."""
    sides = data.resize, data.eval_transform.resize
    return max(sides) if all(isinstance(side, int) for side in sides) else data.resize


def _rate(config: DictConfig) -> defaults.Rate:
    return rate(config.model, config.optimizer.name, config.get("init"), config.get("frozen"))


def _fine_tuned(config: DictConfig) -> bool:
    """Whether a pretrained network is trained, and not only a head on its features."""
    return defaults.trained_before(config.model) and not config.get("frozen")


def _pixels(config: DictConfig) -> dict[str, Any]:
    from ..models.timm import ImagePixels, pixels_of

    pixels = asdict(ImagePixels() if config.get("init") is not None else pixels_of(config.model))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pixels.items()}
