"""Trainings that are called from Python: the caller's settings, and a run that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..runs.folder import Run
from ..settings import ConfigError, load, plain, replaced
from ..settings.spelling import as_word
from . import runner
from .state import EPOCHS, MAY_CHANGE


def own_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check and copy the caller's settings.

    Raises:
        TypeError: the settings are not a dict of dotted names.
    """
    given: Any = {} if settings is None else settings
    if not isinstance(given, Mapping) or any(isinstance(value, Mapping) for value in given.values()):
        raise TypeError(f'settings must be a dict of dotted names such as {{"trainer.max_epochs": 5}}; got {given!r}')
    return dict(given)


def resumed(folder: Path, config: DictConfig, left_out: tuple[str, ...] = ()) -> tuple[DictConfig, list[str]]:
    """The settings with which `runner.train` resumes a run, and the settings that change.

    Args:
        folder: folder of the run.
        config: current settings.
        left_out: prefixes of settings that are not compared.

    Raises:
        ConfigError: the run has other settings that may not change.
    """
    then, now = runner.settings_of(load(Run(folder).config)), runner.settings_of(config)
    if now.get(EPOCHS) is None:
        now[EPOCHS] = then.get(EPOCHS)  # the number was chosen from the data
    left_out = ("derived.", "extended", "out", "resume", *left_out)
    names = [name for name in {**then, **now} if not name.startswith(left_out) and then.get(name) != now.get(name)]
    other = [name for name in names if name not in (*MAY_CHANGE, EPOCHS)]
    if other:
        told = ", ".join(f"{name} (then {then.get(name)}, now {now.get(name)})" for name in other)
        raise ConfigError(f"{folder} holds a run with other settings: {told}. Use its settings, or another folder")
    return replaced(config, {"resume": str(folder)}), [f"{name}={as_word(plain(now.get(name)))}" for name in names]
