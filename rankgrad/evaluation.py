r"""Embeddings and labels -> `Report`: every retrieval metric, exactly, with intervals, tables and the odd cases named.

The metrics are the functions of `metrics.py` that training uses too; only the ranks come from elsewhere
(`search.rank_blocks`), so that the score matrix never exists: 60 000 x 60 000 needs a few hundred MB.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import metrics
from .distributed import gather_objects, on_first, share, world
from .normalize import unit_rows
from .search import Ids, RankBlock, check_embeddings, duplicate_rows, rank_blocks

Array = npt.NDArray[Any]
Matrix = Tensor | Array
Names = Sequence[str] | Mapping[int, str] | None
Row = dict[str, Any]

# n x k x dim of k-means: above it (about a second per iteration on one core) mini-batches are used
KMEANS_LIMIT = 3e10
NAMED = 10  # how many odd rows a message names
DISTANCES = ("dists_intra", "dists_inter")  # in [0, 2], everything else is a share


@dataclass(frozen=True, eq=False)
class Report:
    """What an evaluation found. All metrics are shares in [0, 1] (higher is better) but `dists_*`, distances in [0, 2].

    R@k: hit rate among the k best.  AP: average precision over the whole list (its mean is known as mAP).
    mAP@R: Musgrave's, cut at R relevant items.  R-precision, P@1: precision (P@1 is R@1).  MRR: reciprocal rank of the
    first hit.  AUC_hardest: is a query's worst relevant item closer than any query's best irrelevant one.  NMI and
    dists_*: of the query set's labels and embeddings, not of the ranking.

    Attributes:
        values: metric -> mean over the counted queries.
        intervals: metric -> (low, high) of the bootstrap; only metrics that are means over queries have one.
        per_query: metric -> [query] float64, in the order of the input; 0 at `uncounted` queries.
        uncounted: [n] rows of the queries without any relevant item.
        per_class: one row per class of the queries: class, name, queries, counted, and the mean of each metric over its
            counted queries (None if it has none). With multi-hot labels a query is in every class it carries.
        per_super_label: the same by super-label.
        levels: of hierarchical labels, values at each coarser level, coarsest first; `values` are at the finest.
        counts: queries, counted, gallery, classes, zero_vectors, duplicates (gallery rows equal to an earlier one).
        settings: everything needed to repeat the evaluation but the data.
        notes: what a reader of the numbers should know, one sentence each.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    per_query: dict[str, Array]
    uncounted: Array
    per_class: tuple[Row, ...]
    per_super_label: tuple[Row, ...]
    levels: tuple[dict[str, float], ...]
    counts: dict[str, int]
    settings: dict[str, Any]
    notes: tuple[str, ...] = field(default=())

    def worst_classes(self, n: int = 10, metric: str = "AP") -> tuple[Row, ...]:
        """The n classes of lowest mean `metric`, worst first; classes without a counted query are not among them."""
        if self.per_class and metric not in self.per_query:
            raise ValueError(f"no per-class metric {metric!r}; known: {', '.join(self.per_query)}")
        return tuple(sorted((row for row in self.per_class if row["counted"]), key=lambda row: float(row[metric]))[:n])

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as JSON, also written to `path` if given; `from_json` gets exactly the same report back."""
        text = json.dumps(asdict(self), default=_plain, allow_nan=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Report:
        """Read a report back, from the text of `to_json` or from a file.

        Args:
            source: JSON text (begins with a brace) or a path.

        Raises:
            ValueError: if it is not a report.
        """
        inline = isinstance(source, str) and source.lstrip().startswith("{")
        text = str(source) if inline else Path(source).read_text(encoding="utf-8")
        try:
            return cls._read(json.loads(text))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            where = "the text" if inline else source
            raise ValueError(f"{where} is not an evaluation report, or it is damaged: {error}") from None

    @classmethod
    def _read(cls, found: Any) -> Report:
        wanted = set(cls.__dataclass_fields__)
        if not isinstance(found, dict) or set(found) != wanted:
            keys = sorted(found) if isinstance(found, dict) else type(found).__name__
            raise ValueError(f"needed the keys {sorted(wanted)}, got {keys}")
        rows = [*found["per_class"], *found["per_super_label"]]
        whole = {
            "values": _numbers(found["values"]),
            "counts": _numbers(found["counts"], "queries", "counted", "gallery", "classes"),
            "settings": isinstance(found["settings"], dict) and {"protocol", "similarity"} <= set(found["settings"]),
            "levels": all(_numbers(level) for level in found["levels"]),
            "notes": all(isinstance(note, str) for note in found["notes"]),
            "rows": all(isinstance(row, dict) and {"name", "queries", "counted"} <= set(row) for row in rows),
        }
        if not all(whole.values()):
            raise ValueError(f"{', '.join(name for name, fits in whole.items() if not fits)} not as they were written")
        found["intervals"] = {name: (low, high) for name, (low, high) in found["intervals"].items()}
        found["per_query"] = {name: np.asarray(v, dtype=np.float64) for name, v in found["per_query"].items()}
        found["uncounted"] = np.asarray(found["uncounted"], dtype=np.int64)
        for name in ("per_class", "per_super_label", "levels", "notes"):
            found[name] = tuple(found[name])
        return cls(**found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # holds arrays

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
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        table = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows]
        return "\n".join([head, *table, *self.notes])


def evaluate(
    embeddings: Matrix,
    labels: Matrix,
    *,
    ref_embeddings: Matrix | None = None,
    ref_labels: Matrix | None = None,
    ids: Ids | None = None,
    ref_ids: Ids | None = None,
    super_labels: Matrix | None = None,
    class_names: Names = None,
    super_names: Names = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    normalize: bool = True,
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
    """Evaluate a retrieval: rank the gallery for every query and read all metrics off the ranks, exactly.

    Without references this is leave-one-out: every item is a query against all others. Ties: AP, mAP@R and
    R-precision count an item tied with a relevant one as above it; R@k, P@1 and MRR put the lower index first.

    Args:
        embeddings: [query, dim] float tensor or array. float64 stays, everything else is computed in float32.
        labels: [query] integers; or [query, label] bool (multi-hot: relevant = shares a label); or [query, level]
            integers (hierarchy, coarse to fine: relevant = same on all levels, `Report.levels` has the coarser ones).
        ref_embeddings: [item, dim] gallery; with ref_labels.
        ref_labels: labels of the gallery, of the same kind.
        ids: [query] names of the samples (integers or strings), distinct. With ref_ids the gallery item of the same
            name is not retrieved for a query.
        ref_ids: [item] names of the gallery's samples, distinct.
        super_labels: [query] integers, for `Report.per_super_label`. None: the coarsest level of hierarchical labels.
        class_names: name of each (finest) label, a list or a mapping; for the tables only.
        super_names: name of each super-label.
        ks: list lengths of R@k; a k beyond the gallery means the whole gallery.
        normalize: compare by cosine (a zero vector has cosine 0 with everything: counted, and named in the notes).
            False: by inner product.
        bootstrap: number of resamples for the intervals; 0: none.
        confidence: coverage of the intervals.
        resample: what is drawn. Queries of one class are not independent (they retrieve each other), so "class" draws
            whole classes and is the honest, wider one; "query" draws queries, as if they were independent. Multi-hot
            labels have no single class: queries are drawn.
        seed: of the bootstrap and of k-means.
        clusters: "auto": NMI by scikit-learn's KMeans with as many clusters as classes (2 starts; MiniBatchKMeans for
            large problems: the settings say which), left out with a note where scikit-learn is missing; "none": no NMI.
        query_without_relevant: "skip" leaves such queries out of all means, "miss" counts them with value 0. Both
            list them in `Report.uncounted`.
        block: queries ranked at once; None chooses by a memory budget.
        progress: print the share done to stderr.
        device: where to compute; None: where the embeddings are.
        shared: all processes of the running torch.distributed group have called with the same input: each ranks its
            share of the queries, and all return the same report. Without a group it changes nothing.

    Returns:
        The report; print it for a table.

    Raises:
        ValueError: NaN or infinity (naming the first row), empty input, shapes out of step, one class only, no query
            with a relevant item, repeated ids, names missing.
        TypeError: embeddings or labels of the wrong kind.

    >>> report = evaluate([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.6, 0.8]], [0, 0, 1, 1], ks=[1], clusters="none")
    >>> report.values["R@1"], report.values["mAP@R"]
    (0.5, 0.5)
    >>> print(Report.from_json(report.to_json()))
    4 queries, leave-one-out, 2 classes, cosine
    metric        value  95 % interval
    R@1          50.0 %    50.0 - 50.0
    ...
    """
    _check_settings(ks, bootstrap, confidence, resample, clusters, query_without_relevant)
    problem = _problem(embeddings, labels, ref_embeddings, ref_labels, ids, ref_ids, normalize, device)
    classes = problem.levels[-1]
    coarse = _super_labels(super_labels, problem)
    notes = list(problem.notes)
    skip = query_without_relevant == "skip"

    found = _ranked(problem, -1, ks, block, progress, shared)
    if not found.counted.any():
        raise ValueError(
            f"none of the {len(classes)} queries has a relevant item in the gallery: nothing can be evaluated. "
            "Are labels and ref_labels numbered alike, and does a class have two members?"
        )
    uncounted = np.flatnonzero(~found.counted)
    if len(uncounted):
        fate = "are left out of all means" if skip else "count as misses"
        notes.append(f"{len(uncounted)} queries have no relevant item and {fate}: rows {_some(uncounted)}.")
    inside = found.counted if skip else np.ones_like(found.counted)
    values = _means(found.per_query, inside)
    if found.auc_hardest is not None:
        values["AUC_hardest"] = found.auc_hardest
    coarser = []
    for level in range(len(problem.levels) - 1):
        above = _ranked(problem, level, ks, block, progress, shared)
        coarser.append(_means(above.per_query, above.counted if skip else inside))

    intervals: dict[str, tuple[float, float]] = {}
    drawn = "query" if classes.ndim == 2 else resample
    if bootstrap:
        group = _array(classes)[inside] if drawn == "class" else np.arange(inside.sum())
        table = np.stack([value[inside] for value in found.per_query.values()], axis=1)
        bounds = _bootstrap(table, group, bootstrap, confidence, seed)
        intervals = {name: (float(low), float(high)) for name, (low, high) in zip(found.per_query, bounds, strict=True)}
        drawable = len(np.unique(group))
        if drawable < 10:
            notes.append(f"The intervals rest on {drawable} {'classes' if drawn == 'class' else 'queries'} only.")

    method = "none"
    if classes.ndim == 1:
        if clusters == "auto":
            clustering = partial(_clusters, problem.queries, len(torch.unique(classes)), seed)
            assigned, method = on_first(clustering) if shared else clustering()
            if assigned is None:
                notes.append("No NMI: k-means needs scikit-learn, which is not installed.")
            else:
                values["NMI"] = metrics.nmi(classes.cpu(), assigned)
        sizes = torch.bincount(classes)
        if (sizes > 1).any():
            values["dists_intra"] = metrics.dists_intra(problem.queries, classes)
        if (sizes > 0).sum() > 1:
            values["dists_inter"] = metrics.dists_inter(problem.queries, classes)

    return Report(
        values=values,
        intervals=intervals,
        per_query=found.per_query,
        uncounted=uncounted,
        per_class=_table("class", _array(classes), problem.shown, class_names, found.per_query, inside),
        per_super_label=()
        if coarse is None
        else _table("super_label", *_numbered(coarse), super_names, found.per_query, inside),
        levels=tuple(coarser),
        counts={
            "queries": len(classes),
            "counted": int(inside.sum()),
            "gallery": len(problem.gallery),
            "classes": classes.shape[1] if classes.ndim == 2 else len(torch.unique(classes)),
            "zero_vectors": problem.zero_vectors,
            "duplicates": len(duplicate_rows(problem.gallery)[0]),
        },
        settings={
            "protocol": "leave-one-out" if problem.leave_one_out else "query-gallery",
            "similarity": "cosine" if normalize else "inner product",
            "ks": [int(k) for k in ks],
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
        queries: [query, dim]; gallery [item, dim], the same tensor in leave-one-out.
        levels: labels of the queries, [query] long numbered from 0 at each level of a hierarchy, or one multi-hot
            [query, label] bool; ref_levels the same of the gallery. The last one is what is evaluated.
        shown: [class] labels as they were given, for the tables.
        hierarchy: [query, level] long as given, or None.
    """

    queries: Tensor
    gallery: Tensor
    levels: list[Tensor]
    ref_levels: list[Tensor]
    shown: Array
    hierarchy: Array | None
    ids: Ids | None
    ref_ids: Ids | None
    zero_vectors: int
    notes: tuple[str, ...]

    @property
    def leave_one_out(self) -> bool:
        return self.gallery is self.queries


