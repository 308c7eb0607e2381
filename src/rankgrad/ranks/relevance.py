r"""Labels and sample ids -> which items are relevant to a query, and which items are valid for it.

Only this module decides that a sample is never its own match, whether it is in the batch or in the references. For a
batch, relevance is a matrix (`from_labels`). For a gallery of any size, it is computed for a few queries at a time
(`relevance_of`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import dense, no_missing, tensor, unmasked
from .types import Mask

Array = npt.NDArray[Any]
Labels = Tensor | Array | Sequence[Any]
Ids = Tensor | Array | Sequence[Any]

# Largest number of levels of a hierarchy if the data are not inspected. Dividing by a power of two is exact.
MOST_LEVELS = 64
EVERY = slice(None)
PART = 2**25  # number of (query, item) pairs in memory at once while relevant items are counted


def as_labels(
    labels: Labels, ref_labels: Labels | None = None, names: Sequence[str] = ("labels", "ref_labels")
) -> list[Tensor]:
    """Labels of any kind as tensors, from tensors, numpy arrays and (nested) lists.

    All integers become long. Booleans stay bool (multi-hot, [row, label]). A string becomes its index in the sorted
    distinct strings of labels and ref_labels. A tensor stays on its device.

    Args:
        labels: [row], [row, label] bool or [row, level].
        ref_labels: labels of the references, of the same kind.
        names: names of the two arguments in messages.

    Returns:
        One tensor per argument that is not None.

    Raises:
        TypeError: the labels are floats or other objects, or only one side has strings.
        ValueError: the labels are uint8 with columns, which could be multi-hot or a hierarchy; or integers that are
            one-hot; or an integer needs more than 64 bits.

    >>> as_labels(["cat", "dog"], ["dog", "ant"])
    [tensor([1, 2]), tensor([2, 0])]
    >>> as_labels(torch.tensor([7, -3], dtype=torch.int16))
    [tensor([ 7, -3])]
    """
    given = [labels] if ref_labels is None else [labels, ref_labels]
    sides = [_plain_labels(side, name) for side, name in zip(given, names, strict=False)]
    words = words_of(*sides)
    if words is not None:
        return [torch.from_numpy(np.searchsorted(words, side)) for side in sides]
    numbers = [tensor(side, name) for side, name in zip(sides, names, strict=False)]
    return [side if side.dtype == torch.bool else side.long() for side in numbers]


def words_of(*sides: Labels) -> Array | None:
    """The sorted distinct strings of labels: index i of `as_labels` is string i. None if the labels are not strings.

    Raises:
        TypeError: some arguments hold strings and others do not.
    """
    plain = [side if isinstance(side, Tensor) else _as_text(np.asarray(unmasked(side, "labels"))) for side in sides]
    texts = [side.dtype.kind in "US" for side in plain if not isinstance(side, Tensor)]
    if not any(texts):
        return None
    if len(texts) < len(plain) or not all(texts):
        raise TypeError(
            "labels and ref_labels must be of the same kind; got strings on one side and numbers on the other"
        )
    return np.unique(np.concatenate([side.ravel() for side in plain]))


def _plain_labels(value: Labels, name: str) -> Tensor | Array:
    """As an int64, bool or long tensor, or an array of int64, bool or strings."""
    numbers: Tensor | Array
    if isinstance(value, Tensor):
        numbers, kind = dense(value, name), "f" if value.is_floating_point() or value.is_complex() else "i"
        if value.dtype == torch.uint64:  # torch supports few operations on it
            numbers = value.cpu().numpy()
    else:
        unmasked(value, name)
        try:
            numbers = np.asarray(value)
        except ValueError:
            raise ValueError(f"{name} must have rows of equal length; got rows of different lengths") from None
        if numbers.dtype.kind == "O" or (numbers.dtype.kind == "U" and isinstance(value, (list, tuple))):
            # in a mixed list, numpy would turn a number into a string
            numbers = _as_text(np.asarray(value, dtype=object))
        kind = numbers.dtype.kind
    if isinstance(numbers, np.ndarray) and kind == "O" and numbers.size and all(map(_is_integer, numbers.flat)):
        try:  # a column of a data frame may hold integers as objects
            numbers, kind = numbers.astype(np.int64), "i"
        except OverflowError:
            raise ValueError(
                f"{name} must fit into signed 64-bit integers; got larger ones. Pass them as strings."
            ) from None
    if kind == "O" or (kind == "f" and numbers.ndim == 1 and _whole_or_missing(numbers)):
        no_missing(numbers, name)
    if kind not in "biuUS":
        cure = "Number the classes, e.g. by numpy.unique(labels, return_inverse=True)[1]."
        if kind == "f" and numbers.ndim == 2:
            cure = f"Of a one-hot {name} take {name}.argmax(1); of a multi-hot one {name} > 0."
        raise TypeError(f"{name} must be integers, strings or multi-hot bool; got {numbers.dtype}. {cure}")
    _refuse_ambiguous(numbers, name)
    if isinstance(numbers, np.ndarray) and numbers.dtype.kind == "u":
        if numbers.size and int(numbers.max()) >= 2**63:
            raise ValueError(f"{name} must fit into signed 64-bit integers; got {numbers.max()}. Pass them as strings.")
        numbers = numbers.astype(np.int64)
    return numbers


def _as_text(array: Array) -> Array:
    """An array of objects that are all strings, such as a column of a data frame, as an array of strings."""
    texts = array.dtype.kind == "O" and array.size and all(isinstance(word, str) for word in array.flat)
    return array.astype(str) if texts else array


def _whole_or_missing(numbers: Tensor | Array) -> bool:
    """Whether floats are whole numbers where they are not NaN: integers of a column in which some are missing."""
    floats = numbers.detach().cpu().double().numpy() if isinstance(numbers, Tensor) else numbers
    return bool((np.isnan(floats) | (floats == np.round(floats))).all())


def _is_integer(value: object) -> bool:
    """Whether this is an integer of Python or numpy, and no bool."""
    return type(value) is int or isinstance(value, np.integer)


def _refuse_ambiguous(labels: Tensor | Array, name: str) -> None:
    """Raise for columns that are probably not the levels of a hierarchy: uint8, and one-hot integers."""
    if labels.ndim > 1 and labels.dtype in (torch.uint8, np.uint8):
        raise ValueError(
            f"{name} [row, column] of uint8 is ambiguous: pass bool for multi-hot labels (one class per column), "
            f"or int64 for a hierarchy (one level per column); got shape {tuple(labels.shape)}"
        )
    if _one_hot(labels):
        raise ValueError(
            f"{name} of integers [row, column] are a hierarchy, one level per column, but these are one-hot: each row "
            f"has a single 1 among zeros. Pass {name}.argmax(1); got shape {tuple(labels.shape)}"
        )


def _one_hot(labels: Tensor | Array) -> bool:
    """Whether integers are one-hot with three classes or more. Levels look like that for two classes at most.

    The check waits for the values, so labels on a GPU are not checked.
    """
    if labels.ndim != 2 or labels.shape[1] < 3 or labels.dtype in (torch.bool, np.bool_):
        return False
    if isinstance(labels, Tensor):
        if type(labels) is not Tensor or labels.device.type != "cpu" or torch.compiler.is_compiling():
            return False
        labels = labels.numpy()
    if labels.dtype.kind not in "iu" or not len(labels) or (labels > 1).any():  # most hierarchies end here
        return False
    ones = labels == 1
    return bool((ones | (labels == 0)).all() and (ones.sum(1) == 1).all() and ones.any(0).sum() > 2)


def check_labels(labels: Tensor, name: str = "labels") -> None:
    """Raise unless labels are long [image], bool [image, class] or long [image, level]."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(labels).__name__}. Use relevance.as_labels({name})")
    _refuse_ambiguous(dense(labels, name), name)
    if labels.dim() == 1 and not labels.is_floating_point() and labels.dtype != torch.bool:
        return
    if labels.dim() == 2 and not labels.is_floating_point():
        return
    raise ValueError(
        f"{name} must be long [row] (one class each), bool [row, class] (multi-hot) or long [row, level] "
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
    rows: slice = EVERY,
) -> Mask | None:
    """[query, item] bool, False where an item is the query's own sample; None if all are valid.

    Args:
        num_queries: rows.
        num_items: columns.
        ids: [query] sample ids.
        ref_ids: [item] sample ids; not needed with `same`.
        same: whether queries and items are the same set.
        include_self: keep the diagonal of that set, as published codes do. Other items with the query's id are still
            not valid.
        device: device of the result.
        rows: the queries of the result, consecutive.
    """
    if ref_ids is not None and ids is None:
        raise ValueError("got ref_ids without ids: pass both, so that a sample never matches itself")
    if not same and ids is not None and ref_ids is None:
        raise ValueError("got ids without ref_ids: pass both, so that a sample never matches itself")
    valid: Tensor | None = None
    if ids is not None:
        other = ids if same else ref_ids
        assert other is not None
        for name, t, n in (("ids", ids, num_queries), ("ref_ids", other, num_items)):
            check_ids(t, n, name)
        valid = ids[rows].unsqueeze(1) != other.unsqueeze(0)
    if same:
        own = own_items(num_queries, rows, device)
        if include_self:
            valid = None if valid is None else valid | own
        else:
            valid = ~own if valid is None else valid & ~own
    return valid


