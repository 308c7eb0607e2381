"""Runs and judgements -> `Evaluation`: the measures of trec_eval and ir_measures, with intervals and paired tests.

A run is a list of documents with scores for each query; judgements say which documents are relevant, and how much.
Both come from files (`reading`), dictionaries, columns or matrices (`rows`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ...checks import integer, number, unknown
from ...files import shown
from .comparison import Difference, differences, intervals, pairs_of
from .given import Groups, Run, groups_of, runs_of, source
from .measures import USUAL, Lists, asked, averaged, meaning, summed
from .placing import Judgements, Placed, placed, some
from .reading import QRELS
from .result import Evaluation
from .rows import from_columns, from_mapping, from_matrix, from_scores
from .texts import Array
from .writing import write

__all__ = [
    "Difference",
    "Evaluation",
    "evaluate",
    "from_columns",
    "from_mapping",
    "from_matrix",
    "from_scores",
    "write",
]

PADDED = 0.05  # share of documents at the lowest score from which on it may be padding


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

    Documents are ranked by their scores, highest first; of equal scores the later name (in the order of bytes) comes
    first. Documents that are not judged count as irrelevant, except in bpref; relevant documents that were not
    retrieved count as missed.

    Args:
        runs: name -> run, or one or several files, called by their names. A run is a file (`reading.read`), a mapping
            query -> document -> score, or what `from_columns`, `from_matrix` and `from_scores` make of arrays.
        qrels: judgements, in any of these forms, with integer grades in the place of scores.
        measures: names as `measures.asked` takes them; "official" are those that trec_eval prints by itself.
        level: lowest grade that is relevant. A measure may have its own: "AP(rel=2)".
        gains: grade -> what it is worth to ndcg; other grades are worth themselves.
        missing: what a judged query without a list counts. "zero": 0 for every measure (trec_eval -c); "skip": it is
            left out of the means of this run, and of its tests.
        depth: lists are cut after so many documents (trec_eval -M).
        judged_only: documents without a judgement are taken out of the lists (trec_eval -J).
        groups: query -> group, or a csv with the columns query and group, where a query may stand several times.
        baseline: a run; the others are tested against it alone. None: each against each.
        bootstrap: resamples of the queries for the intervals; 0: none.
        confidence: coverage of the intervals.
        seed: of the bootstrap.
        trec_eval: whose numbers. 10 compares scores in double precision and rounds recall points; 9, and pytrec_eval,
            in single precision, and cuts recall points off after adding .9.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a damaged file, a document twice in one list, a score that is no number, a measure that is not
            known, no query that is in both; naming file and line.
        TypeError: a run of another kind.

    >>> run = {"q1": {"d1": 0.9, "d2": 0.8, "d3": 0.7}, "q2": {"d1": 0.5}}
    >>> found = evaluate({"mine": run}, {"q1": {"d2": 1}, "q2": {"d1": 2, "d9": 1}}, ["map", "nDCG@10"], bootstrap=0)
    >>> found.values["mine"]["map"], round(found.by_query("mine")["q2"]["ndcg_cut_10"], 4)
    (0.5, 0.7602)
    """
    wanted = asked(measures)
    level = integer(level, "level is the lowest relevant grade", low=1)
    bootstrap = integer(bootstrap, "bootstrap is a number of resamples", low=0)
    seed = integer(seed, "seed begins the random numbers of the bootstrap", low=0)
    confidence = number(confidence, "confidence is a coverage", above=0)
    if confidence >= 1:
        raise ValueError(f"confidence is a coverage and must lie between 0 and 1; got {confidence}")
    if depth is not None:
        depth = integer(depth, "depth counts the documents of a list", low=1)
    if missing not in ("zero", "skip"):
        raise ValueError(f"missing must be 'zero' or 'skip'; got {missing!r}")
    if trec_eval not in (9, 10):
        raise ValueError(f"trec_eval is the version whose numbers are wanted, 9 or 10; got {trec_eval!r}")
    worth = {
        integer(grade, "a grade in gains"): number(gain, f"the gain of grade {grade!r}")
        for grade, gain in (gains or {}).items()
    }
    sources = runs_of(runs)
    if baseline is not None and baseline not in sources:
        raise ValueError(unknown("baseline", baseline, sources))
    judgements = Judgements.of(source(qrels, "qrels", QRELS))
    of_group = {} if groups is None else groups_of(groups, judgements.queries)

    values: dict[str, dict[str, float]] = {}
    per_query: dict[str, dict[str, Array]] = {}
    around: dict[str, dict[str, tuple[float, float]]] = {}
    means = [str(measure) for measure in averaged(wanted)]
    notes: list[str] = []
    everyone = np.arange(len(judgements.queries))
    for name, run in sources.items():
        where = placed(run, judgements, single=trec_eval == 9)
        notes += _about(name if len(sources) > 1 else "", where, judgements, missing)
        counted = where.listed > 0 if missing == "skip" else np.ones(len(everyone), bool)
        where = where if depth is None else where.cut(depth)
        where = where.judged_only() if judged_only else where
        lists = Lists(where, judgements, worth, early=trec_eval == 9)
        columns = {str(measure): measure.values(lists, level) for measure in wanted}
        values[name] = {str(measure): summed(measure, columns[str(measure)][counted]) for measure in wanted}
        per_query[name] = {each: np.where(counted, column, np.nan) for each, column in columns.items()}
        around[name] = intervals(per_query[name], means, everyone, bootstrap, confidence, seed)
    unanswerable = int((lists.relevant(level).known == 0).sum())
    if unanswerable:
        notes.append(
            f"Judged queries without a relevant document: {unanswerable:,} of {len(judgements.queries):,}. They count "
            "0, as in trec_eval."
        )
    pairs = pairs_of(list(sources), baseline)
    tested, inside_groups = [], []
    if pairs:
        try:
            tested = differences(per_query, means, pairs, {"": everyone}, confidence)
            inside_groups = differences(per_query, means, pairs, of_group, confidence)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("scipy"):
                raise
            notes.append("No tests between the runs: they need scipy, which is not installed.")
    return Evaluation(
        runs=tuple(sources),
        measures=tuple(map(str, wanted)),
        queries=judgements.queries,
        values=values,
        per_query=per_query,
        intervals=around,
        differences=tuple(tested),
        groups=of_group,
        of_groups=tuple(_group_rows(per_query, means, of_group, bootstrap, confidence, seed)),
        between_groups=tuple(inside_groups),
        meanings={str(measure): meaning(measure) for measure in wanted},
        settings={
            "level": level,
            "gains": {str(grade): gain for grade, gain in worth.items()},
            "missing": missing,
            "depth": depth,
            "judged_only": judged_only,
            "baseline": baseline,
            "bootstrap": bootstrap,
            "confidence": confidence,
            "seed": seed,
            "trec_eval": trec_eval,
            "judgements": len(judgements.grades),
        },
        notes=tuple(notes),
    )


