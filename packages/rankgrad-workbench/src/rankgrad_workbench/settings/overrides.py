"""The settings of a command: its overrides are checked and composed. Errors name what would fit."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Sequence
from copy import deepcopy

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rankgrad.common.text import shown

from ..files.elsewhere import unknown
from .allowed import TARGET, ConfigError, find, packages
from .checking import (
    PATHS,
    WORDS,
    check_kinds,
    check_literal,
    check_loss_syntax,
    check_names,
    check_needed,
    check_recipe,
    check_values,
)
from .groups import GIVEN, Trusted, groups_in, options, trusted
from .hints import check_known, data_settings, hint_for_word, is_data, unknown_option
from .hydra import composed, literal, with_defaults_of_data
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
    from hydra.errors import HydraException, OverrideParseException

    register_resolvers()
    if name is None:
        tasks = [TASKS.get(override.removeprefix("task=")) for override in overrides if override.startswith("task=")]
        name = next((task.settings for task in reversed(tasks) if task is not None), "train")
    trust = trusted(overrides)
    for override in overrides:
        _check(override, name, trust)
    default = composed(groups_in(overrides, name), name)
    check_known(overrides, keys(default), name)
    words = tuple(_without_grammar(override) for override in with_defaults_of_data(overrides, name))
    try:
        config = deepcopy(composed(words, name))
    except OverrideParseException as error:
        key, _, value = error.override.partition("=")
        raise ConfigError(
            f"{shown(error.override)} cannot be read: signs such as ; {{ ( [ , have a special meaning in a value. "
            f"If they are part of the value, put double quotes around it, and single quotes around the whole setting: "
            + shlex.quote(f'{key}="{value}"')
        ) from None
    except HydraException as error:
        raise ConfigError(_in_one_line(str(error))) from None
    _leave_out_defaults(config, overrides, trust)
    check_needed(config, default, overrides)
    check_recipe(overrides, name)
    check_kinds(config, default, overrides, name)
    check_values(config)
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(first_line(error)) from None
    check_names(values, name, packages(config.trust))
    return config


def _check(override: str, name: str, trust: Trusted) -> None:
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
        if part in (*options(key, name), GIVEN) or (key == "loss" and trust.own(part)):
            continue
        if key == "data" and is_data(part, name):
            raise ConfigError(f"data= takes a kind of data, but {part!r} is a path. Use: {data_settings(part)}")
        raise ConfigError(unknown_option(key, part, name))
    if key in (*PATHS, *WORDS):
        check_literal(key, value)


def _without_grammar(override: str) -> str:
    """An override whose value is a path or a word of a file, in quotes, because Hydra's grammar could misread it."""
    key, value = override.split("=", 1)
    if key not in (*PATHS, *WORDS) or value in ("", "null") or value[0] in "'\"":
        return override
    # a shell does not expand the ~ of data.root=~/photos
    return f"{key}={literal(os.path.expanduser(value) if key in PATHS else value)}"


def _leave_out_defaults(config: DictConfig, overrides: Sequence[str], trust: Trusted) -> None:
    """Leave out the settings that a class of the user's own, named by KEY._target_=, does not take and nobody gave."""
    given = [override.partition("=") for override in overrides]
    for key, _, target in given:
        place, _, last = key.rpartition(".")
        if last != TARGET or not trust.own(target):
            continue
        takes = inspect.signature(find(target, None, trust=trust.packages, where=key)).parameters
        if any(each.kind is each.VAR_KEYWORD for each in takes.values()):
            continue
        node = OmegaConf.select(config, place)
        for name in {str(each) for each in node} - {TARGET, *takes, *(k.rpartition(".")[2] for k, *_ in given)}:
            with open_dict(node):
                del node[name]


def _in_one_line(message: str) -> str:
    """A message of Hydra about values, for users."""
    if match := re.search(r"Ambiguous value for argument '([^=]+)=(.*)'", message):
        key, value = match.groups()
        return (
            f"{key}={value} has several values. A list needs brackets: {key}=[{value}]. To train with several seeds or "
            "losses: rankgrad compare"
        )
    return message.splitlines()[0]