def own_items(items: int, rows: slice = EVERY, device: torch.device | None = None) -> Mask:
    """[query, item] bool, True where an item of a set is the query itself; the queries are some rows of the set.

    >>> own_items(3, slice(1, 3))
    tensor([[False,  True, False],
            [False, False,  True]])
    """
    first, stop, _ = rows.indices(items)
    own = torch.zeros(stop - first, items, dtype=torch.bool, device=device)
    own.diagonal(first).fill_(True)
    return own


def check_ids(ids: Tensor, rows: int, name: str = "ids") -> None:
    """Raise unless ids are integers, one per row."""
    whole = not (ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex())
    if ids.shape != (rows,) or not whole:
        raise ValueError(f"{name} must be integers [{rows}], one per row; got {ids.dtype} {tuple(ids.shape)}")


def from_labels(
    labels: Tensor,
    ref_labels: Tensor | None = None,
    *,
    ids: Tensor | None = None,
    ref_ids: Tensor | None = None,
    include_self: bool = False,
    hierarchy: Literal["gains", "levels", "finest"] = "gains",
    rows: slice = EVERY,
) -> tuple[Tensor, Mask | None]:
    r"""(relevant, valid) of queries against references, or of one set against itself.

    With long [image] labels, an item is relevant if its label is equal. With bool [image, class] labels, it is relevant
    if it shares a class. With long [image, level] labels (coarse to fine), it has the gain of HAPPIER (Ramzi et al.,
    ECCV 2022, alpha = 1): (l / L) / |valid items that share exactly l levels with the query|, where l is the length of
    the shared prefix of the L levels.

    Args:
        labels: labels of the queries.
        ref_labels: labels of the references. None: the queries are also the references and never match themselves.
        ids: [query] sample ids; an item with the query's id is not valid for it.
        ref_ids: [item] sample ids, with ref_labels.
        include_self: without references, keep the diagonal as relevant.
        hierarchy: the result for hierarchical labels. "gains": float gains. "levels": long, the number l of shared
            levels. "finest": bool, True if all levels agree.
        rows: the queries of the result, consecutive; a few of them need little memory.

    Returns:
        relevant: [query, item] bool, float gains or long levels.
        valid: [query, item] bool, or None if all items are valid.

    >>> relevant, valid = from_labels(torch.tensor([3, 3, 5]))
    >>> relevant & valid
    tensor([[False,  True, False],
            [ True, False, False],
            [False, False, False]])
    """
    same = ref_labels is None
    check_labels(labels)
    if ref_labels is not None:
        check_labels(ref_labels, "ref_labels")
    other = labels if ref_labels is None else ref_labels
    if labels.dtype != other.dtype or labels.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"labels and ref_labels must be of the same kind; got {labels.dtype} {tuple(labels.shape)} and "
            f"{other.dtype} {tuple(other.shape)}"
        )
    if same and ref_ids is not None:
        raise ValueError("got ref_ids without references: pass ref_emb and ref_labels, too")
    device = labels.device
    valid = validity(
        len(labels),
        len(other),
        ids=ids,
        ref_ids=ref_ids,
        same=same,
        include_self=include_self,
        device=device,
        rows=rows,
    )
    labels = labels[rows]
    if labels.dim() == 1:
        return labels.unsqueeze(1) == other.unsqueeze(0), valid
    if labels.dtype == torch.bool:
        return (labels.float() @ other.float().T) > 0, valid
    shared = shared_levels(labels, other)
    levels = labels.shape[1]
    if hierarchy == "levels":
        return shared, valid
    return (hierarchical_gains(shared, levels, valid) if hierarchy == "gains" else shared == levels), valid


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
        valid: [query, item] bool, items that count in the denominator.
        alpha: exponent; the larger, the more finer levels matter.

    >>> hierarchical_gains(torch.tensor([[2, 1, 1, 0]]), levels=2)
    tensor([[1.0000, 0.2500, 0.2500, 0.0000]], dtype=torch.float64)
    """
    kept = shared if valid is None else shared.masked_fill(~valid, 0)
    counts = torch.zeros(len(shared), levels + 1, dtype=torch.float64, device=shared.device)
    counts.scatter_add_(1, kept, torch.ones_like(kept, dtype=counts.dtype))
    strength = (kept.double() / levels) ** alpha
    return strength / counts.gather(1, kept).clamp(min=1)


def gains_of(grades: Tensor, kind: str) -> Tensor:
    """The gains of grades for NDCG: "linear" g, or "exp2" 2^g - 1.

    >>> gains_of(torch.tensor([0.0, 1.0, 3.0]), "exp2")
    tensor([0., 1., 7.])
    """
    if kind not in ("linear", "exp2"):
        raise ValueError(f"gain must be 'linear' (g) or 'exp2' (2^g - 1); got {kind!r}")
    if kind == "linear":
        return grades
    # 2^g - 1 of a small grade would lose its digits, and expm1 is not exact for whole grades
    exact = grades.double()
    return torch.where(exact < 1, torch.expm1(exact * math.log(2)), torch.exp2(exact) - 1).to(grades.dtype)


def _indices(given: object) -> Tensor:
    """An entry of indices_tuple as long [pair]."""
    index = given if isinstance(given, Tensor) else torch.as_tensor(given)  # a tensor stays on its device
    if index.numel() == 0 and index.dim() <= 1:
        return index.long().flatten()
    if index.dim() != 1 or index.dtype == torch.bool or index.is_floating_point():
        raise ValueError(f"indices_tuple must hold integers [pair]; got {index.dtype} {tuple(index.shape)}")
    return index.long()


def from_indices_tuple(indices_tuple: tuple[Tensor, ...], num_queries: int, num_items: int) -> tuple[Tensor, Mask]:
    """(relevant, valid) from pytorch-metric-learning's pairs (a1, p, a2, n) or triplets (a, p, n).

    Only these pairs are valid.

    >>> relevant, valid = from_indices_tuple(tuple(torch.tensor([i]) for i in (0, 1, 0, 2)), 1, 3)
    >>> relevant, valid
    (tensor([[False,  True, False]]), tensor([[False,  True,  True]]))
    """
    given = indices_tuple if isinstance(indices_tuple, (tuple, list)) else (indices_tuple,)
    if len(given) not in (3, 4):
        raise ValueError(
            "indices_tuple must be pairs (anchors, positives, anchors, negatives) or triplets (anchors, positives, "
            f"negatives); got {len(given)} tensors"
        )
    indices = [_indices(each) for each in given]
    pairs = (indices[0], indices[1], indices[-2] if len(given) == 4 else indices[0], indices[-1])
    for one, other in (pairs[:2], pairs[2:]):
        if len(one) != len(other):
            raise ValueError(
                f"the tensors of a pair in indices_tuple must be equally long; got {len(one)}, {len(other)}"
            )
    for index, end, what in zip(pairs, (num_queries, num_items) * 2, ("queries", "items") * 2, strict=True):
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < end:
            raise ValueError(
                f"indices_tuple must hold {what} 0 .. {end - 1}; got {int(index.min())} .. {int(index.max())}"
            )
    relevant = torch.zeros(num_queries, num_items, dtype=torch.bool, device=pairs[0].device)
    valid = torch.zeros_like(relevant)
    relevant[pairs[0], pairs[1]] = True
    valid[pairs[2], pairs[3]] = True
    return relevant, valid | relevant


# ------------------------------------------------------------------------------- a gallery of any size, block by block


def own_columns(
    ids: Ids | None,
    ref_ids: Ids | None,
    queries: int,
    items: int,
    device: torch.device | str | None = None,
    *,
    same: bool = False,
) -> Tensor:
    """[query] long: the column of the reference with the query's own id, -1 if there is none.

    Args:
        ids: [query] sample ids, distinct integers or strings. None (then ref_ids must be None, too): no reference is a
            query itself.
        ref_ids: [item] sample ids of the references.
        queries: required length of ids.
        items: required length of ref_ids.
        device: device of the result.
        same: whether queries and references are the same set. Then ids are only checked: they must be distinct.

    Raises:
        ValueError: only one of ids and ref_ids is given, a length is wrong, or an id occurs twice.

    >>> own_columns(["a", "b"], ["c", "a"], 2, 2)
    tensor([ 1, -1])
    """
    if same:
        if ids is not None:
            distinct("ids", ids, queries)
        return torch.arange(queries, device=device)
    if ids is None and ref_ids is None:
        return torch.full((queries,), -1, device=device)
    if ids is None or ref_ids is None:
        raise ValueError("got only one of ids and ref_ids: pass the ids of the queries and of the references")
    mine, theirs = distinct("ids", ids, queries), distinct("ref_ids", ref_ids, items)
    _of_one_kind("ids", mine, "ref_ids", theirs)
    return torch.from_numpy(_places(mine, theirs)).to(device)


def distinct(name: str, ids: Ids, length: int) -> Array:
    """Sample ids as an array.

    Raises:
        ValueError: the ids are neither integers nor strings, their number is wrong, or one occurs twice.
    """
    array = _names(name, ids)
    if len(array) != length:
        raise ValueError(f"{name} must hold {length} ids, one per row of the embeddings; got {len(array)}")
    _, first, times = np.unique(array, return_index=True, return_counts=True)
    if (times > 1).any():
        twice = array[first[times > 1].min()]
        raise ValueError(
            f"{name} must be distinct; {twice!r} is in rows {np.flatnonzero(array == twice)[:3].tolist()}. "
            "Remove the repeated samples: they would match each other perfectly."
        )
    return array


def _names(name: str, ids: Ids) -> Array:
    array = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(unmasked(ids, name))
    if array.ndim == 1 and array.dtype.kind == "O" and all(isinstance(word, str) for word in array):
        array = array.astype(str)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(f"{name} must be a list of integers or strings; got {array.dtype} of shape {array.shape}")
    return array


def _of_one_kind(name: str, mine: Array, other: str, theirs: Array) -> None:
    if (mine.dtype.kind in "iu") != (theirs.dtype.kind in "iu"):
        raise ValueError(
            f"{name} and {other} must both be integers or both be strings; got {mine.dtype} and {theirs.dtype}"
        )


def _places(mine: Array, theirs: Array) -> Array:
    """Index of each value of `mine` in `theirs`, whose values are distinct; -1 if it is not there."""
    if not len(theirs):
        return np.full(len(mine), -1)
    order = np.argsort(theirs, kind="stable")
    place = np.searchsorted(theirs[order], mine).clip(max=len(theirs) - 1)
    places = order[place]
    return np.where(theirs[places] == mine, places, -1)


def listed_items(
    name: str, lists: Sequence[Ids], ref_ids: Ids, queries: int, device: torch.device | str | None = None
) -> Tensor:
    """[pair, 2] long, sorted (query, item) pairs from a list of item ids per query. Unknown ids are ignored.

    Args:
        name: name of the lists in messages.
        lists: one list of ids per query, which may be empty.
        ref_ids: [item] ids of the references, distinct.
        queries: required number of lists.
        device: device of the result.

    >>> listed_items("ignore", [["b"], [], ["x", "a"]], ["a", "b"], 3)
    tensor([[0, 1],
            [2, 0]])
    """
    if len(lists) != queries:
        raise ValueError(f"{name} must have one list per query, {queries}; got {len(lists)}")
    sizes = [len(part) for part in lists]
    theirs = _names("ref_ids", ref_ids)
    parts = []
    for q, part in enumerate(lists):
        if len(part):
            parts.append(_names(f"{name}[{q}]", part))
            _of_one_kind(f"{name}[{q}]", parts[-1], "the gallery's ids", theirs)
    item = _places(np.concatenate(parts), theirs) if parts else np.zeros(0, dtype=np.int64)
    pairs = np.stack([np.repeat(np.arange(queries), sizes), item], axis=1)[item >= 0]
    return torch.from_numpy(np.unique(pairs, axis=0)).to(device)


class Pairs(Protocol):
    """A set of (query, item) pairs that can be read for a few queries at a time."""

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(position in rows, item) of the pairs of these queries, sorted by position, then by item."""
        ...


