"""Checks of settings. They raise before a module that trains is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rankgrad.common.checks import integer, number, one_of
from rankgrad.common.text import shown

from ..files.at_path import check_unpacked
from .allowed import OURS, TARGET, ConfigError, check
from .groups import groups_in, options
from .hydra import composed
from .kinds import of_settings
from .values import dotted, keys, plain

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
# Settings whose value may be a number, a word or a list.
NUMBERS = ("trainer.max_epochs",)  # by default they are null, because they follow the data
FREE = ("trainer.devices", "trainer.precision", "sampler.samples_per_class", "optimizer.average")
ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps", "tpu")
PRECISIONS = (
    *("32-true", "32", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true", "64", "16", "bf16"),
    *("transformer-engine", "transformer-engine-float16"),
)
LOGGERS = ("csv", "tensorboard")
FOLD = re.compile(r"[1-9]\d*/[1-9]\d*")
SEEDS = 2**32 - 1  # largest seed of numpy


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
    nulls = [key for key, value in given.items() if value is None and f"{key}=null" in overrides]
    missing = [key for key in given if given[key] == "???" or (key in nulls and usual.get(key) == "???")]
    if missing:
        wrong = " and must not be null" if given[missing[0]] is None else ""
        raise ConfigError(f"{', '.join(missing)} must be given{wrong}; add the setting {missing[0]}=...")


def check_kinds(config: DictConfig, default: DictConfig, overrides: Sequence[str], name: str) -> None:
    """Raise if a value has another kind than its default. Losses and Lightning check their own settings."""
    sizes = ("data.train_transform.resize", "data.eval_transform.resize")
    own = {*of_settings(name).groups, *PATHS, *WORDS, *FREE, *sizes}
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
    if given is None and (not isinstance(wanted, list) or "_transform." in key):  # transforms check theirs
        return
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool) and not isinstance(given, (int, float)):
        raise ConfigError(f"{key} is a number; got {given!r}")
    if isinstance(wanted, bool) and not isinstance(given, bool):
        raise ConfigError(f"{key} is true or false; got {given!r}")
    if isinstance(wanted, list) and not isinstance(given, list):
        raise ConfigError(f"{key} is a list such as {key}={str(wanted).replace(' ', '')}; got {given!r}")


def check_values(config: DictConfig) -> None:
    """Raise if a value that every kind of run has is out of range. Otherwise it fails after the data is read."""
    load, trainer = plain(config.data.get("load")) or {}, plain(config.get("trainer")) or {}
    try:
        integer(config.seed, "seed chooses the random numbers", low=0, high=SEEDS)
        if "workers" in config.data:
            integer(config.data.workers, "data.workers counts processes that read the data", low=0)
        for key in ("test_fraction", "val_fraction"):
            if isinstance(load.get(key), (int, float)):
                number(load[key], f"data.load.{key} is a share of the rows or classes", low=0, high=1)
        if config.get("fold") is not None and not FOLD.fullmatch(str(config.fold)):
            raise ValueError(f"fold must be like 1/3, the first of three folds; got {config.fold!r}")
        if "accelerator" in trainer:
            one_of(trainer["accelerator"], "trainer.accelerator", ACCELERATORS)
            one_of(str(trainer["precision"]), "trainer.precision", PRECISIONS)
        if isinstance(trainer.get("devices"), int):
            number(trainer["devices"], "trainer.devices counts processes, or is -1 for all", low=-1)
        for name in config.get("loggers") or ():
            one_of(name, "loggers", LOGGERS)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check_literal(key: str, value: str) -> None:
    """Raise if a path or a column is empty, or if it would be read as something else than it says.

    Raises:
        ConfigError: what to write instead.
    """
    if not value:
        raise ConfigError(f"{key}= is empty; give {'a path' if key in PATHS else 'a value'}, or leave it out")
    if "${" in value or value == "???":
        raise ConfigError(f"{key} cannot be {shown(value)!r}: files of settings use ??? and ${{...}}. Rename it")
    if key not in PATHS or not os.path.lexists(value):
        return
    home = os.path.expanduser(value)
    read = "no path" if value == "null" else home if home != value else value[1:-1] if value[0] in "'\"" else ""
    if read:
        raise ConfigError(f"{key}={value} means {read}; for the file or folder of this name, give {key}=./{value}")


def check_loss_syntax(value: str, name: str) -> None:
    """Raise if settings of a loss are written into its name, or if several losses are named.

    Raises:
        ConfigError: how they are written.
    """
    known = options("loss", name)
    match = re.fullmatch(r"([\w/]+)[:(](.*?)\)?", value)
    if match and match[1] in known:
        own = [word.strip() for word in re.split(r"[+,](?![^\[]*\])", match[2]) if "=" in word]
        apart = " ".join([f"loss={match[1]}", *(word if "." in word.split("=")[0] else f"loss.{word}" for word in own)])
        raise ConfigError(f"the settings of a loss are given after it: {apart}; got loss={value}")
    several = value.split(",")
    if several[1:] and set(several) <= set(known):
        compares = of_settings(name).compares
        how = f". To compare: rankgrad {compares} loss={value}" if compares else ""
        raise ConfigError(f"a run trains one loss; got loss={value}{how}")


def check_recipe(overrides: Sequence[str], name: str) -> None:
    """Raise if a recipe has arguments of another transform or of another model. They would be unknown ones later.

    Raises:
        ConfigError: naming the recipe and the setting.
    """
    groups = groups_in(overrides, name)
    without = tuple(group for group in groups if not group.startswith("recipe="))
    if without == groups:
        return
    chosen, plainly = composed(groups, name), composed(without, name)
    same = set(keys(plainly))
    for key in keys(chosen):
        if key in same or not key.startswith(("data.train_transform.", "data.eval_transform.", "model.")):
            continue
        target = f"{key.rpartition('.')[0]}.{TARGET}"
        if OmegaConf.select(chosen, target) == OmegaConf.select(plainly, target):
            recipe = next(group for group in reversed(groups) if group.startswith("recipe="))
            others = [each for each in options("recipe", name) if f"recipe={each}" != recipe]
            raise ConfigError(
                f"{recipe} sets {key}, which data={chosen.data.name} with model={chosen.model.kind} does not have. "
                f"Choose another recipe: {', '.join(others)}"
            )


def check_names(values: Any, name: str, trust: Sequence[str]) -> None:
    """Raise unless each class that the settings name is allowed at its place."""
    places = of_settings(name).places

    def walk(value: Any, where: str) -> None:
        slot = places.get(where)
        if slot is None and isinstance(value, dict) and TARGET not in value:
            for key, inner in value.items():
                walk(inner, f"{where}.{key}" if where else str(key))
        else:
            check(value, slot, trust=trust, where=where)

    walk(values, "")
