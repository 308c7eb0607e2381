"""Print the settings of a run as YAML, each with the comment from its file of settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf

from ..settings.hydra import folders

KEY = re.compile(r"^(?P<indent> *)(?P<key>[^\s#'\":-][^\s:]*):(?P<value>.*?)(?:\s+# (?P<comment>.*))?$")


def commented(config: DictConfig, overrides: Sequence[str], tree: str) -> str:
    """The settings as YAML with comments.

    Args:
        config: settings by `settings.compose`.
        overrides: settings of the user, such as "loss=pnp". Groups choose the files that are read.
        tree: see `kinds.TaskRow.settings`.
    """
    chosen = dict(override.partition("=")[::2] for override in overrides)
    known = _comments(folders(tree)[0] / f"{tree}.yaml", "", tree, chosen)
    lines = (
        f"{line:38}  # {known[place]}" if place in known else line
        for line, place, _ in keys(OmegaConf.to_yaml(config, resolve=True))
    )
    return "\n".join(lines) + "\n"


def keys(text: str) -> Iterator[tuple[str, str, str | None]]:
    r"""The lines of a YAML file, each with the dotted name of its setting and its comment.

    >>> list(keys("a:  # first\n  b: 1\n  - 2"))
    [('a:  # first', 'a', 'first'), ('  b: 1', 'a.b', None), ('  - 2', '', None)]
    """
    around: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = KEY.match(line)
        if match is None:
            yield line, "", None
        else:
            indent = len(match["indent"])
            around = [*(each for each in around if each[0] < indent), (indent, match["key"])]
            yield line, ".".join(name for _, name in around), match["comment"]


def _comments(file: Path, prefix: str, tree: str, chosen: dict[str, str]) -> dict[str, str]:
    """The comments of a file by dotted setting, after those of the files in its defaults."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""  # a loss of rankgrad has no file
    known: dict[str, str] = {}
    for entry in (yaml.safe_load(text) or {}).get("defaults", []):
        if isinstance(entry, dict):
            (group, option), *_ = entry.items()
            for folder in folders(tree):
                known |= _comments(folder / group / f"{chosen.get(group, option)}.yaml", f"{group}.", tree, chosen)
        elif entry != "_self_":
            known |= _comments(file.parent / f"{entry.partition('@')[0]}.yaml", prefix, tree, chosen)
    own = "" if "@package _global_" in text else prefix
    return known | {own + place: comment for _, place, comment in keys(text) if comment}
