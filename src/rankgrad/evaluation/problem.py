"""The input of an evaluation: embeddings and labels are checked, and brought to one device and precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..common.checks import Numbers, one_of, query_weights
from ..common.checks import tensor as as_tensor
from ..ranks.normalize import unit_rows
from ..ranks.relevance import Labels, as_labels, words_of
from ..search import check_embeddings, of_one_byte
from .arrays import Array, some, to_numpy

# Labels that often stand for "no label": numbers far above all others, and words.
NO_NUMBER = (999, 9999, 2**8 - 1, 2**15 - 1, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63 - 1)
NO_NAME = ("", "-", "-1", "?", "n/a", "na", "nan", "none", "null", "unknown", "unlabeled", "unlabelled")
SHOWN = 3  # notes on such labels


@dataclass(frozen=True)
class Problem:
    """Checked input on one device.

    Attributes:
        queries, gallery: [query, dim] and [item, dim]; the same tensor in leave-one-out.
        levels, ref_levels: labels of the queries and of the gallery at each level of a hierarchy, [query] long,
            numbered from 0; or one multi-hot [query, label] bool. The last level is evaluated.
        shown: [class] the given labels, for the tables.
        hierarchy: [query, level] the given integers or strings, or None.
        zero_vectors: number of zero vectors among queries and gallery.
        notes: remarks for the report.
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
        """Whether every item is a query against all others."""
        return self.gallery is self.queries


def problem_of(
    embeddings: Numbers,
    labels: Labels,
    ref_embeddings: Numbers | None,
    ref_labels: Labels | None,
    similarity: str,
    device: torch.device | str | None,
) -> Problem:
    """The checked input. For the arguments see `retrieval.evaluate`.

    Raises:
        ValueError: a value is NaN or infinite, shapes do not fit, or there is only one class.
        TypeError: embeddings or labels are of the wrong kind.
    """
    one_of(similarity, "similarity", ("cosine", "inner product", "euclidean"))
    queries = _embeddings("embeddings", embeddings, device)
    if (ref_embeddings is None) != (ref_labels is None):
        raise ValueError("got only one of ref_embeddings and ref_labels: pass both or neither")
    gallery = queries if ref_embeddings is None else _embeddings("ref_embeddings", ref_embeddings, queries.device)
    truth, ref_truth = _truth(labels, ref_labels, queries, gallery)
    dtype = torch.promote_types(queries.dtype, gallery.dtype)
    sides = {"embeddings": queries.to(dtype)}
    if gallery is not queries:
        sides["ref_embeddings"] = gallery.to(dtype)
    zeros = {name: to_numpy((~side.any(dim=1)).nonzero().squeeze(1)) for name, side in sides.items()}
    if similarity == "cosine":
        sides = {name: unit_rows(side) for name, side in sides.items()}
    levels, ref_levels, shown = _levels(truth, ref_truth)
    if truth.dtype != torch.bool and len(torch.unique(torch.cat([levels[-1], ref_levels[-1]]))) < 2:
        raise ValueError(
            "labels have only one class: every item is relevant to every query, so every metric is 1. "
            "Evaluate at least two classes together."
        )
    words = words_of(labels) if ref_labels is None else words_of(labels, ref_labels)
    shown = shown if words is None else words[shown]
    stand_ins = []
    if truth.dtype != torch.bool:
        numbered = levels[-1] if gallery is queries else torch.cat([levels[-1], ref_levels[-1]])
        stand_ins = _of_stand_ins(shown, to_numpy(numbered.bincount(minlength=len(shown))))
    return Problem(
        queries=sides["embeddings"],
        gallery=sides.get("ref_embeddings", sides["embeddings"]),
        levels=levels,
        ref_levels=ref_levels,
        shown=shown,
        hierarchy=None if len(levels) == 1 else to_numpy(truth) if words is None else words[to_numpy(truth)],
        zero_vectors=sum(map(len, zeros.values())),
        notes=(
            *stand_ins,
            *(
                f"{len(rows)} zero vectors in {name} have score 0 with every item: rows {some(rows)}."
                for name, rows in zeros.items()
                if len(rows) and similarity != "euclidean"
            ),
        ),
    )


def _of_stand_ins(values: Array, counts: Array) -> list[str]:
    """A note for each label that often means that there is none, though its rows are evaluated as one class.

    Args:
        values: [class] different labels, ascending.
        counts: [class] rows of each.

    >>> _of_stand_ins(np.array([-1, 0, 1]), np.array([2, 5, 5]))
    ['Labels are -1 in 2 rows, which count as one class. If -1 means no label, leave these rows out.']
    """
    if values.dtype.kind in "US":
        odd = np.array([str(value).strip().lower() in NO_NAME for value in values])
    else:
        highest = (values == values[-1]) & np.isin(values, NO_NUMBER) & (values > 2 * values[-2])
        odd = (values < 0) | highest
    return [
        f"Labels are {value!r} in {count} rows, which count as one class. If {value!r} means no label, leave these "
        "rows out."
        for value, count in zip(values[odd].tolist(), counts[odd].tolist(), strict=True)
    ][:SHOWN]


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
    given = given.float() if of_one_byte(given) else given
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
    return levels, ref_levels, to_numpy(named[:, -1])


def super_labels_of(super_labels: Labels | None, problem: Problem) -> Array | None:
    """[query] the super-labels as integers or strings; of a hierarchy the coarsest level; None: there are none."""
    if super_labels is None:
        return None if problem.hierarchy is None else problem.hierarchy[:, 0]
    (given,) = as_labels(super_labels, names=("super_labels",))
    given = _checked_labels("super_labels", given, len(problem.queries), torch.device("cpu"))
    if given.ndim != 1:
        raise ValueError(f"super_labels must be integers or strings, one per query; got shape {tuple(given.shape)}")
    words = words_of(super_labels)
    return to_numpy(given) if words is None else words[to_numpy(given)]


def weight_of_each(weights: Numbers | None, queries: int) -> Array:
    """[query] float64, 1 without weights."""
    if weights is None:
        return np.ones(queries)
    return to_numpy(query_weights(weights, torch.ones(queries, dtype=torch.bool, device="cpu")))
