"""The metrics by name: how each is computed from the ranks of a block of queries, and its meaning.

Every report, of embeddings, of graded lists, of scores and of run files, reads its metrics here. A name such as `P@5`
has a length: the part before the @ is a key of `AT`, the number after it is k. NDCG has two names, one for each gain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from .. import metrics
from ..common.checks import closest, list_length, number
from ..common.plugins import Plugin, registered
from ..ranks.types import Ranks, TiedRanks


class RankedQueries(Protocol):
    """The input of a metric: ranks and number of irrelevant items of some queries, such as `search.RankBlock`."""

    @property
    def ranks(self) -> TiedRanks:
        """Ranks of the relevant items."""

    @property
    def graded(self) -> TiedRanks | Ranks:
        """The same with the gains of the items; equal to `ranks` if relevance is binary."""

    @property
    def irrelevant(self) -> torch.Tensor:
        """[query] long, number of irrelevant items of each query."""


R = TypeVar("R")
V = TypeVar("V")
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
GAINS = {"NDCG": "gains grade", "NDCG-exp2": "gains 2^grade - 1"}
_DCG = {
    "NDCG": "Sum of grade / log2(1 + rank), where the grade of a relevant item without grades is 1,",
    "NDCG-exp2": "Sum of (2^grade - 1) / log2(1 + rank)",
}
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
        lambda part: metrics.ndcg(part.graded),
        f"right items with less weight at later ranks, relative to the best order, {GAINS['NDCG']}",
        f"{_DCG['NDCG']} over all items, divided by the same sum for the best order. {BETTER}",
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
        "Relevant items among the first {k}, divided by {k}: a query with n < {k} relevant items reaches n / {k} at "
        f"most. {BETTER}",
    ),
    "Recall": Measure(
        lambda part, k: metrics.item_recall_at_k(part.ranks, k=k),
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
        lambda part, k: metrics.ndcg(part.graded, k=k),
        f"NDCG of the first {{k}}, {GAINS['NDCG']}",
        f"{_DCG['NDCG']} over the first {{k}} items, divided by the same sum for the best order. {BETTER}",
    ),
    "NDCG-exp2": Measure(
        lambda part, k: metrics.ndcg(part.graded, k=k, gain="exp2"),
        f"NDCG of the first {{k}}, {GAINS['NDCG-exp2']}",
        f"{_DCG['NDCG-exp2']} over the first {{k}} items, divided by the same sum for the best order. {BETTER}",
    ),
    "fall-out": Measure(
        lambda part, k: metrics.fall_out_at_k(part.ranks, k=k, irrelevant=part.irrelevant),
        "share of the wrong items among the first {k}: lower is better",
        f"Irrelevant items among the first {{k}}, divided by all irrelevant items. {WORSE}",
    ),
}
# Metrics of graded relevance alone. A report of embeddings computes H-AP from its levels, see `levels`.
GRADED: dict[str, Read] = {
    "H-AP": lambda part: metrics.hierarchical_ap(part.graded),
    "NDCG-exp2": lambda part: metrics.ndcg(part.graded, gain="exp2"),
}
# Our metrics by their names in trec_eval, ir_measures and ranx, in lower case; then names that only they have.
ELSEWHERE = {
    **dict.fromkeys(("map", "ap"), "AP"),
    **dict.fromkeys(("recip_rank", "mrr", "rr"), "MRR"),
    **dict.fromkeys(("rprec", "r-precision", "r_precision"), "R-precision"),
    **dict.fromkeys(("p", "precision"), "P"),
    **dict.fromkeys(("recall", "r"), "Recall"),
    **dict.fromkeys(("success", "hit_rate"), "R"),
    **dict.fromkeys(("ndcg", "ndcg_cut"), "NDCG"),
    "ndcg_burges": "NDCG-exp2",
}
OF_RUNS = "bpref gm_map 11pt_avg iprec_at_recall iprec err rbp judged set_p set_recall set_f setp setr setf f1 num_ret"
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
    "NDCG-exp2": (
        f"right items with less weight at later ranks, relative to the best order, {GAINS['NDCG-exp2']}",
        f"{_DCG['NDCG-exp2']} over all items, divided by the same sum for the best order. {BETTER}",
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
#: Metrics of labels with several levels -> the metric of each level that they are a mean of.
OF_LEVELS = {"H-AP": "AP", "H-NDCG": "NDCG"}
#: Metrics of all pairs, and of embeddings and labels without a ranking.
OF_THE_WHOLE = ("AUC_hardest", "NMI", "AMI", "dists_intra", "dists_inter")
FNMR = "FNMR@FMR="
_FNMR = (
    "share of right pairs not above the threshold that {f} of the wrong pairs exceed: lower is better",
    "There is one threshold for all queries. A share of {f} of the irrelevant pairs is above it. The metric is the "
    f"share of the relevant pairs that are not above it. {WORSE}",
)
PARTIAL = "ROC AUC@FPR="
_PARTIAL = (
    "area under the ROC curve up to a false positive rate of {f}",
    f"Area under the ROC curve up to a false positive rate of {{f}}, divided by this rate. {BETTER}",
)
_R_AT_1 = "first item is right"


def reading(name: str, graded: bool = False) -> Read:
    """The function that computes a metric from a block of ranks, by its name in a report.

    Args:
        name: the metric.
        graded: whether it may be a metric of graded relevance alone (`GRADED`).

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
    if graded and name in GRADED:
        return GRADED[name]
    if name.startswith(PARTIAL):
        fpr = _rate(name)
        return lambda part: metrics.partial_roc_auc(part.ranks, fpr=fpr, irrelevant=part.irrelevant)
    kind, k = _with_length(name)
    if kind is None:
        raise ValueError(_unknown(name, graded))
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


