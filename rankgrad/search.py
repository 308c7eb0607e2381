r"""Exact search over galleries of any size: the k best items, and where the relevant ones stand.

Scores are inner products (cosine, if the rows have length 1). The query x gallery score matrix never exists: it is
made and used up in blocks of queries, one matrix product each, sized by a memory budget (`MEMORY`). Nothing is
approximate: `topk` is what sorting every row would give, `rank_relevant` what `ranks.exact_ranks` would give.

Two properties of floating-point matrix products decide how this file is written. The same pair of rows gets scores
that differ in the last bit from one product to the next; therefore the scores that relevant items are compared *by*
are read from the very product they are compared *with*, else an item can stand above itself. And identical gallery
rows get different scores within one product, by which kernel their column falls to; therefore duplicates share the
score of the first of them, else a tie is broken by chance.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .kernels.counting import Counter, Ties
from .ranks.exact import Order
from .types import Ranks, TiedRanks

Ids = Tensor | npt.NDArray[Any] | Sequence[Any]

MEMORY = 256 * 2**20  # bytes that a block of scores and its pairs may take
MAX_BLOCK = 256  # queries; larger blocks make the matrix product no faster
TILE = 2**19  # scores of rows with a tie across the end of a top-k list that are gone through together
PAIR_BYTES = 256  # what one relevant pair needs on its way to three `Ranks`, measured generously


@dataclass(frozen=True)
class RankBlock:
    """Ranks of a block of queries.

    Attributes:
        rows: [block] long, the queries of this block; row i of the ranks is query rows[i].
        ranks: ranks of the relevant items of these queries, `query` counted from 0 within the block.
        lowest_positive: [block] score of the lowest-scored relevant item.
        highest_negative: [block] score of the highest-scored irrelevant item, -inf where every item is relevant.
        irrelevant: [block] long, number of irrelevant items.
    """

    rows: Tensor
    ranks: TiedRanks
    lowest_positive: Tensor
    highest_negative: Tensor
    irrelevant: Tensor


def topk(
    queries: Tensor,
    references: Tensor,
    k: int,
    *,
    ids: Ids | None = None,
    ref_ids: Ids | None = None,
    block: int | None = None,
    progress: bool = False,
    rows: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The k references of highest inner product with each query, exactly.

    Args:
        queries: [query, dim] float, finite; half precision is computed in float32.
        references: [item, dim] float, same device.
        k: items per query, 1 <= k <= items that every query may be given (its own copy is not one of them).
        ids: [query] names of the samples, integers or strings, distinct; the reference with a query's own name is left
            out of its list. Give ids and ref_ids or neither.
        ref_ids: [item] names of the references, distinct.
        block: queries per matrix product; None chooses it from a memory budget. The result does not depend on it,
            except that scores within a rounding error of one another may change places.
        progress: tell on stderr how much is done, at which rate, and the time left.
        rows: [n] long, the queries to search for, so that processes can share them. None: all.

    Returns:
        (scores [query, k], index [query, k] long), best first; of tied references the lower index comes first. With
        rows: [n, k], in their order.

    Raises:
        ValueError: on k or rows out of range, empty or non-finite input, shapes out of step, repeated ids.
        TypeError: on input that is not a floating-point tensor.

    >>> gallery = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> topk(torch.tensor([[2.0, 1.0]]), gallery, 2)
    (tensor([[2., 2.]]), tensor([[0, 2]]))
    >>> topk(gallery, gallery, 1, ids=[7, 8, 9], ref_ids=[7, 8, 9])[1]
    tensor([[2], [0], [0]])
    """
    scorer = _Scorer(queries, references)
    own = own_columns(ids, ref_ids, len(queries), len(references), scorer.device)
    most = len(references) - int((own >= 0).any())
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"k must be an integer; got {k!r}")
    if not 1 <= k <= most:
        copies = " (its own copy is left out of a query's list)" if most < len(references) else ""
        raise ValueError(f"k must lie in 1 .. {most} for a gallery of {len(references)} items{copies}; got {k}")
    size = _block_size(block, len(references) * scorer.dtype.itemsize + k * 64)
    todo = _chosen(rows, len(queries), scorer.device)
    values = torch.empty(len(todo), k, dtype=scorer.dtype, device=scorer.device)
    index = torch.empty(len(todo), k, dtype=torch.long, device=scorer.device)
    with _progress(len(todo), "search", progress) as advance:
        for start in range(0, len(todo), size):
            part = slice(start, start + size)
            scores = scorer(todo[part])
            _hide_own(scores, own[todo[part]])
            values[part], index[part] = _topk_by_index(scores, k)
            advance(len(scores))
    return values, index