def _about(name: str, found: Placed, judgements: Judgements, missing: str) -> list[str]:
    """What is done about queries that are on one side only, and about scores that look like padding."""
    run = f"the run {shown(name)}" if name else "the run"
    notes = []
    lacking = [judgements.queries[row] for row in np.flatnonzero(found.listed == 0).tolist()]
    if lacking:
        fate = "count 0 in every measure" if missing == "zero" else "are left out of the means"
        notes.append(
            f"Judged queries without a list in {run}: {len(lacking):,} of {len(judgements.queries):,} "
            f"({some(lacking)}). They {fate}."
        )
    if found.unknown:
        notes.append(
            f"Queries of {run} without judgements: {len(found.unknown):,} ({some(found.unknown)}). They are left out."
        )
    listed = int(found.listed.sum())
    if found.at_lowest > max(PADDED * listed, 2 * int((found.listed > 0).sum())):
        notes.append(
            f"Documents of {run} with the lowest score, {found.lowest:g}: {found.at_lowest:,} of {listed:,}. They "
            "count as retrieved. If this score marks documents that were not retrieved, leave them out of the run."
        )
    return notes


def _group_rows(
    per_query: Mapping[str, Mapping[str, Array]],
    means: Sequence[str],
    groups: Mapping[str, Array],
    bootstrap: int,
    confidence: float,
    seed: int,
) -> list[dict[str, Any]]:
    found = []
    for group, rows in groups.items():
        for run, columns in per_query.items():
            bounds = intervals(columns, means, rows, bootstrap, confidence, seed)
            for name in means:
                known = columns[name][rows]
                known = known[~np.isnan(known)]
                low, high = bounds.get(name, (None, None))
                row = {"group": group, "queries": len(known), "run": run, "measure": name}
                found.append(row | {"value": float(known.mean()) if len(known) else None, "low": low, "high": high})
    return found
