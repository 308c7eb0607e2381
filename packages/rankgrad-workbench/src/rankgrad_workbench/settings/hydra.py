"""Settings as Hydra composes them from files, losses and plug-ins. Values are not checked here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig

from rankgrad.common import plugins

from ..files import defaults
from .allowed import TARGET, ConfigError, find
from .groups import data_sets, folders, groups_in, trusted
from .kinds import of_settings

PLAIN = (bool, int, float, str, list, dict)  # types of values in settings


@lru_cache(maxsize=256)  # comparisons and tables compose the same settings many times
def composed(overrides: tuple[str, ...], name: str) -> DictConfig:
    """The settings that Hydra composes. They are cached: copy them before you change them."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    words = [word for override in overrides for word in _parts_of_sum(override)]
    _offer_losses(name, words)
    _offer_data(name, words)
    root, *more = folders(name)
    others = [f"file://{folder}" for folder in more]
    path = [f"hydra.searchpath=[{','.join(others)}]"] if others else []
    with initialize_config_dir(str(root), version_base="1.3"):
        return hydra_compose(name, overrides=[*words, *path])


def literal(value: str) -> str:
    r"""A value as Hydra's grammar writes a text, in quotes.

    >>> print(literal("it's a\\"))
    'it\'s a\\'
    """
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (found[2] and "\\'"), value) + "'"


def _parts_of_sum(override: str) -> list[str]:
    """Hydra's overrides for loss=A+B: a sum, its parts, and equal weights. Other overrides are returned unchanged."""
    key, value = override.split("=", 1)
    if key != "loss" or "+" not in value:
        return [override]
    losses = value.split("+")
    names = [_part(loss) for loss in losses]
    if len(set(names)) < len(names):
        raise ConfigError(f"a sum may name each loss only once; got {override}")
    parts = [f"+loss@loss.losses.{name}={loss}" for name, loss in zip(names, losses, strict=True)]
    return ["loss=_sum", *parts, *(f"+loss.weights.{name}={1 / len(names)!r}" for name in names)]


def _part(loss: str) -> str:
    """Name of a loss in a sum."""
    return re.split(r"[/.]", loss)[-1]


def of_kind(losses: str, kind: str) -> list[str]:
    """The settings that the losses of loss= have for a kind of rows.

    >>> of_kind("info_nce+supap", "texts"), of_kind("info_nce", "images"), of_kind("list_net", "documents")
    (['loss.losses.info_nce.tau=0.1'], [], ['loss.tau=0.1'])
    """
    several = losses.split("+")
    default, own = defaults.LOSSES[kind]
    known = {**defaults.OTHER_LOSSES.get(kind, {}), default: own}
    place = {loss: f"loss.losses.{_part(loss)}" if several[1:] else "loss" for loss in several}
    return [f"{place[loss]}.{key}={value}" for loss in several for key, value in known.get(loss, {}).items()]


def with_defaults_of_data(overrides: Sequence[str], name: str) -> list[str]:
    """The overrides, before them the settings that a named loss has by default for the kind of the data."""
    asked = [override.removeprefix("loss=") for override in overrides if override.startswith("loss=")]
    if of_settings(name).own_losses or not any(of_kind(losses, kind) for losses in asked for kind in defaults.LOSSES):
        return list(overrides)
    kind = "documents" if name == "search" else "rows"
    if name == "train":
        from ..models.build import TAKES

        kind = TAKES.get(composed(groups_in(overrides, name), name).model.kind, ("images",))[0]
    return [*of_kind(asked[-1], kind), *overrides]  # first, because the last value of a setting wins


def _offer_losses(name: str, words: Sequence[str]) -> None:
    """Register the settings of losses with Hydra: their arguments, and the default losses of data, such as _texts.

    Losses of plug-ins and of the user's own packages are registered, and imported, only if they are named.
    """
    from hydra.core.config_store import ConfigStore

    from rankgrad.losses import LOSSES, settings

    store, ours = ConfigStore.instance(), not of_settings(name).own_losses
    store.repo.pop("loss", None)
    named = {value for key, _, value in (word.partition("=") for word in words) if key.lstrip("+").startswith("loss")}
    asked = [loss for loss in plugins.registered("losses", LOSSES) if loss in named]
    for loss in (*LOSSES, *asked) if ours else ():
        store.store(name=loss, node=settings(loss), group="loss", provider="rankgrad")
    for kind, (loss, own) in defaults.LOSSES.items() if ours else ():
        store.store(name=f"_{kind}", node={"defaults": [loss, "_self_"], **own}, group="loss", provider="rankgrad")
    trust = trusted(words)
    for loss in filter(trust.own, named) if ours else ():
        node = _arguments(find(loss, "loss", trust=trust.packages, where="loss"), loss)
        store.store(name=loss, node=node, group="loss", provider="rankgrad")


def _offer_data(name: str, words: Sequence[str]) -> None:
    """Register a plug-in's data set that is named and has no file. Its settings are the arguments of its loader."""
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.repo.pop("data", None)
    asked = [word.removeprefix("data=") for word in words if name == "train" and word.startswith("data=")]
    with_file = {file.stem for folder in folders(name) for file in (folder / "data").glob("*.yaml")}
    for data in {*asked} & data_sets().keys() - with_file:
        load = data_sets()[data].load()
        signature = inspect.signature(load)
        texts = "TextTable" in str(signature.return_annotation)
        brought = ("root", "shorter_side", "cache", "cache_dir")  # settings of _base/photos and _base/texts
        arguments = _arguments(load, data_sets()[data].target)
        own = {
            "name": data,
            "epochs": 10 if texts else 20,
            "load": {key: value for key, value in arguments.items() if key not in brought},
        }
        # images that are drawn, not read from files, are small, like characters
        images = "_base/photos@_here_" if "root" in signature.parameters else "_base/drawings@_here_"
        base = "_base/texts" if texts else images
        node = {"defaults": [base, "_self_"], **({"data": own} if texts else own)}
        package = "_global_" if texts else None
        store.store(name=data, node=node, group="data", package=package, provider="rankgrad")


def _arguments(made: Callable[..., Any], target: str) -> dict[str, Any]:
    """The settings of a class or function: its arguments with their defaults, as far as these are plain values."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = {each.name: each.default for each in inspect.signature(made).parameters.values() if each.kind not in several}
    own = {name: "???" if value is inspect.Parameter.empty else value for name, value in own.items()}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
    return {TARGET: target, **{name: each for name, each in values.items() if each is None or type(each) in PLAIN}}


def differing(loss: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a loss of rankgrad that differ from the defaults of its class; for a sum, those of its parts.

    >>> differing(default_loss("texts")), differing(default_loss("images"))
    ({'tau': 0.1}, {})
    """
    from rankgrad.losses import LOSSES, settings

    parts = loss.get("losses")
    if isinstance(parts, Mapping):
        return {f"{part}.{key}": value for part, own in parts.items() for key, value in differing(own).items()}
    for name in LOSSES:
        usual = settings(name)
        if usual[TARGET] == loss.get(TARGET):
            return {key: value for key, value in loss.items() if key in usual and value != usual[key]}
    return {}


def default_loss(takes: str) -> dict[str, Any]:
    """The settings of the default loss, for a kind of rows in `defaults.LOSSES`."""
    from rankgrad.losses import settings

    loss, own = defaults.LOSSES[takes]
    return {**settings(loss), **own}
