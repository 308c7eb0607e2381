"""The meaning of every metric on a page, for its tiles, tables, charts and glossary.

`evaluation.measures` explains the retrieval metrics; this module adds those of scores and of training. The module of
a plug-in that reads runs adds its own with `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankgrad.evaluation import measures
from rankgrad.evaluation.measures import BETTER
from rankgrad.evaluation.report import DISTANCES

from ..runs.log import TEST
from .html.text import number, percent

# Pattern of the name -> short explanation.
WORDS = {
    r"ROC AUC@FPR=(.+)": "pairs in the right order, up to a false positive rate of {0}",
    r"val/(.+)": "{0} of the validation rows, which chooses the epoch",
    r"Recall@(\d+)": "share of the relevant documents among the first {0}",
    "documents": "number of documents in a batch",
    "spread of scores": "standard deviation of the scores in a batch",
    "loss": "the training loss",
    "grad_norm": "norm of the gradient of all weights",
    "counted": "fraction of the queries that have a relevant item in the batch",
    "supap": "ROADMAP's term for the ranking",
    "calibration": "ROADMAP's term for the scale of the scores",
    "alpha": "threshold: relevant scores are pulled above it",
    "beta": "threshold: irrelevant scores are pushed below it",
}
DEFINITIONS = {
    r"Recall@(\d+)": "Relevant documents among the first {0}, divided by all relevant documents of the query. "
    + BETTER,
    r"ROC AUC@FPR=(.+)": "Area under the ROC curve up to a false positive rate of {0}, divided by that rate. " + BETTER,
}


def explain(words: Mapping[str, str], definitions: Mapping[str, str]) -> None:
    """Add the names of another kind of runs.

    Args:
        words: pattern of the name -> short explanation, as in `WORDS`.
        definitions: pattern of the name of a metric -> its definition, with its range.
    """
    WORDS.update(words)
    DEFINITIONS.update(definitions)


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


def _filled(table: dict[str, str], name: str) -> str:
    for pattern, text in table.items():
        match = re.fullmatch(pattern, name)
        if match:
            return text.format(*match.groups())
    return ""


def shown(metric: str, value: float | None) -> str:
    """A metric as text: a distance as a number, all others in per cent."""
    return number(value) if metric in DISTANCES else percent(value)
