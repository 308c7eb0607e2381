"""Print the settings of a run as YAML, each with the comment from its file of settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf

from ..settings.hydra import folders


def commented(config: DictConfig, overrides: Sequence[str], tree: str) -> str:
    """The settings as YAML with comments.

    Args:
        config: settings by `settings.compose`.
        overrides: settings of the user, such as "loss=pnp". Groups choose the files that are read.
        tree: see `kinds.TaskRow.settings`.
    """
    chosen = dict(override.partition("=")[::2] for override in overrides)
    known = _comments(folders(tree)[0] / f"{tree}.yaml", "", tree, chosen)
    text = OmegaConf.to_yaml(config, resolve=True)
    lines = text.splitlines()
    for place, name in places(yaml.compose(text)):
        if name in known:
            lines[place] = f"{lines[place]:38}  # {known[name]}"
    return "\n".join(lines) + "\n"


def places(node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[int, str]]:
    r"""The line of each setting of a YAML file, from 0, and its dotted name.

    >>> list(places(yaml.compose("a:  # first\n  b: 1\nc:\n  - 2")))
    [(0, 'a'), (1, 'a.b'), (2, 'c')]
    """
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.start_mark.line, f"{prefix}{key.value}"
            yield from places(value, f"{prefix}{key.value}.")


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
    own, lines = "" if "@package _global_" in text else prefix, text.splitlines()
    said = {own + name: lines[place].partition(" # ")[2] for place, name in places(yaml.compose(text))}
    return known | {name: comment for name, comment in said.items() if comment}
