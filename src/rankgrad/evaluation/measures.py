"""The metrics of a report by name: how each is computed from the ranks of a block of queries, and its meaning.

A name such as `P@5` has a length: the part before the @ is a key of `AT`, the number after it is k.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch

from .. import metrics
from ..checks import closest, list_length, number
from ..plugins import Plugin, registered
from ..types import TiedRanks


class RankedQueries(Protocol):
    """The input of a metric: ranks and number of irrelevant items of some queries, such as `search.RankBlock`."""

    @property
    def ranks(self) -> TiedRanks:
        """Ranks of the relevant items."""

    @property
    def irrelevant(self) -> torch.Tensor:
        """[query] long, number of irrelevant items of each query."""


R = TypeVar("R")
Read = Callable[["RankedQueries"], torch.Tensor]
ReadAt = Callable[["RankedQueries", int], torch.Tensor]
Words = tuple[str, str]  # meaning and definition, see `Measure`


@dataclass(frozen=True)
class Measure(Generic[R]):
    """A metric of a report.

    Args:
        read: function that returns the [query] values for a block of queries. Every metric has its own rule for ties.
        meaning: a few words, for a table.
        definition: a sentence or two, with the range; a short form of docs/metrics.md.
    """

    read: R
    meaning: str
    definition: str


# The metrics of a short table, if the report has them.
MAIN = ("R@1", "R@4", "mAP@R", "AP", "H-AP", "H-NDCG", "NMI")
BETTER, WORSE = "0 to 100, higher is better.", "0 to 100, lower is better."
WHOLE: dict[str, Measure[Read]] = {
    "mAP@R": Measure(
        lambda part: metrics.map_at_r(part.ranks),
        "average precision over the first R, R = number of right items",
        "For a query with R relevant items: sum of the precision at each relevant item among the first R items, "
        f"divided by R. Never above AP. {BETTER}",
    ),
    "AP": Measure(
        lambda part: metrics.average_precision(part.ranks),
        "average precision over the whole ranking",
        "For a query: mean of the precision at each relevant item of the whole ranking. Tied items count as above. The "
        f"mean over the queries is known as mAP. {BETTER}",
    ),
    "R-precision": Measure(
        lambda part: metrics.r_precision(part.ranks),
        "right items among the first R",
        f"Precision of the first R items, R = number of relevant items of the query. {BETTER}",
    ),
    "P@1": Measure(
        lambda part: metrics.precision_at_k(part.ranks, k=1),
        "first item is right, as R@1",
        f"1 if the first item is relevant, else 0. {BETTER}",
    ),
    "MRR": Measure(
        lambda part: metrics.reciprocal_rank(part.ranks),
        "1 / rank of the first right item",
        f"Mean reciprocal rank of the first relevant item. {BETTER}",
    ),
    "NDCG": Measure(
        lambda part: metrics.ndcg(part.ranks),
        "right items with less weight at later ranks, relative to the best order",
        f"Sum of 1 / log2(1 + rank) over the relevant items, divided by the same sum for the best order. {BETTER}",
    ),
    "ROC AUC": Measure(
        lambda part: metrics.roc_auc(part.ranks, irrelevant=part.irrelevant),
        "pairs of a right and a wrong item in the right order",
        f"Share of the (relevant, irrelevant) pairs whose relevant item ranks higher; a tie counts half. {BETTER}",
    ),
}
AT: dict[str, Measure[ReadAt]] = {
    "R": Measure(
        lambda part, k: metrics.recall_at_k(part.ranks, k=k),
        "a right item among the first {k}",
        f"Share of the queries with a relevant item among the first {{k}}: a hit rate. {BETTER}",
    ),
    "P": Measure(
        lambda part, k: metrics.precision_at_k(part.ranks, k=k),
        "share of right ones among the first {k}",
        f"Relevant items among the first {{k}}, divided by {{k}}. {BETTER}",
    ),
    "found": Measure(
        lambda part, k: metrics.found_at_k(part.ranks, k=k),
        "share of the right items among the first {k}",
        f"Relevant items among the first {{k}}, divided by all relevant items of the query. {BETTER}",
    ),
    "refined": Measure(
        lambda part, k: metrics.refined_recall_at_k(part.ranks, k=k),
        "share of the right items with fewer than {k} wrong ones above",
        f"Share of the relevant items with fewer than {{k}} irrelevant items above. {BETTER}",
    ),
    "AP": Measure(
        lambda part, k: metrics.average_precision_at_k(part.ranks, k=k),
        "average precision over the first {k}",
        f"AP of the list cut off after {{k}} items. {BETTER}",
    ),
    "MRR": Measure(
        lambda part, k: metrics.reciprocal_rank(part.ranks, k=k),
        "1 / rank of the first right item, 0 if that is not among the first {k}",
        f"Mean reciprocal rank of the first relevant item; 0 if that is not among the first {{k}}. {BETTER}",
    ),
    "NDCG": Measure(
        lambda part, k: metrics.ndcg(part.ranks, k=k),
        "NDCG of the first {k}",
        "Sum of 1 / log2(1 + rank) over the relevant items among the first {k}, divided by the same sum for the "
        f"best order. {BETTER}",
    ),
    "fall-out": Measure(
        lambda part, k: metrics.fall_out_at_k(part.ranks, k=k, irrelevant=part.irrelevant),
        "share of the wrong items among the first {k}: lower is better",
        f"Irrelevant items among the first {{k}}, divided by all irrelevant items. {WORSE}",
    ),
}
# Metrics that are not means over the queries, or not computed from one ranking.
OTHERS: dict[str, Words] = {
    "H-AP": (
        "AP with partial relevance for items of the same coarser class",
        "Hierarchical average precision (Ramzi et al., ECCV 2022) with a gain of l / L for l shared levels of L: the "
        f"mean of the AP of all levels, weighted by their numbers of relevant items. {BETTER}",
    ),
    "H-NDCG": (
        "NDCG with partial relevance for items of the same coarser class",
        f"NDCG with a gain of l / L for l shared levels of L, divided by that of the best order. {BETTER}",
    ),
    "AUC_hardest": (
        "lowest right score of a query against the highest wrong score of any query",
        "One number for all queries: share of the pairs (q, q') in which the farthest relevant item of q is nearer "
        f"than the nearest irrelevant item of q'. It is high if one threshold works for all queries. {BETTER}",
    ),
    "NMI": (
        "agreement of k-means clusters and classes",
        "Normalised mutual information of the labels and the clusters of k-means, with as many clusters as classes. It "
        f"depends a little on the seed. {BETTER}",
    ),
    "AMI": (
        "agreement of k-means clusters and classes, corrected for chance",
        "Adjusted mutual information of labels and clusters: 0 for random clusters, 100 for the classes.",
    ),
    "dists_intra": (
        "mean cosine distance within a class, 0 to 2: lower is tighter",
        "Cosine distance of two items of a class: mean over the pairs of a class, then over the classes. 0 to 2.",
    ),
    "dists_inter": (
        "mean cosine distance between the means of two classes, 0 to 2",
        "Cosine distance of the means of two classes: mean over the pairs of classes. 0 to 2.",
    ),
}
FNMR = "FNMR@FMR="
_FNMR = (
    "share of right pairs not above the threshold that {f} of the wrong pairs exceed: lower is better",
    "There is one threshold for all queries. A share of {f} of the irrelevant pairs is above it. The metric is the "
    f"share of the relevant pairs that are not above it. {WORSE}",
)
PARTIAL = "ROC AUC@FPR="
_PARTIAL = (
    "area under the ROC curve up to a false positive rate of {f}",
    "Area under the ROC curve of one list of scores, up to a false positive rate of {f}, divided by this rate. "
    f"{BETTER}",
)
_R_AT_1 = "first item is right"


def reading(name: str) -> Read:
    """The function that computes a metric from a block of ranks, by its name in a report.

    Raises:
        ValueError: there is no metric of this name.

    >>> from rankgrad.search import rank_blocks
    >>> [block] = rank_blocks(torch.tensor([[1.0], [2.0], [3.0]]), ["a", "a", "b"])
    >>> reading("MRR@1")(block)
    tensor([0., 0.], dtype=torch.float64)
    """
    if name in WHOLE:
        return WHOLE[name].read
    plugin = _plugin(name)
    if plugin is not None:
        return _read_by(plugin)
    kind, k = _with_length(name)
    if kind is None:
        length = re.sub(r".*?([1-9]\d*|)$", r"\1", name) or "10"
        lengths = [f"{other}@{length}" for other in AT]
        raise ValueError(
            f"unknown metric {name!r}{closest(name, [*WHOLE, *lengths])} Known: {', '.join(WHOLE)}, and with a length "
            f"such as {length}: {', '.join(lengths)}; and {FNMR}f with a rate f"
        )
    read = AT[kind].read
    list_length(k, f"{name!r} ends in a list length")
    return lambda part: read(part, k)


def listed(names: object, what: str, least: int = 1) -> list[str]:
    """Names of metrics as a list.

    Args:
        names: the argument.
        what: its name in messages.
        least: smallest number of names.

    Raises:
        ValueError: this is not a list of strings, or there are too few.

    >>> listed(("AP", "R@1"), "names")
    ['AP', 'R@1']
    """
    given: list[Any] = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    if len(given) < least or not all(isinstance(name, str) for name in given) or isinstance(names, str):
        some = "at least one metric" if least else "metrics"
        raise ValueError(f"{what} must be a list of {some} by name, such as ['AP@10']; got {names!r}")
    return given


def needs_irrelevant(name: str) -> bool:
    """Whether a metric compares with irrelevant items: a list without one has no value of it.

    >>> needs_irrelevant("ROC AUC"), needs_irrelevant("fall-out@10"), needs_irrelevant("AP")
    (True, True, False)
    """
    return name == "ROC AUC" or name.startswith("fall-out@")


def _plugin(name: str) -> Plugin | None:
    """The metric of a plug-in with this name, or None."""
    return registered("metrics", {*WHOLE, *AT, *OTHERS}).get(name)


def _read_by(plugin: Plugin) -> Read:
    """The metric of a plug-in as a function of a block of ranks. It gets `Ranks` in which tied items count as above."""
    metric = plugin.load()

    def read(part: RankedQueries) -> torch.Tensor:
        ranks = part.ranks.pessimistic
        values = metric(ranks)
        if not isinstance(values, torch.Tensor) or values.shape != (ranks.num_queries,):
            came = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise ValueError(f"the {plugin} must return a value for each of {ranks.num_queries} queries; got {came}")
        return values

    return read


def meaning(name: str) -> str:
    """The meaning of a metric of a report, in a few words; "" if the name is unknown.

    >>> meaning("R@4"), meaning("AUC_hardest"), meaning("FNMR@FMR=0.01")
    ('a right item among the first 4', 'lowest right score of a query against the highest wrong score of any query', \
'share of right pairs not above the threshold that 0.01 of the wrong pairs exceed: lower is better')
    """
    return _R_AT_1 if name == "R@1" else _words(name)[0]


def definition(name: str) -> str:
    """The definition of a metric of a report, with its range; "" if the name is unknown.

    >>> definition("P@5")
    'Relevant items among the first 5, divided by 5. 0 to 100, higher is better.'
    """
    return _words(name)[1]


def _words(name: str) -> Words:
    if name in WHOLE:
        return WHOLE[name].meaning, WHOLE[name].definition
    if name in OTHERS:
        return OTHERS[name]
    for start, (few, full) in {FNMR: _FNMR, PARTIAL: _PARTIAL}.items():
        if name.startswith(start):
            return few.format(f=name[len(start) :]), full.format(f=name[len(start) :])
    plugin = _plugin(name)
    if plugin is not None:
        return f"of {plugin.distribution} {plugin.version}", f"The {plugin}."
    kind, k = _with_length(name)
    return ("", "") if kind is None else (AT[kind].meaning.format(k=k), AT[kind].definition.format(k=k))


def false_match_rate(name: str) -> float | None:
    """The false match rate in the name of an FNMR metric; None for another name.

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
    match = re.fullmatch(r"(.+)@([1-9]\d*)", name)
    return (match[1], int(match[2])) if match and match[1] in AT else (None, 0)
