"""What every number of a page means: the one table that tiles, tables, charts and the page's own glossary read.

The few words on a metric of retrieval are those of `measures.meaning`; the definitions here are those of
docs/metrics.md and docs/detection.md in a sentence or two.
"""

from __future__ import annotations

import re

from ..evaluation import DISTANCES
from ..html.text import number, percent
from ..measures import meaning
from ..runs.log import TEST

# What `measures` does not know: numbers of detectors and of training. Pattern of the name -> a few words.
WORDS = {
    r"AP(\d[\d.]*)_11": "VOC 2007's mean over 11 recalls, overlap of {0} % or more",
    r"AP(\d[\d.]*)": "area under precision and recall, overlap of {0} % or more",
    "found at all": "share of the objects that some detection overlaps",
    "best F1": "highest harmonic mean of precision and recall",
    "at score": "score of the best F1, from which detections are drawn",
    "loss": "what is minimised",
    "grad_norm": "length of the gradient of all weights",
    "counted": "share of the queries that have a relevant item in the batch",
    "supap": "ROADMAP's part for the ranking",
    "calibration": "ROADMAP's part for the scores' scale",
    "loss_classifier": "classes of the proposals",
    "loss_box_reg": "boxes of the proposals",
    "loss_objectness": "proposals: object or not",
    "loss_rpn_box_reg": "proposals: boxes",
    "ranking/loss": "1 \N{MINUS SIGN} AP over the proposals",
    "ranking/cross_entropy": "cross-entropy, for comparison",
    "ranking/share": "share of cross-entropy in the loss",
}
BETTER, WORSE = "0 to 100, higher is better.", "0 to 100, lower is better."
DEFINITIONS = {
    r"R@(\d+)": f"Share of the queries with a relevant item among the {{0}} nearest: a hit rate. {BETTER}",
    r"P@(\d+)": f"Relevant items among the {{0}} nearest, divided by {{0}}. {BETTER}",
    r"found@(\d+)": f"Relevant items among the {{0}} nearest, divided by all of the query's. {BETTER}",
    r"refined@(\d+)": f"Share of the relevant items with fewer than {{0}} irrelevant ones above. {BETTER}",
    "mAP@R": "Of a query with R relevant items: precision at each of them among the first R places, summed and divided "
    f"by R. Never above AP. {BETTER}",
    "AP": "Of a query: precision at each relevant item, however late it comes, and the mean of these; tied items count "
    f"as above. Its mean over the queries is known as mAP. {BETTER}",
    r"AP@(\d+)": f"AP of the list cut off after {{0}} items. {BETTER}",
    "R-precision": f"Precision of the list of R items, R = number of the query's relevant ones. {BETTER}",
    r"MRR(?:@(\d+))?": f"Mean reciprocal rank of the first relevant item. {BETTER}",
    r"NDCG(?:@(\d+))?": "Sum of 1 / log2(1 + rank) over the relevant items, divided by what the best order gives. "
    + BETTER,
    "ROC AUC": f"Share of a query's (relevant, irrelevant) pairs with the relevant item nearer, ties as half. {BETTER}",
    r"fall-out@(\d+)": f"Irrelevant items among the {{0}} nearest, divided by all irrelevant ones. {WORSE}",
    r"FNMR@FMR=(.+)": "At one threshold for all queries, which a share of {0} of the irrelevant pairs pass: share of "
    f"the relevant pairs that do not pass. {WORSE}",
    "AUC_hardest": "One number for all queries: share of the pairs (q, q') in which the farthest relevant item of q is "
    f"nearer than the nearest irrelevant item of q'. It asks for one threshold for all queries. {BETTER}",
    "NMI": "Normalised mutual information of the labels and of k-means with as many clusters as classes; it moves a "
    f"little with the seed. {BETTER}",
    "AMI": "Mutual information of labels and clusters, adjusted: clusters drawn by chance have 0, the classes 100.",
    "dists_intra": "Cosine distance of two items of a class, mean over its pairs, then over the classes. 0 to 2.",
    "dists_inter": "Cosine distance of the means of two classes, mean over the pairs of classes. 0 to 2.",
    r"AP(\d[\d.]*)_11": "Mean over the recalls 0, 0.1, ..., 1 of the best precision at this recall or a higher one; an "
    f"object is found where a detection overlaps it by {{0}} % or more. {BETTER}",
    r"AP(\d[\d.]*)": "Area under the curve of precision over recall, made monotone as in VOC 2010; an object is found "
    "where a detection of its class overlaps it by {0} % or more, and only once. Mean over the classes. " + BETTER,
}


def short(name: str) -> str:
    """A few words on a metric or a curve ("test/R@1"); none if nothing is known of it.

    >>> short("test/R@4"), short("AP75")
    ('a right item among the 4 nearest', 'area under precision and recall, overlap of 75 % or more')
    """
    name = name.removeprefix(TEST)
    return meaning(name) or _filled(WORDS, name)


def definition(name: str) -> str:
    """A metric in full, with its range; empty for what is no metric."""
    return _filled(DEFINITIONS, name)


def _filled(table: dict[str, str], name: str) -> str:
    for pattern, text in table.items():
        found = re.fullmatch(pattern, name)
        if found:
            return text.format(*found.groups())
    return ""


def shown(metric: str, value: float | None) -> str:
    """A metric as a reader expects it: a share in per cent, a distance as a number."""
    return number(value) if metric in DISTANCES else percent(value)
