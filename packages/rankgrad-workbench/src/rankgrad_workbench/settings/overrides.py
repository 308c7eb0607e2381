"""The settings of a command: its overrides are checked and composed. Errors name what would fit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rankgrad.common.text import shown

from ..files.elsewhere import unknown
from .allowed import ConfigError, check, is_own, packages
from .checking import PATHS, WORDS, check_kinds, check_needed, check_values
from .hints import check_known, no_setting, unknown_option
from .hydra import GIVEN, composed, groups_in, literal, options, trusted, with_defaults_of_data
from .kinds import TASKS, of_settings
from .resolvers import register_resolvers
from .values import first_line, keys


def compose(overrides: Sequence[str], name: str | None = None) -> DictConfig:
    """The configuration `name` (see `kinds.TaskRow.settings`) with overrides such as "loss=pnp" or "optimizer.lr=1e-3".

    Args:
        overrides: KEY=VALUE.
        name: None: that of task=NAME in the overrides, else "train".

    Raises:
        ConfigError: a key or an option of a group is unknown (the message names the closest known one), a needed value
            is missing, or a value has the wrong kind.

    >>> compose(["loss=smooth_ap"]).loss.tau
    0.01
    """
    from hydra.errors import HydraException

    register_resolvers()
    tasks = [TASKS.get(override.removeprefix("task=")) for override in overrides if override.startswith("task=")]
    name = name or next((task.settings for task in tasks if task is not None), "train")
    trust = trusted(overrides)
    for override in overrides:
        _check(override, name, trust)
    default = composed(groups_in(overrides, name), name)
    check_known(overrides, keys(default), name)
    words = tuple(_without_grammar(override) for override in with_defaults_of_data(overrides, name))
    try:
        config = deepcopy(composed(words, name))
        check_needed(config, default, overrides)
        check_kinds(config, default, overrides, name)
        check_values(config)
        values: Any = OmegaConf.to_container(config, resolve=True)
    except HydraException as error:
        raise ConfigError(
            f"{shown(first_line(error))}. Signs such as ; , {{ ( [ have a special meaning in a value: a list is "
            """KEY=[a,b], and a text with such signs needs two pairs of quotes: KEY='"a;b"'"""
        ) from None
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from None
    check(values, None, trust=packages(config.trust), places=of_settings(name).places)
    return config


def _check(override: str, name: str, trust: Sequence[str]) -> None:
    """Raise unless an override is KEY=VALUE and, for a group, names one of its options."""
    key, equals, value = override.partition("=")
    if not equals:
        raise no_setting(override, name)
    if key == "task" and value not in TASKS:
        raise ConfigError(unknown("task", value, TASKS))
    if key == "task" and TASKS[value].settings != name:
        raise ConfigError(f"the settings {name!r} have no task={value}: `rankgrad {TASKS[value].command}` has it")
    if key in of_settings(name).groups:
        known = (*options(key, name), GIVEN)
        for part in value.split("+") if key == "loss" and name == "train" else [value]:
            if part not in known and not (key == "loss" and is_own(part, trust)):
                raise unknown_option(key, part, name)
    if key in (*PATHS, *WORDS):
        if not value:
            raise ConfigError(f"{key}= is empty; give {'a path' if key in PATHS else 'a value'}, or leave it out")
        if "${" in value or value == "???":
            raise ConfigError(f"{key} cannot be {shown(value)!r}: files of settings use ??? and ${{...}}. Rename it")


def _without_grammar(override: str) -> str:
    """An override whose value is a path or a word of a file, in quotes, because Hydra's grammar could misread it."""
    key, value = override.split("=", 1)
    if key not in (*PATHS, *WORDS) or value in ("", "null") or value[0] in "'\"":
        return override
    # a shell does not expand the ~ of data.root=~/photos
    return f"{key}={literal(os.path.expanduser(value) if key in PATHS else value)}"
