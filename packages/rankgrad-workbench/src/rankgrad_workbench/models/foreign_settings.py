"""Checks the settings in a folder of a model before another library reads them: they could make it run code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from .state_dicts import one_line

#: The lists of what settings may say.
LISTS: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TYPE = (
    rf"sentence_transformers\.(models|(base|sentence_transformer)\.modules)\.(\w+\.)?({'|'.join(LISTS['modules'])})|\w+"
)
FALSE = ("trust_remote_code", "quantization_config")  # packages, or code, of its own choice
VOCABULARIES = ("tokenizer.json", "vocab.json")  # long, and no settings
NAME = re.compile(r"(?=.*[A-Za-z_])[\w~@-]*[./\\:][\w./\\:~@-]*")  # a.b, a/b, c:d: this may be imported or opened
OWN_CODE = "train it with sentence-transformers and rankgrad.adapters.sentence_transformers"
NEVER = f"and rankgrad never runs code of a model: {OWN_CODE}"


def check_files(root: Path, name: str) -> None:
    """Raise unless the settings of a model name only classes, functions and places that are on our lists.

    Args:
        root: folder of the model.
        name: name of the model in messages.

    Raises:
        ValueError: naming the setting, the folder or the file.
    """
    for path in sorted(root.rglob("*")):
        file = path.relative_to(root).as_posix()
        if path.is_dir() and path.is_symlink():  # `rglob` does not look into it, but a module would
            raise ValueError(f"the folder {file} of {name} is a link. Replace it by a copy of its target")
        if path.suffix.lower() != ".json" or path.name in VOCABULARIES or not path.is_file():
            continue
        if path.name.lower() == "adapter_config.json":  # peft imports modules that it names
            raise ValueError(f"{name} is an adapter ({file}): give it as model.lora=, and its model as model.name=")
        try:
            content = json.loads(path.read_text("utf-8"))
        except (RecursionError, ValueError) as error:  # also a text that is not UTF-8
            raise ValueError(f"{name} is damaged: {file} ({one_line(error)}). Download or copy it again") from None
        for key, value in _entries(content):
            if not _harmless(key, value):
                raise ValueError(f"{name} has the setting {key}={value!r} ({file}), which may name code, {NEVER}")


def _harmless(key: str, value: Any) -> bool:
    """Whether a setting can make no library import or read what it names."""
    if key in LISTS["passed_on"]:
        return not value or (isinstance(value, dict) and {*value} <= {*LISTS["harmless"]})
    if key in FALSE or not isinstance(value, str):
        return key not in FALSE or not value
    # a word alone as a type is imported by nobody
    allowed = {"type": TYPE, **LISTS["allowed"]}.get(key.strip("_"))
    return key.endswith("_token") or (
        not NAME.fullmatch(value) if allowed is None else bool(re.fullmatch(allowed, value))
    )


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key of a json content with its value, at any depth; the values of a list come with the key of the list."""
    waiting = [("", content)]
    while waiting:
        key, part = waiting.pop()
        yield key, part
        if isinstance(part, dict):
            inside = [*part.items()]
        else:
            inside = [(key, each) for each in part] if isinstance(part, list) else []
        waiting += [each for each in inside if each[0].strip("_") not in LISTS["texts"]]
