"""Settings as plain Python values: nested, by dotted names, or as a dataclass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import is_dataclass
from typing import Any, TypeVar, cast, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf

from .allowed import ConfigError

T = TypeVar("T")


def plain(config: DictConfig | Any) -> Any:
    """A configuration as plain Python values."""
    return OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config


def replaced(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """A copy of a configuration in which some settings, by dotted names, have other values.

    >>> given = OmegaConf.create({"out": None, "trainer": {"max_epochs": None}})
    >>> plain(replaced(given, {"trainer.max_epochs": 5})), plain(given)
    ({'out': None, 'trainer': {'max_epochs': 5}}, {'out': None, 'trainer': {'max_epochs': None}})
    """
    copy = deepcopy(config)
    for name, value in values.items():
        OmegaConf.update(copy, name, value, merge=False, force_add=True)
    return copy


def typed(kind: type[T], settings: Mapping[str, Any]) -> T:
    """Convert plain settings to a frozen dataclass. Lists become tuples, and sections dataclasses, as its fields say.

    Settings without a field are left out. A field without a setting keeps its default.

    Raises:
        ConfigError: a field has neither a setting nor a default.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Evaluation:
    ...     ks: tuple[int, ...]
    >>> typed(Evaluation, {"ks": [1, 10], "every": 0})
    Evaluation(ks=(1, 10))
    """
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if name not in settings and hasattr(kind, name):
            continue  # the default of the field
        if name not in settings:
            raise ConfigError(f"{name} is missing in the settings of {kind.__name__.lower()}")
        value = settings[name]
        if is_dataclass(hint):
            value = typed(cast(type, hint), value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def flat(content: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings by dotted names, in their order. An empty section counts as a value.

    >>> flat({"loss": {"tau": 0.1}, "seed": 0})
    {'loss.tau': 0.1, 'seed': 0}
    """
    every = dotted(content)
    return {key: value for key, value in every.items() if not (isinstance(value, Mapping) and value)}


def changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Name -> words for the values that differ.

    >>> changed({"seed": 0, "tau": 1}, {"seed": 2, "tau": 1})
    {'seed': 'seed (then 0, now 2)'}
    """
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return {name: f"{name} (then {then.get(name)}, now {now.get(name)})" for name in names}


def keys(config: DictConfig) -> list[str]:
    """All settings of a configuration, sections included, by their dotted names."""
    return list(dotted(OmegaConf.to_container(config)))


def dotted(values: Any, prefix: str = "") -> dict[str, Any]:
    """All settings, sections included, by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found[f"{prefix}{key}"] = value
        if isinstance(value, Mapping):
            found |= dotted(value, f"{prefix}{key}.")
    return found


def values_in(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of sections and lists, with its dotted name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from values_in(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for row, inner in enumerate(value):
            yield from values_in(inner, f"{where}[{row}]")
    else:
        yield where, value


def first_line(error: Exception) -> str:
    """The first line of an error, because some libraries write several."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return (str(error).strip() or type(error).__name__).splitlines()[0]