def _problem(
    embeddings: Matrix,
    labels: Matrix,
    ref_embeddings: Matrix | None,
    ref_labels: Matrix | None,
    ids: Ids | None,
    ref_ids: Ids | None,
    normalize: bool,
    device: torch.device | str | None,
) -> _Problem:
    queries = _embeddings("embeddings", embeddings, device)
    truth = _labels("labels", labels, len(queries), queries.device)
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("ref_embeddings and ref_labels belong together; got only one of them")
    if ref_embeddings is None and ref_ids is not None:
        raise ValueError("ref_ids name the samples of ref_embeddings, which were not given")
    gallery, ref_truth = queries, truth
    if ref_embeddings is not None and ref_labels is not None:
        gallery = _embeddings("ref_embeddings", ref_embeddings, queries.device)
        ref_truth = _labels("ref_labels", ref_labels, len(gallery), queries.device)
    if gallery.shape[1] != queries.shape[1]:
        raise ValueError(
            f"embeddings and ref_embeddings must be of one width; got {queries.shape[1]} and {gallery.shape[1]}"
        )
    if (truth.dtype == torch.bool) != (ref_truth.dtype == torch.bool) or truth.shape[1:] != ref_truth.shape[1:]:
        raise ValueError(
            f"labels and ref_labels must be of one kind and width; got {truth.dtype} {tuple(truth.shape)} and "
            f"{ref_truth.dtype} {tuple(ref_truth.shape)}"
        )
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    sides = {"embeddings": queries.to(dtype)}
    if gallery is not queries:
        sides["ref_embeddings"] = gallery.to(dtype)
    notes, zeros = [], 0
    for name, side in sides.items():
        zero = (~side.any(dim=1)).nonzero().squeeze(1)
        zeros += len(zero)
        if len(zero):
            notes.append(f"{len(zero)} zero vectors in {name} score 0 with everything: rows {_some(_array(zero))}.")
        if normalize:
            sides[name] = unit_rows(side)
    levels, ref_levels, shown = _levels(truth, ref_truth)
    if truth.dtype != torch.bool and len(torch.unique(torch.cat([levels[-1], ref_levels[-1]]))) < 2:
        raise ValueError(
            "labels name one class only: every item is relevant to every query and every metric is 1. "
            "Evaluate at least two classes together."
        )
    return _Problem(
        queries=sides["embeddings"],
        gallery=sides.get("ref_embeddings", sides["embeddings"]),
        levels=levels,
        ref_levels=ref_levels,
        shown=shown,
        hierarchy=_array(truth) if len(levels) > 1 else None,
        ids=ids,
        ref_ids=ref_ids,
        zero_vectors=zeros,
        notes=tuple(notes),
    )


