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
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f'settings must be a dict such as {{"trainer.max_epochs": 5}}; got {type(settings).__name__}')
    for name, value in (settings or {}).items():
        if isinstance(value, Mapping):
            inner = next(iter(value.items()), ("NAME", "VALUE"))
            raise TypeError(f"{name} is a dict in settings; use a dotted name: {{'{name}.{inner[0]}': {inner[1]!r}}}")
    return dict(settings or {})


def resumed(folder: Path, config: DictConfig, left_out: tuple[str, ...] = ()) -> tuple[DictConfig, list[str]]:
    """The settings with which `runner.train` resumes a run, and the settings that change.

    Args:
        folder: folder of the run.
        config: current settings.
        left_out: prefixes of settings that are not compared.

    Raises:
        ConfigError: the run has other settings that may not change.
    """
    then = runner.settings_of(load(Run(folder).config))
    now = runner.settings_of(config)
    differ = [
        name
        for name in {**then, **now}
        if then.get(name) != now.get(name)
        and not (name == EPOCHS and now.get(name) is None)  # the number was chosen from the data
        and not name.startswith(("derived.", "extended", "out", "resume", *left_out))
    ]
    other = [name for name in differ if name not in (*MAY_CHANGE, EPOCHS)]
    if other:
        told = ", ".join(f"{name} (then {then.get(name)}, now {now.get(name)})" for name in other)
        raise ConfigError(f"{folder} holds a run with other settings: {told}. Use its settings, or another folder")
    return replaced(config, {"resume": str(folder)}), [f"{name}={as_word(plain(now.get(name)))}" for name in differ]
