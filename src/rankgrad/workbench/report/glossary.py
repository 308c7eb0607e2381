"""The meaning of every metric on a page, for its tiles, tables, charts and glossary.

`evaluation.measures` explains the retrieval metrics; this module adds those of detectors, of scores and of training.
"""

from __future__ import annotations

import re

from ...evaluation import measures
from ...evaluation.measures import BETTER
from ...evaluation.report import DISTANCES
from ..html.text import number, percent
from ..runs.log import TEST

# Pattern of the name -> short explanation.
WORDS = {
    r"AP(\d[\d.]*)_11": "VOC 2007's mean over 11 recalls, overlap of {0} % or more",
    r"AP(\d[\d.]*)": "area under precision and recall, overlap of {0} % or more",
    "found at all": "fraction of the objects that some detection overlaps",
    "best F1": "highest harmonic mean of precision and recall",
    "at score": "score of the best F1, from which detections are drawn",
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
    "loss_classifier": "loss of the classes of the detections",
    "loss_box_reg": "loss of the boxes of the detections",
    "loss_objectness": "loss of the proposals: object or not",
    "loss_rpn_box_reg": "loss of the boxes of the proposals",
    "ranking/loss": "1 \N{MINUS SIGN} AP over the proposals",
    "ranking/cross_entropy": "cross-entropy, for comparison",
    "ranking/share": "fraction of cross-entropy in the loss",
}
DEFINITIONS = {
    r"AP(\d[\d.]*)_11": "Mean over the recalls 0, 0.1, ..., 1 of the best precision at this recall or a higher one. An "
    f"object is found if a detection overlaps it by {{0}} % or more. {BETTER}",
    r"AP(\d[\d.]*)": "Area under the curve of precision over recall, made monotone as in VOC 2010. An object is found "
    "if a detection of its class overlaps it by {0} % or more, and only once. Mean over the classes. " + BETTER,
    r"Recall@(\d+)": "Relevant documents among the first {0}, divided by all relevant documents of the query. "
    + BETTER,
    r"ROC AUC@FPR=(.+)": "Area under the ROC curve up to a false positive rate of {0}, divided by that rate. " + BETTER,
}


def short(name: str) -> str:
    """A short explanation of a metric or a curve ("test/R@1"); empty if it is unknown.

    >>> short("test/R@4"), short("AP75")
    ('a right item among the first 4', 'area under precision and recall, overlap of 75 % or more')
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
