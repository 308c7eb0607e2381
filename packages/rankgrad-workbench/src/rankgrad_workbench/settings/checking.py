"""Checks of settings. They raise before a module that trains is imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rankgrad.common.checks import integer, number, one_of

from ..files import check_unpacked
from .allowed import OURS, TARGET, ConfigError, section
from .kinds import of_settings
from .values import dotted, plain

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
