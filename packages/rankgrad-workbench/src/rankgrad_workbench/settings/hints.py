"""What an unknown setting or option may mean: by common words of other programs, or by its spelling."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from rankgrad.common.checks import closest, unknown
from rankgrad.common.text import shown

from ..files import check_unpacked
from ..files.elsewhere import of_laboratory
from ..files.tables.formats import of_arrays, of_texts
from .allowed import ConfigError
from .hydra import composed, options
from .kinds import of_settings
from .values import keys

INTERNAL = ("derived", "extended", "lean")  # settings that only rankgrad itself sets; no message offers them


@cache
def synonyms() -> dict[str, list[str]]:
    """Our settings -> common words for them."""
    text = Path(__file__).with_name("synonyms.yaml").read_text(encoding="utf-8")
    return {settings: words.split() for settings, words in yaml.safe_load(text).items()}


def unknown_option(group: str, given: str, name: str) -> ConfigError:
    """The error about an unknown option of a group, with the options that fit."""
    known = options(group, name)
    if group == "data" and is_data(given, name):
        return ConfigError(f"data= takes a kind of data, but {given!r} is a path. Use: {data_settings(given)}")
    if group == "loss" and re.search(r"[.:(,]", given):
        told = "A run trains one loss. Its settings follow it: loss=NAME loss.SETTING=VALUE; compare trains several"
        if own := re.fullmatch(r"(\w+)\.[\w.]+", given):
            told = f"For a class of your own, name its package: loss={given} trust={own[1]}; see docs/plugins.md"
        return ConfigError(f"unknown loss {given!r}. {told}")
    hint = of_laboratory(group, given, known) or _meant(given, keys(composed((), name)), name)
    told = unknown(group, given, known, f"rankgrad {of_settings(name).command} --help", hint)
    if (group, name) == ("model", "train"):
        word = shlex.quote(f"model.name={given or 'NAME'}")
        told += (
            f". For a network of timm: model=timm {word}; of sentence-transformers: model=sentence_transformer {word}"
        )
    return ConfigError(told)


def no_setting(word: str, name: str) -> ConfigError:
    """The error about a word without =, with the setting that it may mean."""
    groups = {group: options(group, name) for group in of_settings(name).groups}
    hints = [f"; did you mean '{group}={word}'?" for group, known in groups.items() if word in known]
    hints += [of_laboratory(group, word, known) for group, known in groups.items()]
    hints += [f". To train on it: {data_settings(word)}"] * is_data(word, name)
    hint = next(filter(None, hints), "") or _meant(word, keys(composed((), name)), name)
    return ConfigError(f"settings are KEY=VALUE, such as loss=pnp or optimizer.lr=1e-3; got {word!r}{hint}")


def check_known(overrides: Sequence[str], every: Sequence[str], name: str) -> None:
    """Raise if a setting is unknown, and say what it may mean, and which there are.

    Args:
        overrides: KEY=VALUE.
        every: the known settings.
        name: see `compose`.
    """
    of = dict(override.split("=", 1) for override in overrides)
    if name == "train" and "data.root" in {*of} - {*every}:
        raise ConfigError(f"data.root also needs the kind of the data: {data_settings(of['data.root'])}")
    known = [key for key in every if not (key.startswith(INTERNAL) or re.search(r"(^|\.)_", key))]
    for key, value in of.items():
        if not re.match(r"[A-Za-z_]", key) or "@" in key or key in (*every, *of_settings(name).groups):
            continue
        if "data.root" in _rows_of(key) and is_data(value, name):
            raise ConfigError(f"unknown setting {key!r}. To train on it: {data_settings(value)}")
        parent, _, last = key.rpartition(".")
        beside = [each for each in known if parent and each.rpartition(".")[0] == parent]
        same = [each for each in known if each.rpartition(".")[2] == last]  # the section is missing or wrong
        told = _meant(key, known, name) or closest(same[0] if same else key, same or beside or known)
        where, there = (f" in {parent}", beside) if beside else ("", [each for each in known if "." not in each])
        raise ConfigError(f"unknown setting {key!r}{told} Known{where}: {', '.join(there)}")


def _meant(given: str, known: Sequence[str], name: str) -> str:
    """The settings of `synonyms` that fit, as a hint; "" if there are none."""
    for row in _rows_of(given):
        parts = [part.partition("=") for part in row.split()]
        chooses = any(key in of_settings(name).groups and option in options(key, name) for key, _, option in parts)
        if chooses or (row != f"task={name}" and all(key in known for key, *_ in parts)):
            return f"; did you mean {' and '.join(map(repr, row.split()))}?"
    return ""


def _rows_of(given: str) -> list[str]:
    """The settings of `synonyms` for the last name of a setting."""
    word = given.rpartition(".")[2].lower().replace("-", "_")
    return [settings for settings, words in synonyms().items() if word in words]


def is_data(word: str, name: str) -> bool:
    """Say whether a word is the path of an existing file or folder, given to a command that trains."""
    return name == "train" and os.path.exists(os.path.expanduser(word))


def data_settings(path: str) -> str:
    """The settings for data at a path, by its ending.

    >>> data_settings("my photos")
    "data=folder 'data.root=my photos'"
    >>> data_settings("x.npz")
    'data=table data.root=x.npz for embeddings, task=scores data.root=x.npz for rows with a label'
    """
    check_unpacked(path)
    root = shlex.quote(shown(f"data.root={'DIR' if path in ('', 'null', '~') else path}"))
    folder, suffix = Path(path).expanduser(), os.path.splitext(path)[1].lower()
    if folder.is_dir() and {"corpus", "queries"} <= {file.name.partition(".")[0] for file in folder.iterdir()}:
        return f"task=search {root}"
    kinds = {"data=table": "embeddings"} if suffix in of_arrays() else {}
    if suffix in of_texts():
        kinds |= {"data=text": "texts", "data=manifest": "a list of images", "task=search": "queries and documents"}
    if not kinds:
        return f"data=folder {root}"
    kinds["task=scores"] = "rows with a label"
    return ", ".join(f"{kind} {root} for {what}" for kind, what in kinds.items())
