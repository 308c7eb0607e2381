"""What every number of a page means: what tiles, tables, charts and the page's own glossary read.

Numbers of an evaluation have their words in `evaluation.measures`; here are those of detectors and of scores, and of
training.
"""

from __future__ import annotations

import re

from ..evaluation import DISTANCES, measures
from ..evaluation.measures import BETTER
from ..html.text import number, percent
from ..runs.log import TEST

# Pattern of the name -> a few words.
WORDS = {
    r"AP(\d[\d.]*)_11": "VOC 2007's mean over 11 recalls, overlap of {0} % or more",
    r"AP(\d[\d.]*)": "area under precision and recall, overlap of {0} % or more",
    "found at all": "share of the objects that some detection overlaps",
    "best F1": "highest harmonic mean of precision and recall",
    "at score": "score of the best F1, from which detections are drawn",
    r"ROC AUC@FPR=(.+)": "pairs in the right order, up to a false positive rate of {0}",
    r"val/(.+)": "{0} of the validation rows, which chooses the epoch",
    "spread of scores": "standard deviation of the scores in a batch",
    "loss": "what is minimised",
    "grad_norm": "length of the gradient of all weights",
    "counted": "share of the queries that have a relevant item in the batch",
    "supap": "ROADMAP's part for the ranking",
    "calibration": "ROADMAP's part for the scores' scale",
    "alpha": "threshold that relevant scores are pulled above",
    "beta": "threshold that irrelevant scores are pushed below",
    "loss_classifier": "classes of the proposals",
    "loss_box_reg": "boxes of the proposals",
    "loss_objectness": "proposals: object or not",
    "loss_rpn_box_reg": "proposals: boxes",
    "ranking/loss": "1 \N{MINUS SIGN} AP over the proposals",
    "ranking/cross_entropy": "cross-entropy, for comparison",
    "ranking/share": "share of cross-entropy in the loss",
}
DEFINITIONS = {
    r"AP(\d[\d.]*)_11": "Mean over the recalls 0, 0.1, ..., 1 of the best precision at this recall or a higher one; an "
    f"object is found where a detection overlaps it by {{0}} % or more. {BETTER}",
    r"AP(\d[\d.]*)": "Area under the curve of precision over recall, made monotone as in VOC 2010; an object is found "
    "where a detection of its class overlaps it by {0} % or more, and only once. Mean over the classes. " + BETTER,
    r"ROC AUC@FPR=(.+)": "Area under the ROC curve up to a false positive rate of {0}, divided by that rate. " + BETTER,
}


def short(name: str) -> str:
    """A few words on a metric or a curve ("test/R@1"); none if nothing is known of it.

    >>> short("test/R@4"), short("AP75")
    ('a right item among the 4 nearest', 'area under precision and recall, overlap of 75 % or more')
    """
    name = name.removeprefix(TEST)
    return measures.meaning(name) or _filled(WORDS, name)


def definition(name: str) -> str:
    """A metric in full, with its range; empty for what is no metric."""
    return measures.definition(name) or _filled(DEFINITIONS, name)


def _filled(table: dict[str, str], name: str) -> str:
    for pattern, text in table.items():
        match = re.fullmatch(pattern, name)
        if match:
            return text.format(*match.groups())
    return ""


def shown(metric: str, value: float | None) -> str:
    """A metric as a reader expects it: a share in per cent, a distance as a number."""
    return number(value) if metric in DISTANCES else percent(value)
