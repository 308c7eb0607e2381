r"""Embeddings and labels -> `Report`: exact values of every retrieval metric, with intervals, tables and notes.

The metrics are the functions of `metrics.py`, which training also uses. The ranks come from `search.rank_blocks`, which
never stores the whole score matrix: 60 000 x 60 000 needs a few hundred MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import metrics
from ..checks import Numbers, coverage, integer, list_length, query_weights
from ..checks import tensor as as_tensor
from ..distributed import gather_objects, on_all, on_first, require_same, world
from ..normalize import unit_rows
from ..progress import steps
from ..relevance import Ids, Labels, as_labels, words_of
from ..search import RankBlock, check_embeddings, duplicate_rows, rank_blocks
from ..tables import aligned
from .json_report import JSONReport, are_numbers
from .measures import WHOLE, Read, false_match_rate, listed, needs_irrelevant, reading
from .statistics import intervals_of_means

Array = npt.NDArray[Any]
Names = Sequence[str] | Mapping[int, str] | Mapping[str, str] | None
Row = dict[str, Any]

# n x k x dim of k-means; above it (about a second per iteration on one core) mini-batches are used
KMEANS_LIMIT = 3e10
KMEANS_SHORT = 1e9  # n x k x dim; below it k-means takes about two seconds and shows no progress bar
NAMED = 10  # largest number of rows that a note lists
FEW_DRAWN = 10  # classes or queries; intervals from fewer get a note
SAME = 1e-5  # relative to a row's largest entry: embeddings of the same image in two batches differ by less
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
        per_query: metric -> [query] float64, in the order of the input; 0 for `uncounted` queries.
        uncounted: [n] rows of the queries without a relevant item.
        per_class: one row per class of the queries: class (an integer or a string), name, queries, counted, and the
            mean of each metric over its counted queries (None without any). With multi-hot labels a query is in each of
            its classes.
        per_super_label: the same rows by super-label.
        levels: for hierarchical labels, the values at each coarser level, coarsest first; `values` are at the finest.
        counts: queries, counted, gallery, classes, zero_vectors, duplicates (gallery rows equal to an earlier row).
        settings: all settings that are needed to repeat the evaluation.
        notes: remarks on the numbers, one sentence each.
    """

    uncounted: Array
    per_class: tuple[Row, ...]
    per_super_label: tuple[Row, ...]
    levels: tuple[dict[str, float], ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    notes: tuple[str, ...] = field(default=())

    kind = "an evaluation report"
    needs = {"counts": ("queries", "counted", "gallery", "classes"), "settings": ("protocol", "similarity")}

    def worst_classes(self, n: int = 10, metric: str = "AP") -> tuple[Row, ...]:
        """The n classes of lowest mean `metric`, worst first. Classes without a counted query are left out."""
        integer(n, "n is a number of classes", low=0)
        if self.per_class and metric not in self.per_query:
            raise ValueError(f"no per-class metric {metric!r}; known: {', '.join(self.per_query)}")
        return tuple(sorted((row for row in self.per_class if row["counted"]), key=lambda row: float(row[metric]))[:n])

    @classmethod
    def _fitting(cls, content: dict[str, Any]) -> dict[str, bool]:
        rows = [*content["per_class"], *content["per_super_label"]]
        return super()._fitting(content) | {
            "levels": all(are_numbers(level) for level in content["levels"]),
            "rows": all(isinstance(row, dict) and {"name", "queries", "counted"} <= set(row) for row in rows),
        }

    @classmethod
    def _restored(cls, content: dict[str, Any]) -> dict[str, Any]:
        tuples = {name: tuple(content[name]) for name in ("per_class", "per_super_label", "levels")}
        uncounted = np.asarray(content["uncounted"], dtype=np.int64)
        return super()._restored(content) | tuples | {"uncounted": uncounted}

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
    problem = _problem(embeddings, labels, ref_embeddings, ref_labels, similarity, device)
    classes = problem.levels[-1]
    weight = _weight_of_each(weights, len(classes))
    coarse = _super_labels(super_labels, problem)

    protocol = {
        "ids": ids,
        "ref_ids": ref_ids,
        "groups": groups,
        "ref_groups": ref_groups,
        "ignore": ignore,
        "similarity": "euclidean" if similarity == "euclidean" else "inner product",  # cosines: rows have length 1
        "block": block,
    }
    *coarser, finest = _ranked_levels(problem, _Ranking(readings, rates, protocol, progress, shared))
    # with groups each level ranks another gallery, so the levels cannot be combined
    graded = _graded([*coarser, finest]) if coarser and groups is None else {}
    per_query = finest.per_query | graded
    counting = _Counting.of(finest, weight, query_without_relevant)
    if weights is not None:
        query_weights(weights, torch.from_numpy(counting.inside))

    drawn = "query" if classes.ndim == 2 else resample
    group = _array(classes) if drawn == "class" else np.arange(len(classes))
    of_the_set, method = _of_the_set(problem.queries, classes, clusters == "auto", seed, shared, progress)
    notes = [*problem.notes, *_odd_queries(finest, query_without_relevant)]
    if bootstrap and (drawable := len(np.unique(group[counting.weighed]))) < FEW_DRAWN:
        notes.append(f"The intervals come from only {drawable} {'classes' if drawn == 'class' else 'queries'}.")
    if clusters == "auto" and classes.ndim == 1 and method == "none":
        notes.append("No NMI and AMI: k-means needs scikit-learn, which is not installed.")
    return Report(
        values=counting.means(finest.per_query) | finest.of_pairs | counting.means(graded) | of_the_set,
        intervals=counting.intervals(per_query, group, bootstrap, confidence, seed) if bootstrap else {},
        per_query=per_query,
        uncounted=np.flatnonzero(~finest.counted),
        per_class=_table("class", _array(classes), problem.shown, class_names, per_query, counting),
        per_super_label=()
        if coarse is None
        else _table("super_label", *_numbered(coarse), super_names, per_query, counting),
        levels=tuple(_Counting.of(each, weight, query_without_relevant).means(each.per_query) for each in coarser),
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


# ---------------------------------------------------------------------------------------------------------- the input


@dataclass(frozen=True)
class _Problem:
    """Checked input on one device.

    Attributes:
        queries, gallery: [query, dim] and [item, dim]; the same tensor in leave-one-out.
        levels, ref_levels: labels of the queries and of the gallery at each level of a hierarchy, [query] long,
            numbered from 0; or one multi-hot [query, label] bool. The last level is evaluated.
        shown: [class] the given labels, for the tables.
        hierarchy: [query, level] the given integers or strings, or None.
    """

    queries: Tensor
    gallery: Tensor
    levels: list[Tensor]
    ref_levels: list[Tensor]
    shown: Array
    hierarchy: Array | None
    zero_vectors: int
    notes: tuple[str, ...]

    @property
    def leave_one_out(self) -> bool:
        return self.gallery is self.queries


def _problem(
    embeddings: Numbers,
    labels: Labels,
    ref_embeddings: Numbers | None,
    ref_labels: Labels | None,
    similarity: str,
    device: torch.device | str | None,
) -> _Problem:
    queries = _embeddings("embeddings", embeddings, device)
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("got only one of ref_embeddings and ref_labels: pass both or neither")
    gallery = queries if ref_embeddings is None else _embeddings("ref_embeddings", ref_embeddings, queries.device)
    truth, ref_truth = _truth(labels, ref_labels, queries, gallery)
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    sides = {"embeddings": queries.to(dtype)}
    if gallery is not queries:
        sides["ref_embeddings"] = gallery.to(dtype)
    zeros = {name: _array((~side.any(dim=1)).nonzero().squeeze(1)) for name, side in sides.items()}
    if similarity == "cosine":
        sides = {name: unit_rows(side) for name, side in sides.items()}
    levels, ref_levels, shown = _levels(truth, ref_truth)
    if truth.dtype != torch.bool and len(torch.unique(torch.cat([levels[-1], ref_levels[-1]]))) < 2:
        raise ValueError(
            "labels have only one class: every item is relevant to every query, so every metric is 1. "
            "Evaluate at least two classes together."
        )
    words = words_of(labels) if ref_labels is None else words_of(labels, ref_labels)
    return _Problem(
        queries=sides["embeddings"],
        gallery=sides.get("ref_embeddings", sides["embeddings"]),
        levels=levels,
        ref_levels=ref_levels,
        shown=shown if words is None else words[shown],
        hierarchy=None if len(levels) == 1 else _array(truth) if words is None else words[_array(truth)],
        zero_vectors=sum(map(len, zeros.values())),
        notes=tuple(
            f"{len(rows)} zero vectors in {name} have score 0 with every item: rows {_some(rows)}."
            for name, rows in zeros.items()
            if len(rows) and similarity != "euclidean"
        ),
    )


def _truth(labels: Labels, ref_labels: Labels | None, queries: Tensor, gallery: Tensor) -> tuple[Tensor, Tensor]:
    """Labels of queries and gallery as tensors, the same tensor twice without references; shapes are checked."""
    sides = zip(("labels", "ref_labels"), as_labels(labels, ref_labels), (queries, gallery), strict=False)
    both = [_checked_labels(name, side, len(rows), queries.device) for name, side, rows in sides]
    truth, ref_truth = both[0], both[-1]
    if gallery.shape[1] != queries.shape[1]:
        raise ValueError(
            f"embeddings and ref_embeddings must have the same width; got {queries.shape[1]} and {gallery.shape[1]}"
        )
    if (truth.dtype == torch.bool) != (ref_truth.dtype == torch.bool) or truth.shape[1:] != ref_truth.shape[1:]:
        raise ValueError(
            f"labels and ref_labels must have the same dtype and columns; got {truth.dtype} {tuple(truth.shape)} and "
            f"{ref_truth.dtype} {tuple(ref_truth.shape)}"
        )
    return truth, ref_truth


def _embeddings(name: str, value: Numbers, device: torch.device | str | None) -> Tensor:
    given = as_tensor(value, name).detach()
    check_embeddings(name, given)
    wide = given.dtype == torch.float64
    return given.to(device=device if device is not None else given.device, dtype=given.dtype if wide else torch.float32)


def _checked_labels(name: str, labels: Tensor, length: int, device: torch.device) -> Tensor:
    if labels.ndim not in (1, 2) or (labels.dtype == torch.bool and labels.ndim == 1) or 0 in labels.shape[1:]:
        raise ValueError(
            f"{name} must be integers or strings [row], multi-hot bool [row, label] or hierarchical integers or "
            f"strings [row, level]; got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if len(labels) != length:
        raise ValueError(f"{name} must have one row per embedding, {length}; got {len(labels)}")
    return labels.to(device)


def _levels(truth: Tensor, ref_truth: Tensor) -> tuple[list[Tensor], list[Tensor], Array]:
    """Labels of queries and gallery at every level, with classes numbered from 0; and the given finest labels."""
    if truth.dtype == torch.bool:
        return [truth], [ref_truth], np.arange(truth.shape[1])
    both = torch.cat([truth, ref_truth])
    both = both.unsqueeze(1) if both.ndim == 1 else both
    levels, ref_levels, named = [], [], both
    for level in range(both.shape[1]):
        # compare all levels up to this one, because different parents may use the same labels
        named, number = torch.unique(both[:, : level + 1], dim=0, return_inverse=True)
        levels.append(number[: len(truth)])
        ref_levels.append(number[len(truth) :])
    return levels, ref_levels, _array(named[:, -1])


def _super_labels(super_labels: Labels | None, problem: _Problem) -> Array | None:
    if super_labels is None:
        return None if problem.hierarchy is None else problem.hierarchy[:, 0]
    (given,) = as_labels(super_labels, names=("super_labels",))
    given = _checked_labels("super_labels", given, len(problem.queries), torch.device("cpu"))
    if given.ndim != 1:
        raise ValueError(f"super_labels must be integers or strings, one per query; got shape {tuple(given.shape)}")
    words = words_of(super_labels)
    return _array(given) if words is None else words[_array(given)]


def _weight_of_each(weights: Numbers | None, queries: int) -> Array:
    """[query] float64, 1 without weights."""
    if weights is None:
        return np.ones(queries)
    return _array(query_weights(weights, torch.ones(queries, dtype=torch.bool, device="cpu")))


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
    for name, value, known in (
        ("resample", resample, ("class", "query")),
        ("clusters", clusters, ("auto", "none")),
        ("query_without_relevant", query_without_relevant, ("skip", "miss")),
        ("similarity", similarity, ("cosine", "inner product", "euclidean")),
    ):
        if value not in known:
            raise ValueError(f"{name} must be {', '.join(map(repr, known[:-1]))} or {known[-1]!r}; got {value!r}")


# -------------------------------------------------------------------------------------------------------- the numbers


@dataclass(frozen=True)
class _Ranking:
    """How the gallery is ranked, and the metrics to compute.

    Attributes:
        readings: metric -> function of the ranks.
        rates: metric -> false match rate.
        protocol: arguments of `rank_blocks`.
        progress: whether to print progress.
        shared: whether several processes share the work.
    """

    readings: dict[str, Read]
    rates: dict[str, float]
    protocol: dict[str, Any]
    progress: bool
    shared: bool


@dataclass(frozen=True)
class _RankedLevel:
    """The metrics at one level of the labels.

    Attributes:
        per_query: metric -> [query].
        counted: [query] bool, whether the query has a relevant item.
        relevant: [query] number of relevant items.
        all_relevant: [query] bool, whether every item is relevant. Such a query has no ROC AUC and no fall-out.
        of_pairs: metrics of all (query, item) pairs together, which are not means over the queries.
        copies: rows of the queries whose nearest relevant item has the same embedding.
    """

    per_query: dict[str, Array]
    counted: Array
    relevant: Array
    all_relevant: Array
    of_pairs: dict[str, float]
    copies: Array


def _ranked_levels(problem: _Problem, ranking: _Ranking) -> list[_RankedLevel]:
    """Every metric at every level of the labels, coarsest first. Metrics of all pairs only at the finest level."""
    finest = _ranked(problem, -1, ranking)
    if not finest.counted.any():
        raise ValueError(
            f"none of the {len(problem.queries)} queries has a relevant item in the gallery; at least one is needed. "
            "Check that labels and ref_labels use the same numbers, and that a class has two members."
        )
    without_rates = replace(ranking, rates={})
    return [*(_ranked(problem, level, without_rates) for level in range(len(problem.levels) - 1)), finest]


def _ranked(problem: _Problem, level: int, ranking: _Ranking) -> _RankedLevel:
    """Every metric of every query, at one level of the labels."""
    own_share = partial(_ranked_share, problem, level, ranking)
    shares = gather_objects(on_all(own_share)) if ranking.shared else [own_share()]
    ranked = _MeasuredQueries.joined([queries for queries, _ in shares])

    def of_all(values: Array) -> Array:
        """[query] the values, and 0 for the queries without a relevant item."""
        column = np.zeros(len(problem.queries), dtype=values.dtype)
        column[ranked.rows] = values
        return column

    # sort, so that the order of the blocks does not change the last bit of a sum
    order = np.argsort(ranked.rows)
    pairs = ranked.hardest[order]
    pairs = pairs[pairs[:, 1] > -np.inf]
    of_pairs = {}
    if len(pairs):
        first = torch.tensor([True, False], device="cpu").expand(len(pairs), 2)
        of_pairs["AUC_hardest"] = float(metrics.auc_hardest(torch.from_numpy(pairs), first))
    for at, name in enumerate(ranking.rates):
        fnmr = _PairScores.joined([matches[at] for _, matches in shares]).fnmr()
        if fnmr is not None:
            of_pairs[name] = fnmr
    return _RankedLevel(
        per_query={name: of_all(values) for name, values in zip(ranking.readings, ranked.metrics.T, strict=True)},
        counted=of_all(np.ones(len(ranked.rows), dtype=bool)),
        relevant=of_all(ranked.relevant),
        all_relevant=of_all(ranked.all_relevant),
        of_pairs=of_pairs,
        copies=ranked.rows[order][ranked.copies[order]],
    )


def _graded(levels: Sequence[_RankedLevel]) -> dict[str, Array]:
    r"""H-AP and H-NDCG of every query, where an item of l shared levels of L has the gain l / L.

    The gain is a sum over the levels: 1 / L for each shared level. So the numerators of both metrics are sums over the
    levels, too. With n_l items relevant at level l, and D(n) = sum_{i <= n} 1 / log2(1 + i),
        H-AP = sum_l n_l AP_l / sum_l n_l,  H-NDCG = sum_l D(n_l) NDCG_l / sum_l D(n_l).

    Args:
        levels: the metrics at each level, coarsest first.
    """
    sizes = np.stack([level.relevant for level in levels])
    ideal = np.concatenate([[0.0], (1 / np.log2(2.0 + np.arange(sizes.max(initial=0)))).cumsum()])[sizes]
    graded = {}
    for name, of, shares in (("H-AP", "AP", sizes), ("H-NDCG", "NDCG", ideal)):
        values = np.stack([level.per_query[of] for level in levels])
        total = shares.sum(0)
        graded[name] = (shares * values).sum(0) / np.where(total > 0, total, 1)
    return graded


class _MeasuredQueries(NamedTuple):
    """Queries with a relevant item, in the order in which they were ranked.

    Attributes:
        rows: [row] number of the query.
        hardest: [row, 2] lowest score of a relevant item, and highest score of an irrelevant one.
        copies: [row] bool, whether the nearest relevant item has the query's embedding.
        relevant: [row] number of relevant items.
        all_relevant: [row] bool, whether every item is relevant.
        metrics: [row, metric] float64.
    """

    rows: Array
    hardest: Array
    copies: Array
    relevant: Array
    all_relevant: Array
    metrics: Array

    @classmethod
    def none(cls, metrics: int) -> _MeasuredQueries:
        """No queries, for a process without a block."""
        numbers, flags = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
        return cls(numbers, np.zeros((0, 2)), flags, numbers, flags, np.zeros((0, metrics)))

    @classmethod
    def joined(cls, parts: Sequence[_MeasuredQueries]) -> _MeasuredQueries:
        """The queries of all parts."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


def _ranked_share(problem: _Problem, level: int, ranking: _Ranking) -> tuple[_MeasuredQueries, list[_PairScores]]:
    """This process's part of the queries, and the scores of pairs for each false match rate."""
    same = problem.leave_one_out
    parts = [_MeasuredQueries.none(len(ranking.readings))]
    matches = [_PairScores(rate, len(problem.gallery) * len(problem.queries)) for rate in ranking.rates.values()]
    for block in rank_blocks(
        problem.queries,
        problem.levels[level],
        None if same else problem.gallery,
        None if same else problem.ref_levels[level],
        **ranking.protocol,
        progress=ranking.progress and (not ranking.shared or world()[0] == 0),
        turn=world() if ranking.shared else (0, 1),
    ):
        columns = (
            block.rows,
            torch.stack([block.lowest_positive, block.highest_negative], dim=1).double(),
            torch.zeros_like(block.rows, dtype=torch.bool) if same else _copies(problem, block),
            block.ranks.pessimistic.num_relevant,
            block.irrelevant == 0,
            torch.stack([metric(block).double() for metric in ranking.readings.values()], dim=1),
        )
        parts.append(_MeasuredQueries(*map(_array, columns)))
        for match in matches:
            match.add(block)
    return _MeasuredQueries.joined(parts), matches


def _copies(problem: _Problem, block: RankBlock) -> Tensor:
    """[row] bool, whether the nearest relevant item of the gallery has the query's embedding."""
    query, nearest = problem.queries[block.rows], problem.gallery[block.nearest_positive]
    return (query - nearest).abs().amax(1) <= SAME * query.abs().amax(1)


class _PairScores:
    """Scores of all relevant pairs, and as many of the highest irrelevant scores as the threshold may need.

    Args:
        rate: allowed fraction of false matches.
        pairs: upper bound of the number of irrelevant pairs.
    """

    def __init__(self, rate: float, pairs: int) -> None:
        self.rate, self.most = rate, metrics.false_matches(rate, pairs) + 1
        self.relevant: list[Array] = []
        self.irrelevant: list[Array] = []
        self.count = 0
        self._held, self._bound = 0, -np.inf

    def add(self, block: RankBlock) -> None:
        """Add the scores of a block."""
        self.count += int(block.irrelevant.sum())
        self.relevant.append(_array(block.relevant_scores()))
        scores = block.irrelevant_scores()
        self.irrelevant.append(_array(scores[scores > self._bound]))
        self._held += len(self.irrelevant[-1])
        if self._held > 2 * self.most:
            self._reduce()

    def _reduce(self) -> None:
        held = np.concatenate(self.irrelevant)
        if len(held) > self.most:
            held = np.partition(held, len(held) - self.most)[-self.most :]
            # scores equal to the lowest one need not be added again
            self._bound = held.min()
        self.irrelevant, self._held = [held], len(held)

    @classmethod
    def joined(cls, parts: Sequence[_PairScores]) -> _PairScores:
        """The scores of several processes as one."""
        whole = cls(parts[0].rate, 0)
        whole.most, whole.count = parts[0].most, sum(part.count for part in parts)
        whole.relevant = [scores for part in parts for scores in part.relevant]
        whole.irrelevant = [scores for part in parts for scores in part.irrelevant]
        return whole

    def fnmr(self) -> float | None:
        """Fraction of the relevant pairs not above the threshold; None without irrelevant pairs."""
        if not self.count:
            return None
        allowed = metrics.false_matches(self.rate, self.count)
        if allowed == self.count:
            return 0.0
        held = np.concatenate(self.irrelevant)
        threshold = np.partition(held, len(held) - 1 - allowed)[len(held) - 1 - allowed]
        return float((np.concatenate(self.relevant) <= threshold).mean())


@dataclass(frozen=True)
class _Counting:
    """Which queries count in the means, and their weights.

    Attributes:
        inside: [query] bool, True if the query counts.
        weight: [query] float64.
        all_relevant: [query] bool, True if the query has no irrelevant item, and so no ROC AUC and no fall-out.
    """

    inside: Array
    weight: Array
    all_relevant: Array

    @classmethod
    def of(cls, level: _RankedLevel, weight: Array, query_without_relevant: str) -> _Counting:
        """The queries with a relevant item ("skip"), or all queries."""
        inside = level.counted if query_without_relevant == "skip" else np.ones_like(level.counted)
        return cls(inside, weight, level.all_relevant)

    @property
    def weighed(self) -> Array:
        """[query] bool, the queries that count with a positive weight."""
        return self.inside & (self.weight > 0)

    def means(self, per_query: Mapping[str, Array]) -> dict[str, float]:
        """Metric -> weighted mean; without the metrics that no query with a positive weight has."""
        means = {}
        for name, value in per_query.items():
            kept = self.of_metric(name)
            if kept.any():
                means[name] = float((value[kept] * self.weight[kept]).sum() / self.weight[kept].sum())
        return means

    def of_metric(self, name: str) -> Array:
        """[query] bool, the queries that count with a positive weight in a metric."""
        return self.weighed & ~self.all_relevant if needs_irrelevant(name) else self.weighed

    def intervals(
        self, per_query: Mapping[str, Array], group: Array, resamples: int, confidence: float, seed: int
    ) -> dict[str, tuple[float, float]]:
        """Metric -> interval of its mean. Queries of the same `group` are drawn together."""
        intervals: dict[str, tuple[float, float]] = {}
        for kept in np.unique([self.of_metric(name) for name in per_query], axis=0):  # metrics of the same queries
            columns = {name: of[kept] for name, of in per_query.items() if (self.of_metric(name) == kept).all()}
            if kept.any():
                intervals |= intervals_of_means(columns, group[kept], self.weight[kept], resamples, confidence, seed)
        return {name: intervals[name] for name in per_query if name in intervals}


def _of_the_set(
    embeddings: Tensor, classes: Tensor, cluster: bool, seed: int, shared: bool, progress: bool
) -> tuple[dict[str, float], str]:
    """Metrics of the queries' embeddings and single labels, not of the ranking; and the clustering method."""
    values: dict[str, float] = {}
    if classes.ndim == 2:
        return values, "none"
    method = "none"
    if cluster:
        clustering = partial(_clusters, embeddings, len(torch.unique(classes)), seed, progress)
        assigned, method = on_first(clustering) if shared else clustering()
        if assigned is not None:
            values["NMI"] = metrics.nmi(classes.cpu(), assigned)
            values["AMI"] = metrics.ami(classes.cpu(), assigned)
    sizes = torch.bincount(classes)
    if (sizes > 1).any():
        values["dists_intra"] = metrics.dists_intra(embeddings, classes)
    if (sizes > 0).sum() > 1:
        values["dists_inter"] = metrics.dists_inter(embeddings, classes)
    return values, method


def _clusters(embeddings: Tensor, classes: int, seed: int, progress: bool) -> tuple[Tensor | None, str]:
    """k-means labels of the embeddings, the better of two starts (None without scikit-learn); and the method."""
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
    except ImportError:
        return None, "none"
    # k-means finds no more clusters than there are distinct points (and warns)
    count = min(classes, len(embeddings) - len(duplicate_rows(embeddings)[0]))
    points = _array(embeddings)
    size = float(len(points)) * count * points.shape[1]
    show = progress and size > KMEANS_SHORT
    if size > KMEANS_LIMIT:
        kmeans = MiniBatchKMeans(count, n_init=2, random_state=seed, batch_size=max(4096, 2 * count))
        with steps(1, "k-means", "start", show, delay=0) as advance:
            best = kmeans.fit(points)
            advance(1)
    else:
        # the same as n_init=2, but in two calls, so that progress can be shown
        drawn = np.random.RandomState(seed)
        starts = []
        with steps(2, "k-means", "start", show, delay=0) as advance:
            for _ in range(2):
                starts.append(KMeans(count, n_init=1, random_state=drawn).fit(points))
                advance(1)
        best = min(starts, key=lambda start: start.inertia_)
    return torch.from_numpy(best.labels_.astype("int64")), f"{type(best).__name__}(k={count}, n_init=2)"


def _numbered(labels: Array) -> tuple[Array, Array]:
    shown, number = np.unique(labels, return_inverse=True)
    return number, shown


def _table(
    kind: str, group: Array, shown: Array, names: Names, per_query: Mapping[str, Array], counting: _Counting
) -> tuple[Row, ...]:
    """One row per group with a query: label, name, sizes, and the mean of each metric over its counted queries."""
    if group.ndim == 2:
        query, group = group.nonzero()
    else:
        query = np.arange(len(group))
    kept = counting.inside[query]
    queries = np.bincount(group, minlength=len(shown))
    counted = np.bincount(group[kept], minlength=len(shown))
    means = {}
    for name, value in per_query.items():
        used = counting.weight[query] * counting.of_metric(name)[query]
        size = np.bincount(group, weights=used, minlength=len(shown))
        total = np.bincount(group, weights=used * value[query], minlength=len(shown))
        means[name] = np.where(size > 0, total / np.where(size > 0, size, 1), np.nan)
    rows = []
    for g in np.flatnonzero(queries).tolist():
        label, sizes = shown[g].item(), {"queries": int(queries[g]), "counted": int(counted[g])}
        row: Row = {kind: label, "name": _name(label, names, kind)} | sizes
        rows.append(row | {name: None if np.isnan(mean[g]) else float(mean[g]) for name, mean in means.items()})
    return tuple(rows)


def _name(label: int | str, names: Names, kind: str) -> str:
    if names is None:
        return str(label)
    if isinstance(names, Mapping):
        known: dict[Any, str] = dict(names)
    elif isinstance(label, str):
        raise ValueError(f"{kind} {label!r} is a string, so the names must be a mapping from label to name; got a list")
    else:
        known = dict(enumerate(names))
    if label not in known:
        raise ValueError(
            f"no name for {kind} {label}: got {len(names)} names. Every label of the queries needs a name."
        )
    return str(known[label])


def _odd_queries(level: _RankedLevel, query_without_relevant: str) -> list[str]:
    """Notes about queries without a relevant item, and about queries that may retrieve their own copy."""
    notes = []
    uncounted = np.flatnonzero(~level.counted)
    if len(uncounted) == 1:
        counts = "is left out of all means" if query_without_relevant == "skip" else "counts as a miss"
        notes.append(f"1 query has no relevant item and {counts}: row {uncounted[0]}.")
    elif len(uncounted):
        count = "are left out of all means" if query_without_relevant == "skip" else "count as misses"
        notes.append(f"{len(uncounted)} queries have no relevant item and {count}: rows {_some(uncounted)}.")
    if len(level.copies):
        notes.append(
            f"{len(level.copies)} queries have a relevant item with the same embedding in the gallery: rows "
            f"{_some(level.copies)}. If these are the same samples, pass ids and ref_ids. Otherwise each query "
            "retrieves itself."
        )
    return notes


def _counts(problem: _Problem, counting: _Counting) -> dict[str, int]:
    classes = problem.levels[-1]
    return {
        "queries": len(classes),
        "counted": int(counting.inside.sum()),
        "gallery": len(problem.gallery),
        "classes": classes.shape[1] if classes.ndim == 2 else len(torch.unique(classes)),
        "zero_vectors": problem.zero_vectors,
        "duplicates": len(duplicate_rows(problem.gallery)[0]),
    }


def _some(rows: Array) -> str:
    """The first rows, as text."""
    return ", ".join(map(str, rows[:NAMED].tolist())) + (", ..." if len(rows) > NAMED else "")


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array


__all__ = ["evaluate", "Report"]
