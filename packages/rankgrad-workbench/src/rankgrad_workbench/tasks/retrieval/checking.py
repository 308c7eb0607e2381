"""Check the settings of a run before its data is read, because reading may take minutes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rankgrad.batches.sampler_settings import check_settings, named_as_settings
from rankgrad.common.checks import spelled
from rankgrad.evaluation import evaluate
from rankgrad.losses import RetrievalLoss

from ...datasets.base import check_reading
from ...models import TAKES, build_model
from ...models.build import GIVEN, READ, check_options
from ...models.timm import weights_file
from ...settings import ConfigError, make, named, section
from ...settings.spelling import as_keys
from ...training.module import check_optimizer
from .building import train_only
from .settings import RetrievalSettings

READING = ("channels", "shorter_side", "draft", "cache", "cache_dir")  # of images


def check(settings: RetrievalSettings) -> None:
    """Raise if the sampler, optimiser, model, loss, transforms or evaluation of a run would refuse its settings.

    Each is made, or used on four made-up items: the settings are judged by the code that will use them, so there is
    no second list of rules. The model is made without memory, and weights are not loaded.

    Raises:
        TypeError, ValueError: the setting that is refused.
        FileNotFoundError: the file of weights does not exist.
    """
    with named_as_settings():
        check_settings(**settings.sampler)
    check_optimizer(settings.optimizer)
    if settings.init is None:
        _check_model(settings.model, settings.optimizer["only"])
    reading = {name: settings.data.load[name] for name in READING if name in settings.data.load}
    with spelled(
        as_keys("data", {"channels": "data.load.channels", "draft": "data.load.draft", "shorter_side": "data.resize"})
    ):
        check_reading(**reading)
    for name in ("train_transform", "eval_transform"):
        make(getattr(settings.data, name), slot="transform", trust=settings.trust, where=f"data.{name}")
    kind = named(settings.loss, slot="loss", trust=settings.trust, where="loss")
    # losses of others may need facts about the data
    if isinstance(kind, type) and issubclass(kind, RetrievalLoss) and kind.__module__.startswith("rankgrad.losses"):
        make(settings.loss, slot="loss", trust=settings.trust, where="loss")
    given = settings.evaluation
    clusters: Any = "none" if given.clusters == "auto" else given.clusters  # k-means itself needs no trial
    bootstrap = min(given.bootstrap, 1) if isinstance(given.bootstrap, int) else given.bootstrap
    four, labels = torch.eye(2).repeat(2, 1), torch.tensor([0, 1, 0, 1])
    with section("evaluation"):
        evaluate(four, labels, ks=given.ks, extra=given.extra, bootstrap=bootstrap, clusters=clusters)


def _check_model(given: Any, trained: Sequence[str] | None) -> None:
    options = dict(given)
    weights = options.get("weights")
    if weights is not None and options["kind"] == "timm":
        weights_file(Path(weights))
    elif weights is not None and not Path(weights).is_file():
        raise FileNotFoundError(f"no weights file at {weights}; model.weights= needs the model.pt of a run")
    if options.get("pretrained") and weights is not None:
        raise ConfigError(
            "give either model.pretrained=true (weights from timm) or model.weights=FILE (your weights), not both"
        )
    options |= {name: without for name, without in (("pretrained", False), ("weights", None)) if name in options}
    kind = options.pop("kind")
    if kind == GIVEN:
        return  # the caller has made the model
    _, of_the_data = TAKES.get(kind, ("", {}))
    if kind in READ:
        with section("model"):
            check_options(kind, options)
        return
    with section("model"), torch.device("meta"):
        train_only(build_model(kind, **of_the_data, **options), trained)


__all__ = ["check"]
