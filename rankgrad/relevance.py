r"""Labels and sample ids -> which items are relevant to which query, and which exist for it.

The only place that knows what "self" is: a sample is never its own match, wherever it stands.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .types import Mask


def check_labels(labels: Tensor, name: str = "labels") -> None:
    """Raise unless labels are long [image], bool [image, class] or long [image, level]."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(labels).__name__}. Use torch.as_tensor({name})")
    if labels.dim() == 1 and not labels.is_floating_point() and labels.dtype != torch.bool:
        return
    if labels.dim() == 2 and not labels.is_floating_point():
        return
    raise ValueError(
        f"{name} must be long [image] (one class each), bool [image, class] (multi-hot) or long [image, level] "
        f"(a hierarchy from coarse to fine); got {labels.dtype} {tuple(labels.shape)}"
    )


def validity(
    num_queries: int,
    num_items: int,
    *,
    ids: Tensor | None = None,
    ref_ids: Tensor | None = None,
    same: bool,
    include_self: bool = False,
    device: torch.device | None = None,
) -> Mask | None:
    """[query, item] bool, False where an item is the query's own sample; None where all are valid.

    Args:
        num_queries: rows.
        num_items: columns.
        ids: [query] sample ids.
        ref_ids: [item] sample ids; with `same` they are `ids`.
        same: queries and items are one and the same set.
        include_self: keep the diagonal of that set (published codes do); copies with the same id still go.
        device: of the result.
    """
    if ref_ids is not None and ids is None:
        raise ValueError("ref_ids were given without ids: both name samples, so that a sample never matches itself")
    if not same and ids is not None and ref_ids is None:
        raise ValueError("ids were given without ref_ids: both name samples, so that a sample never matches itself")
    valid: Tensor | None = None
    if ids is not None:
        other = ids if same else ref_ids
        assert other is not None
        for name, t, n in (("ids", ids, num_queries), ("ref_ids", other, num_items)):
            if t.shape != (n,) or t.is_floating_point():
                raise ValueError(f"{name} must be integers [{n}], one per row; got {t.dtype} {tuple(t.shape)}")
        valid = ids.unsqueeze(1) != other.unsqueeze(0)
    if same:
        eye = torch.eye(num_queries, dtype=torch.bool, device=device)
        if include_self:
            valid = None if valid is None else valid | eye
        else:
            valid = ~eye if valid is None else valid & ~eye
    return valid


def from_labels(
    labels: Tensor,
    ref_labels: Tensor | None = None,
    *,
    ids: Tensor | None = None,
    ref_ids: Tensor | None = None,
    include_self: bool = False,
    graded: bool = True,
) -> tuple[Tensor, Mask | None]:
    r"""(relevant, valid) of queries against references, or of one set against itself.

    Relevance is equality of long [image] labels, a shared class of bool [image, class] labels, and for long
    [image, level] labels (coarse to fine) the gain of HAPPIER (Ramzi et al., ECCV 2022, alpha = 1):
    (l / L) / |valid items that share exactly l levels with the query|, l = length of the shared prefix of the L levels.

    Args:
        labels: of the queries.
        ref_labels: of the references; None: the queries are their own references and never match themselves.
        ids: [query] sample ids; an item with the query's id is not valid for it.
        ref_ids: [item] sample ids, with ref_labels.
        include_self: keep the diagonal as relevant (without references).
        graded: False: hierarchical labels give bool relevance, agreement on all levels.

    Returns:
        relevant: [query, item] bool, or float gains. valid: [query, item] bool, or None where everything is valid.

    >>> relevant, valid = from_labels(torch.tensor([3, 3, 5]))
    >>> relevant & valid
    tensor([[False,  True, False],
            [ True, False, False],
            [False, False, False]])
    """
    same = ref_labels is None
    check_labels(labels)
    other = labels if ref_labels is None else ref_labels
    check_labels(other, "ref_labels")
    if labels.dtype != other.dtype or labels.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"labels and ref_labels must be of one kind; got {labels.dtype} {tuple(labels.shape)} and "
            f"{other.dtype} {tuple(other.shape)}"
        )
    if same and ref_ids is not None:
        raise ValueError("ref_ids were given without references (ref_emb and ref_labels)")
    valid = validity(
        len(labels), len(other), ids=ids, ref_ids=ref_ids, same=same, include_self=include_self, device=labels.device
    )
    if labels.dim() == 1:
        return labels.unsqueeze(1) == other.unsqueeze(0), valid
    if labels.dtype == torch.bool:
        return (labels.float() @ other.float().T) > 0, valid
    shared = shared_levels(labels, other)
    levels = labels.shape[1]
    return (hierarchical_gains(shared, levels, valid) if graded else shared == levels), valid


