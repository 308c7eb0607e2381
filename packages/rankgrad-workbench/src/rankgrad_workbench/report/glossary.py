"""The meaning of every metric on a page, for its tiles, tables, charts and glossary.

`evaluation.measures` explains the retrieval metrics; glossary.yaml adds those of scores and of training. The module of
a plug-in that reads runs adds its own with `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from rankgrad.evaluation import measures
from rankgrad.evaluation.report import DISTANCES

from ..runs.history import TEST
from .html.text import number, percent

WORDS: dict[str, str] = {}  # pattern of the name -> short explanation
DEFINITIONS: dict[str, str] = {}  # pattern of the name of a metric -> its definition, with its range


def explain(path: Path) -> None:
    """Add the words and definitions of a yaml file, such as those of another kind of runs."""
    tables = yaml.safe_load(path.read_text(encoding="utf-8"))
    WORDS.update(tables["words"])
    DEFINITIONS.update(tables["definitions"])


explain(Path(__file__).with_suffix(".yaml"))


def short(name: str) -> str:
    """A short explanation of a metric or a curve ("test/R@1"); empty if it is unknown.

    >>> short("test/R@4"), short("grad_norm")
    ('a right item among the first 4', 'norm of the gradient of all weights')
    """
    name = name.removeprefix(TEST)
    return measures.meaning(name) or _filled(WORDS, name)


def definition(name: str) -> str:
    """The definition of a metric, with its range; empty if the name is not a metric."""
    return measures.definition(name) or _filled(DEFINITIONS, name)


def _filled(table: Mapping[str, str], name: str) -> str:
    matches = ((re.fullmatch(pattern, name), text) for pattern, text in table.items())
    return next((text.format(*match.groups()) for match, text in matches if match), "")


def shown(metric: str, value: float | None) -> str:
    """A metric as text: a distance as a number, all others in per cent."""
    return number(value) if metric in DISTANCES else percent(value)
