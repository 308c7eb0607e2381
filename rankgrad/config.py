"""Configurations by Hydra, with errors that say what was misspelt and what would fit."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

GROUPS = ("data", "model", "loss", "memory", "recipe", "experiment")
DETECT_GROUPS = ("data", "model", "loss", "experiment")
# Root configuration -> the package that holds it, and its groups: `rankgrad train`, `rankgrad detect train`.
TREES = {"train": ("rankgrad.configs", GROUPS), "detect": ("rankgrad.configs.detect", DETECT_GROUPS)}
# Their values are paths: taken as they are, whatever signs they hold, and not as Hydra's grammar.
PATHS = ("out", "resume", "init", "data.root", "data.cache_dir", "model.weights")


class ConfigError(ValueError):
    """A setting that does not exist or does not fit; the message is for the user, not a programming error."""


def options(group: str, name: str = "train") -> list[str]:
    """Names that a group (data, model, loss) of a root configuration can take.

    >>> options("loss", "detect")
    ['ap', 'cross_entropy', 'smooth_ap', 'supap']
    >>> options("data")
    ['cub', 'cub_cropped', 'folder', 'glyphs', 'inaturalist', 'inshop', 'omniglot', 'sop', 'vehicleid']
    """
    root = resources.files(TREES[name][0]) / group

    def walk(folder: Any, prefix: str) -> Iterator[str]:
        for entry in folder.iterdir():
            if entry.name.endswith(".yaml"):
                yield prefix + entry.name.removesuffix(".yaml")
            elif entry.is_dir() and not entry.name.startswith("_"):
                yield from walk(entry, f"{prefix}{entry.name}/")

    return sorted(walk(root, ""))


def compose(overrides: Sequence[str], name: str = "train") -> DictConfig:
    """The configuration `name` (see `TREES`) with overrides such as "loss=pnp" or "optimizer.lr=1e-3".

    Raises:
        ConfigError: an unknown key or group option, with the closest known one; a value that is needed and missing; a
            word where a number belongs.

    >>> compose(["loss=smooth_ap"]).loss.tau
    0.01
    """
    from hydra.errors import HydraException

    if not OmegaConf.has_resolver("resize_for"):
        # the usual 256 before a crop of 224, at any size
        OmegaConf.register_new_resolver("resize_for", lambda size: round(size * 256 / 224))
    for override in overrides:
        if "=" not in override:
            raise ConfigError(f"settings are KEY=VALUE, such as loss=pnp or optimizer.lr=1e-3; got {override!r}")
        key, value = override.split("=", 1)
        if key in TREES[name][1] and value not in options(key, name):
            raise ConfigError(unknown(key, value, options(key, name)))
        if key in PATHS and not value:
            raise ConfigError(f"{key}= is empty: give a path, or leave it out")
    try:
        config = _composed([_quoted(override) for override in overrides], name)
    except HydraException as error:
        raise ConfigError(_explain(str(error), overrides, name)) from None
    missing = [key for key in keys(config) if _is_missing(config, key)]
    if missing:
        raise ConfigError(f"{', '.join(missing)} must be given: add {missing[0]}=... to the command")
    _check_kinds(config, overrides, name)
    return config


def _composed(overrides: Sequence[str], name: str) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module

    with initialize_config_module(TREES[name][0], version_base="1.3"):
        return hydra_compose(name, overrides=list(overrides))


def _groups(overrides: Sequence[str], name: str) -> list[str]:
    return [override for override in overrides if override.split("=", 1)[0] in TREES[name][1]]


def _check_kinds(config: DictConfig, overrides: Sequence[str], name: str) -> None:
    """Raise where a word stands for a number, or one value for a list. Losses and Lightning check their own."""
    given = [override.split("=", 1)[0] for override in overrides]
    own = {*TREES[name][1], *PATHS, "trainer.devices", *(f"data.{kind}_transform.resize" for kind in ("train", "eval"))}
    given = [key for key in given if key not in own and not key.startswith(("loss.", "+", "~"))]
    default = _composed(_groups(overrides, name), name) if given else config
    for key in given:
        before, now = OmegaConf.select(default, key, throw_on_missing=False), OmegaConf.select(config, key)
        if isinstance(before, (bool, int, float)) and not isinstance(now, (bool, int, float, type(None))):
            raise ConfigError(f"{key} is {'true or false' if isinstance(before, bool) else 'a number'}; got {now!r}")
        if isinstance(before, ListConfig) and not isinstance(now, (ListConfig, type(None))):
            raise ConfigError(f"{key} is a list such as {key}={str(before).replace(' ', '')}; got {now!r}")


def _quoted(override: str) -> str:
    key, value = override.split("=", 1)
    if key not in PATHS or value in ("", "null") or value[0] in "'\"":
        return override
    value = os.path.expanduser(value)  # a shell leaves the ~ of data.root=~/photos alone
    # in Hydra's quotes only a quote, and backslashes before one, need a backslash
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    escaped += "\\" * (len(value) - len(value.rstrip("\\")))
    return f"{key}='{escaped}'"


def _is_missing(config: DictConfig, key: str) -> bool:
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and OmegaConf.is_missing(node, name)


def make(node: DictConfig, **more: Any) -> Any:
    """The object that a configuration node with `_target_` describes; its own error, not Hydra's wrapping of it.

    Args:
        node: `_target_` and arguments.
        more: further arguments.
    """
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    try:
        return instantiate(node, _convert_="all", **more)
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, (ValueError, TypeError, OSError, ImportError)):
            raise cause from None
        raise ConfigError(str(error)) from None


def unknown(kind: str, given: str, known: Sequence[str]) -> str:
    """One line: what was not known, what is close, what there is."""
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown {kind} {given!r}{hint} Known: {', '.join(known)}"


def keys(config: DictConfig, prefix: str = "") -> list[str]:
    """All settings of a configuration, dotted."""
    found = []
    for key in map(str, config):
        child = config._get_node(key)
        found.append(prefix + key)
        if isinstance(child, DictConfig):
            found += keys(child, f"{prefix}{key}.")
    return found


def _explain(message: str, overrides: Sequence[str], name: str) -> str:
    match = re.search(r"Could not override '([^']+)'", message)
    if match:
        known = keys(_composed(_groups(overrides, name), name))
        given = match.group(1)
        close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        parent = given.rpartition(".")[0]
        beside = [key for key in known if key.rpartition(".")[0] == parent]
        return f"unknown setting {given!r}{hint} Known{' there' if parent else ''}: {', '.join(beside)}"
    return message.splitlines()[0]


def load(path: Path) -> DictConfig:
    """The configuration that a run was made with."""
    try:
        config = OmegaConf.load(path)
    except Exception as error:  # YAML's own, of several kinds
        raise ConfigError(f"{path} can't be read: {error}") from None
    if not isinstance(config, DictConfig):
        raise ConfigError(f"{path} holds no settings")
    return config


def plain(config: DictConfig | Any) -> Any:
    """A configuration as plain Python values."""
    return OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names.

    >>> flat({"loss": {"tau": 0.1}, "seed": 0})
    {'loss.tau': 0.1, 'seed': 0}
    """
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
