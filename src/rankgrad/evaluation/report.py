"""The result of an evaluation: values, intervals, tables and notes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..common.checks import integer
from ..common.text import aligned
from .arrays import Array
from .json_report import NUMBERS, JSONReport

Row = dict[str, Any]
ROW: Any = {"name": str, "queries": int, "counted": int, str: (float, None)}
DISTANCES = ("dists_intra", "dists_inter")  # in [0, 2]; all other metrics are in [0, 1]


@dataclass(frozen=True, eq=False)
class Report(JSONReport):
    """The result of an evaluation. All metrics are in [0, 1], higher is better, with the exceptions below.

    R@k: hit rate among the k best. AP: average precision over the whole list (its mean is known as mAP). mAP@R:
    Musgrave's, over the R best items for R relevant items. R-precision, P@1: precision (P@1 is R@1). MRR: reciprocal
    rank of the first relevant item. AUC_hardest: compares each query's worst relevant item with every query's best
    irrelevant item. NMI, AMI (which may be below 0) and dists_* (distances in [0, 2]) describe the labels and
    embeddings of the queries, not the ranking. fall-out@k and FNMR measure errors: lower is better. `measures.meaning`
    has a short text for each.

    Attributes:
        values: metric -> mean over the counted queries, weighted if weights were given.
        intervals: metric -> (low, high) of the bootstrap; only for metrics that are means over queries.
        per_query: metric -> [query] float64, in the order of the input; 0 for queries `without_relevant`.
        without_relevant: [n] rows of the queries without a relevant item.
        per_class: one row per class of the queries: class (an integer or a string), name, queries, counted, and the
            mean of each metric over its counted queries (None without any). With multi-hot labels a query is in each of
            its classes.
        per_super_label: the same rows by super-label.
        levels: for hierarchical labels, the values at each coarser level, coarsest first; `values` are at the finest.
        counts: queries, counted, gallery, classes, zero_vectors, duplicates (gallery rows equal to an earlier row).
        settings: all settings that are needed to repeat the evaluation.
        notes: remarks on the numbers, one sentence each.
    """

    without_relevant: Array
    per_class: tuple[Row, ...]
    per_super_label: tuple[Row, ...]
    levels: tuple[dict[str, float], ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    notes: tuple[str, ...] = field(default=())

    kind = "an evaluation report"
    shapes = {
        **JSONReport.shapes,
        "counts": {"queries": int, "counted": int, "gallery": int, "classes": int, str: int},
        "settings": {"protocol": str, "similarity": str, "confidence": float, "seed": int},
        "without_relevant": [int],
        "levels": [NUMBERS],
        "per_class": [{**ROW, "class": (int, str)}],
        "per_super_label": [{**ROW, "super_label": (int, str)}],
    }

    def worst_classes(self, n: int = 10, metric: str = "AP") -> tuple[Row, ...]:
        """The n classes of lowest mean `metric`, worst first. Classes without a counted query are left out."""
        integer(n, "n is a number of classes", low=0)
        if self.per_class and metric not in self.per_query:
            raise ValueError(f"no per-class metric {metric!r}; known: {', '.join(self.per_query)}")
        return tuple(sorted((row for row in self.per_class if row["counted"]), key=lambda row: float(row[metric]))[:n])

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> dict[str, Any]:
        tuples = {name: tuple(content[name]) for name in ("per_class", "per_super_label", "levels")}
        rows = np.asarray(content["without_relevant"], dtype=np.int64)
        return super()._restored(content) | tuples | {"without_relevant": rows}

    def __str__(self) -> str:
        c, s = self.counts, self.settings
        protocol = s["protocol"]
        if protocol != "leave-one-out":
            named = "" if protocol == "query-gallery" else f"{protocol}, "
            protocol = f"{named}gallery of {c['gallery']}"
        head = f"{c['counted']} queries, {protocol}, {c['classes']} classes, {s['similarity']}"
        rows = [("metric", "value", f"{100 * s['confidence']:g} % interval" if self.intervals else "")]
        for name, value in self.values.items():
            shown = f"{value:.3f}  " if name in DISTANCES else f"{100 * value:.1f} %"
            low_high = self.intervals.get(name)
            rows.append((name, shown, f"{100 * low_high[0]:.1f} - {100 * low_high[1]:.1f}" if low_high else ""))
        for level, values in enumerate(self.levels):
            rows += [(f"{name} (level {level})", f"{100 * value:.1f} %", "") for name, value in values.items()]
        return "\n".join([head, aligned(rows), *self.notes])
