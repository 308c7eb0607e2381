"""Plug-ins: losses, metrics, data sets, commands and kinds of runs of other packages, by entry points.

A package lists them in its pyproject.toml:

    [project.entry-points."rankgrad.losses"]
    hinge = "mypackage.losses:HingeLoss"

Then `rankgrad train loss=hinge` works. Names are read from the metadata. A plug-in is imported only when its name is
used. docs/plugins.md has the rules of each group.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

#: Group -> its word for one member in messages. `configs` is a folder of settings, which a data set may bring.
GROUPS = {
    **{"losses": "loss", "metrics": "metric", "datasets": "data set", "commands": "command", "configs": "folder"},
    **{"tasks": "kind of run"},
}
#: Environment variable that limits plug-ins. Its value is "none", or the allowed distributions, such as "a,b".
SWITCH = "RANKGRAD_PLUGINS"


class PluginWarning(UserWarning):
    """A plug-in is left out. The message says why."""


class PluginError(ValueError):
    """A plug-in that is needed cannot be used."""


@dataclass(frozen=True)
class Plugin:
    """One plug-in of a package.

    Attributes:
        group: a key of `GROUPS`.
        name: the name that users type.
        value: module, or module:object.
        distribution, version: name and version of the package.
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str

    def __str__(self) -> str:
        """Name, distribution and version."""
        return f"{GROUPS[self.group]} {self.name} of {self.distribution} {self.version}"

    @property
    def target(self) -> str:
        """Name of the object in settings: module.object."""
        return self.value.replace(":", ".")

    def load(self) -> Any:
        """Import the object.

        Raises:
            PluginError: it cannot be imported.
        """
        module, _, path = self.value.partition(":")
        try:
            loaded = import_module(module)
            for part in path.split(".") if path else ():
                loaded = getattr(loaded, part)
        except Exception as error:  # foreign code may raise any error
            raise PluginError(f"the {self} can't be imported: {type(error).__name__}: {error}") from error
        return loaded

    def folder(self) -> Path | None:
        """The folder of a plug-in of the group `configs`, or None if it does not exist. The package is not imported."""
        top, *inside = self.value.split(".")
        spec = PathFinder.find_spec(top)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folder = Path(place, *inside)
            if folder.is_dir():
                return folder
        return None


def registered(group: str, taken: Container[str] = ()) -> dict[str, Plugin]:
    """Plug-ins of a group by name. They are not imported.

    Args:
        group: a key of `GROUPS`.
        taken: names of rankgrad itself, which a plug-in cannot use.

    Warns:
        PluginWarning: a plug-in is left out because rankgrad or another plug-in has its name.

    >>> "roadmap" in registered("losses", taken=["roadmap"])  # a name of rankgrad is never that of a plug-in
    False
    """
    by_name: dict[str, Plugin] = {}
    for plugin in _installed(os.environ.get(SWITCH)):
        if plugin.group != group:
            continue
        owner = (
            "rankgrad" if plugin.name in taken else by_name[plugin.name].distribution if plugin.name in by_name else ""
        )
        if owner:
            warnings.warn(f"the {plugin} is left out: {owner} has that name", PluginWarning, stacklevel=2)
        else:
            by_name[plugin.name] = plugin
    return by_name


def by_target(group: str, target: str) -> Plugin | None:
    """The plug-in that registers exactly this object, such as mypackage.losses.HingeLoss; or None."""
    return next(
        (each for each in _installed(os.environ.get(SWITCH)) if (each.group, each.target) == (group, target)), None
    )


def used(settings: Any) -> list[Plugin]:
    """The plug-ins that settings use: objects that are made of them, metrics of the evaluation, and the kind of run.

    Args:
        settings: settings of a run, as plain values.
    """
    named: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, str):
            named.add(value)
        else:
            for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                walk(each)

    walk(settings)
    return [
        each
        for each in _installed(os.environ.get(SWITCH))
        if (each.group in ("losses", "metrics", "datasets") and each.target in named)
        or (each.group == "metrics" and each.name in named)
        or (each.group == "tasks" and isinstance(settings, dict) and each.name == settings.get("task"))
    ]


def config_folders() -> list[Path]:
    """Folders of settings from plug-ins."""
    return [folder for plugin in registered("configs").values() if (folder := plugin.folder())]


@lru_cache(maxsize=4)
def _installed(switch: str | None) -> tuple[Plugin, ...]:
    """All plug-ins that the switch allows, sorted by group and name."""
    wanted = None if switch is None else {_normal(name) for name in switch.split(",")}
    plugins = {
        Plugin(group, entry.name, entry.value, entry.dist.metadata["Name"], entry.dist.version)
        for group in GROUPS
        for entry in metadata.entry_points(group=f"rankgrad.{group}")
        if entry.dist is not None and (wanted is None or _normal(entry.dist.metadata["Name"]) in wanted)
    }
    return tuple(sorted(plugins, key=lambda each: (each.group, each.name, each.distribution)))


def _normal(name: str) -> str:
    """Name of a distribution, normalised as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


__all__ = [
    "GROUPS",
    "SWITCH",
    "Plugin",
    "PluginError",
    "PluginWarning",
    "registered",
]
