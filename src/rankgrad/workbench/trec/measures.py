"""The measures of ranked lists by name: all measures of trec_eval, and some that only ir_measures has.

A measure is a function of `JudgedLists` that returns one value for each query, for all queries at once. Sums run in the
order of the ranks, so their last bit does not depend on how a run was read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from ... import metrics
from ...common.checks import closest, number
from ...evaluation.measures import FOREIGN, NOT_HERE, OTHERS, WHOLE, ceilings, named, note_of_ceilings, reading
from ...evaluation.measures import meaning as meaning_of
from ...ranks.types import Ranks, TiedRanks
from .placing import Judgements, Placed
from .texts import Array

LEAST = 1e-5  # as in trec_eval, gm_map raises lower average precisions to this value
MOST_EXPONENTIAL = 50  # up to this grade, 2^grade - 1 is exact in float64
HIGHEST_GRADE = 4  # highest grade of ERR, as in gdeval and ir_measures


@dataclass(frozen=True, eq=False)
class Relevant:
    """The relevant documents for one lowest relevant grade. An entry is a retrieved relevant document.

    Attributes:
        level: lowest relevant grade.
        known: [query] number of documents that are judged relevant.
        query: [entry] query of each entry, in the order of the ranks.
        rank: [entry] rank, float64.
        found: [entry] number of relevant documents down to this rank, including this one; float64.
        retrieved: [query] number of relevant documents that were retrieved.
        ranks: the same for the metrics of `evaluation.measures`: of tied documents the later name is first, so every
            rule for ties has the same ranks. A document that was not retrieved has the rank infinity.
        graded: ranks of all documents of a grade above 0, or with a gain, and their gains.
    """

    level: int
    known: Array
    query: Array
    rank: Array
    found: Array
    retrieved: Array
    ranks: TiedRanks
    graded: Ranks

    @property
    def irrelevant(self) -> torch.Tensor:
        """See `RankedQueries`. No measure of lists compares with all irrelevant documents, whose number is unknown."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class JudgedLists:
    """The judged documents of a run's lists.

    Args:
        placed: ranks of the judged documents.
        judgements: all judgements.
        gains: grade -> gain for NDCG; the gain of other grades is the grade.
        early: whether recall points are computed as in trec_eval 9.
    """

    placed: Placed
    judgements: Judgements
    gains: Mapping[int, float] = field(default_factory=dict)
    early: bool = False
    _relevant: dict[int, Relevant] = field(default_factory=dict)

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(self.placed.listed)

    def sums(self, query: Array, values: Array | None = None) -> Array:
        """[query] float64, the sum of the values [entry] of each query. Without values: the number of entries."""
        return np.bincount(query, weights=values, minlength=self.queries).astype(np.float64)

    def relevant(self, level: int) -> Relevant:
        """The relevant documents: those with a grade of at least `level`."""
        if level not in self._relevant:
            query, rank, grade = self._judged
            kept = grade >= level
            query, rank = query[kept], rank[kept]
            found = counted_within(query).astype(np.float64)
            here = np.isfinite(rank)
            ranks = self._ranks(query, rank, found - 1, np.ones(len(query)))
            self._relevant[level] = Relevant(
                level=level,
                known=self.sums(query),
                query=query[here],
                rank=rank[here],
                found=found[here],
                retrieved=self.sums(query[here]),
                ranks=TiedRanks(pessimistic=ranks, optimistic=ranks, index=ranks),
                graded=self._graded,
            )
        return self._relevant[level]

    @cached_property
    def _judged(self) -> tuple[Array, Array, Array]:
        """(query, rank, grade) of all judgements, in the order of the ranks; not retrieved: infinity."""
        judged = self.judgements
        rank = np.full(len(judged.grades), np.inf)
        rank[self.placed.judgement] = self.placed.rank
        order = np.lexsort((rank, judged.query))
        return judged.query[order], rank[order], judged.grades[order]

    @cached_property
    def _graded(self) -> Ranks:
        query, rank, grade = self._judged
        gain = np.maximum(grade, 0).astype(np.float64)
        for given, worth in self.gains.items():
            gain[grade == given] = worth
        kept = gain != 0
        return self._ranks(query[kept], rank[kept], np.zeros(int(kept.sum())), gain[kept])

    def _ranks(self, query: Array, rank: Array, above: Array, gain: Array) -> Ranks:
        entry = torch.arange(len(query), device="cpu")
        at, worth, pos, neg = map(torch.from_numpy, (query, gain, above, rank - 1 - above))
        return Ranks(at, entry, worth, pos, neg, self.queries)


