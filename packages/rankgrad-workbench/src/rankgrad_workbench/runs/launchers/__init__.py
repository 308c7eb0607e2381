"""Launchers train runs on this machine, under SLURM (with submitit), or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rankgrad.common.checks import unknown

from ...settings.allowed import ConfigError
from .base import Launcher, RunCommand
from .local import LOCAL

NAMES = ("local", "submitit", "ray")


def read_launcher(settings: Sequence[str]) -> tuple[Launcher, list[str]]:
    """The launcher for launcher=NAME and launcher.OPTION=VALUE, and the remaining settings of the runs.

    Raises:
        ConfigError: the launcher is unknown, or submitit or Ray refuses an option.
        ModuleNotFoundError: submitit or Ray is not installed.

    >>> read_launcher(["loss=pnp", "seeds=0"])
    (Local(), ['loss=pnp', 'seeds=0'])
    """
    name, options, rest = split_launcher(settings)
    return _make(name, options), rest


def split_launcher(settings: Sequence[str]) -> tuple[str, dict[str, Any], list[str]]:
    """(name of the launcher, its options, remaining settings).

    Raises:
        ConfigError: the launcher is unknown, or a value cannot be read.

    >>> split_launcher(["launcher=submitit", "loss=pnp", "launcher.timeout_min=60"])
    ('submitit', {'timeout_min': 60}, ['loss=pnp'])
    """
    own = [word for word in settings if word.startswith(("launcher=", "launcher."))]
    name, options = "local", []
    for word in own:
        key, _, value = word.partition("=")
        if key == "launcher":
            name = value
        else:
            options.append(word.removeprefix("launcher."))
    if name not in NAMES:
        raise ConfigError(unknown("launcher", name, NAMES))
    return name, _read(options), [word for word in settings if word not in own]


def _read(words: Sequence[str]) -> dict[str, Any]:
    """Options by name, their values read as YAML."""
    for word in words:
        if not word.partition("=")[2]:
            raise ConfigError(f"launcher.{word} has no value: write launcher.NAME=VALUE")
    try:
        options = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)), resolve=False)
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        raise ConfigError(f"launcher: {str(error).splitlines()[0]}") from None
    return {str(name): value for name, value in dict(options).items()}  # type: ignore[arg-type]


def _make(name: str, options: dict[str, Any]) -> Launcher:
    if name == "submitit":
        from .submitit import Submitit

        return Submitit(options)
    if name == "ray":
        from .ray import Ray

        return Ray(options)
    if options:
        raise ConfigError(f"launcher.{next(iter(options))}= needs launcher=submitit or launcher=ray")
    return LOCAL


__all__ = ["LOCAL", "NAMES", "Launcher", "RunCommand", "read_launcher", "split_launcher"]