def rank_relevant(
    queries: Tensor,
    labels: Tensor,
    references: Tensor | None = None,
    ref_labels: Tensor | None = None,
    *,
    ids: Ids | None = None,
    ref_ids: Ids | None = None,
    block: int | None = None,
    progress: bool = False,
) -> TiedRanks:
    """Where every relevant item stands for its query, exactly, without holding the score matrix.

    Equal to `ranks.exact_ranks` of the whole matrix. Three numbers per relevant pair are kept, so with many relevant
    items per query (classes of thousands) read the metrics off block by block: `rank_blocks`.

    Args:
        queries: [query, dim] float, finite; half precision is computed in float32.
        labels: [query] integers (relevant = equal), or [query, label] bool (relevant = shares a label).
        references: [item, dim] float, same device. None: leave-one-out, every query against all others.
        ref_labels: labels of the references, same kind; needed with references.
        ids: [query] names of the samples, see `topk`; without references they must still be distinct.
        ref_ids: [item] names of the references.
        block: queries per matrix product; None chooses it from a memory budget.
        progress: tell on stderr how much is done, at which rate, and the time left.

    Returns:
        The ranks under three readings of a tie. `item` is a column of the references, `above_*` are float64.

    Raises:
        ValueError: on empty or non-finite input, shapes out of step, repeated ids.
        TypeError: on embeddings that are not floating-point or labels of another kind.

    >>> ranks = rank_relevant(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([5, 6, 5])).pessimistic
    >>> ranks.query, ranks.item, ranks.rank  # 0 scores 0 with everything, so a tie pushes its match to rank 2
    (tensor([0, 2]), tensor([2, 0]), tensor([2., 2.], dtype=torch.float64))
    """
    parts = list(
        rank_blocks(queries, labels, references, ref_labels, ids=ids, ref_ids=ref_ids, block=block, progress=progress)
    )
    if not parts:
        nothing = _no_ranks(len(queries), queries.device)
        return TiedRanks(nothing, nothing, nothing)
    query = torch.cat([part.rows[part.ranks.index.query] for part in parts])
    order = torch.argsort(query, stable=True)

    def joined(ties: Ties) -> Ranks:
        records: list[Ranks] = [getattr(part.ranks, ties) for part in parts]
        columns = {
            name: torch.cat([getattr(record, name) for record in records])[order]
            for name in ("item", "gain", "above_pos", "above_neg")
        }
        return Ranks(query=query[order], num_queries=len(queries), **columns)

    return TiedRanks(*(joined(field.name) for field in fields(TiedRanks)))  # type: ignore[arg-type]


def rank_blocks(
    queries: Tensor,
    labels: Tensor,
    references: Tensor | None = None,
    ref_labels: Tensor | None = None,
    *,
    ids: Ids | None = None,
    ref_ids: Ids | None = None,
    block: int | None = None,
    progress: bool = False,
    rows: Tensor | None = None,
) -> Iterator[RankBlock]:
    """`rank_relevant` block by block, so that memory stays bounded whatever the number of relevant pairs.

    Queries come in order of their number of relevant items (blocks of like queries are counted without padding), not
    in input order: `RankBlock.rows` says which they are. Queries without a relevant item do not come at all.
    Arguments and errors are those of `rank_relevant`; errors are raised at the first step of the iteration. `rows`
    ([n] long, distinct) names the queries to rank, so that processes can share them; all items are searched in any
    case. None: all queries.

    >>> for part in rank_blocks(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1])):
    ...     print(part.rows, part.ranks.index.rank)
    tensor([0, 1]) tensor([2., 2.], dtype=torch.float64)
    """
    if (references is None) != (ref_labels is None):
        raise ValueError("references and ref_labels belong together; got only one of them")
    scorer = _Scorer(queries, queries if references is None else references)
    items = len(scorer.references)
    if references is None:
        own_columns(ids, ids, len(queries), items, scorer.device)  # refuses repeated ids
        own = torch.arange(items, device=scorer.device)
    else:
        own = own_columns(ids, ref_ids, len(queries), items, scorer.device)
    relevance = relevance_of(labels, labels if ref_labels is None else ref_labels, len(queries), items, own)
    todo = torch.argsort(relevance.count, stable=True)
    wanted = relevance.count > 0
    if rows is not None:
        wanted &= torch.zeros_like(wanted).index_fill_(0, _chosen(rows, len(queries), wanted.device), True)
    todo = todo[wanted[todo]]
    count = relevance.count[todo].cpu()
    buffer_bytes = items * scorer.dtype.itemsize
    with _progress(len(todo), "rank", progress) as advance:
        start = 0
        while start < len(todo):
            size = min(_block_size(block, buffer_bytes + int(count[start]) * PAIR_BYTES), len(todo) - start)
            # counts ascend: the last query of the block is the dearest, so ask again with its need
            size = min(size, _block_size(block, buffer_bytes + int(count[start + size - 1]) * PAIR_BYTES))
            part = todo[start : start + size]
            yield _rank_block(scorer(part), part, own[part], relevance)
            start += size
            advance(size)


