"""What settings files read with `${default:...}`, `${rate:}` and the like: the table `rankgrad.common.defaults`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from ...common import defaults

if TYPE_CHECKING:
    from ...models.pixels import ImagePixels


PRETRAINED = ("sentence_transformer",)  # kinds of models that always begin with weights


def register_resolvers() -> None:
    """Register the resolvers with which settings files read the table of defaults."""
    if not OmegaConf.has_resolver("default"):
        # the usual 256 before a crop of 224, at any size
        OmegaConf.register_new_resolver("resize_for", lambda size: round(size * 256 / 224))
        OmegaConf.register_new_resolver("default", lambda name: getattr(defaults, name.upper()))
        OmegaConf.register_new_resolver("trained", lambda *, _root_: trained_before(_root_))
        OmegaConf.register_new_resolver("pixels", lambda name, *, _root_: _plain(getattr(pixels(_root_), name)))
        OmegaConf.register_new_resolver("average", lambda *, _root_: defaults.AVERAGE if fine_tuned(_root_) else 1.0)
        OmegaConf.register_new_resolver(
            "samples_per_class",
            lambda *, _root_: defaults.SAMPLES_FINE_TUNED if fine_tuned(_root_) else defaults.SAMPLES_PER_CLASS,
        )
        OmegaConf.register_new_resolver("rate", lambda *, _root_: rate(_root_).lr)
        OmegaConf.register_new_resolver("head_lr_factor", lambda *, _root_: rate(_root_).head_lr_factor)


def rate(config: DictConfig) -> defaults.Rate:
    """The default learning rate for the model of these settings. Their own rate is not read.

    >>> from rankgrad.workbench.config import compose
    >>> rate(compose(["model=timm", "model.pretrained=true", "optimizer.lr=0.1"])).lr
    0.0003
    """
    model, init = config.model, config.get("init")
    trained = bool(init or model.get("trained")) or trained_before(config)
    kind = (model.get("like") or model.kind) if init is None else _kind_of(init, model.kind)
    return defaults.rate_of(kind, config.optimizer.name, trained=trained, frozen=bool(config.get("frozen")))


def trained_before(config: DictConfig) -> bool:
    """Whether the backbone of these settings begins with weights that were trained before.

    >>> from rankgrad.workbench.config import compose
    >>> trained_before(compose(["model=timm", "model.pretrained=true"])), trained_before(compose(["model=timm"]))
    (True, False)
    """
    model = config.model
    return bool(model.kind in PRETRAINED or model.get("pretrained") or model.get("weights"))


def fine_tuned(config: DictConfig) -> bool:
    """Whether a pretrained network is trained, and not only a head on its features."""
    return trained_before(config) and not config.get("frozen")


def pixels(config: DictConfig) -> ImagePixels:
    """How the network of these settings wants its images. Without a pretrained network: as for ImageNet.

    >>> from rankgrad.workbench.config import compose
    >>> pixels(compose(["model=timm", "model.name=tf_efficientnet_lite0", "model.pretrained=true"])).mean
    (0.5, 0.5, 0.5)
    """
    from ...models.pixels import ImagePixels, timm_pixels

    model, usual = config.model, ImagePixels()
    if config.get("init") is not None or not trained_before(config):
        return usual
    weights = None if model.get("weights") is None else Path(model.weights)
    if model.kind == "timm":
        return timm_pixels(model.name, weights) or usual
    return usual if weights is None else _recorded(weights) or usual


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _kind_of(init: str, otherwise: str) -> str:
    """The kind of model in a weights file or in a run's folder. If it cannot be read, return `otherwise`."""
    from ...models.record import WEIGHTS

    path = Path(init) / WEIGHTS if Path(init).is_dir() else Path(init)
    try:
        return _kind_in(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return otherwise


def _recorded(path: Path) -> ImagePixels | None:
    """Mean and standard deviation in a file of weights of a run; None: it cannot be read, or its images had none."""
    from ...models.pixels import ImagePixels
    from ...models.record import read_record

    try:
        found = read_record(path)["pixels"]
    except (OSError, ValueError):
        return None
    return ImagePixels(tuple(found["mean"]), tuple(found["std"])) if any(found["mean"]) else None


@lru_cache(maxsize=16)
def _kind_in(path: Path, changed: int) -> str:
    from ...models.record import read_record

    return str(read_record(path)["model"]["kind"])
