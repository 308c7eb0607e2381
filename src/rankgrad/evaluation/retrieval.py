"""Evaluate retrieval: embeddings and labels -> `Report`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..batches.distributed import require_same
from ..common.checks import Numbers, coverage, integer, list_length, one_of, query_weights
from ..ranks.relevance import Ids, Labels
from ..search import Protocol, duplicate_rows
from ..search.scores import Similarity
from .arrays import some, to_numpy
from .clustering import metrics_of_the_set
from .counting import Counting, Names, group_table, numbered
from .levels import GalleryRanking, RankedLevel, graded_metrics, ranked_levels
from .measures import WHOLE, Read, ceilings, false_match_rate, listed, note_of_ceilings, reading
from .problem import Problem, problem_of, super_labels_of, weight_of_each
from .report import Report
from .statistics import FEW_DRAWN


def evaluate(
    embeddings: Numbers,
    labels: Labels,
    *,
    ref_embeddings: Numbers | None = None,
    ref_labels: Labels | None = None,
    ids: Ids | None = None,
    ref_ids: Ids | None = None,
    groups: Labels | None = None,
    ref_groups: Labels | None = None,
    ignore: Sequence[Ids] | None = None,
    weights: Numbers | None = None,
    super_labels: Labels | None = None,
    class_names: Names = None,
    super_names: Names = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    extra: Sequence[str] = (),
    similarity: Literal["cosine", "inner product", "euclidean"] = "cosine",
    bootstrap: int = 1000,
    confidence: float = 0.95,
    resample: Literal["class", "query"] = "class",
    seed: int = 0,
    clusters: Literal["auto", "none"] = "auto",
    query_without_relevant: Literal["skip", "miss"] = "skip",
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
        ids: [query] sample ids (integers or strings), distinct. With ref_ids, the gallery item with the query's own id
            is not ranked for it.
        ref_ids: [item] sample ids of the gallery, distinct.
        groups: [query] group ids, integers or strings, such as the camera or the sequence of an image. A relevant item
            of the query's own group is not ranked for it (the protocol of re-identification). Irrelevant ones are.
        ref_groups: [item] group ids of the gallery.
        ignore: for each query a list of ids of items that are not ranked for it (from ref_ids; without a gallery from
            ids). Unknown ids have no effect.
        weights: [query] >= 0, weight of each query in all means and in their intervals. AUC_hardest, FNMR, NMI, AMI and
            dists_* are not weighted.
        super_labels: [query] integers or strings, for `Report.per_super_label`. None: the coarsest level of
            hierarchical labels.
        class_names: name of each (finest) label, a list or a mapping; for the tables only. None: the label itself.
        super_names: name of each super-label.
        ks: list lengths of R@k; a k beyond the gallery means the whole gallery.
        extra: more metrics, by name: P@k, found@k, refined@k, AP@k, MRR@k, NDCG@k, fall-out@k with any k (`AP@10`),
            and FNMR@FMR=f with a fraction f of false matches (`FNMR@FMR=0.001`): one threshold for all pairs of the
            counted queries; it stores f x queries x items scores. docs/metrics.md has the definitions.
        similarity: how to rank the gallery. "cosine": a zero vector has cosine 0 with every item; it counts, and a note
            lists it. "inner product". "euclidean": the distance between the embeddings, not normalised.
        bootstrap: number of resamples for the intervals; 0: no intervals.
        confidence: coverage of the intervals.
        resample: what the bootstrap draws. "class" draws whole classes. Its intervals are wider and more correct,
            because queries of a class retrieve each other and are not independent. "query" draws queries as if they
            were independent. With multi-hot labels, which have no single class, queries are drawn.
        seed: seed of the bootstrap and of k-means.
        clusters: "auto": NMI and AMI with scikit-learn's KMeans, as many clusters as classes, 2 starts, or with
            MiniBatchKMeans for large problems (see `Report.settings`). Without scikit-learn a note replaces them.
            "none": no NMI and AMI.
        query_without_relevant: "skip" leaves such queries out of all means, "miss" counts them with value 0. Both
            list them in `Report.uncounted`.
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

    >>> report = evaluate([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]], [0, 0, 1, 1], ks=[1], clusters="none")
    >>> report.values["R@1"], report.values["mAP@R"]
    (0.5, 0.5)
    >>> print(Report.from_json(report.to_json()))
    4 queries, leave-one-out, 2 classes, cosine
    metric        value  95 % interval
    R@1          50.0 %    50.0 - 50.0
    ...
    """
    if shared:
        given = dict(locals())
        require_same(**{name: value for name, value in given.items() if name not in ("device", "progress", "shared")})
    ks, readings, rates = _asked(ks, extra)
    bootstrap = integer(bootstrap, "bootstrap is a number of resamples", low=0)
    seed = integer(seed, "seed is the seed of bootstrap and k-means", low=0)
    _check_settings(confidence, resample, clusters, query_without_relevant, similarity)
    if ref_embeddings is None and ref_ids is not None:
        raise ValueError("got ref_ids without ref_embeddings: pass ref_embeddings, too")
    problem = problem_of(embeddings, labels, ref_embeddings, ref_labels, similarity, device)
    classes = problem.levels[-1]
    weight = weight_of_each(weights, len(classes))
    coarse = super_labels_of(super_labels, problem)

    # cosines are inner products of rows of length 1
    scores: Similarity = "euclidean" if similarity == "euclidean" else "inner product"
    protocol = Protocol(ids, ref_ids, groups, ref_groups, ignore, scores)
    *coarser, finest = ranked_levels(problem, GalleryRanking(readings, rates, protocol, block, progress, shared))
    # with groups each level ranks another gallery, so the levels cannot be combined
    graded = graded_metrics([*coarser, finest]) if coarser and groups is None else {}
    per_query = finest.per_query | graded
    counting = Counting.of(finest, weight, query_without_relevant)
    if weights is not None:
        query_weights(weights, torch.from_numpy(counting.inside))

    drawn = "query" if classes.ndim == 2 else resample
    group = to_numpy(classes) if drawn == "class" else np.arange(len(classes))
    of_the_set, method = metrics_of_the_set(problem.queries, classes, clusters == "auto", seed, shared, progress)
    notes = [*problem.notes, *_odd_queries(finest, query_without_relevant)]
    highest = counting.means(ceilings(readings, finest.relevant))
    notes += note_of_ceilings({name: f"{100 * value:.1f} %" for name, value in highest.items() if value < 1})
    if bootstrap and (drawable := len(np.unique(group[counting.weighed]))) < FEW_DRAWN:
        notes.append(f"The intervals come from only {drawable} {'classes' if drawn == 'class' else 'queries'}.")
    if clusters == "auto" and classes.ndim == 1 and method == "none":
        notes.append("No NMI and AMI: k-means needs scikit-learn, which is not installed.")
    return Report(
        values=counting.means(finest.per_query) | finest.of_pairs | counting.means(graded) | of_the_set,
        intervals=counting.intervals(per_query, group, bootstrap, confidence, seed) if bootstrap else {},
        per_query=per_query,
        uncounted=np.flatnonzero(~finest.counted),
        per_class=group_table("class", to_numpy(classes), problem.shown, class_names, per_query, counting),
        per_super_label=()
        if coarse is None
        else group_table("super_label", *numbered(coarse), super_names, per_query, counting),
        levels=tuple(Counting.of(each, weight, query_without_relevant).means(each.per_query) for each in coarser),
        counts=_counts(problem, counting),
        settings={
            "protocol": "leave-one-out" if problem.leave_one_out else "query-gallery",
            "similarity": similarity,
            "ks": ks,
            "extra": list(extra),
            "groups": groups is not None,
            "ignore": ignore is not None,
            "weights": weights is not None,
            "bootstrap": bootstrap,
            "confidence": confidence,
            "resample": drawn,
            "seed": seed,
            "clusters": method,
            "query_without_relevant": query_without_relevant,
            "precision": str(problem.queries.dtype).removeprefix("torch."),
        },
        notes=tuple(notes),
    )