def _embeddings(name: str, value: Matrix, device: torch.device | str | None) -> Tensor:
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        array = np.require(value, requirements=["C", "W"])  # a read-only (memory-mapped) array is copied
        if array.dtype.kind != "f" or array.dtype.itemsize > 8:
            raise TypeError(f"{name} must be a floating-point matrix [row, dim]; got {array.dtype}")
        tensor = torch.from_numpy(array)
    check_embeddings(name, tensor)
    wide = tensor.dtype == torch.float64
    return tensor.to(
        device=device if device is not None else tensor.device, dtype=tensor.dtype if wide else torch.float32
    )


def _labels(name: str, value: Matrix, length: int, device: torch.device) -> Tensor:
    array = value if isinstance(value, Tensor) else np.ascontiguousarray(value)
    if not isinstance(array, Tensor) and array.dtype.kind not in "biu":
        raise TypeError(
            f"{name} must be integers or multi-hot bool; got {array.dtype}. Number the classes, e.g. by "
            "numpy.unique(labels, return_inverse=True), and pass their names as class_names."
        )
    tensor = (
        array
        if isinstance(array, Tensor)
        else torch.from_numpy(array.astype(bool if array.dtype.kind == "b" else "int64"))
    )
    if tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must be integers or multi-hot bool; got {tensor.dtype}")
    if tensor.ndim not in (1, 2) or (tensor.dtype == torch.bool and tensor.ndim == 1) or 0 in tensor.shape[1:]:
        raise ValueError(
            f"{name} must be integers [row], multi-hot bool [row, label] or hierarchical integers [row, level]; got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if len(tensor) != length:
        raise ValueError(f"{name} must have one row per embedding, {length}; got {len(tensor)}")
    return tensor.to(device=device, dtype=torch.bool if tensor.dtype == torch.bool else torch.long)


def _levels(truth: Tensor, ref_truth: Tensor) -> tuple[list[Tensor], list[Tensor], Array]:
    """Labels of both sides at every level, classes numbered from 0, and the finest labels as they were given."""
    if truth.dtype == torch.bool:
        return [truth], [ref_truth], np.arange(truth.shape[1])
    both = torch.cat([truth, ref_truth])
    both = both.unsqueeze(1) if both.ndim == 1 else both
    levels, ref_levels, named = [], [], both
    for level in range(both.shape[1]):
        # agreement up to here, so that labels may be numbered anew inside each parent
        named, number = torch.unique(both[:, : level + 1], dim=0, return_inverse=True)
        levels.append(number[: len(truth)])
        ref_levels.append(number[len(truth) :])
    return levels, ref_levels, _array(named[:, -1])


def _super_labels(super_labels: Matrix | None, problem: _Problem) -> Array | None:
    if super_labels is None:
        return None if problem.hierarchy is None else problem.hierarchy[:, 0]
    tensor = _labels("super_labels", super_labels, len(problem.queries), torch.device("cpu"))
    if tensor.ndim != 1:
        raise ValueError(f"super_labels must be integers, one per query; got shape {tuple(tensor.shape)}")
    return _array(tensor)


def _check_settings(
    ks: Sequence[int], bootstrap: int, confidence: float, resample: str, clusters: str, query_without_relevant: str
) -> None:
    if not ks or any(isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1 for k in ks):
        raise ValueError(f"ks are list lengths and must be integers >= 1, at least one; got {ks!r}")
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int) or bootstrap < 0:
        raise ValueError(f"bootstrap is a number of resamples and must be an integer >= 0; got {bootstrap!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is a coverage and must lie between 0 and 1; got {confidence}")
    for name, value, known in (
        ("resample", resample, ("class", "query")),
        ("clusters", clusters, ("auto", "none")),
        ("query_without_relevant", query_without_relevant, ("skip", "miss")),
    ):
        if value not in known:
            raise ValueError(f"{name} must be {known[0]!r} or {known[1]!r}; got {value!r}")