def counted_within(query: Array) -> Array:
    """[entry] 1, 2, 3, ... within each query; the entries of a query are consecutive.

    >>> counted_within(np.array([0, 0, 2, 2, 2])).tolist()
    [1, 2, 1, 2, 3]
    """
    place = np.arange(len(query))
    first = np.append(True, query[1:] != query[:-1]) if len(query) else np.zeros(0, bool)
    count: Array = place - np.maximum.accumulate(np.where(first, place, 0)) + 1
    return count


@dataclass(frozen=True)
class ListMeasure:
    """A measure with its parameters. `str` gives its name.

    Args:
        kind: name in `KINDS`.
        k: list length or recall point; None if the measure has neither.
        level: lowest relevant grade; None: that of the evaluation.
        options: other options by name.

    >>> str(ListMeasure("P", 5)), str(ListMeasure("err", 20)), str(ListMeasure("map", None, 2)), str(ListMeasure("rbp"))
    ('P_5', 'err_20', 'map(rel=2)', 'rbp(p=0.8)')
    """

    kind: str
    k: float | None = None
    level: int | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        known = KINDS[self.kind]
        k = "" if self.k is None else f"_{self.k:.2f}" if known.k == "recall" else f"_{self.k:.0f}"
        options: dict[str, Any] = {} if self.level is None else {"rel": self.level}
        options |= {name: self.option(name) for name in known.options if name in known.shown or self.set(name)}
        said = ",".join(
            f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in options.items()
        )
        return f"{self.kind}{k}" + (f"({said})" if said else "")

    def set(self, name: str) -> bool:
        """Whether an option is given."""
        return any(name == given for given, _ in self.options)

    def option(self, name: str) -> Any:
        """Value of an option, or its default."""
        return dict(self.options).get(name, KINDS[self.kind].options[name])

    def values(self, lists: JudgedLists, level: int) -> Array:
        """[query] float64 values of the measure.

        Args:
            lists: lists of a run.
            level: lowest relevant grade, if the measure has none.
        """
        return KINDS[self.kind].read(self, lists, lists.relevant(level if self.level is None else self.level))


Read = Callable[[ListMeasure, JudgedLists, Relevant], Array]


@dataclass(frozen=True)
class Kind:
    """The common part of all measures of one name.

    Attributes:
        read: function (measure, lists, relevant documents) -> [query] values.
        meaning: a few words, with {k} and the options in braces; "" if `ours` has them.
        k: the number after the name: "" none, "length" a list length, "length?" an optional list length, "recall" a
            recall point.
        options: other options and their defaults.
        shown: options that the name always shows.
        summary: how the values of the queries become one number.
        binary: whether the measure uses a lowest relevant grade.
        ours: its name in `evaluation.measures`, which computes and explains it; "": it is computed here alone.
    """

    read: Read
    meaning: str = ""
    k: Literal["", "length", "length?", "recall"] = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    summary: Literal["mean", "sum", "geometric"] = "mean"
    binary: bool = True
    ours: str = ""


def ours(measure: ListMeasure) -> str:
    """The name of a measure in `evaluation.measures`; "" if it is not there.

    >>> ours(ListMeasure("ndcg_cut", 10, options=(("dcg", "exp-log2"),))), ours(ListMeasure("recall", 100))
    ('NDCG-exp2@10', 'found@100')
    """
    name = KINDS[measure.kind].ours
    if name == "NDCG" and measure.option("dcg") == "exp-log2":
        name = "NDCG-exp2"
    return f"{name}@{measure.k:.0f}" if name and measure.k is not None else name


def _over(numerator: Array, denominator: Array | float) -> Array:
    """The quotient, 0 where the denominator is 0."""
    below = np.broadcast_to(np.asarray(denominator, np.float64), numerator.shape)
    return np.divide(numerator, below, out=np.zeros_like(numerator), where=below > 0)