def own_columns(ids: Ids | None, ref_ids: Ids | None, queries: int, items: int, device: torch.device) -> Tensor:
    """[query] long: the column of the reference that is the query itself, -1 where there is none.

    Args:
        ids: [query] integers or strings, distinct. None, like ref_ids: no reference is any query's own.
        ref_ids: [item] the same of the references.
        queries: length that ids must have.
        items: length that ref_ids must have.
        device: where the result goes.

    Raises:
        ValueError: if one is missing, of another length, or names a sample twice.

    >>> own_columns(["a", "b"], ["c", "a"], 2, 2, torch.device("cpu"))
    tensor([ 1, -1])
    """
    if ids is None and ref_ids is None:
        return torch.full((queries,), -1, device=device)
    if ids is None or ref_ids is None:
        raise ValueError("ids and ref_ids belong together: give the names of the queries and of the references")
    mine, theirs = _distinct("ids", ids, queries), _distinct("ref_ids", ref_ids, items)
    order = np.argsort(theirs, kind="stable")
    place = np.searchsorted(theirs[order], mine).clip(max=items - 1)
    found = order[place]
    return torch.from_numpy(np.where(theirs[found] == mine, found, -1)).to(device)


def _distinct(name: str, ids: Ids, length: int) -> npt.NDArray[Any]:
    array = ids.detach().cpu().numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(f"{name} must be a list of integers or strings; got {array.dtype} of shape {array.shape}")
    if len(array) != length:
        raise ValueError(f"{name} must name {length} samples, one per row of the embeddings; got {len(array)}")
    _, first, times = np.unique(array, return_index=True, return_counts=True)
    if (times > 1).any():
        twice = array[first[times > 1].min()]
        raise ValueError(
            f"{name} must be distinct; {twice!r} stands in rows {np.flatnonzero(array == twice)[:3].tolist()}. "
            "Remove the repeated samples: each would be a perfect match of the other."
        )
    return array


