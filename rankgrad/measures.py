"""The names of a report: how each number is read off the ranks of a block of queries, and what it says.

`P@5` is a name with a length: the part before the sign is looked up in `AT`, the number after it is k.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from . import metrics
from .checks import closest, number

if TYPE_CHECKING:
    from .search import RankBlock

Read = Callable[["RankBlock"], torch.Tensor]
ReadAt = Callable[["RankBlock", int], torch.Tensor]

# [query] value of each query of a block. Every metric takes its own reading of ties.
WHOLE: dict[str, tuple[Read, str]] = {
    "mAP@R": (
        lambda part: metrics.map_at_r(part.ranks),
        "average precision over the R nearest, R = number of right items",
    ),
    "AP": (lambda part: metrics.average_precision(part.ranks), "average precision over the whole ranking"),
    "R-precision": (lambda part: metrics.r_precision(part.ranks), "right items among the R nearest"),
    "P@1": (lambda part: metrics.precision_at_k(part.ranks, k=1), "nearest item is right, as R@1"),
    "MRR": (lambda part: metrics.reciprocal_rank(part.ranks), "1 / rank of the first right item"),
    "NDCG": (
        lambda part: metrics.ndcg(part.ranks),
        "right items, each discounted by the logarithm of its rank, against the best order",
    ),
    "ROC AUC": (
        lambda part: metrics.roc_auc(part.ranks, irrelevant=part.irrelevant),
        "pairs of a right and a wrong item in the right order",
    ),
}
AT: dict[str, tuple[ReadAt, str]] = {
    "R": (lambda part, k: metrics.recall_at_k(part.ranks, k=k), "a right item among the {k} nearest"),
    "P": (lambda part, k: metrics.precision_at_k(part.ranks, k=k), "share of right ones among the {k} nearest"),
    "found": (lambda part, k: metrics.found_at_k(part.ranks, k=k), "share of the right items among the {k} nearest"),
    "refined": (
        lambda part, k: metrics.refined_recall_at_k(part.ranks, k=k),
        "share of the right items with fewer than {k} wrong ones above",
    ),
    "AP": (
        lambda part, k: metrics.average_precision_at_k(part.ranks, k=k),
        "average precision over the {k} nearest",
    ),
    "MRR": (
        lambda part, k: metrics.reciprocal_rank(part.ranks, k=k),
        "1 / rank of the first right item, 0 if that is not among the {k} nearest",
    ),
    "NDCG": (lambda part, k: metrics.ndcg(part.ranks, k=k), "NDCG of the {k} nearest"),
    "fall-out": (
        lambda part, k: metrics.fall_out_at_k(part.ranks, k=k, irrelevant=part.irrelevant),
        "share of the wrong items among the {k} nearest: lower is better",
    ),
}
# Numbers of a report that are no means over queries.
OTHERS = {
    "AUC_hardest": "a query's worst right item against any query's best wrong one",
    "NMI": "k-means clusters against classes",
    "AMI": "the same less what clusters by chance have, 0",
    "dists_intra": "mean cosine distance within a class, 0 to 2: lower is tighter",
    "dists_inter": "mean cosine distance between classes, 0 to 2",
}
FNMR = "FNMR@FMR="
SPECIAL = {"R@1": "nearest item is right"}


def reading(name: str) -> Read:
    """How a metric is read off a block of ranks, by its name in a report.

    Raises:
        ValueError: there is none of that name.

    >>> from rankgrad.search import rank_blocks
    >>> [block] = rank_blocks(torch.tensor([[1.0], [2.0], [3.0]]), ["a", "a", "b"])
    >>> reading("MRR@1")(block)
    tensor([0., 0.], dtype=torch.float64)
    """
    if name in WHOLE:
        return WHOLE[name][0]
    kind, k = _with_length(name)
    if kind is None:
        length = re.sub(r".*?(\d*)$", r"\1", name) or "10"
        lengths = [f"{other}@{length}" for other in AT]
        raise ValueError(
            f"unknown metric {name!r}{closest(name, [*WHOLE, *lengths])} Known: {', '.join(WHOLE)}, and with a length "
            f"such as {length}: {', '.join(lengths)}"
        )
    read = AT[kind][0]
    return lambda part: read(part, k)


def meaning(name: str) -> str:
    """What a number of a report says, in a few words; nothing if the name is not known.

    >>> meaning("R@4"), meaning("AUC_hardest"), meaning("FNMR@FMR=0.01")
    ('a right item among the 4 nearest', "a query's worst right item against any query's best wrong one", \
'right pairs missed by the threshold that 0.01 of the wrong pairs pass: lower is better')
    """
    if name in SPECIAL or name in OTHERS:
        return (SPECIAL | OTHERS)[name]
    if name in WHOLE:
        return WHOLE[name][1]
    if name.startswith(FNMR):
        return f"right pairs missed by the threshold that {name[len(FNMR) :]} of the wrong pairs pass: lower is better"
    kind, k = _with_length(name)
    return "" if kind is None else AT[kind][1].format(k=k)


def false_match_rate(name: str) -> float | None:
    """The rate in the name of an FNMR; None for another name.

    >>> false_match_rate("FNMR@FMR=0.001"), false_match_rate("AP@10")
    (0.001, None)
    """
    if not name.startswith(FNMR):
        return None
    try:
        return number(float(name[len(FNMR) :]), name, low=0, high=1)
    except ValueError:
        raise ValueError(f"{name!r} must end in a share of false matches in [0, 1], such as {FNMR}0.001") from None


def _with_length(name: str) -> tuple[str | None, int]:
    found = re.fullmatch(r"(.+)@([1-9]\d*)", name)
    return (found[1], int(found[2])) if found and found[1] in AT else (None, 0)