def _asked(ks: object, extra: Sequence[str]) -> tuple[list[int], dict[str, Read], dict[str, float]]:
    """List lengths, metric -> function of the ranks, and metric -> false match rate."""
    if (
        not isinstance(ks, (Sequence, np.ndarray, Tensor))
        or isinstance(ks, str)
        or getattr(ks, "ndim", 1) != 1
        or not len(ks)
    ):
        raise ValueError(f"ks must be a list of list lengths, at least one, integers >= 1; got {ks!r}")
    lengths = [list_length(k, "ks are list lengths") for k in ks]
    extra = listed(extra, "extra", least=0)
    rates = {name: rate for name in extra if (rate := false_match_rate(name)) is not None}
    names = (*(f"R@{k}" for k in lengths), *WHOLE, *(name for name in extra if name not in rates))
    return lengths, {name: reading(name) for name in names}, rates


def _check_settings(
    confidence: float, resample: str, clusters: str, query_without_relevant: str, similarity: str
) -> None:
    coverage(confidence)
    one_of(resample, "resample", ("class", "query"))
    one_of(clusters, "clusters", ("auto", "none"))
    one_of(query_without_relevant, "query_without_relevant", ("skip", "miss"))
    one_of(similarity, "similarity", ("cosine", "inner product", "euclidean"))


def _odd_queries(level: RankedLevel, query_without_relevant: str) -> list[str]:
    """Notes about queries without a relevant item, and about queries that may retrieve their own copy."""
    notes = []
    uncounted = np.flatnonzero(~level.counted)
    if len(uncounted) == 1:
        counts = "is left out of all means" if query_without_relevant == "skip" else "counts as a miss"
        notes.append(f"1 query has no relevant item and {counts}: row {uncounted[0]}.")
    elif len(uncounted):
        count = "are left out of all means" if query_without_relevant == "skip" else "count as misses"
        notes.append(f"{len(uncounted)} queries have no relevant item and {count}: rows {some(uncounted)}.")
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