class Relevance(Protocol):
    """Which items are relevant to which query, looked up a block of queries at a time."""

    count: Tensor  # [query] long, relevant items of each query, its own copy not counted

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(position in rows, item) of the relevant pairs of these queries, by position, then by item."""
        ...


def relevance_of(labels: Tensor, ref_labels: Tensor, queries: int, items: int, own: Tensor) -> Relevance:
    """Relevance by equal labels or, for multi-hot labels, by a shared one.

    Args:
        labels: [query] integers, or [query, label] bool.
        ref_labels: [item] or [item, label], of the same kind.
        queries: rows that labels must have.
        items: rows that ref_labels must have.
        own: [query] column of the query itself (never relevant to itself), -1 where there is none.

    Raises:
        ValueError: on shapes out of step.
        TypeError: on labels that are neither integers nor multi-hot bool.

    >>> five = torch.tensor([5, 5, 6])
    >>> relevance_of(five, five, 3, 3, torch.arange(3)).count
    tensor([1, 1, 0])
    """
    for name, value, length, whose in (("labels", labels, queries, "query"), ("ref_labels", ref_labels, items, "item")):
        if not isinstance(value, Tensor) or value.dtype.is_floating_point or value.dtype.is_complex:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{name} must be a tensor of integers [{whose}] or bool [{whose}, label]; got {kind}")
        if value.ndim != (2 if value.dtype == torch.bool else 1):
            raise ValueError(
                f"{name} must be integers [{whose}] or multi-hot bool [{whose}, label]; got {value.dtype} of shape "
                f"{tuple(value.shape)}. Of hierarchical labels give one level (a column) at a time."
            )
        if len(value) != length:
            raise ValueError(f"{name} must have one row per embedding, {length}; got {len(value)}")
    if labels.ndim != ref_labels.ndim or labels.shape[1:] != ref_labels.shape[1:]:
        raise ValueError(
            f"labels and ref_labels must be of one kind and width; got {tuple(labels.shape)}, {tuple(ref_labels.shape)}"
        )
    labels, ref_labels = labels.to(own.device), ref_labels.to(own.device)
    return SameLabel(labels, ref_labels, own) if labels.ndim == 1 else SharedLabel(labels, ref_labels, own)


class SameLabel:
    """Relevant = equal label. Looked up in the sorted labels of the items: nothing of size query x item."""

    def __init__(self, labels: Tensor, ref_labels: Tensor, own: Tensor) -> None:
        ordered, self._order = torch.sort(ref_labels, stable=True)
        self._start = torch.searchsorted(ordered, labels)
        self._length = torch.searchsorted(ordered, labels, right=True) - self._start
        self._own = own
        itself = (own >= 0) & (ref_labels[own.clamp(min=0)] == labels)
        self.count = self._length - itself.long()

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """See `Relevance`."""
        length = self._length[rows]
        row, slot = _ragged(length)
        item = self._order[self._start[rows][row] + slot]
        keep = item != self._own[rows][row]
        return row[keep], item[keep]


class SharedLabel:
    """Relevant = shares at least one label (multi-hot), counted by a matrix product."""

    def __init__(self, labels: Tensor, ref_labels: Tensor, own: Tensor) -> None:
        self._labels, self._ref_labels, self._own = labels.float(), ref_labels.float(), own
        size = _block_size(None, len(ref_labels) * 5)
        rows = _parts(torch.arange(len(labels), device=own.device), size)
        self.count = torch.cat([self._relevant(part).sum(1) for part in rows])

    def _relevant(self, rows: Tensor) -> Tensor:
        relevant = (self._labels[rows] @ self._ref_labels.T) > 0.5  # sums of ones: whole numbers
        position = (self._own[rows] >= 0).nonzero().squeeze(1)
        relevant[position, self._own[rows][position]] = False
        return relevant

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """See `Relevance`."""
        row, item = self._relevant(rows).nonzero(as_tuple=True)
        return row, item


class _Scorer:
    """Inner products of some queries with all references, in a buffer that is reused by the next call."""

    def __init__(self, queries: Tensor, references: Tensor) -> None:
        check_embeddings("queries", queries)
        if references is not queries:
            check_embeddings("references", references)
        if queries.shape[1] != references.shape[1] or queries.device != references.device:
            raise ValueError(
                f"queries and references must have one width and device; got {queries.shape[1]} on {queries.device} "
                f"and {references.shape[1]} on {references.device}"
            )
        self.dtype = torch.promote_types(torch.promote_types(queries.dtype, references.dtype), torch.float32)
        self.device = queries.device
        self._queries = queries.detach().to(self.dtype)
        self.references = self._queries if references is queries else references.detach().to(self.dtype)
        largest = [max(-float(low), float(high)) for low, high in map(torch.aminmax, (self._queries, self.references))]
        if largest[0] * largest[1] * queries.shape[1] > torch.finfo(self.dtype).max:
            raise ValueError(
                f"inner products may overflow {self.dtype}: entries reach {largest[0]:.3g} and {largest[1]:.3g}. "
                "Normalise the embeddings or pass float64."
            )
        self._copies, self._originals = duplicate_rows(self.references)
        self._buffer = torch.empty(0, dtype=self.dtype, device=self.device)

    def __call__(self, rows: Tensor) -> Tensor:
        """[len(rows), item] scores; valid until the next call, and may be overwritten."""
        if len(self._buffer) < len(rows):
            self._buffer = torch.empty(len(rows), len(self.references), dtype=self.dtype, device=self.device)
        with torch.no_grad():
            scores = torch.mm(self._queries[rows], self.references.T, out=self._buffer[: len(rows)])
            if len(self._copies):
                scores[:, self._copies] = scores[:, self._originals]
        return scores


def check_embeddings(name: str, embeddings: Tensor) -> None:
    """Refuse what cannot be searched: not [row, dim], not floating-point, empty, or not finite.

    Raises:
        TypeError: if not a floating-point tensor.
        ValueError: on shape, emptiness, NaN or infinity, naming the first row at fault.

    >>> check_embeddings("queries", torch.tensor([[1.0], [float("nan")]]))
    Traceback (most recent call last):
        ...
    ValueError: queries must be finite; row 1 (first of 1) holds nan. Look at the model's output for that sample.
    """
    if not isinstance(embeddings, Tensor) or not embeddings.dtype.is_floating_point:
        kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings).__name__
        raise TypeError(f"{name} must be a floating-point tensor [row, dim]; got {kind}")
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ValueError(f"{name} must be a non-empty matrix [row, dim]; got shape {tuple(embeddings.shape)}")
    if not all(extreme.isfinite() for extreme in torch.aminmax(embeddings)):
        finite = embeddings.isfinite().all(1)
        bad = (~finite).nonzero().squeeze(1)
        row = int(bad[0])
        value = float(embeddings[row][~embeddings[row].isfinite()][0])
        raise ValueError(
            f"{name} must be finite; row {row} (first of {len(bad)}) holds {value}. "
            "Look at the model's output for that sample."
        )


def duplicate_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that repeat an earlier row, and the first row that each of them repeats.

    Args:
        matrix: [row, dim] float, finite; 0.0 and -0.0 are equal.

    Returns:
        (copies [n] long, originals [n] long).

    >>> duplicate_rows(torch.tensor([[1.0], [2.0], [1.0], [1.0]]))
    (tensor([2, 3]), tensor([0, 0]))
    """
    dim = matrix.shape[1]
    suspects = torch.arange(len(matrix), device=matrix.device)
    # A few columns clear nearly every row; only rows that agree there are looked at in full.
    for columns in (torch.linspace(0, dim - 1, min(8, dim)).long(), torch.arange(dim)):
        key = _row_hash(matrix, suspects, columns.to(matrix.device))
        _, group, size = torch.unique(key, return_inverse=True, return_counts=True)
        suspects, group = suspects[size[group] > 1], group[size[group] > 1]
        if not len(suspects):
            return suspects, suspects
    first = suspects.new_full((len(size),), len(matrix)).scatter_reduce_(0, group, suspects, "amin")[group]
    later = suspects != first
    copies, originals = suspects[later], first[later]
    same = [
        (matrix[a] == matrix[b]).all(1)
        for a, b in zip(_parts(copies, 4096), _parts(originals, 4096), strict=True)  # a hash is not a proof
    ]
    equal = torch.cat(same) if same else later[:0]
    return copies[equal], originals[equal]


