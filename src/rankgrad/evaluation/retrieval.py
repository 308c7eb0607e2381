"""Evaluate retrieval: embeddings and labels -> `Report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from ..batches.distributed import require_same
from ..common.checks import Numbers, one_of, query_weights
from ..ranks.relevance import Labels
from ..search import Candidates, duplicate_rows
from ..search.scores import Similarity
from .arrays import some, to_numpy
from .clustering import metrics_of_the_set
from .counting import Counting, Names, group_table, numbered
from .levels import GalleryRanking, RankedLevel, graded_metrics, ranked_levels
from .measures import OF_LEVELS, WHOLE, AskedMetrics, ceilings, note_of_ceilings
from .problem import Problem, problem_of, super_labels_of, weight_of_each
from .report import Report
from .statistics import BOOTSTRAP, FEW_DRAWN, Bootstrap

#: NMI and AMI are not among them, as k-means takes longer than all others together.
METRICS = ("R@1", "R@2", "R@4", "R@8", *WHOLE, "AUC_hardest", *OF_LEVELS, "dists_intra", "dists_inter")


@dataclass(frozen=True)
class Protocol(Candidates):
    """What is ranked for a query, as in `search.Candidates`, and how the query counts.

    Attributes:
        weights: [query] >= 0, weight of each query in all means and in their intervals. AUC_hardest, FNMR, NMI, AMI and
            dists_* are not weighted.
        without_relevant: queries without a relevant item: "skip" leaves them out of all means, "zero" counts them with
            value 0. `Report.without_relevant` lists them in both cases.
    """

    weights: Numbers | None = None
    without_relevant: Literal["skip", "zero"] = "skip"

    def __post_init__(self) -> None:
        one_of(self.without_relevant, "without_relevant", ("skip", "zero"))


#: Every item is ranked for every query, and all queries count alike.
ALL_ITEMS = Protocol()


def evaluate(
    embeddings: Numbers,
    labels: Labels,
    ref_embeddings: Numbers | None = None,
    ref_labels: Labels | None = None,
    *,
    metrics: Sequence[str] = METRICS,
    similarity: Literal["cosine", "inner product", "euclidean"] = "cosine",
    protocol: Protocol = ALL_ITEMS,
    intervals: Bootstrap | int = BOOTSTRAP,
    super_labels: Labels | None = None,
    class_names: Names = None,
    super_names: Names = None,
    block: int | None = None,
    progress: bool = False,
    device: torch.device | str | None = None,
    shared: bool = False,
) -> Report:
    """Evaluate retrieval: rank the gallery for every query and compute all metrics exactly from the ranks.

    Without references this is leave-one-out: every item is a query against all others. Ties: AP, mAP@R and
    R-precision count an item tied with a relevant one as above it; R@k, P@1 and MRR put the lower index first.

    Args:
        embeddings: [query, dim] floats. float64 stays; other dtypes are computed in float32.
        labels: [query] integers or strings; or [query, label] bool, multi-hot: an item is relevant if it shares a
            label; or [query, level] integers or strings, a hierarchy from coarse to fine: an item is relevant if all
            levels agree. Then `Report.levels` has the values at the coarser levels, and the gain of an item in H-AP and
            H-NDCG depends on the number of shared levels.
        ref_embeddings: [item, dim] gallery; with ref_labels.
        ref_labels: labels of the gallery, of the same kind.
        metrics: names; those that these labels do not have (H-AP without a hierarchy) are left out. Beside `METRICS`:
            R@k, P@k, Recall@k, refined@k, AP@k, MRR@k, NDCG@k, fall-out@k with any k (`AP@10`; a k beyond the gallery
            means the whole gallery), those of plug-ins; NMI and AMI, with scikit-learn's KMeans, as many clusters as
            classes and 2 starts, or MiniBatchKMeans for large problems; and FNMR@FMR=f with a fraction f of false
            matches (`FNMR@FMR=0.001`): one threshold for all pairs of the counted queries; it stores f x queries x
            items scores. docs/metrics.md has the definitions.
        similarity: how to rank the gallery. "cosine": a zero vector has cosine 0 with every item; it counts, and a note
            lists it. "inner product". "euclidean": the distance between the embeddings, not normalised.
        protocol: what is ranked for a query, and how the query counts.
        intervals: how intervals are drawn, or a number of resamples; 0: no intervals. Its seed is that of k-means, too.
        super_labels: [query] integers or strings, for `Report.per_super_label`. None: the coarsest level of
            hierarchical labels.
        class_names: name of each (finest) label, a list or a mapping; for the tables only. None: the label itself.
        super_names: name of each super-label.
        block: queries ranked at once; None chooses by a memory budget.
        progress: print progress and remaining time on stderr, if it takes longer than two seconds.
        device: device of the computation; None: that of the embeddings.
        shared: True: all processes of the current torch.distributed group call this with the same input. Each ranks a
            part of the queries, and all return the same report. Without a group it has no effect.

    Returns:
        The report; print it for a table.

    Raises:
        ValueError: a value is NaN or infinite (the message has the first row), the input is empty, shapes do not fit,
            there is only one class, no query has a relevant item, an id occurs twice, or a name is missing; with
            `shared`, the input differs between processes.
        TypeError: embeddings or labels are of the wrong kind.

    >>> report = evaluate([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]], [0, 0, 1, 1], metrics=["R@1", "mAP@R"])
    >>> report.values["R@1"], report.values["mAP@R"]
    (0.5, 0.5)
    >>> print(Report.from_json(report.to_json()))
    4 queries, leave-one-out, 2 classes, cosine
    metric   value  95 % interval
    R@1     50.0 %    50.0 - 50.0
    ...
    """
    if shared:  # before all that may raise on one process alone
        require_same(embeddings=embeddings, labels=labels, ref_embeddings=ref_embeddings, ref_labels=ref_labels)
        require_same(metrics=metrics, similarity=similarity, intervals=intervals, block=block)
        require_same(super_labels=super_labels, class_names=class_names, super_names=super_names)
        require_same(**getattr(protocol, "__dict__", {"protocol": protocol}))
    asked, drawing = AskedMetrics.of(metrics), Bootstrap.of(intervals)
    if ref_embeddings is None and protocol.ref_ids is not None:
        raise ValueError("got ref_ids without ref_embeddings: pass ref_embeddings, too")
    problem = problem_of(embeddings, labels, ref_embeddings, ref_labels, similarity, device)
    classes = problem.levels[-1]
    weight = weight_of_each(protocol.weights, len(classes))
    coarse = super_labels_of(super_labels, problem)

    # cosines are inner products of rows of length 1
    scores: Similarity = "euclidean" if similarity == "euclidean" else "inner product"
    *coarser, finest = ranked_levels(problem, GalleryRanking(asked, protocol, scores, block, progress, shared))
    counting, *coarser_counting = (Counting.of(each, weight, protocol.without_relevant) for each in (finest, *coarser))
    if protocol.weights is not None:
        query_weights(protocol.weights, torch.from_numpy(counting.inside))
    # with groups each level ranks another gallery, so the levels cannot be combined
    graded = graded_metrics([*coarser, finest]) if coarser and protocol.groups is None else {}
    per_query = asked.only(finest.per_query | graded)

    drawing = drawing if classes.ndim == 1 else replace(drawing, by="query")
    group = to_numpy(classes) if drawing.by == "class" else np.arange(len(classes))
    of_the_set, method = metrics_of_the_set(problem.queries, classes, asked.clusters, drawing.seed, shared, progress)
    of_classes = group_table("class", to_numpy(classes), problem.shown, class_names, per_query, counting)
    notes = [*problem.notes, *_odd_queries(finest, protocol.without_relevant), *_of_values(asked, finest, counting)]
    if drawing.resamples and (drawable := len(np.unique(group[counting.weighed]))) < FEW_DRAWN:
        notes.append(f"The intervals come from only {drawable} {'classes' if drawing.by == 'class' else 'queries'}.")
    if asked.clusters and classes.ndim == 1 and method == "none":
        notes.append("No NMI and AMI: k-means needs scikit-learn, which is not installed.")
    return Report(
        values=asked.only(counting.means(per_query) | finest.of_pairs | of_the_set),
        intervals=counting.intervals(per_query, group, drawing),
        per_query=per_query,
        without_relevant=np.flatnonzero(~finest.counted),
        per_class=of_classes,
        per_super_label=()
        if coarse is None
        else group_table("super_label", *numbered(coarse), super_names, per_query, counting),
        levels=tuple(asked.only(of.means(each.per_query)) for of, each in zip(coarser_counting, coarser, strict=True)),
        counts=_counts(problem, counting),
        settings=_settings(problem, protocol, similarity, asked, method) | drawing.settings(),
        notes=tuple(notes),
    )


def _settings(
    problem: Problem, protocol: Protocol, similarity: str, asked: AskedMetrics, clusters: str
) -> dict[str, Any]:
    return {
        "protocol": "leave-one-out" if problem.leave_one_out else "query-gallery",
        "similarity": similarity,
        "metrics": list(asked.names),
        "groups": protocol.groups is not None,
        "ignore": protocol.ignore is not None,
        "weights": protocol.weights is not None,
        "clusters": clusters,
        "without_relevant": protocol.without_relevant,
        "precision": str(problem.queries.dtype).removeprefix("torch."),
    }


def _of_values(asked: AskedMetrics, level: RankedLevel, counting: Counting) -> list[str]:
    """The note about highest possible values, if they are below 1."""
    highest = counting.means(ceilings(asked.names, level.relevant))
    return note_of_ceilings({name: f"{100 * value:.1f} %" for name, value in highest.items() if value < 1})


def _odd_queries(level: RankedLevel, without_relevant: str) -> list[str]:
    """Notes about queries without a relevant item, and about queries that may retrieve their own copy."""
    notes, rows = [], np.flatnonzero(~level.counted)
    if len(rows):
        one, skips = len(rows) == 1, without_relevant == "skip"
        which = "1 query has" if one else f"{len(rows)} queries have"
        fate = f"{'is' if one else 'are'} left out of all means" if skips else f"{'counts' if one else 'count'} 0"
        notes.append(f"{which} no relevant item and {fate}: {'row' if one else 'rows'} {some(rows)}.")
    if len(level.copies):
        notes.append(
            f"{len(level.copies)} queries have a relevant item with the same embedding in the gallery: rows "
            f"{some(level.copies)}. If these are the same samples, pass ids and ref_ids. Otherwise each query "
            "retrieves itself."
        )
    return notes


def _counts(problem: Problem, counting: Counting) -> dict[str, int]:
    classes = problem.levels[-1]
    return {
        "queries": len(classes),
        "counted": int(counting.inside.sum()),
        "gallery": len(problem.gallery),
        "classes": classes.shape[1] if classes.ndim == 2 else len(torch.unique(classes)),
        "zero_vectors": problem.zero_vectors,
        "duplicates": len(duplicate_rows(problem.gallery)[0]),
    }
