"""The settings of a command: its overrides are checked and composed. Errors name what would fit."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ...common import defaults
from ...common.checks import unknown
from ...common.files import shown
from ..allowed import ConfigError, packages
from ..kinds import TASKS, of_settings
from .checking import (
    PATHS,
    WORDS,
    check_counts,
    check_kinds,
    check_literal,
    check_loss_syntax,
    check_names,
    check_recipe,
)
from .hints import data_settings, explain, hint_for_word, is_data, unknown_option
from .hydra import composed, with_defaults_of_data
from .options import GIVEN, groups_in, options
from .resolvers import register_resolvers
from .values import dotted, first_line, keys, replaced


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
    from hydra.errors import HydraException, OverrideParseException

    register_resolvers()
    if name is None:
        tasks = [TASKS.get(override.removeprefix("task=")) for override in overrides if override.startswith("task=")]
        name = next((task.settings for task in reversed(tasks) if task is not None), "train")
    for override in overrides:
        _check(override, name)
    try:
        overrides = with_defaults_of_data(overrides, name)
        config = _with_literals(overrides, name)
    except OverrideParseException as error:
        key, _, value = error.override.partition("=")
        raise ConfigError(
            f"{shown(error.override)} cannot be read: signs such as ; {{ ( [ , have a special meaning in a value. "
            f"If they are part of the value, put double quotes around it, and single quotes around the whole setting: "
            + shlex.quote(f'{key}="{value}"')
        ) from None
    except HydraException as error:
        raise ConfigError(explain(str(error), overrides, name)) from None
    given = dotted(OmegaConf.to_container(config))
    missing = [
        key for key, value in given.items() if value == "???" or (value is None and _needed(key, overrides, name))
    ]
    if missing:
        wrong = " and must not be null" if given[missing[0]] is None else ""
        raise ConfigError(f"{', '.join(missing)} must be given{wrong}; add the setting {missing[0]}=...")
    check_recipe(overrides, name)
    check_kinds(config, overrides, name)
    check_counts(config)
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from None
    check_names(values, name, packages(config.trust))
    return config


def _needed(key: str, overrides: Sequence[str], name: str) -> bool:
    """Whether a setting that was given as null has no default."""
    if f"{key}=null" not in overrides:
        return False
    groups = tuple(group for group in groups_in(overrides, name) if not group.startswith("loss="))
    return dotted(OmegaConf.to_container(composed(groups, name))).get(key) == "???"


def _check(override: str, name: str) -> None:
    """Raise unless an override is KEY=VALUE and, for a group, names one of its options."""
    if "=" not in override:
        raise ConfigError(
            f"settings are KEY=VALUE, such as loss=pnp or optimizer.lr=1e-3; got {override!r}"
            + hint_for_word(override, name)
        )
    key, value = override.split("=", 1)
    if key == "task" and value not in TASKS:
        raise ConfigError(unknown("task", value, TASKS))
    if key == "task" and TASKS[value].settings != name:
        there = TASKS[value]
        raise ConfigError(
            f"the settings {name!r} have no task={value}. It has the settings {there.settings!r}, which "
            f"`rankgrad {there.command}` reads"
        )
    if key == "loss":
        check_loss_syntax(value, name)
    parts = value.split("+") if key == "loss" and name == "train" else [value]
    for part in parts if key in of_settings(name).groups else ():
        internal = part == GIVEN or (key == "loss" and part.removeprefix("_") in defaults.LOSSES)
        if part not in options(key, name) and not internal:
            if key == "data" and is_data(part, name):
                raise ConfigError(f"data= takes a kind of data, but {part!r} is a path. Use: {data_settings(part)}")
            raise ConfigError(unknown_option(key, part, name))
    if key in (*PATHS, *WORDS):
        check_literal(key, value)


def _with_literals(overrides: Sequence[str], name: str) -> DictConfig:
    """Compose the settings, then set the literal values, which Hydra's grammar could misread. Return a copy."""
    literals, others = {}, []
    for override in overrides:
        key, value = override.split("=", 1)
        if key in (*PATHS, *WORDS) and value not in ("", "null") and value[0] not in "'\"":
            # a shell does not expand the ~ of data.root=~/photos
            literals[key] = os.path.expanduser(value) if key in PATHS else value
        else:
            literals.pop(key, None)  # the last value of a key wins
            others.append(override)
    config = composed(tuple(others), name)
    for key in sorted(literals.keys() - keys(config)):
        composed((*others, f"{key}=there"), name)  # Hydra reports the unknown setting
    return replaced(config, literals)