def _row_hash(matrix: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """[row] long, equal for equal rows: a sum of their bits with random odd weights, modulo 2**64."""
    bits = torch.int32 if matrix.dtype == torch.float32 else torch.int64
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(2**62, (len(columns),), generator=generator).mul_(2).add_(1).to(matrix.device)
    parts = []
    for part in _parts(rows, 4096):
        values = matrix[part.unsqueeze(1), columns] + 0.0  # -0.0 + 0.0 is 0.0
        parts.append((values.view(bits).long() * weights).sum(1))
    return torch.cat(parts)


def _rank_block(scores: Tensor, rows: Tensor, own: Tensor, relevance: Relevance) -> RankBlock:
    """Ranks from one block of scores, which is overwritten."""
    row, item = relevance.pairs(rows)
    length = torch.bincount(row, minlength=len(rows))
    slot = _ragged(length)[1]
    value = scores[row, item]
    # [row, slot] negated scores of the relevant items, in order of their index; unused slots stand below everything
    width = int(length.max())
    full = len(value) == len(rows) * width  # blocks of like queries mostly are

    def by_slot(values: Tensor, fill: float) -> Tensor:
        if full:
            return values.view(len(rows), width)
        return values.new_full((len(rows), width), fill).index_put_((row, slot), values)

    order = Order(by_slot(-value, torch.inf), by_slot(item, 0))
    _hide_own(scores, own)
    scores[row, item] = -torch.inf  # what is left are the irrelevant items
    rivals = order.rivals(Counter(scores, may_wait=True))[0]
    gain = torch.ones_like(value, dtype=torch.float64)

    def ranks(ties: Ties) -> Ranks:
        above = order.among(ties), order.back(rivals.under(ties))
        pos, neg = ((t.flatten() if full else t[row, slot]).double() for t in above)
        return Ranks(row, item, gain, pos, neg, len(rows))

    index = ranks("index")
    if rivals.other is None and not order.has_level():
        tied = TiedRanks(index, index, index)
    else:
        tied = TiedRanks(ranks("pessimistic"), ranks("optimistic"), index)
    lowest = torch.full_like(scores[:, 0], torch.inf).scatter_reduce_(0, row, value, "amin")
    irrelevant = scores.shape[1] - (own >= 0).long() - length
    return RankBlock(rows, tied, lowest, scores.amax(1), irrelevant)


def _topk_by_index(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest of every row, ties by lower index."""
    values, index = torch.topk(scores, min(k + 1, scores.shape[1]), dim=1)
    last = values[:, k - 1 : k]
    # torch.topk takes any of the items tied across the end of the list: take the first of them instead
    across = (values[:, k:] == last).any(1)
    index = index[:, :k]
    for part in _parts(across.nonzero().squeeze(1), TILE // scores.shape[1]):
        row, end = scores[part], last[part]
        above, tied = row > end, row == end
        room = k - above.sum(1, keepdim=True)
        chosen = above | (tied & (tied.cumsum(1) <= room))
        index[part] = chosen.nonzero()[:, 1].view(len(part), k)
    index = index.sort(1)[0]
    values, order = torch.sort(scores.gather(1, index), dim=1, descending=True, stable=True)
    return values, index.gather(1, order)


def _hide_own(scores: Tensor, own: Tensor) -> None:
    position = (own >= 0).nonzero().squeeze(1)
    scores[position, own[position]] = -torch.inf


def _ragged(length: Tensor) -> tuple[Tensor, Tensor]:
    """(row, slot) of a ragged table with `length` entries in each row."""
    row = torch.repeat_interleave(length)
    start = length.cumsum(0) - length
    return row, torch.arange(len(row), device=length.device) - start[row]


def _parts(tensor: Tensor, size: int) -> tuple[Tensor, ...]:
    return torch.split(tensor, max(1, size))


def _block_size(block: int | None, bytes_per_row: int) -> int:
    if block is None:
        return max(1, min(MAX_BLOCK, MEMORY // max(1, bytes_per_row)))
    if isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise ValueError(f"block is a number of queries and must be an integer >= 1; got {block!r}")
    return block


def _no_ranks(queries: int, device: torch.device) -> Ranks:
    nowhere = torch.empty(0, dtype=torch.long, device=device)
    nothing = torch.empty(0, dtype=torch.float64, device=device)
    return Ranks(nowhere, nowhere, nothing, nothing, nothing, queries)


def _chosen(rows: Tensor | None, queries: int, device: torch.device) -> Tensor:
    """[n] long, the queries to work on."""
    if rows is None:
        return torch.arange(queries, device=device)
    if rows.dtype != torch.long or rows.ndim != 1:
        raise ValueError(
            f"rows names queries by number, a tensor [n] of torch.long; got {rows.dtype} of shape {tuple(rows.shape)}. "
            "Turn a mask into numbers with mask.nonzero().squeeze(1)."
        )
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < queries:
        raise ValueError(f"rows must lie in 0 .. {queries - 1}; got {int(rows.min())} .. {int(rows.max())}")
    if len(torch.unique(rows)) < len(rows):
        raise ValueError(f"rows must name each query once; {len(rows) - len(torch.unique(rows))} are repeated")
    return rows.to(device)


@contextmanager
def _progress(total: int, what: str, show: bool) -> Iterator[Callable[[int], object]]:
    """What to call with the number of queries that have been dealt with; shows it on stderr."""
    if not show:
        yield lambda count: None
    elif importlib.util.find_spec("tqdm") is not None:
        from tqdm import tqdm

        with tqdm(total=total, desc=what, unit="query") as bar:
            yield bar.update
    else:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            sys.stderr.write(f"\r{what} {done} / {total}")
            sys.stderr.flush()

        yield advance
        sys.stderr.write("\n")