def shared_levels(labels: Tensor, ref_labels: Tensor) -> Tensor:
    """[query, item] long, number of leading levels on which two hierarchical labels agree, 0 .. L.

    >>> shared_levels(torch.tensor([[0, 7]]), torch.tensor([[0, 7], [0, 8], [1, 7]]))
    tensor([[2, 1, 0]])
    """
    shared = torch.zeros(len(labels), len(ref_labels), dtype=torch.long, device=labels.device)
    agree = torch.ones_like(shared, dtype=torch.bool)
    for level in range(labels.shape[1]):  # one [query, item] matrix per level, never [query, item, level]
        agree &= labels[:, level].unsqueeze(1) == ref_labels[:, level].unsqueeze(0)
        shared += agree
    return shared


def hierarchical_gains(shared: Tensor, levels: int, valid: Mask | None = None, alpha: float = 1.0) -> Tensor:
    r"""HAPPIER's relevance (l / L)^alpha / |valid items of exactly l shared levels|, float64; 0 where l = 0.

    Args:
        shared: [query, item] long, l.
        levels: L.
        valid: [query, item] bool; items that count in the denominator.
        alpha: exponent, larger = finer levels matter more.
    """
    kept = shared if valid is None else shared.masked_fill(~valid, 0)
    counts = torch.zeros(len(shared), levels + 1, dtype=torch.float64, device=shared.device)
    counts.scatter_add_(1, kept, torch.ones_like(kept, dtype=counts.dtype))
    strength = (kept.double() / levels) ** alpha
    return strength / counts.gather(1, kept).clamp(min=1)


def from_indices_tuple(indices_tuple: tuple[Tensor, ...], num_queries: int, num_items: int) -> tuple[Tensor, Mask]:
    """(relevant, valid) of pytorch-metric-learning's pairs (a1, p, a2, n) or triplets (a, p, n): the pairs allowed.

    >>> relevant, valid = from_indices_tuple(tuple(torch.tensor([i]) for i in (0, 1, 0, 2)), 1, 3)
    >>> relevant, valid
    (tensor([[False,  True, False]]), tensor([[False,  True,  True]]))
    """
    if len(indices_tuple) == 3:
        anchor, positive, negative = indices_tuple
        pairs = (anchor, positive, anchor, negative)
    elif len(indices_tuple) == 4:
        pairs = (indices_tuple[0], indices_tuple[1], indices_tuple[2], indices_tuple[3])
    else:
        raise ValueError(
            "indices_tuple must be pairs (anchors, positives, anchors, negatives) or triplets (anchors, positives, "
            f"negatives); got {len(indices_tuple)} tensors"
        )
    for index, end, what in zip(pairs, (num_queries, num_items) * 2, ("queries", "items") * 2, strict=True):
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < end:
            raise ValueError(
                f"indices_tuple must name {what} 0 .. {end - 1}; got {int(index.min())} .. {int(index.max())}"
            )
    relevant = torch.zeros(num_queries, num_items, dtype=torch.bool, device=pairs[0].device)
    valid = torch.zeros_like(relevant)
    relevant[pairs[0], pairs[1]] = True
    valid[pairs[2], pairs[3]] = True
    return relevant, valid | relevant
