"""Runs and judgements -> `Evaluation`: the metrics of trec_eval and ir_measures, with intervals and paired tests.

A run has a list of documents with scores for each query. Judgements are the grades of documents: which are relevant,
and how much. Both come from files (`files`), dictionaries, columns or matrices (`lists`). Nothing here needs torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankgrad.common.checks import integer, number, one_of, unknown
from rankgrad.common.text import shown
from rankgrad.evaluation.statistics import BOOTSTRAP, Bootstrap

from . import files
from .alike import told_alike
from .comparison import Difference, differences, intervals_over, is_silent, pairs_of
from .files import QRELS, RUN
from .fusion import fuse
from .judged import AboutRun, JudgedLists, Judgements, judged_lists, some
from .lists import Array, Source, from_columns, from_mapping, from_matrix, from_scores
from .metrics import ListMetric
from .names import USUAL, metrics_of
from .result import Evaluation
from .sources import Groups, Run, groups_of, runs_of, source_of

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

#: Grades that programs write for a missing value, and the largest ones of some number types.
CODES = (999, 9999, 32767, 65535, 99999, 2**31 - 1)


def evaluate(
    runs: Run | Sequence[str | os.PathLike[str]] | Mapping[str, Run],
    qrels: Run,
    metrics: Sequence[str] = USUAL,
    *,
    level: int = 1,
    gains: Mapping[int, float] | None = None,
    missing: Literal["zero", "skip"] = "zero",
    depth: int | None = None,
    judged_only: bool = False,
    groups: Groups | None = None,
    baseline: str | None = None,
    intervals: Bootstrap | int = BOOTSTRAP,
    trec_eval: Literal[9, 10] = 10,
) -> Evaluation:
    """Measure ranked lists against judgements, with the numbers of trec_eval.

    Documents are ranked by their scores, highest first. Of equal scores the later name (in the order of bytes) comes
    first. Documents without judgement count as irrelevant, except in bpref. Relevant documents that were not retrieved
    count as missed.

    Args:
        runs: name -> run, or one or several files, named after the files. A run is a file (`files.read`), a mapping
            query -> document -> score, or a result of `from_columns`, `from_matrix` or `from_scores`.
        qrels: judgements in one of these forms, with integer grades instead of scores.
        metrics: names, see `names.metrics_of`; "official" are the metrics that trec_eval prints by default.
        level: lowest relevant grade. A metric may have its own: "AP(rel=2)".
        gains: grade -> gain for ndcg; the gain of other grades is the grade.
        missing: value of a judged query without a list. "zero": 0 for every metric (trec_eval -c). "skip": the query
            is left out of the means of this run and of its tests.
        depth: keep only this many documents of a list (trec_eval -M).
        judged_only: remove documents without judgement from the lists (trec_eval -J).
        groups: query -> group, or a csv with the columns query and group, in which a query may occur several times.
        baseline: a run; each other run is tested against this one only. None: all pairs of runs are tested. A run
            without a list for more than a few queries is not tested.
        intervals: how intervals are drawn, or a number of resamples of the queries; 0: no intervals.
        trec_eval: version whose numbers are computed. 10 compares scores in double precision and rounds recall points.
            9, and pytrec_eval, compares in single precision, and truncates recall points after adding .9.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: a file is damaged, a document occurs twice in a list, a score is not a number, a metric is unknown,
            or no query is in both; the message has file and line.
        TypeError: a run has another type.

    >>> run = {"q1": {"d1": 0.9, "d2": 0.8, "d3": 0.7}, "q2": {"d1": 0.5}}
    >>> found = evaluate({"mine": run}, {"q1": {"d2": 1}, "q2": {"d1": 2, "d9": 1}}, ["map", "nDCG@10"], intervals=0)
    >>> found.values["mine"]["map"], round(found.by_query("mine")["q2"]["ndcg_cut_10"], 4)
    (0.5, 0.7602)
    """
    wanted, drawing = metrics_of(metrics), replace(Bootstrap.of(intervals), by="query")
    settings: dict[str, Any] = {
        "level": integer(level, "level is the lowest relevant grade", low=1),
        "gains": {
            integer(grade, "a grade in gains"): number(gain, f"the gain of grade {grade!r}")
            for grade, gain in (gains or {}).items()
        },
        "missing": one_of(missing, "missing", ("zero", "skip")),
        "depth": None if depth is None else integer(depth, "depth is a number of documents", low=1),
        "judged_only": judged_only,
        "baseline": baseline,
        **drawing.settings(),
        "trec_eval": one_of(trec_eval, "trec_eval", (9, 10)),
    }
    sources = runs_of(runs)
    if baseline is not None and baseline not in sources:
        raise ValueError(unknown("baseline", baseline, sources))
    judgements = Judgements.of(source_of(qrels, "qrels", QRELS))
    settings["judgements"] = len(judgements.grade)
    of_group = {} if groups is None else groups_of(groups, judgements.queries)

    values, per_query, silent, notes = _measured(sources, judgements, wanted, settings)
    means = [str(metric) for metric in wanted if metric.is_mean]
    bounds = partial(intervals_over, metrics=means, how=drawing)
    everyone = np.arange(len(judgements.queries))
    pairs = pairs_of(list(per_query), baseline)
    tested = differences(per_query, means, [pair for pair in pairs if not {*pair} & {*silent}], drawing.confidence)
    untested = _untested(silent if pairs else {}, tested, len(everyone))
    return Evaluation(
        runs=tuple(sources),
        metrics=tuple(map(str, wanted)),
        queries=judgements.queries,
        values=values,
        per_query=per_query,
        intervals={name: bounds(columns, rows=everyone) for name, columns in per_query.items()},
        differences=tuple(tested),
        silent=silent,
        groups=of_group,
        of_groups=tuple(_group_rows(per_query, means, of_group, bounds)),
        meanings={str(metric): metric.meaning for metric in wanted},
        settings=settings | {"gains": {str(grade): gain for grade, gain in settings["gains"].items()}},
        notes=(*notes, *_about_judgements(judgements, level), *untested),
    )


def _untested(silent: Mapping[str, int], tested: Sequence[Difference], queries: int) -> list[str]:
    """Why some runs are not compared, or only without a p-value."""
    told = [
        f"{shown(run)} finds nothing for {count:,} of {queries:,} queries, so it is not compared with other runs."
        for run, count in silent.items()
    ]
    without = any(each.p is None for each in tested)
    return [*told, *["Differences over fewer than six queries have no p-value."] * without]


def write_run(run: Run, path: str | os.PathLike[str], tag: str = "rankgrad") -> Path:
    """Write a run as a file of TREC: `query Q0 document rank score tag`, best document first.

    Args:
        run: a run, as in `evaluate`.
        path: the file; it is replaced. NAME.gz is compressed.
        tag: name of the system, in every line.

    Raises:
        ValueError: a name is empty, has white space or a control character, or is a query that begins with #, which
            this kind of file cannot hold; or the run is damaged.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_run({"q": {"a": 0.5, "b": 2.0}}, Path(folder, "mine.run"), "mine").read_text(), end="")
    q Q0 b 1 2.0 mine
    q Q0 a 2 0.5 mine
    """
    return files.write_run(source_of(run, "the run", RUN), path, tag)


def _measured(
    runs: Mapping[str, Source], judgements: Judgements, wanted: Sequence[ListMetric], settings: Mapping[str, Any]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, Array]], dict[str, int], list[str]]:
    """The values, the columns and the silent runs, as in `Evaluation`, and notes about the runs."""
    values, per_query, silent, notes = {}, {}, {}, []
    for name, run in runs.items():
        lists, about = judged_lists(run, judgements, single=settings["trec_eval"] == 9)
        notes += _about(f"the run {shown(name)}" if len(runs) > 1 else "the run", lists, about, settings["missing"])
        lacking = int((lists.listed == 0).sum()) if len(lists.rank) else len(lists.listed)
        if is_silent(lacking, len(lists.listed)):
            silent[name] = lacking
        counted = (lists.listed > 0) | (settings["missing"] == "zero")
        lists = lists if settings["depth"] is None else lists.cut(settings["depth"])
        lists = lists.judged_only() if settings["judged_only"] else lists
        lists = replace(lists, gains=settings["gains"], early=settings["trec_eval"] == 9)
        columns = {metric: metric.values(lists, settings["level"]) for metric in wanted}
        values[name] = {str(metric): metric.summed(column[counted]) for metric, column in columns.items()}
        per_query[name] = {str(metric): np.where(counted, column, np.nan) for metric, column in columns.items()}
    return values, per_query, silent, notes


def _about_judgements(judgements: Judgements, level: int) -> list[str]:
    """Notes about queries that have no relevant document, and about grades that may be codes."""
    queries, grade = len(judgements.queries), judgements.grade
    notes = []
    if count := queries - len(np.unique(judgements.query[grade >= level])):
        notes.append(
            f"Judged queries without a relevant document: {count:,} of {queries:,}. They count 0, as in trec_eval."
        )
    codes = [f"{value} ({(grade == value).sum():,})" for value in np.unique(grade) if abs(value) in CODES]
    if codes:
        notes.append(
            f"Grades that may stand for a missing value: {', '.join(codes)}. Below 0 they count as not judged, else as "
            "relevant. Leave these judgements out if they mean that"
        )
    return notes


def _about(run: str, lists: JudgedLists, about: AboutRun, missing: str) -> list[str]:
    """Notes about queries without list or judgements, and about names that look alike."""
    queries = lists.judgements.queries
    lacking = [queries[row] for row in np.flatnonzero(lists.listed == 0).tolist()]
    fate = "count 0 in every metric" if missing == "zero" else "are left out of the means"
    notes = {
        f"Judged queries without a list in {run}: {len(lacking):,} of {len(queries):,} ({some(lacking)}). They "
        f"{fate}.": lacking,
        f"Queries of {run} without judgements: {len(about.unknown):,} ({some(about.unknown)}). They are left out.": (
            about.unknown
        ),
        f"No document of {run} is judged, so every metric is 0.": lists.listed.any() and not len(lists.rank),
        **{f"In {run} {told_alike(what, pairs)}.": pairs for what, pairs in about.alike.items()},
    }
    return [note for note, holds in notes.items() if holds]


def _group_rows(
    per_query: Mapping[str, Mapping[str, Array]],
    means: Sequence[str],
    groups: Mapping[str, Array],
    bounds: Callable[..., dict[str, tuple[float, float]]],
) -> list[dict[str, Any]]:
    table = []
    for group, rows in groups.items():
        for run, columns in per_query.items():
            around = bounds(columns, rows=rows)
            for name in means:
                known = columns[name][rows]
                known = known[~np.isnan(known)]
                low, high = around.get(name, (None, None))
                row = {"group": group, "queries": len(known), "run": run, "metric": name}
                table.append(row | {"value": float(known.mean()) if len(known) else None, "low": low, "high": high})
    return table
