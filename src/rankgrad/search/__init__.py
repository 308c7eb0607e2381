r"""Exact search over galleries of any size: the k best items, and the ranks of the relevant items.

Scores are inner products (cosines, if the rows have length 1). The whole score matrix [query, item] is never stored: it
is computed in blocks of queries, one matrix product each, whose size follows from a memory budget (`MEMORY`). Nothing
is approximate: `topk` gives the same as sorting every row, and `rank_relevant` the same as `ranks.exact_ranks`.

The score of the same two rows may differ in the last bit between two matrix products. Therefore the scores of the
relevant items are read from the same product as the scores they are compared with. Otherwise an item could rank above
itself. For ties see `scores.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from ..common.checks import integer, tensor
from ..common.progress import steps
from ..ranks.exact import Order
from ..ranks.kernels.counting import Counter, Ties
from ..ranks.relevance import Ids, Labels, Relevance, as_labels, listed_items, own_columns, ragged, relevance_of
from ..ranks.types import Ranks, TiedRanks
from .scores import Scorer, Similarity
from .scores import check_embeddings as check_embeddings
from .scores import duplicate_rows as duplicate_rows
from .scores import of_one_byte as of_one_byte

MEMORY = 256 * 2**20  # largest number of bytes of a block of scores and its pairs
MAX_BLOCK = 256  # queries; larger blocks do not make the matrix product faster
TILE = 2**19  # number of scores processed together, of rows with a tie across the end of a top-k list
# On a CPU, from this many items for each of the best k on, most are left out before the best are sorted; unless so
# many times k are tied.
WIDE, CROWDED = 64, 8
PAIR_BYTES = 2048  # upper estimate of the bytes per relevant pair for three `Ranks` and all metrics


@dataclass(frozen=True)
class Candidates:
    """What is ranked for a query.

    Attributes:
        ids: [query] sample ids, distinct integers or strings. The item with a query's own id is not ranked for it.
        ref_ids: [item] sample ids of the gallery, distinct.
        groups: [query] group ids, integers or strings, such as the camera or the sequence of an image. A relevant item
            of the query's own group is not ranked for it, as in re-identification. An irrelevant one is ranked.
        ref_groups: [item] group ids of the gallery; needed with groups and a gallery.
        ignore: for each query a list of ids of items that are not ranked for it: ids of the gallery, or of the queries
            if there is none. Unknown ids have no effect.

    >>> x = torch.tensor([[1.0], [2.0], [3.0]])
    >>> rank_relevant(x, [0, 0, 0], candidates=Candidates(groups=["left", "left", "right"])).index.item
    tensor([2, 2, 0, 1])
    """

    ids: Ids | None = None
    ref_ids: Ids | None = None
    groups: Labels | None = None
    ref_groups: Labels | None = None
    ignore: Sequence[Ids] | None = None


#: Every item is ranked for every query.
WHOLE_GALLERY = Candidates()


@dataclass(frozen=True)
class RankBlock:
    """Ranks of a block of queries.

    Attributes:
        rows: [block] long, the queries of this block; row i of the ranks is query rows[i].
        ranks: ranks of the relevant items of these queries; `query` counts from 0 within the block.
        lowest_positive: [block] lowest score of a relevant item.
        highest_negative: [block] highest score of an irrelevant item, -inf if every item is relevant.
        irrelevant: [block] long, number of irrelevant items.
        nearest_positive: [block] long, the relevant item of highest score; of tied items the first.
        relevant_scores: function that returns the [pair] scores of the relevant items.
        irrelevant_scores: function that returns the [block, item] scores of the irrelevant items, -inf at all others.
            Call it before the next block.
    """

    rows: Tensor
    ranks: TiedRanks
    lowest_positive: Tensor
    highest_negative: Tensor
    irrelevant: Tensor
    nearest_positive: Tensor
    relevant_scores: Callable[[], Tensor]
    irrelevant_scores: Callable[[], Tensor]

    @property
    def graded(self) -> TiedRanks:
        """The ranks with gains: relevance is binary, so they are `ranks`."""
        return self.ranks


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
    """The k references with the highest inner product with each query; exact.

    Args:
        queries: [query, dim] float, finite; half precision is computed in float32.
        references: [item, dim] float, same device.
        k: items per query, 1 <= k <= number of items in every query's list (its own copy does not count).
        ids: [query] sample ids, distinct integers or strings. The reference with a query's own id is left out of its
            list. Pass both ids and ref_ids, or neither.
        ref_ids: [item] sample ids of the references, distinct.
        block: queries per matrix product; None chooses it from a memory budget. The result does not depend on it, with
            one exception: items whose scores differ only by rounding may swap ranks. For equal scores see `scores.py`.
        progress: print progress, rate and remaining time on stderr.
        rows: [n] long, the queries to search for, so that several processes can share the work. None: all.

    Returns:
        (scores [query, k], index [query, k] long), best first; of tied references the lower index comes first. With
        rows: [n, k], in their order.

    Raises:
        ValueError: k is not an integer, k or rows are out of range, the input is empty or not finite, shapes do not
            fit, or an id occurs twice.
        TypeError: the input is not a floating-point tensor.

    >>> gallery = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> topk(torch.tensor([[2.0, 1.0]]), gallery, 2)
    (tensor([[2., 2.]]), tensor([[0, 2]]))
    >>> topk(gallery, gallery, 1, ids=[7, 8, 9], ref_ids=[7, 8, 9])[1]
    tensor([[2], [0], [0]])
    """
    scorer = Scorer(queries, references)
    own = own_columns(ids, ref_ids, len(queries), len(references), scorer.device)
    most = len(references) - int((own >= 0).any())
    k = integer(k, "k is the length of a list")
    if not 1 <= k <= most:
        copies = " (a query's list does not contain its own copy)" if most < len(references) else ""
        raise ValueError(f"k must be in 1 .. {most} for a gallery of {len(references)} items{copies}; got {k}")
    size = _block_size(block, len(references) * scorer.dtype.itemsize + k * 64)
    todo = _chosen(rows, len(queries), scorer.device)
    values = torch.empty(len(todo), k, dtype=scorer.dtype, device=scorer.device)
    index = torch.empty(len(todo), k, dtype=torch.long, device=scorer.device)
    with steps(len(todo), "searching", "query", progress) as advance:
        for start in range(0, len(todo), size):
            part = slice(start, start + size)
            keys, here = scorer(todo[part]), own[todo[part]]
            position = (here >= 0).nonzero().squeeze(1)
            keys[position, here[position]] = -torch.inf
            best, index[part] = _topk_by_index(keys, k)
            values[part] = scorer.scores(best, todo[part])
            advance(len(keys))
    return values, index


def rank_relevant(
    queries: Tensor,
    labels: Labels,
    references: Tensor | None = None,
    ref_labels: Labels | None = None,
    candidates: Candidates = WHOLE_GALLERY,
    *,
    similarity: Similarity = "inner product",
    block: int | None = None,
    progress: bool = False,
) -> TiedRanks:
    """Exact ranks of all relevant items, without storing the score matrix.

    The result equals `ranks.exact_ranks` of the whole matrix. It keeps three numbers per relevant pair. With very many
    relevant items per query (classes of thousands), compute the metrics block by block with `rank_blocks`.

    Args:
        queries: [query, dim] float, finite; half precision is computed in float32.
        labels: [query] integers or strings (relevant = equal), or [query, label] bool (relevant = shares a label);
            tensor, array or list.
        references: [item, dim] float, same device. None: leave-one-out, every query against all other rows.
        ref_labels: labels of the references, of the same kind; needed with references.
        candidates: items that are not ranked for a query.
        similarity: "inner product", or "euclidean": minus the distance.
        block: queries per matrix product; None chooses it from a memory budget.
        progress: print progress, rate and remaining time on stderr.

    Returns:
        The ranks under three rules for ties. `item` is a column of the references, `above_*` are float64.

    Raises:
        ValueError: the input is empty or not finite, shapes do not fit, or an id occurs twice.
        TypeError: embeddings are not floating-point, or labels are of another kind, see `relevance.as_labels`.

    >>> ranks = rank_relevant(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([5, 6, 5])).pessimistic
    >>> ranks.query, ranks.item, ranks.rank  # 0 scores 0 with everything, so a tie pushes its match to rank 2
    (tensor([0, 2]), tensor([2, 0]), tensor([2., 2.], dtype=torch.float64))
    """
    parts = list(
        rank_blocks(
            queries, labels, references, ref_labels, candidates, similarity=similarity, block=block, progress=progress
        )
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
    labels: Labels,
    references: Tensor | None = None,
    ref_labels: Labels | None = None,
    candidates: Candidates = WHOLE_GALLERY,
    *,
    similarity: Similarity = "inner product",
    block: int | None = None,
    progress: bool = False,
    rows: Tensor | None = None,
    turn: tuple[int, int] = (0, 1),
) -> Iterator[RankBlock]:
    """`rank_relevant` block by block, with bounded memory for any number of relevant pairs.

    Queries come in the order of their number of relevant items, not in input order, because blocks of similar queries
    need no padding. `RankBlock.rows` has the indices of the queries. Queries without a relevant item are left out.

    Arguments and errors are those of `rank_relevant`; errors are raised at the first step of the iteration. `rows`
    ([n] long, distinct) are the queries to rank; None: all queries. All items are searched in any case. With `turn`
    (r, W) only every W-th block comes, from block r on, so W processes can share the work. Their matrix products are
    the same as those of one process, so the numbers are exactly equal.

    >>> for part in rank_blocks(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([0, 0, 1])):
    ...     print(part.rows, part.ranks.index.rank)
    tensor([0, 1]) tensor([2., 2.], dtype=torch.float64)
    """
    if (references is None) != (ref_labels is None):
        raise ValueError("got only one of references and ref_labels: pass both or neither")
    same = references is None
    scorer = Scorer(queries, queries if references is None else references, similarity)
    truth = as_labels(labels, ref_labels)
    relevance = _ranked_items(candidates, truth, (len(queries), scorer.items), scorer.device, same)
    todo = torch.argsort(relevance.count, stable=True)
    wanted = relevance.count > 0
    if rows is not None:
        wanted &= torch.zeros_like(wanted).index_fill_(0, _chosen(rows, len(queries), wanted.device), True)
    todo = todo[wanted[todo]]
    count = relevance.count[todo].cpu()
    buffer_bytes = scorer.items * scorer.dtype.itemsize
    with steps(len(todo), "ranking", "query", progress) as advance:
        start = number = 0
        while start < len(todo):
            size = min(_block_size(block, buffer_bytes + int(count[start]) * PAIR_BYTES), len(todo) - start)
            # counts ascend, so the last query of the block needs the most memory: choose the size again for it
            size = min(size, _block_size(block, buffer_bytes + int(count[start + size - 1]) * PAIR_BYTES))
            part = todo[start : start + size]
            if number % turn[1] == turn[0]:
                yield _rank_block(scorer, part, relevance)
            number, start = number + 1, start + size
            advance(size)


def _ranked_items(
    candidates: Candidates, truth: Sequence[Tensor], sides: tuple[int, int], device: torch.device, same: bool
) -> Relevance:
    """The relevant items of each query, and the items that are not ranked for it."""
    own = own_columns(candidates.ids, candidates.ref_ids, *sides, device, same=same)
    listed = None
    if candidates.ignore is not None:
        names = candidates.ids if same else candidates.ref_ids
        if names is None:
            raise ValueError(f"ignore holds ids of items: pass {'ids' if same else 'ids and ref_ids'}, too")
        listed = listed_items("ignore", candidates.ignore, names, sides[0], device)
    groups = _groups(candidates.groups, candidates.ref_groups, sides, own, same)
    return relevance_of(truth[0], truth[-1], *sides, own, groups=groups, ignored=listed)


def _groups(
    groups: Labels | None, ref_groups: Labels | None, sides: tuple[int, int], own: Tensor, same: bool
) -> tuple[Tensor, Tensor] | None:
    """Group ids of queries and items, checked."""
    if groups is None and ref_groups is None:
        return None
    if groups is None or same != (ref_groups is None):
        raise ValueError("got only one of groups and ref_groups: pass both with references, only groups without")
    numbers = as_labels(groups, ref_groups, ("groups", "ref_groups"))
    for name, side, length in zip(("groups", "ref_groups"), numbers, sides, strict=False):
        if side.dtype == torch.bool or side.shape != (length,):
            raise ValueError(f"{name} must be integers or strings [{length}]; got {side.dtype} {tuple(side.shape)}")
    return numbers[0].to(own.device), numbers[-1].to(own.device)


def rank_lists(
    lists: Tensor,
    labels: Labels,
    ref_labels: Labels | None = None,
    *,
    ids: Ids | None = None,
    ref_ids: Ids | None = None,
) -> Ranks:
    """Ranks from lists that another system retrieved, such as an approximate index.

    A relevant item that is not in its query's list was not retrieved: its rank is infinity. It adds 0 to AP and NDCG,
    but still counts as a relevant item. ROC AUC cannot be computed from lists.

    Args:
        lists: [query, place] long, items best first; -1 after the end of a list. The query's own copy is skipped.
        labels: [query] integers or strings, or [query, label] bool.
        ref_labels: labels of the items. None: queries and items are the same set, and a query is not its own item.
        ids: [query] sample ids, with ref_ids: the item with a query's own id is skipped.
        ref_ids: [item] sample ids of the items.

    Raises:
        ValueError: an item occurs twice in a list or is out of range, or shapes do not fit.

    >>> ranks = rank_lists(torch.tensor([[2, 0]]), ["a"], ["a", "a", "b"])
    >>> ranks.item, ranks.rank
    (tensor([0, 1]), tensor([2., inf], dtype=torch.float64))
    """
    truth = as_labels(labels, ref_labels)
    queries, items = len(truth[0]), len(truth[-1])
    lists = tensor(lists, "lists")
    if lists.dim() != 2 or len(lists) != queries or lists.dtype not in (torch.long, torch.int32):
        raise ValueError(f"lists must be long [{queries}, place]; got {lists.dtype} of shape {tuple(lists.shape)}")
    lists = lists.long()
    if lists.numel() and not -1 <= int(lists.min()) <= int(lists.max()) < items:
        raise ValueError(f"lists must hold items 0 .. {items - 1}, or -1; got {int(lists.min())} .. {int(lists.max())}")
    ordered = lists.sort(1).values
    if bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
        raise ValueError("an item is in a list twice; remove the repeated item")
    own = own_columns(ids, ref_ids, queries, items, lists.device, same=ref_labels is None)
    relevance = relevance_of(truth[0], truth[-1], queries, items, own)
    query, item = relevance.pairs(torch.arange(queries, device=lists.device))
    pair, listed = query * items + item, torch.arange(queries, device=lists.device).unsqueeze(1) * items + lists
    here = (lists >= 0) & (lists != own.unsqueeze(1))
    hit = torch.isin(listed, pair) & here
    place = hit.long().cumsum(1) - 1, (here & ~hit).long().cumsum(1)
    pos, neg = (torch.full((len(pair),), fill, dtype=torch.float64, device=lists.device) for fill in (0.0, torch.inf))
    at = torch.searchsorted(pair, listed[hit])
    pos[at], neg[at] = (counts[hit].double() for counts in place)
    return Ranks(query, item, torch.ones_like(pos), pos, neg, queries)


def _rank_block(scorer: Scorer, rows: Tensor, relevance: Relevance) -> RankBlock:
    """Ranks of the queries of one block."""
    keys = scorer(rows)
    row, item = relevance.pairs(rows)
    length = torch.bincount(row, minlength=len(rows))
    slot = ragged(length)[1]
    value = keys[row, item]
    # [row, slot] negated keys of the relevant items, in order of their index; empty slots rank below all items
    width = int(length.max())
    full = len(value) == len(rows) * width  # true for most blocks

    def by_slot(values: Tensor, fill: float) -> Tensor:
        if full:
            return values.view(len(rows), width)
        return values.new_full((len(rows), width), fill).index_put_((row, slot), values)

    order = Order(by_slot(-value, torch.inf), by_slot(item, 0))
    gone = relevance.absent(rows)
    keys[gone] = -torch.inf
    keys[row, item] = -torch.inf  # only the irrelevant items are left
    rivals = order.rivals(Counter(keys, may_wait=True))[0]
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
    lowest = torch.full_like(keys[:, 0], torch.inf).scatter_reduce_(0, row, value, "amin")
    nearest = order.column.gather(1, order.by_place[:, :1]).squeeze(1)
    irrelevant = scorer.items - torch.bincount(gone[0], minlength=len(rows)) - length
    return RankBlock(
        rows=rows,
        ranks=tied,
        lowest_positive=scorer.scores(lowest, rows),
        highest_negative=scorer.scores(keys.amax(1), rows),
        irrelevant=irrelevant,
        nearest_positive=nearest,
        relevant_scores=lambda: scorer.scores(value, rows[row]),
        irrelevant_scores=lambda: scorer.scores(keys, rows),
    )


def _topk_by_index(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores of every row; of tied items the lower index comes first."""
    wide = scores.device.type == "cpu" and scores.shape[1] >= WIDE * k
    if wide and (found := _topk_above_bound(scores, k)) is not None:
        return found
    values, index = torch.topk(scores, min(k + 1, scores.shape[1]), dim=1)
    last = values[:, k - 1 : k]
    # of items tied across the end of the list, torch.topk takes any: take those of lowest index instead
    across = (values[:, k:] == last).any(1)
    index = index[:, :k]
    for part in torch.split(across.nonzero().squeeze(1), max(1, TILE // scores.shape[1])):
        row, end = scores[part], last[part]
        above, tied = row > end, row == end
        room = k - above.sum(1, keepdim=True)
        chosen = above | (tied & (tied.cumsum(1) <= room))
        index[part] = chosen.nonzero()[:, 1].view(len(part), k)
    index = index.sort(1)[0]
    values, order = torch.sort(scores.gather(1, index), dim=1, descending=True, stable=True)
    return values, index.gather(1, order)


def _topk_above_bound(scores: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """The same for long rows on a CPU; None if too many items are tied.

    The k-th best of the maxima of groups of items is a bound: k items at least are not below it. It is low enough to be
    right and high enough to leave few more than k items, which two plain passes find. Only these are sorted.
    """
    (rows, items), groups = scores.shape, 4 * k  # more take longer, fewer leave more items above the bound
    most = scores[:, : items - items % groups].view(rows, -1, groups).amax(1)
    bound = most.topk(k, dim=1, sorted=False).values.amin(1, keepdim=True)
    flat = torch.from_numpy(np.flatnonzero((scores >= bound).numpy()))
    row = flat // items
    count = torch.bincount(row, minlength=rows)
    if (most_found := int(count.max())) > CROWDED * k:
        return None
    place = torch.arange(len(flat)) - (count.cumsum(0) - count)[row]
    values = scores.new_full((rows, most_found), -torch.inf).index_put_((row, place), scores.view(-1)[flat])
    index = torch.zeros(values.shape, dtype=torch.long).index_put_((row, place), flat - row * items)
    values, order = values.sort(dim=1, descending=True, stable=True)
    return values[:, :k], index.gather(1, order[:, :k])


def _block_size(block: int | None, bytes_per_row: int) -> int:
    if block is None:
        return max(1, min(MAX_BLOCK, MEMORY // max(1, bytes_per_row)))
    return integer(block, "block is a number of queries", low=1)


def _no_ranks(queries: int, device: torch.device) -> Ranks:
    nowhere = torch.empty(0, dtype=torch.long, device=device)
    nothing = torch.empty(0, dtype=torch.float64, device=device)
    return Ranks(nowhere, nowhere, nothing, nothing, nothing, queries)


def _chosen(rows: Tensor | None, queries: int, device: torch.device) -> Tensor:
    """[n] long, the queries to search for."""
    if rows is None:
        return torch.arange(queries, device=device)
    if rows.dtype != torch.long or rows.ndim != 1:
        raise ValueError(
            f"rows must be a tensor [n] of torch.long, indices of queries; got {rows.dtype} of shape "
            f"{tuple(rows.shape)}. Turn a mask into indices with mask.nonzero().squeeze(1)."
        )
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < queries:
        raise ValueError(f"rows must be in 0 .. {queries - 1}; got {int(rows.min())} .. {int(rows.max())}")
    if len(torch.unique(rows)) < len(rows):
        raise ValueError(f"rows must hold each query once; {len(rows) - len(torch.unique(rows))} are repeated")
    return rows.to(device)


from .retrieval import retrieve as retrieve  # noqa: E402  (it uses topk)
