"""Scores of rows -> `ScoreReport`: metrics of one list, or means over queries, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import Numbers, real_tensor
from ..common.text import aligned
from ..evaluation.graded import GradedRanks, highest_means, means_of, need_graded, of_relevant_alone
from ..evaluation.json_report import JSONReport
from ..evaluation.measures import PARTIAL, listed, named, needs_irrelevant
from ..evaluation.statistics import BOOTSTRAP, FEW_DRAWN, Bootstrap
from ..losses.by_query import Rectangles
from .one_list import RankedRows, check_name
from .rows import JudgedRows

Array = npt.NDArray[Any]
OF_ONE_LIST = ("AP", "ROC AUC", f"{PARTIAL}0.05", "P@100")
OF_QUERIES = ("NDCG@10", "AP", "MRR", "P@10")


@dataclass(frozen=True, eq=False)
class ScoreReport(JSONReport):
    """The result of an evaluation of scores. All metrics are in 0 .. 1. Higher is better, except for fall-out.

    Attributes:
        values: metric -> value of the one list, or mean over the queries that have a relevant row.
        intervals: metric -> (low, high) of the bootstrap, over rows or over queries.
        per_query: metric -> [query] float64; empty for one list. NaN for a query without a relevant row. ROC AUC and
            fall-out are also NaN for a query without an irrelevant row.
        query_names: [query] name of the query in the file.
        counts: rows, relevant; with queries also queries and counted.
        settings: how the intervals were drawn.
        notes: remarks on the numbers, one sentence each.
    """

    query_names: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()

    kind = "a report of scores"
    shapes = {
        **JSONReport.shapes,
        "counts": {"rows": int, "relevant": int, str: int},
        "settings": {"confidence": float},
        "query_names": [str],
    }

    def queries_by(self, metric: str) -> list[tuple[str, float]]:
        """(name, value) of the queries that have a value, the worst first.

        Args:
            metric: a metric in `per_query`.
        """
        values = self.per_query[metric]
        order = np.argsort(values, kind="stable")  # NaN comes last
        return [(self.query_names[query], float(values[query])) for query in order if not np.isnan(values[query])]

    @classmethod
    def _fitting(cls, content: dict[str, Any]) -> dict[str, bool]:
        count, columns = len(content["query_names"]), content["per_query"].values()
        return super()._fitting(content) | {"per_query": all(len(column) == count for column in columns)}

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> dict[str, Any]:
        return super()._restored(content) | {"query_names": tuple(content["query_names"])}

    def __str__(self) -> str:
        c = self.counts
        head = f"{c['rows']} rows, {c['relevant']} relevant"
        if "queries" in c:
            head += f", {c['counted']} queries"
        rows = [("metric", "value", f"{100 * self.settings['confidence']:g} % interval" if self.intervals else "")]
        for name, value in self.values.items():
            bounds = self.intervals.get(name)
            rows.append(
                (
                    named(name),
                    f"{100 * value:.1f} %",
                    f"{100 * bounds[0]:.1f} - {100 * bounds[1]:.1f}" if bounds else "",
                )
            )
        return "\n".join([head, aligned(rows), *self.notes])


def evaluate_scores(
    scores: Numbers,
    rows: JudgedRows,
    *,
    metrics: Sequence[str] | None = None,
    intervals: Bootstrap | int = BOOTSTRAP,
) -> ScoreReport:
    """Evaluate the scores of rows.

    Rows without queries are one list. Its metrics are AP, ROC AUC, ROC AUC up to a false positive rate of .05, and
    P@100. The bootstrap of the intervals draws rows with replacement.

    Rows with queries have means over these queries: NDCG@10, AP (the mean is known as MAP), MRR and P@10. The bootstrap
    draws queries with replacement. A query without a relevant row is left out of the means, and a note has the number
    of these queries. A query without an irrelevant row is left out of ROC AUC and fall-out. If no query has both kinds
    of rows, the report does not have these two metrics.

    Rows with equal scores: AP counts them as above one another (as scikit-learn does), NDCG takes the mean of their
    discounts, ROC AUC counts one half, and P@k and MRR put the irrelevant ones first.

    Args:
        scores: [row] floats; higher is more relevant.
        rows: the rows, with relevance, such as a `ScoreTable` or `JudgedRows.of`.
        metrics: names of metrics. For one list see `one_list.check_name`, for queries `evaluation.measures.reading`;
            NDCG has the gains grade, NDCG-exp2 (as in LightGBM and XGBoost) 2^grade - 1.
        intervals: how intervals are drawn, or a number of resamples; 0: no intervals.

    Raises:
        ValueError: a score is NaN or infinite (the message has the row); all rows are relevant, or none; a metric is
            unknown.

    >>> rows = JudgedRows.of([1, 0, 1, 0])
    >>> print(evaluate_scores([0.9, 0.6, 0.5, 0.1], rows, metrics=["AP", "ROC AUC"], intervals=0))
    4 rows, 2 relevant
    metric    value
    AP       83.3 %
    ROC AUC  75.0 %
    """
    drawing = Bootstrap.of(intervals)
    if rows.relevance is None:
        raise ValueError(f"{rows.name} was read without a label, which an evaluation needs")
    checked = _checked(scores, rows)
    names = listed((OF_ONE_LIST if rows.query is None else OF_QUERIES) if metrics is None else metrics, "metrics")
    if rows.query is None:
        return _of_one_list(checked, rows, rows.relevance, names, drawing)
    return _of_queries(checked, rows, rows.relevance, rows.query, names, drawing)


def values_of(scores: Numbers, rows: JudgedRows, metrics: Sequence[str]) -> dict[str, float]:
    """Metric -> value, for the scores of rows; without intervals. For callers that choose the highest value.

    Args:
        scores: [row] floats; higher is more relevant.
        rows: the rows, with relevance, such as a `ScoreTable` or `JudgedRows.of`.
        metrics: see `evaluate_scores`.

    Raises:
        ValueError: see `evaluate_scores`; also if a metric is lower for better scores, or if it needs a query with a
            relevant and an irrelevant row, and there is none.
    """
    values = evaluate_scores(scores, rows, metrics=metrics, intervals=0).values
    lower = next((name for name in metrics if name.startswith("fall-out@")), None)
    if lower is not None:
        raise ValueError(f"{lower} is lower for better scores, and the highest would be chosen. Give another metric")
    absent = [name for name in metrics if name not in values]
    if absent:
        raise ValueError(
            f"no query of {rows.name} has both a relevant and an irrelevant row, so {absent[0]} has no value. Give "
            "other queries, or another metric"
        )
    return values


def alike(scores: Tensor, query: Tensor | None = None) -> list[str]:
    """A sentence if all scores are equal, or all scores of a query with several rows.

    Args:
        scores: [row].
        query: [row] ids from 0 on; None: all rows are one list.

    >>> alike(torch.tensor([0.5, 0.5])), alike(torch.tensor([0.5, 0.5, 0.1]), torch.tensor([0, 0, 1]))
    (['All 2 scores are 0.5: the rows have no order.'], ['All scores are equal in 1 of 1 queries of several rows.'])
    """
    if len(scores) > 1 and bool((scores == scores[0]).all()):
        return [f"All {len(scores)} scores are {float(scores[0]):.7g}: the rows have no order."]
    if query is None:
        return []
    several = torch.bincount(query) > 1
    low, high = (
        scores.new_zeros(len(several)).scatter_reduce(0, query, scores, how, include_self=False)
        for how in ("amin", "amax")
    )
    equal = int((several & (low == high)).sum())
    return [f"All scores are equal in {equal} of {int(several.sum())} queries of several rows."] if equal else []


def _checked(scores: Numbers, rows: JudgedRows) -> Tensor:
    """[row] float64 finite scores."""
    checked = real_tensor(scores, "scores").detach().cpu().double()
    if checked.shape != (len(rows),):
        raise ValueError(f"scores must be [row], one for each of {len(rows)} rows; got {tuple(checked.shape)}")
    if not len(rows):
        raise ValueError("the table has no rows, so there is nothing to evaluate")
    bad = ~checked.isfinite()
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"{rows.place(row)}: the score is {float(checked[row])} ({int(bad.sum())} of {len(rows)} scores are not "
            "finite). The model has diverged; train it with a smaller learning rate"
        )
    return checked


def _of_one_list(
    scores: Tensor, rows: JudgedRows, relevance: Tensor, names: list[str], drawing: Bootstrap
) -> ScoreReport:
    for name in names:
        check_name(name)
    relevant = relevance.numpy() > 0
    count = int(relevant.sum())
    if not 0 < count < len(relevant):
        raise ValueError(
            f"{count} of the {len(relevant)} rows of {rows.name} to evaluate are relevant, but at least one relevant "
            "and one irrelevant row is needed. Give more rows, or divide them in another way"
        )
    ranked = RankedRows.of(scores.numpy(), relevant)
    intervals: dict[str, tuple[float, float]] = {}
    if drawing.resamples:
        draws = ranked.draws(drawing.resamples, drawing.seed)
        parts = [[groups.values(name) for name in names] for groups in draws]
        tail = (1 - drawing.confidence) / 2
        for name, *columns in zip(names, *parts, strict=True):
            # a draw without a relevant row has no value; such a draw is left out
            low, high = np.nanquantile(np.concatenate(columns), [tail, 1 - tail]).tolist()
            intervals[name] = (low, high)
    groups = ranked.groups()
    notes = alike(scores)
    fewer = min(count, len(relevant) - count)
    notes += highest_means(names, np.array([count]))
    if drawing.resamples and fewer < FEW_DRAWN:
        notes.append(
            f"Only {fewer} {'row is' if fewer == 1 else 'rows are'} {'relevant' if fewer == count else 'irrelevant'}: "
            "the intervals are rough."
        )
    return ScoreReport(
        values={name: float(groups.values(name)[0]) for name in names},
        intervals=intervals,
        per_query={},
        query_names=(),
        counts={"rows": len(relevant), "relevant": count},
        settings=drawing.settings(),
        notes=tuple(notes),
    )


def _of_queries(
    scores: Tensor, rows: JudgedRows, relevance: Tensor, query: Tensor, names: list[str], drawing: Bootstrap
) -> ScoreReport:
    need_graded(names)
    queries = int(query.max()) + 1
    counted = torch.bincount(query, weights=relevance.double(), minlength=queries).numpy() > 0
    if not counted.any():
        raise ValueError(
            f"none of the {queries} queries of {rows.name} to evaluate has a relevant row; at least one is needed"
        )
    # of rows with equal scores, the first one counts as above: so put the irrelevant rows first
    order = torch.from_numpy(np.lexsort((relevance.numpy(), query.numpy())))
    shape = Rectangles.of(query[order], separate=True)
    lists = [
        GradedRanks(keys, gains, valid)
        for keys, gains, valid in zip(shape.cut(scores[order]), shape.cut(relevance[order]), shape.valid(), strict=True)
    ]
    per_query = {name: shape.by_id([each.metric(name).double() for each in lists]).numpy() for name in names}
    irrelevant = torch.bincount(query, weights=(relevance <= 0).double(), minlength=queries).numpy() > 0
    values, intervals = means_of(per_query, counted, irrelevant, drawing)
    skipped = queries - int(counted.sum())
    notes = []
    if skipped:
        notes.append(f"{skipped} of {queries} queries have no relevant row and are left out of all means.")
    notes += alike(scores, query)
    notes += of_relevant_alone(names, counted, irrelevant, "rows")
    notes += highest_means(
        names, torch.bincount(query, weights=(relevance > 0).double(), minlength=queries).numpy()[counted]
    )
    if drawing.resamples and counted.sum() < FEW_DRAWN:
        notes.append(f"Only {counted.sum()} queries count: the intervals are rough.")
    return ScoreReport(
        values=values,
        intervals=intervals,
        per_query={
            name: np.where(counted & (irrelevant | (not needs_irrelevant(name))), column, np.nan)
            for name, column in per_query.items()
        },
        query_names=rows.query_names or tuple(str(number) for number in range(queries)),
        counts={
            "rows": len(scores),
            "relevant": int((relevance > 0).sum()),
            "queries": queries,
            "counted": int(counted.sum()),
        },
        settings=drawing.settings(),
        notes=tuple(notes),
    )


__all__ = ["ScoreReport", "evaluate_scores"]
