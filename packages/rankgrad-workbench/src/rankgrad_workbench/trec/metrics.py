"""The metrics of lists, as trec_eval defines them, and some that only ir_measures has.

`rankgrad.metrics` has the same values for scores in memory; here ranks come from files, and numpy is enough. A metric
is a function of `JudgedLists` that returns one value for each query, for all queries at once. Sums run in the order of
the ranks, so their last bit does not depend on how a run was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from .judged import JudgedLists, Relevant, counted_within
from .lists import Array

LEAST = 1e-5  # as in trec_eval, gm_map raises lower average precisions to this value
MOST_EXPONENTIAL = 50  # up to this grade, 2^grade - 1 is exact in float64
HIGHEST_GRADE = 4  # highest grade of ERR, as in gdeval and ir_measures
GAINS = {"log2": "gains grade", "exp-log2": "gains 2^grade - 1"}  # option dcg of NDCG -> how the gains are printed


@dataclass(frozen=True)
class ListMetric:
    """A metric with its parameters. `str` gives its name.

    Args:
        kind: name in `KINDS`.
        k: list length or recall point; None if the metric has neither.
        level: lowest relevant grade; None: that of the evaluation.
        options: other options by name.

    >>> str(ListMetric("P", 5)), str(ListMetric("err", 20)), str(ListMetric("map", None, 2)), str(ListMetric("rbp"))
    ('P_5', 'err_20', 'map(rel=2)', 'rbp(p=0.8)')
    """

    kind: str
    k: float | None = None
    level: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        known, given = KINDS[self.kind], dict(self.options)
        k = "" if self.k is None else f"_{self.k:.2f}" if known.k == "recall" else f"_{self.k:.0f}"
        shown: dict[str, Any] = {} if self.level is None else {"rel": self.level}
        shown |= {name: self.option(name) for name in known.options if name in given or name == "p"}
        said = ",".join(f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in shown.items())
        return f"{self.kind}{k}" + (f"({said})" if said else "")

    @property
    def printed(self) -> str:
        """The name in a table: NDCG with its gains.

        >>> ListMetric("ndcg_cut", 10).printed, ListMetric("map").printed
        ('ndcg_cut_10, gains grade', 'map')
        """
        return f"{self}, {GAINS[self.option('dcg')]}" if "dcg" in KINDS[self.kind].options else str(self)

    @property
    def meaning(self) -> str:
        """The meaning in a few words.

        >>> ListMetric("P", 5).meaning
        'share of relevant documents among the first 5'
        """
        kind = KINDS[self.kind]
        words: dict[str, Any] = {name: self.option(name) for name in kind.options}
        words |= {"first": "the whole list" if self.k is None else f"the first {self.k:.0f}", "k": self.k}
        words["gains"] = GAINS.get(words.get("dcg", ""), "")
        return kind.meaning.format(**words) + ("" if self.level is None else f"; relevant from grade {self.level}")

    def option(self, name: str) -> Any:
        """Value of an option, or its default."""
        return dict(self.options).get(name, KINDS[self.kind].options[name])

    def upto(self, rank: Array) -> Array:
        """[entry] bool, whether the rank is at most k."""
        return np.ones(len(rank), bool) if self.k is None else rank <= self.k

    def values(self, lists: JudgedLists, level: int) -> Array:
        """[query] float64 values of the metric.

        Args:
            lists: lists of a run.
            level: lowest relevant grade, if the metric has none.
        """
        return KINDS[self.kind].compute(self, lists, lists.relevant(level if self.level is None else self.level))

    def summed(self, values: Array) -> float:
        """One number for all queries, summed in their order as trec_eval does.

        Args:
            values: [query] values of the metric.
        """
        geometric = self.kind == "gm_map"
        total = float(np.add.accumulate(np.log(values) if geometric else values)[-1])
        if self.kind.startswith("num_"):
            return total
        return float(np.exp(total / len(values))) if geometric else total / len(values)

    @property
    def is_mean(self) -> bool:
        """Whether the one number is a mean over the queries, and neither a sum nor a geometric mean."""
        return self.kind != "gm_map" and not self.kind.startswith("num_")


Compute = Callable[[ListMetric, JudgedLists, Relevant], Array]


@dataclass(frozen=True)
class MetricKind:
    """The common part of all metrics of one name.

    Attributes:
        name: its name in trec_eval.
        compute: function (metric, lists, relevant documents) -> [query] values.
        meaning: a few words, with {first}, {k} and the options in braces.
        k: the number after the name: "" none, "length" a list length, "length?" an optional list length, "recall" a
            recall point.
        names: other names, of ir_measures and ranx, in lower case.
        options: other options and their defaults.
    """

    name: str
    compute: Compute
    meaning: str
    k: Literal["", "length", "length?", "recall"] = ""
    names: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """All names, in lower case."""
        return self.name.lower(), *self.names.split()


def _over(numerator: Array, denominator: Array | float) -> Array:
    """The quotient, 0 where the denominator is 0."""
    below = np.broadcast_to(np.asarray(denominator, np.float64), numerator.shape)
    return np.divide(numerator, below, out=np.zeros_like(numerator), where=below > 0)


def _hits(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    """Number of relevant documents among the first k, or in the whole list."""
    return lists.sums(relevant.query[metric.upto(relevant.rank)])


def _average_precision(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    kept = metric.upto(relevant.rank)
    precision = relevant.found[kept] / relevant.rank[kept]
    return _over(lists.sums(relevant.query[kept], precision), relevant.known)


def _wrong(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    return lists.sums(lists.query[lists.grade >= 0]) - _hits(metric, lists, relevant)


def _at_least(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    return np.maximum(_average_precision(metric, lists, relevant), LEAST)


def _precision(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    return _over(_hits(metric, lists, relevant), lists.listed if metric.k is None else metric.k)


def _success(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    return np.minimum(_hits(metric, lists, relevant), 1)


def _r_precision(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    return _over(lists.sums(relevant.query[relevant.rank <= relevant.known[relevant.query]]), relevant.known)


def _recall(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    return _over(_hits(metric, lists, relevant), relevant.known)


def _reciprocal_rank(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    kept = (relevant.found == 1) & metric.upto(relevant.rank)
    return lists.sums(relevant.query[kept], 1 / relevant.rank[kept])


def _ndcg(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    judged = lists.judgements
    highest = judged.grade.max(initial=0)
    exponential = metric.option("dcg") == "exp-log2"
    if exponential and highest > MOST_EXPONENTIAL:
        raise ValueError(
            f"{metric} has the gain 2^grade - 1, so grades must be at most {MOST_EXPONENTIAL}; got {highest}. Use "
            "smaller grades"
        )

    def gains(grade: Array) -> Array:
        gain = np.maximum(grade, 0).astype(np.float64)
        for given, worth in lists.gains.items():
            gain[grade == given] = worth
        return np.exp2(gain) - 1 if exponential else gain

    def dcg(query: Array, gain: Array, rank: Array) -> Array:
        kept = metric.upto(rank)
        return lists.sums(query[kept], gain[kept] / np.log2(1 + rank[kept]))

    best = np.maximum(gains(judged.grade), 0)  # a gain below 0 is no part of the best order
    order = np.lexsort((-best, judged.query))
    ideal = dcg(judged.query[order], best[order], counted_within(judged.query))
    return _over(dcg(lists.query, gains(lists.grade), lists.rank), ideal)


def _bpref(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    judged, kept = lists.judgements, lists.grade >= 0
    query, is_relevant = lists.query[kept], lists.grade[kept] >= relevant.level
    wrong_above = (counted_within(query)[is_relevant] - relevant.found).astype(np.float64)
    known = relevant.known[relevant.query]
    wrong = lists.sums(judged.query[(judged.grade >= 0) & (judged.grade < relevant.level)])[relevant.query]
    lost = _over(np.minimum(wrong_above, known), np.minimum(wrong, known))
    return _over(lists.sums(relevant.query, 1 - lost), relevant.known)


def _precision_from(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    """[query] highest precision at a rank with at least this recall."""
    # trec_eval 9 adds .9 and truncates; 10 rounds
    needed = np.floor((metric.k or 0) * relevant.known + (0.9 if lists.early else 0.5))
    kept = relevant.found >= np.maximum(needed, 1)[relevant.query]
    precision = np.zeros(len(lists.listed))
    np.maximum.at(precision, relevant.query[kept], relevant.found[kept] / relevant.rank[kept])
    return precision


def _eleven_points(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    points = [_precision_from(replace(metric, k=tenth / 10), lists, relevant) for tenth in range(11)]
    total: Array = np.add.accumulate(points[::-1])[-1] / 11
    return total


def _expected_reciprocal_rank(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    highest, most = metric.option("max_grade"), lists.judgements.grade.max(initial=0)
    if most > highest:
        raise ValueError(
            f"{metric} has the highest grade {highest:g}, but the judgements have grades up to {most}: pass the "
            "highest grade of the scale, such as err(max_grade=5)@20"
        )
    kept = (lists.grade > 0) & metric.upto(lists.rank)
    stops = np.exp2(lists.grade[kept] - highest) - np.exp2(-highest)  # 2^1024 overflows
    total, goes_on = np.zeros(len(lists.listed)), np.ones(len(lists.listed))
    for query, rank, stop in zip(lists.query[kept].tolist(), lists.rank[kept].tolist(), stops, strict=True):
        total[query] += stop * goes_on[query] / rank
        goes_on[query] *= 1 - stop
    return total


def _rank_biased_precision(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    p, kept = metric.option("p"), metric.upto(relevant.rank)
    total: Array = (1 - p) * lists.sums(relevant.query[kept], p ** (relevant.rank[kept] - 1))
    return total


def _judged(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    inside = lists.sums(lists.query[metric.upto(lists.rank) & (lists.grade >= 0)])
    return _over(inside, lists.listed if metric.k is None else np.minimum(lists.listed, metric.k))


def _f(metric: ListMetric, lists: JudgedLists, relevant: Relevant) -> Array:
    precision, recall = _precision(metric, lists, relevant), _recall(metric, lists, relevant)
    weight = metric.option("beta")
    return _over((weight + 1) * precision * recall, weight * precision + recall)


_NDCG = "relevant documents with less weight at later ranks, relative to the best order, {gains}"
_STOPS = "expected 1 / rank at which a reader stops, with probability (2^grade - 1) / 2^{max_grade:g} at each document"
_READS = "share of relevant documents among those read, if a reader continues with probability {p:g}"
_MAP_CUT = "map of {first}, divided by all relevant ones as map is"
_RPREC = "share of relevant documents among the first R, R = number of relevant ones"
_IPREC = "highest precision at a rank with a recall of at least {k}"
_WRONG = "mean share of the judged irrelevant documents that are not above a relevant one"
_KINDS = (
    MetricKind("num_q", lambda m, lists, r: np.ones(len(lists.listed)), "queries", "", "numq"),
    MetricKind("num_ret", lambda m, lists, r: lists.listed.astype(np.float64), "documents retrieved", "", "numret"),
    MetricKind("num_rel", lambda m, lists, r: r.known, "relevant documents", "", "numrel"),
    MetricKind("num_rel_ret", _hits, "relevant documents retrieved", "", "numrelret"),
    MetricKind("num_nonrel_judged_ret", _wrong, "retrieved documents that are judged not relevant"),
    MetricKind("map", _average_precision, "average precision over {first}", "", "ap"),
    MetricKind("map_cut", _average_precision, _MAP_CUT, "length", "ap map"),
    MetricKind("gm_map", _at_least, f"geometric mean of the queries' map, each at least {LEAST}"),
    MetricKind("Rprec", _r_precision, _RPREC, "", "r-precision r_precision"),
    MetricKind("bpref", _bpref, _WRONG),
    MetricKind(
        "recip_rank", _reciprocal_rank, "1 / rank of the first relevant document in {first}", "length?", "rr mrr"
    ),
    MetricKind("iprec_at_recall", _precision_from, _IPREC, "recall", "iprec"),
    MetricKind("11pt_avg", _eleven_points, "mean of iprec_at_recall over the recalls 0, .1, ..., 1"),
    MetricKind("P", _precision, "share of relevant documents among {first}", "length", "prec precision"),
    MetricKind("recall", _recall, "share of the relevant documents that are among {first}", "length", "r found"),
    MetricKind("success", _success, "whether a relevant document is among {first}", "length", "hit_rate"),
    MetricKind("ndcg", _ndcg, _NDCG, options={"dcg": "log2"}),
    MetricKind("ndcg_cut", _ndcg, "NDCG of {first}, {gains}", "length", "ndcg", {"dcg": "log2"}),
    MetricKind("err", _expected_reciprocal_rank, _STOPS, "length?", options={"max_grade": HIGHEST_GRADE}),
    MetricKind("rbp", _rank_biased_precision, _READS, "length?", options={"p": 0.8}),
    MetricKind("judged", _judged, "share of judged documents among {first}", "length?"),
    MetricKind("set_P", _precision, "precision of {first}", "", "setp prec precision"),
    MetricKind("set_recall", _recall, "recall of {first}", "", "setr recall"),
    MetricKind("set_F", _f, "harmonic mean of set_P and set_recall", "", "setf f1", {"beta": 1.0}),
)
KINDS = {kind.name: kind for kind in _KINDS}
#: Kinds of metrics that have no lowest relevant grade.
GRADED = ("num_q", "num_ret", "ndcg", "ndcg_cut", "err", "judged")
