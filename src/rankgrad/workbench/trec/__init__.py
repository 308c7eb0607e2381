"""Runs and judgements -> `Evaluation`: the measures of trec_eval and ir_measures, with intervals and paired tests.

A run has a list of documents with scores for each query. Judgements are the grades of documents: which are relevant,
and how much. Both come from files (`reading`), dictionaries, columns or matrices (`rows`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from ...common.checks import coverage, integer, number, one_of, unknown
from ...common.files import shown
from .comparison import Difference, differences, intervals, pairs_of
from .fusion import fuse, write_run
from .given import Groups, Run, groups_of, runs_of, source
from .measures import USUAL, JudgedLists, ListMeasure, asked, averaged, highest, meaning, summed
from .placing import Judgements, Placed, placed, some
from .reading import QRELS
from .result import Evaluation
from .rows import Source, from_columns, from_mapping, from_matrix, from_scores
from .texts import Array

__all__ = [
    "Difference",
    "Evaluation",
    "evaluate",
    "from_columns",
    "from_mapping",
    "from_matrix",
    "from_scores",
    "fuse",
    "write_run",
]

Columns = Mapping[str, Array]

PADDED = 0.05  # if more than this fraction of the documents has the lowest score, it may be padding


def evaluate(
    runs: Run | Sequence[str | os.PathLike[str]] | Mapping[str, Run],
    qrels: Run,
    measures: Sequence[str] = USUAL,
    *,
    level: int = 1,
    gains: Mapping[int, float] | None = None,
    missing: Literal["zero", "skip"] = "zero",
    depth: int | None = None,
    judged_only: bool = False,
    groups: Groups | None = None,
    baseline: str | None = None,
    bootstrap: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    trec_eval: Literal[9, 10] = 10,
) -> Evaluation:
    """Measure ranked lists against judgements, with the numbers of trec_eval.

    Documents are ranked by their scores, highest first. Of equal scores the later name (in the order of bytes) comes
    first. Documents without judgement count as irrelevant, except in bpref. Relevant documents that were not retrieved
    count as missed.

    Args:
        runs: name -> run, or one or several files, named after the files. A run is a file (`reading.read`), a mapping
            query -> document -> score, or a result of `from_columns`, `from_matrix` or `from_scores`.
        qrels: judgements in one of these forms, with integer grades instead of scores.
        measures: names, see `measures.asked`; "official" are the measures that trec_eval prints by default.
        level: lowest relevant grade. A measure may have its own: "AP(rel=2)".
        gains: grade -> gain for ndcg; the gain of other grades is the grade.
        missing: value of a judged query without a list. "zero": 0 for every measure (trec_eval -c). "skip": the query
            is left out of the means of this run and of its tests.
        depth: keep only this many documents of a list (trec_eval -M).
        judged_only: remove documents without judgement from the lists (trec_eval -J).
        groups: query -> group, or a csv with the columns query and group, in which a query may occur several times.
        baseline: a run; each other run is tested against this one only. None: all pairs of runs are tested.
        bootstrap: number of resamples of the queries for the intervals; 0: no intervals.
        confidence: coverage of the intervals.
        seed: seed of the bootstrap.
        trec_eval: version whose numbers are computed. 10 compares scores in double precision and rounds recall points.
            9, and pytrec_eval, compares in single precision, and truncates recall points after adding .9.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, a document occurs twice in a list, a score is not a number, a measure is unknown,
            or no query is in both; the message has file and line.
        TypeError: a run has another type.

    >>> run = {"q1": {"d1": 0.9, "d2": 0.8, "d3": 0.7}, "q2": {"d1": 0.5}}
    >>> found = evaluate({"mine": run}, {"q1": {"d2": 1}, "q2": {"d1": 2, "d9": 1}}, ["map", "nDCG@10"], bootstrap=0)
    >>> found.values["mine"]["map"], round(found.by_query("mine")["q2"]["ndcg_cut_10"], 4)
    (0.5, 0.7602)
    """
    wanted = asked(measures)
    protocol = _Protocol(
        level=integer(level, "level is the lowest relevant grade", low=1),
        gains={
            integer(grade, "a grade in gains"): number(gain, f"the gain of grade {grade!r}")
            for grade, gain in (gains or {}).items()
        },
        missing=missing,
        depth=None if depth is None else integer(depth, "depth is a number of documents", low=1),
        judged_only=judged_only,
        baseline=baseline,
        bootstrap=integer(bootstrap, "bootstrap is a number of resamples", low=0),
        confidence=coverage(confidence),
        seed=integer(seed, "seed is the seed of the bootstrap", low=0),
        trec_eval=trec_eval,
    )
    sources = runs_of(runs)
    if baseline is not None and baseline not in sources:
        raise ValueError(unknown("baseline", baseline, sources))
    judgements = Judgements.of(source(qrels, "qrels", QRELS))
    of_group = {} if groups is None else groups_of(groups, judgements.queries)

    values, per_query, notes = {}, {}, []
    for name, run in sources.items():
        shown_name = name if len(sources) > 1 else ""
        values[name], per_query[name], about = _measured(run, shown_name, judgements, wanted, protocol)
        notes += about
    means = [str(measure) for measure in averaged(wanted)]
    everyone = np.arange(len(judgements.queries))
    tested, tested_in_groups, untested = _tests(per_query, means, everyone, of_group, protocol)
    return Evaluation(
        runs=tuple(sources),
        measures=tuple(map(str, wanted)),
        queries=judgements.queries,
        values=values,
        per_query=per_query,
        intervals={name: protocol.intervals(columns, means, everyone) for name, columns in per_query.items()},
        differences=tuple(tested),
        groups=of_group,
        of_groups=tuple(_group_rows(per_query, means, of_group, protocol)),
        between_groups=tuple(tested_in_groups),
        meanings={str(measure): meaning(measure) for measure in wanted},
        settings=protocol.settings() | {"judgements": len(judgements.grades)},
        notes=(
            *notes,
            *_unanswerable(judgements, protocol.level),
            *highest(wanted, judgements, protocol.level),
            *untested,
        ),
    )


@dataclass(frozen=True)
class _Protocol:
    """How runs are measured and compared: see the arguments of `evaluate`."""

    level: int
    gains: Mapping[int, float]
    missing: str
    depth: int | None
    judged_only: bool
    baseline: str | None
    bootstrap: int
    confidence: float
    seed: int
    trec_eval: int

    def __post_init__(self) -> None:
        one_of(self.missing, "missing", ("zero", "skip"))
        one_of(self.trec_eval, "trec_eval", (9, 10))

    def settings(self) -> dict[str, Any]:
        """All fields, in a form that json can write."""
        return asdict(self) | {"gains": {str(grade): gain for grade, gain in self.gains.items()}}

    def intervals(self, columns: Columns, means: Sequence[str], rows: Array) -> dict[str, tuple[float, float]]:
        """Measure -> interval of its mean over some queries."""
        return intervals(columns, means, rows, self.bootstrap, self.confidence, self.seed)


def _measured(
    run: Source, name: str, judgements: Judgements, wanted: Sequence[ListMeasure], protocol: _Protocol
) -> tuple[dict[str, float], dict[str, Array], list[str]]:
    """The values and the columns of one run, as in `Evaluation`, and notes about the run."""
    single = protocol.trec_eval == 9
    where = placed(run, judgements, single=single)
    notes = _about(name, where, judgements, protocol.missing)
    counted = where.listed > 0 if protocol.missing == "skip" else np.ones(len(where.listed), bool)
    where = where if protocol.depth is None else where.cut(protocol.depth)
    where = where.judged_only() if protocol.judged_only else where
    lists = JudgedLists(where, judgements, protocol.gains, early=single)
    columns = {str(measure): measure.values(lists, protocol.level) for measure in wanted}
    values = {str(measure): summed(measure, columns[str(measure)][counted]) for measure in wanted}
    return values, {each: np.where(counted, column, np.nan) for each, column in columns.items()}, notes


def _unanswerable(judgements: Judgements, level: int) -> list[str]:
    """Notes about queries that have no relevant document."""
    queries = len(judgements.queries)
    relevant = np.bincount(judgements.query[judgements.grades >= level], minlength=queries)
    count = int((relevant == 0).sum())
    if not count:
        return []
    return [f"Judged queries without a relevant document: {count:,} of {queries:,}. They count 0, as in trec_eval."]


def _tests(
    per_query: Mapping[str, Columns],
    means: Sequence[str],
    everyone: Array,
    groups: Mapping[str, Array],
    protocol: _Protocol,
) -> tuple[list[Difference], list[Difference], list[str]]:
    """The differences between the runs, over all queries and in each group, and a note if tests are not possible."""
    pairs = pairs_of(list(per_query), protocol.baseline)
    if not pairs:
        return [], [], []
    test = partial(differences, per_query, means, pairs, confidence=protocol.confidence)
    try:
        tested, by_group = test(groups={"": everyone}), test(groups=groups)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("scipy"):
            raise
        return [], [], ["No tests between the runs: they need scipy, which is not installed."]
    untested = any(each.p is None for each in (*tested, *by_group))
    return tested, by_group, ["Differences over fewer than six queries have no p-value."] if untested else []


def _about(name: str, where: Placed, judgements: Judgements, missing: str) -> list[str]:
    """Notes about queries without list or judgements, and about scores that look like padding."""
    run = f"the run {shown(name)}" if name else "the run"
    notes = []
    lacking = [judgements.queries[row] for row in np.flatnonzero(where.listed == 0).tolist()]
    if lacking:
        fate = "count 0 in every measure" if missing == "zero" else "are left out of the means"
        notes.append(
            f"Judged queries without a list in {run}: {len(lacking):,} of {len(judgements.queries):,} "
            f"({some(lacking)}). They {fate}."
        )
    if where.unknown:
        notes.append(
            f"Queries of {run} without judgements: {len(where.unknown):,} ({some(where.unknown)}). They are left out."
        )
    listed = int(where.listed.sum())
    if where.at_lowest > max(PADDED * listed, 2 * int((where.listed > 0).sum())):
        notes.append(
            f"Documents of {run} with the lowest score, {where.lowest:g}: {where.at_lowest:,} of {listed:,}. They "
            "count as retrieved. If this score marks documents that were not retrieved, leave them out of the run."
        )
    return notes


def _group_rows(
    per_query: Mapping[str, Columns], means: Sequence[str], groups: Mapping[str, Array], protocol: _Protocol
) -> list[dict[str, Any]]:
    table = []
    for group, rows in groups.items():
        for run, columns in per_query.items():
            bounds = protocol.intervals(columns, means, rows)
            for name in means:
                known = columns[name][rows]
                known = known[~np.isnan(known)]
                low, high = bounds.get(name, (None, None))
                row = {"group": group, "queries": len(known), "run": run, "measure": name}
                table.append(row | {"value": float(known.mean()) if len(known) else None, "low": low, "high": high})
    return table
