"""What settings files read with `${default:...}`, `${rate:}` and the like: the table `rankgrad.defaults`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from .. import defaults


def register_resolvers() -> None:
    """Register the resolvers with which settings files read the table of defaults."""
    if not OmegaConf.has_resolver("default"):
        # the usual 256 before a crop of 224, at any size
        OmegaConf.register_new_resolver("resize_for", lambda size: round(size * 256 / 224))
        OmegaConf.register_new_resolver("default", lambda name: getattr(defaults, name.upper()))
        OmegaConf.register_new_resolver("rate", lambda *, _root_: rate(_root_).lr)
        OmegaConf.register_new_resolver("head_lr_factor", lambda *, _root_: rate(_root_).head_lr_factor)


def rate(config: DictConfig) -> defaults.Rate:
    """The default learning rate for the model of these settings. Their own rate is not read.

    >>> from rankgrad.config import compose
    >>> rate(compose(["model=timm", "model.pretrained=true", "optimizer.lr=0.1"])).lr
    1e-05
    """
    model, init = config.model, config.get("init")
    trained = bool(init or model.get("pretrained") or model.get("weights"))
    kind = model.kind if init is None else _kind_of(init, model.kind)
    return defaults.rate_of(kind, config.optimizer.name, trained=trained, frozen=bool(config.get("frozen")))


def _kind_of(init: str, otherwise: str) -> str:
    """The kind of model in a weights file or in a run's folder. If it cannot be read, return `otherwise`."""
    from ..models.record import WEIGHTS

    path = Path(init) / WEIGHTS if Path(init).is_dir() else Path(init)
    try:
        return _kind_in(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return otherwise


@lru_cache(maxsize=16)
def _kind_in(path: Path, changed: int) -> str:
    from ..models.record import read_record

    return str(read_record(path)["model"]["kind"])