# -------------------------------------------------------------------------------------------------------- the numbers


@dataclass(frozen=True)
class _Found:
    per_query: dict[str, Array]
    counted: Array
    auc_hardest: float | None


def _read_off(ks: Sequence[int]) -> dict[str, Callable[[RankBlock], Tensor]]:
    """Report name -> metric of a block of ranks; each metric takes its own reading of ties."""
    hits: dict[str, Callable[[RankBlock], Tensor]] = {
        f"R@{k}": lambda part, k=int(k): metrics.recall_at_k(part.ranks, k)  # type: ignore[misc]
        for k in ks
    }
    return hits | {
        "mAP@R": lambda part: metrics.map_at_r(part.ranks),
        "AP": lambda part: metrics.average_precision(part.ranks),
        "R-precision": lambda part: metrics.r_precision(part.ranks),
        "P@1": lambda part: metrics.precision_at_k(part.ranks, 1),
        "MRR": lambda part: metrics.reciprocal_rank(part.ranks),
        "NDCG": lambda part: metrics.ndcg(part.ranks),
        "ROC AUC": lambda part: metrics.roc_auc(part.ranks, irrelevant=part.irrelevant),
    }


def _ranked(
    problem: _Problem, level: int, ks: Sequence[int], block: int | None, progress: bool, shared: bool
) -> _Found:
    """Every metric of every query, at one level of the labels."""
    queries = len(problem.queries)
    table = _read_off(ks)
    ranked: list[Array] = [np.zeros(0, dtype=np.int64)]
    hardest: list[Array] = [np.zeros((0, 2))]
    values: dict[str, list[Array]] = {name: [np.zeros(0)] for name in table}
    same = problem.leave_one_out
    for part in rank_blocks(
        problem.queries,
        problem.levels[level],
        None if same else problem.gallery,
        None if same else problem.ref_levels[level],
        ids=problem.ids,
        ref_ids=problem.ref_ids,
        block=block,
        progress=progress and (not shared or world()[0] == 0),
        rows=torch.arange(queries)[share(queries)] if shared and world()[1] > 1 else None,
    ):
        ranked.append(_array(part.rows))
        hardest.append(_array(torch.stack([part.lowest_positive, part.highest_negative], dim=1)))
        for name, metric in table.items():
            values[name].append(_array(metric(part)).astype(np.float64))
    mine = [np.concatenate(parts) for parts in [ranked, hardest, *values.values()]]
    # the order of the blocks must not decide about the last bit of a sum
    everyone: list[list[Array]] = gather_objects(mine) if shared else [mine]
    rows, pairs, *columns = [np.concatenate(parts) for parts in zip(*everyone, strict=True)]
    order = np.argsort(rows)
    counted = np.zeros(queries, dtype=bool)
    counted[rows] = True
    per_query = {name: np.zeros(queries) for name in table}
    for name, column in zip(table, columns, strict=True):
        per_query[name][rows] = column
    pairs = pairs[order]
    pairs = pairs[pairs[:, 1] > -np.inf]
    relevant = torch.tensor([True, False]).expand(len(pairs), 2)
    hard = float(metrics.auc_hardest(torch.from_numpy(pairs), relevant)) if len(pairs) else None
    return _Found(per_query, counted, hard)


