"""Settings as Hydra composes them from files, losses and plug-ins. Values are not checked here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ...common import defaults, plugins
from ..allowed import TARGET, ConfigError
from ..kinds import of_settings
from .options import data_sets, folders, groups_in
from .values import plain

_SINGLE = re.compile(r"[A-Za-z_][\w.]*=")  # a plain setting, without Hydra's +added, ~removed and group@place


@lru_cache(maxsize=256)  # comparisons and tables compose the same settings many times
def composed(overrides: tuple[str, ...], name: str) -> DictConfig:
    """The settings that Hydra composes. They are cached: copy them before you change them.

    Hydra needs a quarter of a second to read the files of the groups. Most calls choose the same files. So the files
    are composed once, and single settings are written into a copy, as Hydra itself does. If a setting does not fit,
    Hydra composes everything and reports the error.
    """
    single = tuple(override for override in overrides if _SINGLE.match(override) and not groups_in([override], name))
    if single:
        config = deepcopy(composed(tuple(override for override in overrides if override not in single), name))
        if _written(config, single):
            return config
    return by_hydra(overrides, name)


def _written(config: DictConfig, overrides: Sequence[str]) -> bool:
    """Write settings into a configuration. Return False if one does not fit, or if Hydra reads it as a sweep."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        if any(override.is_sweep_override() for override in parsed):
            return False
        for override in parsed:
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    except (HydraException, OmegaConfBaseException):
        return False
    return True


def by_hydra(overrides: Sequence[str], name: str) -> DictConfig:
    """The settings that Hydra composes, without the cache."""
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


def _parts_of_sum(override: str) -> list[str]:
    """Hydra's overrides for loss=A+B: a sum, its parts, and equal weights. Other overrides are returned unchanged."""
    key, value = override.split("=", 1)
    if key != "loss" or "+" not in value:
        return [override]
    losses = value.split("+")
    names = [_of_kind(loss) or loss.rpartition("/")[2] for loss in losses]
    if len(set(names)) < len(names):
        raise ConfigError(f"a sum may name each loss only once; got {override}")
    parts = [f"+loss@loss.losses.{name}={loss}" for name, loss in zip(names, losses, strict=True)]
    return ["loss=_sum", *parts, *(f"+loss.weights.{name}={1 / len(names)!r}" for name in names)]


def _own() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Internal name -> a loss, and its settings for a kind of rows: _texts, _documents, _documents-list_net."""
    found = {f"_{kind}": row for kind, row in defaults.LOSSES.items()}
    others = defaults.OTHER_LOSSES.items()
    return found | {f"_{kind}-{loss}": (loss, own) for kind, losses in others for loss, own in losses.items()}


def _of_kind(loss: str) -> str | None:
    """Name of the loss that an internal name stands for; None: it is no such name."""
    return _own().get(loss, (None,))[0]


def for_kind(losses: str, kind: str | None) -> str:
    """The value of loss=, in which a loss brings the settings that it has for a kind of rows.

    >>> for_kind("log_sum_exp+supap", "texts"), for_kind("log_sum_exp", "images"), for_kind("list_net", "documents")
    ('_texts+supap', 'log_sum_exp', '_documents-list_net')
    """
    names = {loss: name for name, (loss, own) in _own().items() if own and name.partition("-")[0] == f"_{kind}"}
    return "+".join(names.get(loss, loss) for loss in losses.split("+"))


def with_defaults_of_data(overrides: Sequence[str], name: str) -> list[str]:
    """The overrides, in which a named loss keeps the settings that are the default for the data."""
    asked = [override for override in overrides if override.startswith("loss=")]
    own = {loss for loss, settings in _own().values() if settings}
    if of_settings(name).own_losses or not any(part in own for each in asked for part in each[5:].split("+")):
        return list(overrides)
    kind = "documents" if name == "search" else "rows"
    if name == "train":
        from ...models.build import TAKES

        groups = tuple(each for each in groups_in(overrides, name) if each not in asked)
        kind = TAKES.get(composed(groups, name).model.kind, ("",))[0]
    return [f"loss={for_kind(each[5:], kind)}" if each in asked else each for each in overrides]


def _offer_losses(name: str, words: Sequence[str]) -> None:
    """Register the settings of losses with Hydra: their arguments, and the default losses of data, such as _texts.

    Losses of plug-ins are registered only if they are named. Other plug-ins are not imported.
    """
    from hydra.core.config_store import ConfigStore

    from ...losses import LOSSES, settings

    store, ours = ConfigStore.instance(), not of_settings(name).own_losses
    store.repo.pop("loss", None)
    named = {value for key, _, value in (word.partition("=") for word in words) if key.lstrip("+").startswith("loss")}
    asked = [loss for loss in plugins.registered("losses", LOSSES) if loss in named]
    for loss in (*LOSSES, *asked) if ours else ():
        store.store(name=loss, node=settings(loss), group="loss", provider="rankgrad")
    for internal, (loss, own) in _own().items() if ours else ():
        store.store(name=internal, node={"defaults": [loss, "_self_"], **own}, group="loss", provider="rankgrad")


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
        own = {"name": data, "epochs": 10 if texts else 20, "load": _arguments(load, data_sets()[data].target)}
        # images that are drawn, not read from files, are small, like characters
        images = "_base/photos@_here_" if "root" in signature.parameters else "_base/drawings@_here_"
        base = "_base/texts" if texts else images
        node = {"defaults": [base, "_self_"], **({"data": own} if texts else own)}
        package = "_global_" if texts else None
        store.store(name=data, node=node, group="data", package=package, provider="rankgrad")


def _arguments(load: Callable[..., Any], target: str) -> dict[str, Any]:
    """The settings of a loader: its arguments, without those that _base/photos or _base/texts has."""
    brought = ("root", "shorter_side", "cache", "cache_dir")
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in inspect.signature(load).parameters.values() if each.kind not in several]
    own = {each.name: each.default for each in parameters if each.name not in brought}
    needed = inspect.Parameter.empty
    return {TARGET: target, **{name: "???" if default is needed else default for name, default in own.items()}}


def differing(loss: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a loss of rankgrad that differ from the defaults of its class; for a sum, those of its parts.

    >>> differing(default_loss("texts")), differing(default_loss("images"))
    ({'tau': 0.1}, {})
    """
    from ...losses import LOSSES, settings

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
    settings: dict[str, Any] = plain(composed((f"loss=_{takes}",), "train").loss)
    return settings