class Relevance:
    """Which items are relevant to each query, and which items are not valid for it (they are not ranked).

    Args:
        related: pairs that are relevant if they are valid.
        own: [query] column of the query itself, which is not valid for it; -1 if there is none.
        items: number of items.
        groups: [query] and [item] long, group ids. A related item of the query's own group is not valid for it.
        ignored: [pair, 2] long, distinct (query, item) pairs that are not valid, sorted by query.

    Attributes:
        count: [query] long, number of relevant valid items of each query.
    """

    def __init__(
        self,
        related: Pairs,
        own: Tensor,
        items: int,
        groups: tuple[Tensor, Tensor] | None = None,
        ignored: Tensor | None = None,
    ) -> None:
        self._related, self._own, self._items, self._groups = related, own, items, groups
        self._ignored = None if ignored is None else _Listed(ignored, len(own))
        self.count = self._counted()

    def _counted(self) -> Tensor:
        if isinstance(self._related, SameLabel) and self._groups is None and self._ignored is None:
            return self._related.count - self._related.has(self._own).long()
        every = torch.arange(len(self._own), device=self._own.device)
        parts = torch.split(every, max(1, PART // max(1, self._items)))
        return torch.cat([torch.bincount(self.pairs(rows)[0], minlength=len(rows)) for rows in parts])

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(position in rows, item) of the relevant valid pairs, sorted by position, then by item."""
        row, item = self._related.pairs(rows)
        keep = item != self._own[rows][row]
        if self._groups is not None:
            keep &= self._groups[0][rows][row] != self._groups[1][item]
        if self._ignored is not None:
            gone, at = self._ignored.pairs(rows)
            keep &= ~_among(row * self._items + item, gone * self._items + at)
        return row[keep], item[keep]

    def absent(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(position in rows, item) of the items that are not valid, each pair once."""
        own = self._own[rows]
        position = (own >= 0).nonzero().squeeze(1)
        key = [position * self._items + own[position]]
        if self._groups is not None:
            row, item = self._related.pairs(rows)
            same = self._groups[0][rows][row] == self._groups[1][item]
            key.append(row[same] * self._items + item[same])
        if self._ignored is not None:
            row, item = self._ignored.pairs(rows)
            key.append(row * self._items + item)
        if len(key) == 1:
            return position, own[position]
        at = torch.unique(torch.cat(key))
        return at // self._items, at % self._items


def relevance_of(
    labels: Tensor,
    ref_labels: Tensor,
    queries: int,
    items: int,
    own: Tensor,
    *,
    groups: tuple[Tensor, Tensor] | None = None,
    ignored: Tensor | None = None,
) -> Relevance:
    """Relevance by equal labels or, for multi-hot labels, by a shared label.

    Args:
        labels: [query] long, or [query, label] bool; see `as_labels`.
        ref_labels: [item] or [item, label], of the same kind.
        queries: required number of rows of labels.
        items: required number of rows of ref_labels.
        own: [query] column of the query itself (never relevant to itself), -1 if there is none.
        groups: see `Relevance`.
        ignored: see `Relevance`.

    Raises:
        ValueError: the shapes do not fit.

    >>> five = torch.tensor([5, 5, 6])
    >>> relevance_of(five, five, 3, 3, torch.arange(3)).count
    tensor([1, 1, 0])
    """
    for name, value, length, whose in (("labels", labels, queries, "query"), ("ref_labels", ref_labels, items, "item")):
        if value.ndim != (2 if value.dtype == torch.bool else 1):
            raise ValueError(
                f"{name} must be integers [{whose}] or multi-hot bool [{whose}, label]; got {value.dtype} of shape "
                f"{tuple(value.shape)}. For hierarchical labels, pass one level (a column) at a time."
            )
        if len(value) != length:
            raise ValueError(f"{name} must have one row per embedding, {length}; got {len(value)}")
    if labels.ndim != ref_labels.ndim or labels.shape[1:] != ref_labels.shape[1:]:
        raise ValueError(
            f"labels and ref_labels must have the same columns; got {tuple(labels.shape)}, {tuple(ref_labels.shape)}"
        )
    labels, ref_labels = labels.to(own.device), ref_labels.to(own.device)
    related: Pairs = SameLabel(labels, ref_labels) if labels.ndim == 1 else SharedLabel(labels, ref_labels)
    return Relevance(related, own, items, groups, ignored)


class SameLabel:
    """Pairs of equal labels. They are read from the sorted labels of the items, without a [query, item] matrix.

    Attributes:
        count: [query] long, number of items with the query's label.
    """

    def __init__(self, labels: Tensor, ref_labels: Tensor) -> None:
        self._labels, self._ref_labels = labels, ref_labels
        ordered, self._order = torch.sort(ref_labels, stable=True)
        self._start = torch.searchsorted(ordered, labels)
        self.count = torch.searchsorted(ordered, labels, right=True) - self._start

    def has(self, column: Tensor) -> Tensor:
        """[query] bool, whether the item of this column (-1: none) has the query's label."""
        return (column >= 0) & (self._ref_labels[column.clamp(min=0)] == self._labels)

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """See `Pairs`."""
        row, slot = ragged(self.count[rows])
        return row, self._order[self._start[rows][row] + slot]


class SharedLabel:
    """Pairs that share at least one label (multi-hot), by a matrix product."""

    def __init__(self, labels: Tensor, ref_labels: Tensor) -> None:
        self._labels, self._ref_labels = labels.float(), ref_labels.float()

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """See `Pairs`."""
        shared = (self._labels[rows] @ self._ref_labels.T) > 0.5  # sums of ones: whole numbers
        row, item = shared.nonzero(as_tuple=True)
        return row, item


class _Listed:
    """The pairs of a list [pair, 2] that is sorted by query."""

    def __init__(self, pairs: Tensor, queries: int) -> None:
        self._item = pairs[:, 1].contiguous()
        self._count = torch.bincount(pairs[:, 0], minlength=queries)
        self._start = self._count.cumsum(0) - self._count

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """See `Pairs`."""
        row, slot = ragged(self._count[rows])
        return row, self._item[self._start[rows][row] + slot]


def _among(values: Tensor, ordered: Tensor) -> Tensor:
    """Bool, True where a value is in the ascending list."""
    if not len(ordered):
        return torch.zeros_like(values, dtype=torch.bool)
    place = torch.searchsorted(ordered, values).clamp(max=len(ordered) - 1)
    return ordered[place] == values


def ragged(length: Tensor) -> tuple[Tensor, Tensor]:
    """(row, slot) of a ragged table with `length` entries in each row.

    >>> ragged(torch.tensor([2, 0, 1]))
    (tensor([0, 0, 2]), tensor([0, 1, 0]))
    """
    row = torch.repeat_interleave(length)
    start = length.cumsum(0) - length
    return row, torch.arange(len(row), device=length.device) - start[row]


__all__ = ["as_labels", "from_labels", "shared_levels", "hierarchical_gains", "from_indices_tuple"]