def _means(per_query: dict[str, Array], inside: Array) -> dict[str, float]:
    return {name: float(value[inside].mean()) for name, value in per_query.items()} if inside.any() else {}


def _bootstrap(table: Array, group: Array, resamples: int, confidence: float, seed: int) -> Array:
    """[metric, 2] percentile interval of each column's mean when groups of rows are drawn with replacement."""
    number = np.unique(group, return_inverse=True)[1]
    groups = int(number.max()) + 1
    size = np.bincount(number).astype(np.float64)
    sums = np.stack([np.bincount(number, weights=column) for column in table.T], axis=1)
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, table.shape[1]))
    step = max(1, 2**22 // groups)  # resamples drawn at once
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        drawn = generator.integers(groups, size=(count, groups)) + groups * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * groups).reshape(count, groups).astype(np.float64)
        means[start : start + count] = (times @ sums) / (times @ size)[:, None]
    tail = (1 - confidence) / 2
    bounds: Array = np.quantile(means, [tail, 1 - tail], axis=0).T
    return bounds


def _clusters(embeddings: Tensor, classes: int, seed: int) -> tuple[Tensor | None, str]:
    """k-means labels of the embeddings (None without scikit-learn), and what made them."""
    try:
        from sklearn.cluster import KMeans, MiniBatchKMeans
    except ImportError:
        return None, "none"
    # k-means finds no more clusters than there are distinct points (and warns)
    count = min(classes, len(embeddings) - len(duplicate_rows(embeddings)[0]))
    points = _array(embeddings)
    if float(len(points)) * count * points.shape[1] <= KMEANS_LIMIT:
        kmeans = KMeans(count, n_init=2, random_state=seed)
    else:
        kmeans = MiniBatchKMeans(count, n_init=2, random_state=seed, batch_size=max(4096, 2 * count))
    return torch.from_numpy(kmeans.fit_predict(points).astype("int64")), f"{type(kmeans).__name__}(k={count}, n_init=2)"