@dataclass(frozen=True)
class AskedMetrics:
    """The metrics of a report of embeddings.

    Attributes:
        names: as they were asked for.
        readings: metric -> function of the ranks, one at least; also of those that `OF_LEVELS` are made of.
        rates: metric -> false match rate.

    >>> asked = AskedMetrics.of(["H-AP", "R@1", "NMI"])
    >>> list(asked.readings), asked.clusters
    (['R@1', 'AP'], True)
    """

    names: tuple[str, ...]
    readings: dict[str, Read]
    rates: dict[str, float]

    @classmethod
    def of(cls, metrics: object) -> AskedMetrics:
        """Look the names up.

        Raises:
            ValueError: this is no list of names, or a name is unknown.
        """
        names = listed(metrics, "metrics")
        rates = {name: rate for name in names if (rate := false_match_rate(name)) is not None}
        others = {*rates, *OF_LEVELS, *OF_THE_WHOLE}
        ranked = [name for name in names if name not in others]
        ranked += [of for name, of in OF_LEVELS.items() if name in names]
        return cls(tuple(names), {name: reading(name) for name in ranked or ["AP"]}, rates)

    @property
    def clusters(self) -> bool:
        """Whether k-means is needed."""
        return not {"NMI", "AMI"}.isdisjoint(self.names)

    def only(self, values: Mapping[str, V]) -> dict[str, V]:
        """Those that were asked for, in this order."""
        return {name: values[name] for name in self.names if name in values}


def needs_irrelevant(name: str) -> bool:
    """Whether a metric compares with irrelevant items: a list without one has no value of it.

    >>> needs_irrelevant("ROC AUC"), needs_irrelevant("fall-out@10"), needs_irrelevant("AP")
    (True, True, False)
    """
    return name.startswith(("ROC AUC", "fall-out@"))


def named(name: str) -> str:
    """A metric as it is printed: NDCG with its gains.

    >>> named("NDCG@10"), named("NDCG-exp2@10"), named("AP")
    ('NDCG@10, gains grade', 'NDCG-exp2@10, gains 2^grade - 1', 'AP')
    """
    gains = GAINS.get(name.partition("@")[0])
    return f"{name}, {gains}" if gains else name


def ceilings(names: Iterable[str], relevant: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """P@k -> [query] its highest possible value, for those names that some query cannot bring to 1.

    Args:
        names: metrics.
        relevant: [query] number of relevant items of each query that counts.

    >>> ceilings(["P@1", "P@100", "AP"], np.array([19]))
    {'P@100': array([0.19])}
    """
    lengths = {name: k for name in names for kind, k in [_with_length(name)] if kind == "P"}
    return {name: np.minimum(relevant, k) / k for name, k in lengths.items() if (relevant < k).any()}


def note_of_ceilings(highest: Mapping[str, str]) -> list[str]:
    """The note about highest possible values; none without one.

    Args:
        highest: name -> its highest possible value, as it is printed.
    """
    said = ", ".join(f"{name} {value}" for name, value in highest.items())
    return [f"Highest possible values, as there are fewer than k relevant items: {said}."] if highest else []


def _unknown(name: str, graded: bool) -> str:
    """The message about a name that there is not."""
    length = re.sub(r".*?([1-9]\d*|)$", r"\1", name) or "10"
    lengths = [f"{other}@{length}" for other in AT]
    bare, k = re.fullmatch(r"(.*?)(?:[@_.]([1-9]\d*))?", name).groups()  # type: ignore[union-attr]  # it always matches
    ours = ELSEWHERE.get(bare.lower())
    if ours is not None and (ours in AT if k else ours in WHOLE):
        hint = f"; did you mean {f'{ours}@{k}' if k else ours!r}?"
    elif bare.lower() in OF_RUNS.split():
        hint = ", which is computed for run files alone (rankgrad evaluate RUN --qrels QRELS)."
    else:
        hint = closest(name, [*WHOLE, *lengths])
    whole = [*WHOLE, *(GRADED if graded else ())]
    return (
        f"unknown metric {name!r}{hint} Known: {', '.join(whole)}, and with a length such as {length}: "
        f"{', '.join(lengths)}; {PARTIAL}f and {FNMR}f with a rate f"
    )


def _rate(name: str) -> float:
    try:
        return number(float(name[len(PARTIAL) :]), name, above=0, high=1)
    except ValueError:
        raise ValueError(f"{name!r} must end in a false positive rate in (0, 1], such as {PARTIAL}0.05") from None


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
    'Relevant items among the first 5, divided by 5: a query with n < 5 relevant items reaches n / 5 at most. ...'
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
