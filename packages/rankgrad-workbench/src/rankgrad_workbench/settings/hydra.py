"""Settings as Hydra composes them from files, losses and plug-ins. Values are not checked here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from rankgrad.common import plugins
from rankgrad.common.loss_names import LOSSES

from ..files import defaults
from .allowed import TARGET, ConfigError, find, is_own, packages
from .kinds import of_settings

GROUPS = of_settings("train").groups
GIVEN = "_given"  # name of the model and the data of `rankgrad.fit`; a command line cannot name it
PLAIN = (bool, int, float, str, list, dict)  # types of values in settings


def options(group: str, name: str = "train") -> list[str]:
    """The options of a group of settings, such as data, model or loss: our own, and those of plug-ins.

    >>> options("memory")
    ['none', 'rows', 'sum']
    """
    found: set[str] = set()
    if group == "loss" and not of_settings(name).own_losses:
        found = {*LOSSES, *plugins.registered("losses", LOSSES)}
    elif (group, name) == ("data", "train"):
        found = {*data_sets()}
    for folder in folders(name):
        files = (file.relative_to(folder / group) for file in (folder / group).rglob("*.yaml"))
        # files that others build on begin with _
        found |= {file.with_suffix("").as_posix() for file in files if not any(part[0] == "_" for part in file.parts)}
    return sorted(found)


def folders(name: str) -> list[Path]:
    """The folders with the settings files of a root configuration, the one with the root file first.

    They are rankgrad's own, and those of plug-ins.
    """
    ours = Path(str(resources.files("rankgrad_workbench.settings.files")))
    every = [folder / ("" if name == "train" else name) for folder in (ours, *plugins.config_folders())]
    return sorted(filter(Path.is_dir, every), key=lambda folder: not (folder / f"{name}.yaml").is_file())


def data_sets() -> dict[str, plugins.Plugin]:
    """Data sets of plug-ins, except for names that rankgrad has itself."""
    own = {file.stem for file in (folders("train")[0] / "data").glob("*.yaml")}
    registered = plugins.registered("datasets", own)
    return {name: plugin for name, plugin in registered.items() if not name.startswith("_")}


def groups_in(overrides: Sequence[str], name: str) -> tuple[str, ...]:
    """The overrides that choose an option of a group, such as data=folder, and the packages that may have options."""
    chosen = (*of_settings(name).groups, "trust")
    return tuple(override for override in overrides if override.split("=", 1)[0] in chosen)


def trusted(overrides: Sequence[str]) -> tuple[str, ...]:
    """The user's own packages, as settings name them by trust=.

    Raises:
        ConfigError: a name is no package of the user's own.

    >>> trusted(["trust=[mine,other]"])
    ('mine', 'other')
    """
    given = [override.removeprefix("trust=") for override in overrides if override.startswith("trust=")]
    names = re.split(r"[\[\],\s'\"]+", given[-1]) if given else []
    return packages([name for name in names if name not in ("", "null")])


@lru_cache(maxsize=256)  # comparisons and tables compose the same settings many times
def composed(overrides: tuple[str, ...], name: str) -> DictConfig:
    """The settings that Hydra composes. They are cached: copy them before you change them."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore

    words = [word for override in overrides for word in _parts_of_sum(override)]
    store = ConfigStore.instance()
    for group in ("loss", "data"):
        store.repo.pop(group, None)
    for loss, node in ({} if of_settings(name).own_losses else _losses(words)).items():
        store.store(name=loss, node=node, group="loss", provider="rankgrad")
    if name == "train":
        _offer_data(words, store)
    root, *more = folders(name)
    path = [f"hydra.searchpath=[{','.join(f'file://{folder}' for folder in more)}]"] if more else []
    with initialize_config_dir(str(root), version_base="1.3"):
        return compose(name, overrides=[*words, *path])


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
    parts = {_part(loss): loss for loss in losses}
    if len(parts) < len(losses):
        raise ConfigError(f"a sum may name each loss only once; got {override}")
    named = [f"+loss@loss.losses.{part}={loss}" for part, loss in parts.items()]
    return ["loss=_sum", *named, *(f"+loss.weights.{part}={1 / len(parts)!r}" for part in parts)]


def _part(loss: str) -> str:
    """Name of a loss in a sum."""
    return re.split(r"[/.]", loss)[-1]


