"""Scores of a table's rows -> `ScoreReport`: metrics of one list, or means over queries, with intervals."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import Numbers, integer, number
from ..checks import tensor as as_tensor
from ..evaluation import FEW_DRAWN, intervals_of_means
from ..evaluation.graded import GradedRanks, need_graded
from ..evaluation.measures import PARTIAL
from ..files import AGAIN
from ..losses.by_query import Rectangles
from ..metrics import Gain
from ..tables import aligned
from .one_list import RankedRows, reading
from .table import ScoreTable

Array = npt.NDArray[Any]
OF_ONE_LIST = ("AP", "ROC AUC", f"{PARTIAL}0.05", "P@100")
OF_QUERIES = ("NDCG@10", "AP", "MRR", "P@10")


@dataclass(frozen=True, eq=False)
class ScoreReport:
    """What an evaluation of scores found. All metrics lie in 0 .. 1, and higher is better.

    Attributes:
        values: metric -> its value of the one list, or its mean over the queries that have a relevant row.
        intervals: metric -> (low, high) of the bootstrap, over rows or over queries.
        per_query: metric -> [query] float64; NaN for a query without a relevant row. Empty for one list.
        query_names: [query] its name in the file.
        counts: rows, relevant; with queries also queries and counted.
        settings: bootstrap, confidence, seed, and the gains of NDCG.
        notes: what a reader of the numbers should know, one sentence each.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    per_query: dict[str, Array]
    query_names: tuple[str, ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()

    def queries_by(self, metric: str) -> list[tuple[str, float]]:
        """(name, value) of the queries that have a relevant row, the worst first.

        Args:
            metric: of `per_query`.
        """
        values = self.per_query[metric]
        order = np.argsort(values, kind="stable")  # NaN comes last
        return [(self.query_names[query], float(values[query])) for query in order if not np.isnan(values[query])]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as JSON, also written to `path` if given; `from_json` reads it back."""
        plain = asdict(self)
        columns = {
            name: [None if np.isnan(v) else v for v in column.tolist()] for name, column in self.per_query.items()
        }
        text = json.dumps({**plain, "per_query": columns}, allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> ScoreReport:
        """Read a report back, from the text of `to_json` or from a file.

        Args:
            source: JSON text (begins with a brace) or a path.

        Raises:
            ValueError: it is no report, or damaged.
        """
        inline = isinstance(source, str) and source.lstrip().startswith("{")
        try:
            text = str(source) if inline else Path(source).read_text(encoding="utf-8")
            return cls._read(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            where = "the text" if inline else source
            raise ValueError(f"{where} is not a report of scores, or it is damaged: {error}. {AGAIN}") from None

    @classmethod
    def _read(cls, plain: Any) -> ScoreReport:
        if not isinstance(plain, dict) or set(plain) != set(cls.__dataclass_fields__):
            keys = sorted(plain) if isinstance(plain, dict) else type(plain).__name__
            raise ValueError(f"needed the keys {sorted(cls.__dataclass_fields__)}, got {keys}")
        report = cls(
            values={str(name): float(value) for name, value in plain["values"].items()},
            intervals={str(name): (float(low), float(high)) for name, (low, high) in plain["intervals"].items()},
            per_query={str(name): np.array(column, dtype=np.float64) for name, column in plain["per_query"].items()},
            query_names=tuple(map(str, plain["query_names"])),
            counts={str(name): int(count) for name, count in plain["counts"].items()},
            settings=dict(plain["settings"]),
            notes=tuple(map(str, plain["notes"])),
        )
        if not {"rows", "relevant"} <= set(report.counts) or "confidence" not in report.settings:
            raise ValueError("counts or settings are not as they were written")
        if any(column.shape != (len(report.query_names),) for column in report.per_query.values()):
            raise ValueError("per_query does not fit query_names")
        return report

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScoreReport) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def __str__(self) -> str:
        c = self.counts
        head = f"{c['rows']} rows, {c['relevant']} relevant"
        if "queries" in c:
            head += f", {c['counted']} queries"
        rows = [("metric", "value", f"{100 * self.settings['confidence']:g} % interval" if self.intervals else "")]
        for name, value in self.values.items():
            bounds = self.intervals.get(name)
            rows.append(
                (name, f"{100 * value:.1f} %", f"{100 * bounds[0]:.1f} - {100 * bounds[1]:.1f}" if bounds else "")
            )
        return "\n".join([head, aligned(rows), *self.notes])


def evaluate_scores(
    scores: Numbers,
    table: ScoreTable,
    *,
    metrics: Sequence[str] | None = None,
    bootstrap: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    gain: Gain = "exp2",
) -> ScoreReport:
    """Evaluate the scores of a table's rows.

    A table without queries is one list: AP, ROC AUC, ROC AUC up to a false positive rate of .05, and P@100. Its
    intervals are of rows drawn with replacement. A table with queries has means over its queries: NDCG@10, AP (the mean
    is known as MAP), MRR and P@10. Their intervals are of queries drawn with replacement. A query without a relevant
    row is left out of the means, and the notes say how many there are.

    Rows of one score: AP counts them as above one another (as scikit-learn does), NDCG takes the mean of their
    discounts, ROC AUC counts a half, and P@k and MRR put the irrelevant ones first.

    Args:
        scores: [row] floats; higher is more relevant.
        table: the rows, with relevance.
        metrics: names. Of one list: see `one_list.reading`. With queries: see `evaluation.measures.reading`.
        bootstrap: number of resamples for the intervals; 0: none.
        confidence: coverage of the intervals.
        seed: of the resamples.
        gain: of NDCG, for a grade g: "exp2" 2^g - 1, or "linear" g.

    Raises:
        ValueError: a score is NaN or infinite, naming the row; no row is relevant, or all are; an unknown metric.

    >>> table = ScoreTable({"x": np.zeros(4)}, torch.tensor([1.0, 0.0, 1.0, 0.0]))
    >>> print(evaluate_scores([0.9, 0.6, 0.5, 0.1], table, metrics=["AP", "ROC AUC"], bootstrap=0))
    4 rows, 2 relevant
    metric    value
    AP       83.3 %
    ROC AUC  75.0 %
    """
    integer(bootstrap, "bootstrap is a number of resamples", low=0)
    number(confidence, "confidence is a coverage", above=0, high=1)
    integer(seed, "seed begins the random numbers of the bootstrap", low=0)
    if gain not in ("exp2", "linear"):
        raise ValueError(f"gain must be 'exp2' or 'linear'; got {gain!r}")
    if table.relevance is None:
        raise ValueError(f"{table.name} was read without a label: there is nothing to hold the scores against")
    found = _checked(scores, table)
    names = list(OF_ONE_LIST if table.query is None else OF_QUERIES) if metrics is None else list(metrics)
    settings = {"bootstrap": bootstrap, "confidence": confidence, "seed": seed, "gain": gain}
    if table.query is None:
        return _of_one_list(found, table, table.relevance, names, settings)
    return _of_queries(found, table, table.relevance, table.query, names, settings)


def _checked(scores: Numbers, table: ScoreTable) -> Tensor:
    """[row] float64 finite scores."""
    found = as_tensor(scores, "scores").detach().cpu().double()
    if found.shape != (len(table),):
        raise ValueError(f"scores must be [row], one for each of {len(table)} rows; got {tuple(found.shape)}")
    bad = ~found.isfinite()
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"{table.place(row)}: the score is {float(found[row])} ({int(bad.sum())} of {len(table)} scores are not "
            "finite). The model has diverged; train it with a smaller learning rate"
        )
    return found


def _of_one_list(
    scores: Tensor, table: ScoreTable, relevance: Tensor, names: list[str], settings: dict[str, Any]
) -> ScoreReport:
    readings = {name: reading(name) for name in names}
    relevant = relevance.numpy() > 0
    count = int(relevant.sum())
    if not 0 < count < len(relevant):
        raise ValueError(
            f"{count} of the {len(relevant)} rows of {table.name} to evaluate are relevant; to rank takes a relevant "
            "and an irrelevant row. Give more rows, or divide them in another way"
        )
    rows = RankedRows.of(scores.numpy(), relevant)
    intervals: dict[str, tuple[float, float]] = {}
    if settings["bootstrap"]:
        parts = [
            [read(groups) for read in readings.values()]
            for groups in rows.draws(settings["bootstrap"], settings["seed"])
        ]
        tail = (1 - settings["confidence"]) / 2
        for name, *columns in zip(names, *parts, strict=True):
            # a draw without a relevant row has no value; such a draw is left out
            low, high = np.nanquantile(np.concatenate(columns), [tail, 1 - tail]).tolist()
            intervals[name] = (low, high)
    groups = rows.groups()
    notes = []
    fewer = min(count, len(relevant) - count)
    if settings["bootstrap"] and fewer < FEW_DRAWN:
        notes.append(
            f"Only {fewer} rows are {'relevant' if fewer == count else 'irrelevant'}: the intervals are rough."
        )
    return ScoreReport(
        values={name: float(read(groups)[0]) for name, read in readings.items()},
        intervals=intervals,
        per_query={},
        query_names=(),
        counts={"rows": len(relevant), "relevant": count},
        settings=settings,
        notes=tuple(notes),
    )


def _of_queries(
    scores: Tensor, table: ScoreTable, relevance: Tensor, query: Tensor, names: list[str], settings: dict[str, Any]
) -> ScoreReport:
    need_graded(names)
    queries = int(query.max()) + 1
    counted = torch.bincount(query, weights=relevance.double(), minlength=queries).numpy() > 0
    if not counted.any():
        raise ValueError(
            f"none of the {queries} queries of {table.name} to evaluate has a relevant row: nothing can be evaluated"
        )
    # of rows with one score the first is above: so the irrelevant ones stand first
    order = torch.from_numpy(np.lexsort((relevance.numpy(), query.numpy())))
    shape = Rectangles.of(query[order], separate=True)
    lists = [
        GradedRanks(keys, gains, valid, settings["gain"])
        for keys, gains, valid in zip(shape.cut(scores[order]), shape.cut(relevance[order]), shape.valid(), strict=True)
    ]
    per_query = {name: shape.by_id([each.metric(name).double() for each in lists]).numpy() for name in names}
    columns = {name: column[counted] for name, column in per_query.items()}
    every = np.arange(counted.sum())
    intervals: dict[str, tuple[float, float]] = {}
    if settings["bootstrap"]:
        intervals = intervals_of_means(
            columns, every, np.ones(len(every)), settings["bootstrap"], settings["confidence"], settings["seed"]
        )
    skipped = queries - len(every)
    notes = []
    if skipped:
        notes.append(f"Left out of all means, for want of a relevant row: {skipped} of {queries} queries.")
    if settings["bootstrap"] and len(every) < FEW_DRAWN:
        notes.append(f"Only {len(every)} queries count: the intervals are rough.")
    return ScoreReport(
        values={name: float(column.mean()) for name, column in columns.items()},
        intervals=intervals,
        per_query={name: np.where(counted, column, np.nan) for name, column in per_query.items()},
        query_names=table.query_names or tuple(str(number) for number in range(queries)),
        counts={
            "rows": len(scores),
            "relevant": int((relevance > 0).sum()),
            "queries": queries,
            "counted": len(every),
        },
        settings=settings,
        notes=tuple(notes),
    )


__all__ = ["ScoreReport", "evaluate_scores"]