def _numbered(labels: Array) -> tuple[Array, Array]:
    shown, number = np.unique(labels, return_inverse=True)
    return number, shown


def _table(
    kind: str, group: Array, shown: Array, names: Names, per_query: dict[str, Array], inside: Array
) -> tuple[Row, ...]:
    """A row per group that has a query: label, name, sizes, and the mean of each metric over its counted queries."""
    if group.ndim == 2:
        query, group = group.nonzero()
    else:
        query = np.arange(len(group))
    kept = inside[query]
    queries = np.bincount(group, minlength=len(shown))
    counted = np.bincount(group[kept], minlength=len(shown))
    sums = {
        name: np.bincount(group[kept], weights=value[query[kept]], minlength=len(shown))
        for name, value in per_query.items()
    }
    rows = []
    for g in np.flatnonzero(queries).tolist():
        label, n = int(shown[g]), int(counted[g])
        row: Row = {kind: label, "name": _name(label, names, kind), "queries": int(queries[g]), "counted": n}
        rows.append(row | {metric: float(total[g] / n) if n else None for metric, total in sums.items()})
    return tuple(rows)


def _name(label: int, names: Names, kind: str) -> str:
    if names is None:
        return str(label)
    known = label in names if isinstance(names, Mapping) else 0 <= label < len(names)
    if not known:
        raise ValueError(
            f"no name for {kind} {label}: {len(names)} names were given. Give every label of the queries one."
        )
    return str(names[label])


def _some(rows: Array) -> str:
    """The first few rows, in words."""
    return ", ".join(map(str, rows[:NAMED].tolist())) + (", ..." if len(rows) > NAMED else "")


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array


def _numbers(values: Any, *needed: str) -> bool:
    """Is it a dict of numbers, the needed ones among them?"""
    known = isinstance(values, dict) and set(needed) <= set(values)
    return known and all(isinstance(value, (int, float)) for value in values.values())


def _plain(value: object) -> object:
    """What json does not know, as what it knows."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"a report holds plain values; got {type(value).__name__}")