def _upto(measure: ListMeasure, rank: Array) -> Array:
    """[entry] bool, whether the rank is at most k."""
    return np.ones(len(rank), bool) if measure.k is None else rank <= measure.k


def _bpref(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    placed, judged = lists.placed, lists.judgements
    kept = placed.grade >= 0
    query, is_relevant = placed.query[kept], placed.grade[kept] >= relevant.level
    wrong_above = (counted_within(query)[is_relevant] - relevant.found).astype(np.float64)
    known = relevant.known[relevant.query]
    wrong = lists.sums(judged.query[(judged.grades >= 0) & (judged.grades < relevant.level)])[relevant.query]
    lost = _over(np.minimum(wrong_above, known), np.minimum(wrong, known))
    return _over(lists.sums(relevant.query, 1 - lost), relevant.known)


def _interpolated_precision(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    return _precision_from(float(measure.k or 0), lists, relevant)


def _precision_from(recall: float, lists: JudgedLists, relevant: Relevant) -> Array:
    """[query] highest precision at a rank with at least this recall."""
    exact = recall * relevant.known
    # trec_eval 9 adds .9 and truncates; 10 rounds
    needed = np.floor(exact + 0.9) if lists.early else np.floor(exact + 0.5)
    kept = relevant.found >= np.maximum(needed, 1)[relevant.query]
    precision = np.zeros(lists.queries)
    np.maximum.at(precision, relevant.query[kept], relevant.found[kept] / relevant.rank[kept])
    return precision


def _eleven_points(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    points = [_precision_from(tenth / 10, lists, relevant) for tenth in range(11)]
    total: Array = np.add.accumulate(points[::-1])[-1] / 11
    return total


def _expected_reciprocal_rank(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    placed, highest = lists.placed, measure.option("max_grade")
    if len(lists.judgements.grades) and lists.judgements.grades.max() > highest:
        raise ValueError(
            f"{measure} has the highest grade {highest:g}, but the judgements have grades up to "
            f"{lists.judgements.grades.max()}: pass the highest grade of the scale, such as err(max_grade=5)@20"
        )
    kept = (placed.grade > 0) & _upto(measure, placed.rank)
    query, rank = placed.query[kept], placed.rank[kept].astype(np.float64)
    stops = np.exp2(placed.grade[kept] - highest) - np.exp2(-highest)  # 2^1024 overflows
    place = counted_within(query)
    order = np.argsort(place, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(place)[1:]))
    total, goes_on = np.zeros(lists.queries), np.ones(lists.queries)
    for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):  # rank by rank
        here = order[first:last]
        total[query[here]] += stops[here] * goes_on[query[here]] / rank[here]
        goes_on[query[here]] *= 1 - stops[here]
    return total


def _rank_biased_precision(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    p = measure.option("p")
    kept = _upto(measure, relevant.rank)
    total: Array = (1 - p) * lists.sums(relevant.query[kept], p ** (relevant.rank[kept] - 1))
    return total


def _judged(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    placed = lists.placed
    inside = lists.sums(placed.query[_upto(measure, placed.rank) & (placed.grade >= 0)])
    return _over(inside, placed.listed if measure.k is None else np.minimum(placed.listed, measure.k))


def _f(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    precision, recall = _over(relevant.retrieved, lists.placed.listed), _over(relevant.retrieved, relevant.known)
    weight = measure.option("beta")
    return _over((weight + 1) * precision * recall, weight * precision + recall)


def _ret(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    return lists.placed.listed.astype(np.float64)


def _shared(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    """A metric of `evaluation.measures`."""
    return np.asarray(reading(ours(measure), graded=True)(relevant).numpy())


def _average_precision(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    return np.asarray(metrics.average_precision(relevant.ranks).numpy())


def _cut_average_precision(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    k = int(measure.k or 1)
    return np.asarray(metrics.average_precision_at_k(relevant.ranks, k=k, over="all").numpy())


def _ndcg(measure: ListMeasure, lists: JudgedLists, relevant: Relevant) -> Array:
    highest = lists.judgements.grades.max(initial=0)
    if measure.option("dcg") == "exp-log2" and highest > MOST_EXPONENTIAL:
        raise ValueError(
            f"{measure} has the gain 2^grade - 1, so grades must be at most {MOST_EXPONENTIAL}; got {highest}. Use "
            "smaller grades"
        )
    return _shared(measure, lists, relevant)


KINDS: dict[str, Kind] = {
    "num_q": Kind(lambda m, lists, r: np.ones(lists.queries), "queries", summary="sum", binary=False),
    "num_ret": Kind(_ret, "documents retrieved", summary="sum", binary=False),
    "num_rel": Kind(lambda m, lists, r: r.known, "relevant documents", summary="sum"),
    "num_rel_ret": Kind(lambda m, lists, r: r.retrieved, "relevant documents retrieved", summary="sum"),
    "num_nonrel_judged_ret": Kind(
        lambda m, lists, r: lists.sums(lists.placed.query[lists.placed.grade >= 0]) - r.retrieved,
        "retrieved documents that are judged not relevant",
        summary="sum",
    ),
    "map": Kind(_shared, ours="AP"),
    "map_cut": Kind(
        _cut_average_precision, "map of the first {k} documents, divided by all relevant ones as map is", "length"
    ),
    "gm_map": Kind(
        lambda m, lists, r: np.maximum(_average_precision(m, lists, r), LEAST),
        f"geometric mean of the queries' map, each at least {LEAST}",
        summary="geometric",
    ),
    "Rprec": Kind(_shared, ours="R-precision"),
    "bpref": Kind(_bpref, "mean share of the judged irrelevant documents that are not above a relevant one"),
    "recip_rank": Kind(_shared, k="length?", ours="MRR"),
    "iprec_at_recall": Kind(
        _interpolated_precision, "highest precision at a rank with a recall of at least {k:g}", "recall"
    ),
    "11pt_avg": Kind(_eleven_points, "mean of iprec_at_recall over the recalls 0, .1, ..., 1"),
    "P": Kind(_shared, k="length", ours="P"),
    "recall": Kind(_shared, k="length", ours="found"),
    "success": Kind(_shared, k="length", ours="R"),
    "ndcg": Kind(_ndcg, options={"dcg": "log2"}, binary=False, ours="NDCG"),
    "ndcg_cut": Kind(_ndcg, k="length", options={"dcg": "log2"}, binary=False, ours="NDCG"),
    "err": Kind(
        _expected_reciprocal_rank,
        "expected 1 / rank at which a reader stops, with probability (2^grade - 1) / 2^{max_grade:g} at each document",
        "length?",
        options={"max_grade": HIGHEST_GRADE},
        binary=False,
    ),
    "rbp": Kind(
        _rank_biased_precision,
        "share of relevant documents among those read, if a reader continues with probability {p:g}",
        "length?",
        options={"p": 0.8},
        shown=("p",),
    ),
    "judged": Kind(_judged, "share of judged documents among the first {k}", "length?", binary=False),
    "set_P": Kind(lambda m, lists, r: _over(r.retrieved, lists.placed.listed), "precision of the whole list"),
    "set_recall": Kind(lambda m, lists, r: _over(r.retrieved, r.known), "recall of the whole list"),
    "set_F": Kind(_f, "harmonic mean of set_P and set_recall", options={"beta": 1.0}),
}
# Names of ir_measures and ranx in lower case -> our name without a number after it, and with one.
ALIASES: dict[str, tuple[str, str]] = {
    "ap": ("map", "map_cut"),
    "map": ("map", "map_cut"),
    "ndcg": ("ndcg", "ndcg_cut"),
    "rr": ("recip_rank", "recip_rank"),
    "mrr": ("recip_rank", "recip_rank"),
    "r": ("", "recall"),
    "found": ("", "recall"),
    "recall": ("set_recall", "recall"),
    "precision": ("set_P", "P"),
    "f1": ("set_F", ""),
    "p": ("", "P"),
    "prec": ("set_P", "P"),
    "hit_rate": ("", "success"),
    "r-precision": ("Rprec", ""),
    "r_precision": ("Rprec", ""),
    "iprec": ("", "iprec_at_recall"),
    "numret": ("num_ret", ""),
    "numrel": ("num_rel", ""),
    "numq": ("num_q", ""),
    "numrelret": ("num_rel_ret", ""),
    "setp": ("set_P", ""),
    "setr": ("set_recall", ""),
    "setf": ("set_F", ""),
    **{name.lower(): (name, name) for name in KINDS if name.lower() not in ("map", "ndcg", "p", "recall")},
}
COUNTS = ("num_q", "num_ret", "num_rel", "num_rel_ret")
OFFICIAL = (  # the measures that trec_eval prints by default
    *COUNTS,
    *("map", "gm_map", "Rprec", "bpref", "recip_rank"),
    *(f"iprec_at_recall_{tenth / 10:.2f}" for tenth in range(11)),
    *(f"P_{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
)
USUAL = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100", "Rprec", "bpref", "judged_10")


def asked(names: str | Iterable[str]) -> list[ListMeasure]:
    """The measures with these names; "official" are the measures that trec_eval prints by default.

    Names are those of trec_eval (ndcg_cut_10, P_5, recall.100,1000) or of ir_measures and ranx (nDCG@10, P(rel=2)@5).

    Raises:
        ValueError: a name is unknown, or a number or option is missing, not allowed or out of range.

    >>> [str(measure) for measure in asked(["nDCG@10", "P.5,10", "AP(rel=2)", "rbp(p=0.9)", "MRR@10"])]
    ['ndcg_cut_10', 'P_5', 'P_10', 'map(rel=2)', 'rbp(p=0.9)', 'recip_rank_10']
    """
    if isinstance(names, str):
        raise ValueError(f"measures must be a list of names, such as ['map', 'nDCG@10']; got {names!r}")
    measures: dict[str, ListMeasure] = {}
    for name in names:
        for measure in asked(OFFICIAL) if name == "official" else _named(name):
            measures.setdefault(str(measure), measure)
    if not measures:
        raise ValueError("measures must have at least one name, such as ['map', 'nDCG@10']; got none")
    return list(measures.values())


def _named(name: str) -> list[ListMeasure]:
    if re.fullmatch(r"rbp\.\d+", name):
        raise ValueError(
            f"measure {name!r} is ambiguous: write {name.replace('.', '(p=0.')}) or {name.replace('.', '@')}"
        )
    name = re.sub(r"(?i)^ndcg(_burges|-exp2)", "ndcg(dcg=exp-log2)", name)
    options = re.findall(r"\(([^()]*)\)", name)
    bare = re.sub(r"\([^()]*\)", "", name).strip()
    numbers: list[float | None] = [None]
    behind = re.fullmatch(r"(.+?)[@_.]([0-9.][0-9.,]*)", bare)
    places = ALIASES.get(bare.lower())
    if places is None and behind:
        places = ALIASES.get(behind[1].lower())
        numbers = [_length(part, name) for part in behind[2].split(",")]
    if places is None:
        raise ValueError(_unknown(name, behind[1] if behind else bare, f"_{behind[2]}" if behind else ""))
    with_number = numbers[0] is not None
    kind = places[with_number] or places[not with_number]  # `_checked` says what the number must be
    return [_checked(ListMeasure(kind, number, *_options(kind, ",".join(options), name)), name) for number in numbers]


def _unknown(name: str, bare: str, number: str) -> str:
    """The message about a measure that there is not.

    Args:
        name: as it was given.
        bare: the same without number and options.
        number: the end with the number, or "".
    """
    lengths = [f"{known}_10" for known, what in KINDS.items() if what.k.startswith("length")]
    whole = [known for known, what in KINDS.items() if what.k in ("", "length?")]
    known = f"Known: {', '.join(whole)}, {', '.join(lengths)}, iprec_at_recall_0.10; the number may be any"
    if bare.lower() in FOREIGN:
        return f"unknown measure {name!r}, {NOT_HERE}. {known}"
    if name.lower() in {each.lower() for each in (*WHOLE, *OTHERS)}:
        return f"unknown measure {name!r}, which is computed for embeddings alone (rankgrad evaluate RUN). {known}"
    fits = ("", "length?") if not number else ("recall",) if "." in number else ("length", "length?")
    kinds = {alias: places[bool(number)] for alias, places in ALIASES.items()}
    taken = [alias + number for alias, kind in kinds.items() if kind and KINDS[kind].k in fits]
    return f"unknown measure {name!r}{closest(bare + number, [*whole, *taken], alike=0.7)} {known}"


def _length(text: str, name: str) -> float:
    try:
        return number(float(text), name)
    except ValueError:
        raise ValueError(f"measure {name!r}: {text!r} is not a finite number") from None


def _options(kind: str, text: str, name: str) -> tuple[int | None, tuple[tuple[str, Any], ...]]:
    level: int | None = None
    options: list[tuple[str, Any]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (word.strip(" '\"") for word in part.partition("="))
        known = (["rel"] if KINDS[kind].binary else []) + list(KINDS[kind].options)
        if key not in known:
            raise ValueError(f"measure {name!r} has no option {key!r}; it has {', '.join(known) or 'none'}")
        if key == "dcg":
            if value not in ("log2", "exp-log2"):
                raise ValueError(f"measure {name!r}: dcg must be log2 or exp-log2; got {value!r}")
            options.append((key, value))
        elif key == "rel":
            lowest = _length(value, name)
            if lowest != int(lowest):
                raise ValueError(f"measure {name!r}: rel is the lowest relevant grade, an integer; got {value}")
            level = int(lowest)
        else:
            options.append((key, _length(value, name)))
    return level, tuple(options)


def _checked(measure: ListMeasure, name: str) -> ListMeasure:
    kind = KINDS[measure.kind]
    if kind.k == "recall":
        fits = measure.k is not None and 0 <= measure.k <= 1
        wanted = "a recall, 0 to 1,"
    elif kind.k:
        fits = kind.k == "length?" if measure.k is None else measure.k >= 1 and measure.k == int(measure.k)
        wanted = "a list length, an integer >= 1,"
    else:
        fits, wanted = measure.k is None, "no number"
    if not fits:
        raise ValueError(
            f"measure {name!r} needs {wanted} after its name" + ("" if measure.k is None else f"; got {measure.k:g}")
        )
    p = dict(measure.options).get("p", 0.5)
    if not 0 < p < 1:
        raise ValueError(f"measure {name!r}: p is a probability and must be between 0 and 1; got {p:g}")
    return measure


def meaning(measure: ListMeasure) -> str:
    """Meaning of a measure, in a few words.

    >>> meaning(ListMeasure("P", 5))
    'share of right ones among the first 5'
    """
    kind = KINDS[measure.kind]
    text = meaning_of(ours(measure))
    if text:
        return text if measure.level is None else f"{text}; relevant from grade {measure.level}"
    k = "whole list" if measure.k is None else measure.k if kind.k == "recall" else int(measure.k)
    text = kind.meaning.replace("the first {k}", "all") if measure.k is None else kind.meaning
    said = text.format(k=k, **{name: measure.option(name) for name in kind.options})
    return said if measure.level is None else f"{said}; relevant from grade {measure.level}"


def highest(measures: Sequence[ListMeasure], judgements: Judgements, level: int) -> list[str]:
    """The note on means of P that cannot reach 1, over all judged queries.

    Args:
        measures: the measures.
        judgements: the judgements.
        level: lowest relevant grade, if a measure has none.
    """
    found = {}
    for measure in measures:
        relevant = judgements.query[judgements.grades >= (level if measure.level is None else measure.level)]
        for most in ceilings([ours(measure)], np.bincount(relevant, minlength=len(judgements.queries))).values():
            found[str(measure)] = f"{most.mean():.4f}"
    return note_of_ceilings(found)


def printed_name(name: str) -> str:
    """A measure as a table prints it: NDCG with its gains.

    >>> printed_name("ndcg_cut_10"), printed_name("map")
    ('ndcg_cut_10, gains grade', 'map')
    """
    [measure] = asked([name])
    _, comma, gains = named(ours(measure)).partition(", ")
    return f"{name}{comma}{gains}"


def summed(measure: ListMeasure, values: Array) -> float:
    """One number for all queries, summed in their order as trec_eval does.

    Args:
        measure: the measure.
        values: [query] its values.
    """
    kind = KINDS[measure.kind].summary
    total = float(np.add.accumulate(np.log(values) if kind == "geometric" else values)[-1])
    if kind == "sum":
        return total
    return float(np.exp(total / len(values))) if kind == "geometric" else total / len(values)


def averaged(measures: Sequence[ListMeasure]) -> list[ListMeasure]:
    """The measures that are means over the queries."""
    return [measure for measure in measures if KINDS[measure.kind].summary == "mean"]
