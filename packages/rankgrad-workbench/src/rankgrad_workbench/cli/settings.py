"""Print the settings of a run as YAML, each with the comment from its file of settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf

from ..settings import folders
from ..settings.kinds import of_settings

KEY = re.compile(r"^(?P<indent> *)(?P<key>[^\s#'\":-][^\s:]*):(?P<value>.*?)(?:\s+# (?P<comment>.*))?$")
COLUMN = 40  # where comments begin, if there is room


def commented(config: DictConfig, overrides: Sequence[str], tree: str) -> str:
    """The settings as YAML with comments.

    Args:
        config: settings by `config.compose`.
        overrides: settings of the user, such as "loss=pnp". Groups choose the files that are read.
        tree: see `kinds.TaskRow.settings`.
    """
    known = comments(overrides, tree)
    lines = []
    for line, place in keys(OmegaConf.to_yaml(config, resolve=True)):
        told = known.get(place, "")
        lines.append(
            f"{line:{COLUMN}}# {told}" if told and len(line) < COLUMN else f"{line}  # {told}" if told else line
        )
    return "\n".join(lines) + "\n"


def keys(text: str) -> Iterator[tuple[str, str]]:
    r"""The lines of a YAML file, each with the dotted name of its setting, or "" if it has none.

    >>> list(keys("a:\n  b: 1\n  - 2\nc: 3"))
    [('a:', 'a'), ('  b: 1', 'a.b'), ('  - 2', ''), ('c: 3', 'c')]
    """
    around: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = KEY.match(line)
        if match:
            indent = len(match["indent"])
            around = [*(each for each in around if each[0] < indent), (indent, match["key"])]
        yield line, ".".join(name for _, name in around) if match else ""


def comments(overrides: Sequence[str], tree: str) -> dict[str, str]:
    """Comments by dotted setting, from the root file and from the chosen options of the groups."""
    groups = of_settings(tree).groups
    root, *others = folders(tree)
    chosen = dict(override.split("=", 1) for override in overrides if override.split("=", 1)[0] in groups)
    explained = _of_file(root / f"{tree}.yaml", "")
    for entry in _defaults(root / f"{tree}.yaml"):
        if isinstance(entry, dict):
            (group, option), *_ = entry.items()
            for folder in (root, *others):
                explained |= _of_option(folder / group, chosen.get(group, option), f"{group}.")
    return explained


def _of_option(folder: Path, option: str, prefix: str) -> dict[str, str]:
    """Comments of an option of a group, after those of the files in its defaults."""
    file = folder / f"{option}.yaml"
    if not file.is_file():  # a loss of rankgrad has no file; its settings are its arguments
        return {}
    explained: dict[str, str] = {}
    for entry in _defaults(file):
        if isinstance(entry, str) and entry != "_self_":
            explained |= _of_option(folder, entry.partition("@")[0], prefix)
    return explained | _of_file(file, "" if "@package _global_" in file.read_text(encoding="utf-8") else prefix)


def _defaults(file: Path) -> list[str | dict[str, str]]:
    defaults: list[str | dict[str, str]] = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("defaults", [])
    return defaults


def _of_file(file: Path, prefix: str) -> dict[str, str]:
    explained = {}
    for line, place in keys(file.read_text(encoding="utf-8")):
        match = KEY.match(line)
        if place and match and match["comment"]:
            explained[prefix + place] = match["comment"]
    return explained
