"""The groups of settings, such as data and loss, and the options of each: our own, and those of plug-ins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rankgrad.common import plugins

from .allowed import packages
from .kinds import of_settings

GROUPS = of_settings("train").groups
GIVEN = "_given"  # name of the model and the data of `rankgrad.fit`; a command line cannot name it


def options(group: str, name: str = "train") -> list[str]:
    """The options of a group of settings, such as data, model or loss.

    >>> options("memory")
    ['none', 'rows', 'sum']
    """
    ours: Iterable[str] = ()
    if group == "loss" and not of_settings(name).own_losses:
        from rankgrad.common.loss_names import LOSSES

        ours = (*LOSSES, *plugins.registered("losses", LOSSES))
    elif (group, name) == ("data", "train"):
        ours = data_sets()

    def walk(folder: Path, prefix: str) -> Iterator[str]:
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name.startswith("_"):
                continue  # files that other files build on
            if entry.name.endswith(".yaml"):
                yield prefix + entry.name.removesuffix(".yaml")
            elif entry.is_dir():
                yield from walk(entry, f"{prefix}{entry.name}/")

    return sorted({*ours, *(option for folder in folders(name) for option in walk(folder / group, ""))})


def folders(name: str) -> list[Path]:
    """The folders with the settings files of a root configuration, the one with the root file first.

    They are rankgrad's own, and those of plug-ins.
    """
    inside = "" if name == "train" else name
    every = [
        folder / inside
        for folder in (Path(str(resources.files("rankgrad_workbench.settings.files"))), *plugins.config_folders())
    ]
    return sorted(filter(Path.is_dir, every), key=lambda folder: not (folder / f"{name}.yaml").is_file())


def data_sets() -> dict[str, plugins.Plugin]:
    """Data sets of plug-ins, except for names that rankgrad has itself."""
    own = {file.stem for file in (folders("train")[0] / "data").glob("*.yaml")}
    registered = plugins.registered("datasets", own)
    return {name: plugin for name, plugin in registered.items() if not name.startswith("_")}


def groups_in(overrides: Sequence[str], name: str) -> tuple[str, ...]:
    """The overrides that choose an option of a group, such as data=folder, and the packages that may have options."""
    chosen = (*of_settings(name).groups, "trust")
    return tuple(override for override in overrides if override.split("=", 1)[0] in chosen)


@dataclass(frozen=True)
class Trusted:
    """The user's own packages, as settings name them by trust=."""

    packages: tuple[str, ...]

    def own(self, target: str) -> bool:
        """Whether this is a class of one of the packages.

        >>> trusted(["trust=[mine,other]"]).own("mine.MyLoss")
        True
        """
        return target.startswith(tuple(f"{package}." for package in self.packages))


def trusted(overrides: Sequence[str]) -> Trusted:
    """The packages that the overrides trust.

    Raises:
        ConfigError: a name is no package of the user's own.
    """
    given = [override.removeprefix("trust=") for override in overrides if override.startswith("trust=")]
    names = re.split(r"[\[\],\s'\"]+", given[-1]) if given else []
    return Trusted(packages([name for name in names if name not in ("", "null")]))
