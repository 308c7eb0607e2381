"""The settings of a command: its overrides are checked and composed. Errors name what would fit."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rankgrad.common.checks import integer, number, one_of
from rankgrad.common.text import shown

from ..files import check_unpacked
from ..files.elsewhere import unknown
from .allowed import OURS, TARGET, ConfigError, check, is_own, packages, section
from .hints import check_known, no_setting, unknown_option
from .hydra import GIVEN, composed, groups_in, literal, options, trusted, with_defaults_of_data
from .kinds import TASKS, of_settings
from .resolvers import register_resolvers
from .values import dotted, first_line, keys, plain

# Values of these settings are paths. They are taken literally, without Hydra's grammar.
PATHS = (
    *("out", "resume", "init", "data.root", "data.cache_dir", "data.load.images"),
    *("model.weights", "model.name", "data.load.corpus", "data.load.queries"),
)
# Values of these settings are columns or separators of a file. They are taken literally, too.
WORDS = (
    *("data.load.text", "data.load.label", "data.load.super_label", "data.load.split", "data.load.group"),
    *("data.load.path", "data.load.embeddings", "data.load.separator", "data.load.delimiter", "data.load.query"),
    *("data.load.document", "data.load.grade", "prompts.query", "prompts.document"),
)
NUMBERS = ("trainer.max_epochs",)  # by default null, because they follow the data
# Settings whose value may be a number, a word or a list.
FREE = (
    *("trainer.devices", "trainer.precision", "sampler.samples_per_class", "optimizer.average"),
    *("data.train_transform.resize", "data.eval_transform.resize"),
)
PRECISIONS = (
    *("32-true", "32", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true", "64", "16", "bf16"),
    *("transformer-engine", "transformer-engine-float16"),
)
SEEDS = 2**32 - 1  # largest seed of numpy


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


def check_paths(config: DictConfig) -> None:
    """Raise if the data or the weights of a run do not exist. It needs no import of the module that trains.

    Raises:
        FileNotFoundError: naming the setting.
        ValueError: the data are an archive.
    """
    loader = str(OmegaConf.select(config, f"data.load.{TARGET}") or OURS[0])
    # the loader of a plug-in may fetch its data
    data = ("data.root", "data.load.images", "data.load.corpus", "data.load.queries")
    for key in ("init", "model.weights", *(data if loader.startswith(OURS) else ())):
        path = OmegaConf.select(config, key)
        if path is not None and key in data:
            check_unpacked(path)
        if path is not None and key not in data[1:] and not Path(path).exists():
            where = "" if Path(path).is_absolute() else f" in {Path.cwd()}"
            raise FileNotFoundError(f"{key}={path} does not exist{where}")


def check_needed(config: DictConfig, default: DictConfig, overrides: Sequence[str]) -> None:
    """Raise if a value that has no default is missing, or was given as null."""
    given, usual = dotted(OmegaConf.to_container(config)), dotted(OmegaConf.to_container(default))
    for key, value in given.items():
        if value == "???" or (value is None and usual.get(key) == "???" and f"{key}=null" in overrides):
            wrong = " and must not be null" if value is None else ""
            raise ConfigError(f"{key} must be given{wrong}; add the setting {key}=...")


def check_kinds(config: DictConfig, default: DictConfig, overrides: Sequence[str], name: str) -> None:
    """Raise if a value has another kind than its default. Losses and Lightning check their own settings."""
    own = {*of_settings(name).groups, *PATHS, *WORDS}
    for key in (override.split("=", 1)[0] for override in overrides):
        if key not in own and not key.startswith(("loss.", "+", "~")):
            wanted, now = OmegaConf.select(default, key, throw_on_missing=False), OmegaConf.select(config, key)
            check_kind(key, 0 if key in NUMBERS else plain(wanted), plain(now))


def check_kind(key: str, wanted: Any, given: Any) -> None:
    """Raise unless a value has the kind of the default. null is allowed except for a section, and for a list that no
    transform takes.
    """
    if isinstance(wanted, dict) and not isinstance(given, dict):
        inner = f", such as {key}.{next(iter(wanted))}" if wanted else ""
        raise ConfigError(f"{key} is a section of settings{inner}; got {given!r}")
    if key in FREE or (given is None and (not isinstance(wanted, list) or "_transform." in key)):
        return
    if isinstance(wanted, bool) and not isinstance(given, bool):
        raise ConfigError(f"{key} is true or false; got {given!r}")
    if isinstance(wanted, (int, float)) and not isinstance(given, (int, float)):
        raise ConfigError(f"{key} is a number; got {given!r}")
    if isinstance(wanted, list) and not isinstance(given, list):
        raise ConfigError(f"{key} is a list such as {key}={str(wanted).replace(' ', '')}; got {given!r}")


def check_values(config: DictConfig) -> None:
    """Raise if a value that every kind of run has is out of range. Otherwise it fails after the data is read."""
    values = dotted(plain(config))
    with section("settings"):
        integer(values["seed"], "seed chooses the random numbers", low=0, high=SEEDS)
        if "data.workers" in values:
            integer(values["data.workers"], "data.workers counts processes that read the data", low=0)
        for key in ("data.load.test_fraction", "data.load.val_fraction"):
            if isinstance(values.get(key), (int, float)):
                number(values[key], f"{key} is a share of the rows or classes", low=0, high=1)
        fold = values.get("fold")
        if fold is not None and not re.fullmatch(r"[1-9]\d*/[1-9]\d*", str(fold)):
            raise ConfigError(f"fold must be like 1/3, the first of three folds; got {fold!r}")
        if "trainer.accelerator" in values:
            one_of(values["trainer.accelerator"], "trainer.accelerator", ("auto", "cpu", "gpu", "cuda", "mps", "tpu"))
            one_of(str(values["trainer.precision"]), "trainer.precision", PRECISIONS)
        if isinstance(values.get("trainer.devices"), int):
            number(values["trainer.devices"], "trainer.devices counts processes, or is -1 for all", low=-1)
        for name in values.get("loggers") or ():
            one_of(name, "loggers", ("csv", "tensorboard"))
