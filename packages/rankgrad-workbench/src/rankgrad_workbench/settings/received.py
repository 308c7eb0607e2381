"""Read the settings that a run has saved. The file may come from somebody else: only plain values are accepted."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rankgrad.common.files import open_file

from ..files.elsewhere import unknown
from .allowed import ConfigError, check
from .hydra import GIVEN, folders
from .kinds import TASKS, of_settings
from .overrides import check_kind
from .resolvers import register_resolvers
from .values import dotted, first_line, values_in

LARGEST = 2**20  # bytes of a config.yaml; ours have a few thousand
DEEPEST = 50  # nested sections and lists; reading thousands of levels takes minutes


def load(path: Path, trust: Sequence[str] = ()) -> DictConfig:
    """Read the settings of a run. The run may come from somebody else, so only plain values are accepted.

    Args:
        path: config.yaml of a run.
        trust: packages whose classes the settings may name, beside those of `allowed.SLOTS`; see `allowed.packages`.

    Raises:
        ConfigError: a setting of every run is missing, a value has the wrong kind, a class is not allowed at its
            place, or a value asks for a look-up, such as ${oc.env:HOME}.
        OSError: the file cannot be read.
    """
    try:
        config = parsed(path)
        config.pop("trust", None)  # a file must not say what to trust; only the command may
        values: Any = OmegaConf.to_container(config)
        task = values.get("task")
        if not isinstance(task, str):
            raise ConfigError("it has no setting task; the file is damaged, or it is not from a run")
        if task not in TASKS:
            raise ConfigError(unknown("task", task, TASKS))
        _check_complete(dotted(values), TASKS[task].settings)
        check(values, None, trust=trust, places=TASKS[task].places)
    except (ConfigError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: {first_line(error)}") from None
    return config


def parsed(path: Path) -> DictConfig:
    """Read a settings file without tags, resolvers and aliases.

    Such files are refused, because a few lines of aliases can expand to gigabytes.
    """
    with open_file(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ConfigError(f"this is not a settings file: it has more than {LARGEST} bytes")
    try:
        text = content.decode()
        _check_events(text)
        config = OmegaConf.load(io.StringIO(text))
    except ConfigError:
        raise
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise ConfigError(f"it is damaged, or not YAML of plain values: {first_line(error)}") from None
    if not isinstance(config, DictConfig) or not config:
        raise ConfigError("it holds no settings")
    for key, value in values_in(OmegaConf.to_container(config)):
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ConfigError(f"{key} is an integer of more than 64 bits, which is too large")
        if isinstance(value, str) and "${" in value:
            raise ConfigError(f"{key} is {value!r}: settings of a run are plain values, and ${{...}} is not allowed")
    return config


def _check_events(text: str) -> None:
    """Raise if a YAML file is no mapping, has aliases, or is nested too deeply."""
    depth = 0
    for place, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if place == 2 and not isinstance(event, yaml.MappingStartEvent):  # the first after stream and document
            raise ConfigError("it holds no settings")
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError("it holds a YAML alias (*name), and rankgrad writes none")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ConfigError("it is damaged, or not YAML of plain values: it is nested too deeply")


def _check_complete(given: dict[str, Any], name: str) -> None:
    """Raise unless all settings of the root file exist, and each value has the kind of its default."""
    register_resolvers()
    root = OmegaConf.load(folders(name)[0] / f"{name}.yaml")
    stand_in = OmegaConf.create({"model": {"kind": GIVEN}, "data": {"epochs": 1}})  # values of the file refer to these
    known = dotted(OmegaConf.to_container(OmegaConf.merge(stand_in, root), resolve=True))
    needed = [*dotted(OmegaConf.to_container(root)), *of_settings(name).kept]
    needed = [key for key in needed if not key.startswith(("defaults", "trust"))]  # trust is never saved
    missing = [key for key in needed if key not in given]
    for key in needed:
        if key in given:
            check_kind(key, known.get(key), given[key])
    if missing:
        told = f"{', '.join(missing[:3])} ({len(missing)} in all)"
        raise ConfigError(f"it lacks {told}, which every run has; the file is damaged, or not from a run")
