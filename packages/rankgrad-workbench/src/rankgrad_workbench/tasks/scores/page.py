"""The page of a model of scores: the curves of its list, its queries, and the rows with the largest errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from rankgrad.scores.curves import Curve, curves_of
from rankgrad.scores.evaluation import ScoreReport

from ...files import read_npz
from ...report import tables
from ...report.content import Extent, RunContent, Section, read_common
from ...report.html import charts
from ...report.html.images import Images
from ...report.html.templates import render
from ...report.html.text import percent
from ...runs.folder import Run
from ...settings.kinds import TASKS

TILES = 4
WRONG = 10  # listed rows of each kind
CURVES = (  # attribute of `Curves`, and heading, label of the horizontal axis, metric that is the area
    ("roc", ("ROC", "false positive rate", "ROC AUC")),
    ("precision_recall", ("Precision and recall", "recall", "AP")),
    ("gain", ("Gain", "share of all rows, best first", "")),
)
POINTS = charts.LINE_POINTS  # largest number of points of a curve


@dataclass(frozen=True, eq=False)
class ScoresContent(RunContent):
    """A run of a model of scores, as a page shows it.

    Attributes:
        name, config, facts, curves, before, latest, notes, siblings: see `RunContent`.
        after: evaluation of the trained model; None: the run is not finished.
        scored: the columns row, score, relevance and query of its test rows; None: the run is not finished, or the file
            cannot be read. Without a query, all rows are one list.
    """

    after: ScoreReport | None = None
    scored: Mapping[str, npt.NDArray[Any]] | None = None

    kind = "scores"

    @property
    def headline(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(name for name in TASKS[self.kind].columns if name in self.values)[:TILES]

    @property
    def main(self) -> tuple[str, ...]:
        """See `RunContent`."""
        return tuple(self.values)

    @classmethod
    def sections(cls, runs: Sequence[ScoresContent], images: Images, extent: Extent) -> tuple[list[Section], list[str]]:
        """Curves and rows with the largest errors, for one list; or a table of queries."""
        if extent != Extent():
            raise ValueError("projection, queries, points and items are for retrieval runs, but these runs give scores")
        return [tables.results(runs), _ranking(runs), _queries(runs), _rows(runs)], []


def read(
    run: Run, report: ScoreReport | None = None, *, known: Any = None, pictures: bool = True, trust: Sequence[str] = ()
) -> ScoresContent:
    """Read the content of a run, finished or not. Notes name what is missing.

    Args:
        run: the folder.
        report: evaluation of its test rows, if it is not in the folder yet.
        known: not used; see `report.retrieval.read`.
        pictures: False: only metrics and curves of the training.
        trust: packages whose classes its settings may name.
    """
    if report is None and run.finished:
        report = ScoreReport.from_json(run.after)
    common = read_common(run, report, trust)
    common["before"] = ScoreReport.from_json(run.before) if run.before.exists() else None
    data = common["config"]["data"]
    common["config"]["data"] = {**data, "name": Path(data["root"] or data["name"]).stem}
    if report is None or not pictures:
        return ScoresContent(**common)
    try:
        return ScoresContent(**common, scored=read_npz(run.scores, "row", "score", "relevance"))
    except (OSError, ValueError) as error:
        why = f"No curves: the scores of the run cannot be read ({error})."
        return ScoresContent(**{**common, "notes": (*common["notes"], why)})


# ------------------------------------------------------------------------------------------------------------ sections


def _one_list(run: ScoresContent) -> Mapping[str, npt.NDArray[Any]] | None:
    """The scored rows of a run whose rows are one list; None: they have queries, or are unknown."""
    return None if run.scored is None or "query" in run.scored else run.scored


def _ranking(runs: Sequence[ScoresContent]) -> Section:
    """For one list: the curves ROC, precision and recall, and gain."""
    lists = {kind: rows for kind, run in enumerate(runs) if (rows := _one_list(run)) is not None}
    found = {kind: curves_of(rows["score"], rows["relevance"], most=POINTS) for kind, rows in lists.items()}
    if not found:
        return Section("ranking", "Ranking", Markup())
    drawn = [_chart(runs, *words, {kind: getattr(c, name) for kind, c in found.items()}) for name, words in CURVES]
    return Section("ranking", "Ranking", render("tasks/scores/curves.html", runs=runs, curves=drawn))


def _chart(runs: Sequence[ScoresContent], title: str, x: str, area: str, curves: Mapping[int, Curve]) -> Markup:
    """A chart with a line for each run. For a single run, the area under the line is beside the title."""
    several = len(runs) > 1
    series = [charts.Series(runs[kind].name if several else "", curve.points, kind) for kind, curve in curves.items()]
    summary = "" if several or area not in runs[0].values else f"{area} {percent(runs[0].values[area])}"
    return charts.lines(title, series, x, summary=summary, x_range=(0, 1), y=(0, 1))


def _queries(runs: Sequence[ScoresContent]) -> Section:
    """A table with a row for each counted query."""
    per_run = [_rows_of_queries(run) for run in runs]
    metrics = runs[0].headline
    made = tables.class_table(runs, "query", per_run, metrics, metrics[0], count="rows") if any(per_run) else None
    if made is None:
        return Section("queries", "Queries", Markup())
    lead = f"Values of single queries in per cent, lowest {metrics[0]} first."
    body = render("report/tables_of_classes.html", lead=lead, leads="", tables=[made[0]])
    return Section("queries", "Best and worst queries", body, {"tables": {"query": made[1]}})


def _rows_of_queries(run: ScoresContent) -> list[dict[str, Any]]:
    report = run.after
    if report is None or not report.per_query or run.scored is None or "query" not in run.scored:
        return []
    counts = np.bincount(run.scored["query"], minlength=len(report.query_names)).tolist()
    rows = zip(report.query_names, counts, zip(*report.per_query.values(), strict=True), strict=True)
    return [
        {"name": name, "rows": count, **dict(zip(report.per_query, map(float, values), strict=True))}
        for name, count, values in rows
        if not np.isnan(values[0])
    ]


def _rows(runs: Sequence[ScoresContent]) -> Section:
    """For one list: the irrelevant rows with the highest scores, and the relevant rows with the lowest."""
    shown = []
    for run in runs:
        if (rows := _one_list(run)) is not None:
            order = np.argsort(-rows["score"], kind="stable")
            relevant = rows["relevance"][order] > 0
            for kind, ranks in (
                ("irrelevant rows with the highest scores", np.flatnonzero(~relevant)[:WRONG]),
                ("relevant rows with the lowest scores", np.flatnonzero(relevant)[::-1][:WRONG]),
            ):
                row, score = (rows[name][order[ranks]].tolist() for name in ("row", "score"))
                title = f"{run.name}: {kind}" if len(runs) > 1 else kind.capitalize()
                shown.append((title, list(zip(row, (ranks + 1).tolist(), score, strict=True))))
    body = render("tasks/scores/rows.html", shown=shown)
    return Section("rows", "Rows with the largest errors", body if shown else Markup())