def of_kind(losses: str, kind: str) -> list[str]:
    """The settings that the losses of loss= have for a kind of rows.

    >>> of_kind("info_nce+supap", "texts"), of_kind("info_nce", "images"), of_kind("list_net", "documents")
    (['loss.losses.info_nce.tau=0.1'], [], ['loss.tau=0.1'])
    """
    default, own = defaults.LOSSES[kind]
    known = {**defaults.OTHER_LOSSES.get(kind, {}), default: own}
    place = "loss.losses.{}" if "+" in losses else "loss"
    return [
        f"{place.format(_part(loss))}.{key}={value}"
        for loss in losses.split("+")
        for key, value in known.get(loss, {}).items()
    ]


def with_defaults_of_data(overrides: Sequence[str], name: str) -> list[str]:
    """The overrides, before them the settings that a named loss has by default for the kind of the data."""
    asked = [override.removeprefix("loss=") for override in overrides if override.startswith("loss=")]
    if of_settings(name).own_losses or not asked:
        return list(overrides)
    kind = "documents" if name == "search" else "rows"
    if name == "train":
        from ..models.build import TAKES

        kind = TAKES.get(composed(groups_in(overrides, name), name).model.kind, ("images",))[0]
    return [*of_kind(asked[-1], kind), *overrides]  # first, because the last value of a setting wins


def _losses(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The settings of losses: their arguments, and the default losses of data, such as _texts.

    Losses of plug-ins and of the user's own packages are imported only if they are named.
    """
    from rankgrad.losses import LOSSES, settings

    named = {value for key, _, value in (word.partition("=") for word in words) if key.lstrip("+").startswith("loss")}
    asked = [loss for loss in plugins.registered("losses", LOSSES) if loss in named]
    found: dict[str, dict[str, Any]] = {loss: settings(loss) for loss in (*LOSSES, *asked)}
    for kind, (loss, own) in defaults.LOSSES.items():
        found[f"_{kind}"] = {"defaults": [loss, "_self_"], **own}
    trust = trusted(words)
    for loss in named:
        if is_own(loss, trust):
            found[loss] = _arguments(find(loss, "loss", trust=trust, where="loss"), loss)
    return found


def _offer_data(words: Sequence[str], store: Any) -> None:
    """Register a plug-in's data set that is named and has no file. Its settings are the arguments of its loader."""
    asked = {word.removeprefix("data=") for word in words if word.startswith("data=")}
    with_file = {file.stem for folder in folders("train") for file in (folder / "data").glob("*.yaml")}
    for name in asked & data_sets().keys() - with_file:
        load = data_sets()[name].load()
        signature = inspect.signature(load)
        texts = "TextTable" in str(signature.return_annotation)
        brought = ("root", "shorter_side", "cache", "cache_dir")  # settings of _base/photos and _base/texts
        arguments = {
            key: each for key, each in _arguments(load, data_sets()[name].target).items() if key not in brought
        }
        own = {"name": name, "epochs": 10 if texts else 20, "load": arguments}
        # images that are drawn, not read from files, are small, like characters
        images = "_base/photos@_here_" if "root" in signature.parameters else "_base/drawings@_here_"
        node = {"defaults": ["_base/texts" if texts else images, "_self_"], **({"data": own} if texts else own)}
        store.store(name=name, node=node, group="data", package="_global_" if texts else None, provider="rankgrad")


def _arguments(made: Callable[..., Any], target: str) -> dict[str, Any]:
    """The settings of a class or function: its arguments with their defaults, as far as these are plain values."""
    found: dict[str, Any] = {TARGET: target}
    for each in inspect.signature(made).parameters.values():
        value = "???" if each.default is each.empty else each.default
        value = list(value) if isinstance(value, tuple) else value
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and (value is None or type(value) in PLAIN):
            found[each.name] = value
    return found


def differing(loss: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a loss of rankgrad that differ from the defaults of its class; for a sum, those of its parts.

    >>> differing(default_loss("texts")), differing(default_loss("images"))
    ({'tau': 0.1}, {})
    """
    from rankgrad.losses import LOSSES, settings

    parts = loss.get("losses")
    if isinstance(parts, Mapping):
        return {f"{part}.{key}": value for part, own in parts.items() for key, value in differing(own).items()}
    usual = next((each for each in map(settings, LOSSES) if each[TARGET] == loss.get(TARGET)), {})
    return {key: value for key, value in loss.items() if key in usual and value != usual[key]}


def default_loss(takes: str) -> dict[str, Any]:
    """The settings of the default loss, for a kind of rows in `defaults.LOSSES`."""
    from rankgrad.losses import settings

    loss, own = defaults.LOSSES[takes]
    return {**settings(loss), **own}
