"""What every number of a page means: the one table that tiles, tables, charts and the page's own glossary read.

The definitions are those of docs/metrics.md and docs/detection.md in a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..evaluation import DISTANCES
from ..html.text import number, percent


@dataclass(frozen=True)
class Term:
    """A metric or a curve.

    Attributes:
        pattern: of its names, a regular expression; its groups stand in the texts as {0}, {1}.
        short: a few words beside the number.
        long: its definition and its range; empty where the short words say all.
    """

    pattern: str
    short: str
    long: str = ""

    def fill(self, name: str) -> Term:
        """The term of one name, its groups filled in."""
        found = re.fullmatch(self.pattern, name)
        assert found is not None
        groups = [group or "" for group in found.groups()]
        return Term(name, self.short.format(*groups), self.long.format(*groups))


SHARE = "0 to 100, higher is better."
TERMS = (
    Term("R@1", "nearest item is right", f"Share of the queries whose nearest item is relevant. {SHARE}"),
    Term(
        r"R@(\d+)",
        "a right item among the {0} nearest",
        f"Share of the queries with a relevant item among the {{0}} nearest, a hit rate. {SHARE}",
    ),
    Term(
        "mAP@R",
        "AP of the R nearest, R = number of right items",
        "Of a query with R relevant items: precision at each of them among the first R places, summed and divided by "
        f"R. Never above AP. {SHARE}",
    ),
    Term(
        "AP",
        "average precision over the whole ranking",
        "Of a query: precision at each relevant item, however late it comes, and the mean of these; tied items count "
        f"as above. Its mean over the queries is known as mAP. {SHARE}",
    ),
    Term("R-precision", "right items among the R nearest", f"R = number of the query's relevant items. {SHARE}"),
    Term(r"P@(\d+)", "share of right items among the {0} nearest", f"Mean over the queries. {SHARE}"),
    Term("MRR", "1 / rank of the first right item", f"Mean reciprocal rank. {SHARE}"),
    Term(
        "NDCG",
        "early right items count more, compared with the best order",
        "Sum of 1 / log2(1 + rank) over the relevant items, divided by what the best order gives. " + SHARE,
    ),
    Term(
        "ROC AUC",
        "pairs of a right and a wrong item in the right order",
        f"Share of a query's (relevant, irrelevant) pairs in which the relevant item is nearer, ties as half. {SHARE}",
    ),
    Term(
        "AUC_hardest",
        "a query's worst right item against any query's best wrong one",
        "One number for all queries: share of the pairs (q, q') in which the farthest relevant item of q is nearer "
        "than the nearest irrelevant item of q'. It asks for one threshold for all queries. " + SHARE,
    ),
    Term(
        "NMI",
        "k-means clusters against classes",
        "Normalised mutual information of the labels and of k-means with as many clusters as classes; it moves a "
        f"little with the seed. {SHARE}",
    ),
    Term(
        "dists_intra",
        "mean distance within a class: lower is tighter",
        "Cosine distance of two items of a class, mean over its pairs, then over the classes. 0 to 2.",
    ),
    Term(
        "dists_inter",
        "mean distance between classes",
        "Cosine distance of the means of two classes, mean over the pairs of classes. 0 to 2.",
    ),
    Term(
        r"AP(\d[\d.]*)_11",
        "VOC 2007's mean over 11 recalls, overlap of {0} % or more",
        "Mean over the recalls 0, 0.1, ..., 1 of the best precision at this recall or a higher one; an object is found "
        "where a detection overlaps it by {0} % or more. " + SHARE,
    ),
    Term(
        r"AP(\d[\d.]*)",
        "area under precision and recall, overlap of {0} % or more",
        "Area under the curve of precision over recall, made monotone as in VOC 2010; an object is found where a "
        "detection of its class overlaps it by {0} % or more, and only once. Mean over the classes. " + SHARE,
    ),
    Term(
        "found at all",
        "share of the objects that some detection overlaps",
        f"However low its score: the recall at the end of the list. {SHARE}",
    ),
    Term(
        "best F1",
        "highest harmonic mean of precision and recall",
        "Chosen on these very images, as is the score at which it is reached: for looking, not for reporting. " + SHARE,
    ),
    Term("at score", "score of the best F1, from which detections are drawn"),
    Term("loss", "what is minimised"),
    Term("grad_norm", "length of the gradient of all weights"),
    Term("counted", "share of the queries that have a relevant item in the batch"),
    Term("supap", "ROADMAP's part for the ranking"),
    Term("calibration", "ROADMAP's part for the scores' scale"),
    Term("loss_classifier", "classes of the proposals"),
    Term("loss_box_reg", "boxes of the proposals"),
    Term("loss_objectness", "proposals: object or not"),
    Term("loss_rpn_box_reg", "proposals: boxes"),
    Term("ranking/loss", "1 \N{MINUS SIGN} AP over the proposals"),
    Term("ranking/cross_entropy", "cross-entropy, for comparison"),
    Term("ranking/share", "share of cross-entropy in the loss"),
)


def term(name: str) -> Term | None:
    """What a name means, of a metric or of a curve ("test/R@1"); None if it is not in the table.

    >>> term("test/R@4").short
    'a right item among the 4 nearest'
    """
    name = name.removeprefix("test/")
    return next((found.fill(name) for found in TERMS if re.fullmatch(found.pattern, name)), None)


def short(name: str) -> str:
    """A few words on a metric or a curve; none if it is not in the table."""
    found = term(name)
    return "" if found is None else found.short


def shown(metric: str, value: float | None) -> str:
    """A metric as a reader expects it: a share in per cent, a distance as a number."""
    return number(value) if metric in DISTANCES else percent(value)
