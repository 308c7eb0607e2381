"""What an unknown setting or option may mean: by common words of other programs, or by its spelling."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import yaml

from rankgrad.common.checks import closest
from rankgrad.common.text import shown

from ..files import check_unpacked
from ..files.elsewhere import of_laboratory, unknown
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
    told = unknown(group, given, known, f"rankgrad {of_settings(name).command} --help")
    if group == "data" and is_data(given, name):
        return ConfigError(f"data= takes a kind of data, but {given!r} is a path. Use: {data_settings(given)}")
    if group == "loss" and "." in given:
        return ConfigError(
            f"unknown loss {given!r}. For a class of your own, name its package: loss={given} "
            f"trust={given.partition('.')[0]}; its arguments are settings. docs/plugins.md registers it under a name"
        )
    if group == "loss" and re.search(r"[:(,]", given):
        return ConfigError(
            f"unknown loss {given!r}. A run trains one loss, and its settings follow it: loss=NAME loss.SETTING=VALUE. "
            f"To compare several losses: rankgrad {of_settings(name).command.replace('train', 'compare')} loss=A,B"
        )
    meant = [row for row in _rows_of(given) if row.startswith(f"{group}=") and row.partition("=")[2] in known]
    if group == "data" and name != "search":
        meant += [f"{row} data.root=FOLDER" for row in _rows_of(given) if row == "task=search"]
    if meant:
        told = f"unknown {group} {given!r}; did you mean {meant[0]}? Known: {told.partition(' Known: ')[2]}"
    if (group, name) == ("model", "train"):
        word = shlex.quote(f"model.name={given or 'NAME'}")
        told += (
            f". For a network of timm: model=timm {word}; of sentence-transformers: model=sentence_transformer {word}"
        )
    return ConfigError(told)


def no_setting(word: str, name: str) -> ConfigError:
    """The error about a word without =, with the setting that it may mean."""
    hint = ""
    for group in of_settings(name).groups:
        known = options(group, name)
        hint = hint or (f"; did you mean '{group}={word}'?" if word in known else of_laboratory(group, word, known))
    if is_data(word, name):
        hint = f". To train on it: {data_settings(word)}"
    hint = hint or _meant(word, keys(composed((), name)), name)
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
    for key, value in of.items():
        if not re.match(r"[A-Za-z_]", key) or "@" in key or key in (*every, *of_settings(name).groups):
            continue
        if "data.root" in _rows_of(key) and is_data(value, name):
            raise ConfigError(f"unknown setting {key!r}. To train on it: {data_settings(value)}")
        raise ConfigError(_unknown(key, every, name))


def _unknown(given: str, every: Sequence[str], name: str) -> str:
    known = [key for key in every if not (key.startswith(INTERNAL) or re.search(r"(^|\.)_", key))]
    parent, _, last = given.rpartition(".")
    parent = parent or next((row.rpartition(".")[0] for row in _rows_of(given)), "")
    same = [key for key in known if key.rpartition(".")[2] == last]  # the section is missing or wrong
    beside = [key for key in known if parent and key.rpartition(".")[0] == parent]
    hint = _meant(given, known, name) or (f"; did you mean {same[0]!r}?" if same else closest(given, beside or known))
    where = f" in {parent}" if beside else ""
    return f"unknown setting {given!r}{hint} Known{where}: {', '.join(beside or [k for k in known if '.' not in k])}"


def _meant(given: str, known: Sequence[str], name: str) -> str:
    """The settings of `synonyms` that fit, as a hint; "" if there are none."""
    for row in _rows_of(given):
        parts = [part.partition("=") for part in row.split()]
        chooses = any(key in of_settings(name).groups and option in options(key, name) for key, _, option in parts)
        if chooses or all(key in known for key, *_ in parts):
            return f"; did you mean {' and '.join(map(repr, row.split()))}?"
    return ""


def _rows_of(given: str) -> list[str]:
    """The settings of `synonyms` for the last name of a setting."""
    word = given.rpartition(".")[2].lower().replace("-", "_")
    return [settings for settings, words in synonyms().items() if word in words]


def is_data(word: str, name: str) -> bool:
    """Say whether a word is the path of an existing file or folder, given to a command that trains."""
    return name == "train" and os.path.exists(os.path.expanduser(word))


def is_search(path: str) -> bool:
    """Whether a folder holds queries and documents."""
    folder = Path(path).expanduser()
    files = folder.iterdir() if folder.is_dir() else ()
    return {"corpus", "queries"} <= {file.name.partition(".")[0] for file in files}


def data_settings(path: str) -> str:
    """The settings for data at a path, by its ending.

    >>> data_settings("my photos")
    "data=folder 'data.root=my photos'"
    >>> data_settings("x.npz")
    'data=table data.root=x.npz for embeddings, task=scores data.root=x.npz for rows with a label'
    """
    check_unpacked(path)
    root = shlex.quote(shown(f"data.root={'DIR' if path in ('', 'null', '~') else path}"))
    if is_search(path):
        return f"task=search {root}"
    suffix = os.path.splitext(path)[1].lower()
    kinds = {"data=table": "embeddings"} if suffix in of_arrays() else {}
    if suffix in of_texts():
        kinds |= {"data=text": "texts", "data=manifest": "a list of images", "task=search": "queries and documents"}
    if not kinds:
        return f"data=folder {root}"
    kinds["task=scores"] = "rows with a label"
    return ", ".join(f"{kind} {root} for {what}" for kind, what in kinds.items())
