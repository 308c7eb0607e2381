r"""Ranking metrics: `Ranks` -> a value per query. Training and evaluation use the same functions.

Higher is better for every metric here, except fall-out and FNMR, which measure errors. A metric of ranks takes one of

* a `Ranks` record (exact, relaxed or blackbox),
* `TiedRanks`: the same exact ranking under each rule for ties,
* `scores, relevant, valid=None`: tensors, numpy arrays or lists.

In the last two cases each metric applies its own rule for ties. AP, mAP@R and R-precision count a tied item as above
(equal to scikit-learn's AP). Top-k lists (R@K, P@K, AP@K, MRR) put the lower index first. DCG and NDCG average over the
tied items. ROC AUC counts a tie 1/2.

Results are [query]. A query without relevant items has value 0 and is False in `ranks.counted`. Leave it out of means,
as `mean_average_precision` and `evaluation.evaluate` do.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .common.checks import SUMMABLE, Numbers, list_length, number, one_of, query_weights, real_tensor, tensor
from .ranks import Ties, check_lists, exact_ranks
from .ranks.lists import check_relevance
from .ranks.normalize import unit_rows
from .ranks.relevance import Labels, as_labels, gains_of
from .ranks.types import Mask, PerPair, PerQuery, Ranks, TiedRanks

Gain = Literal["linear", "exp2"]
Source = Ranks | TiedRanks | Numbers


def _ranks(first: Source, relevant: Numbers | None, valid: Numbers | None, ties: Ties) -> Ranks:
    if isinstance(first, (Ranks, TiedRanks)):
        if relevant is not None or valid is not None:
            raise TypeError("ranks already contain the relevant items: pass either ranks alone, or scores and relevant")
        return first if isinstance(first, Ranks) else _reading(first, ties)
    if relevant is None:
        raise TypeError("scores need relevant: bool [query, item], or float gains")
    scores, gains, exists = _lists(first, relevant, valid)
    if exists is not None:  # scores of items that are not valid may be NaN
        scores = scores.masked_fill(~exists, 0)
    return exact_ranks(scores, gains, exists, ties=ties)


def _lists(scores: Numbers, relevant: Numbers, valid: Numbers | None) -> tuple[Tensor, Tensor, Mask | None]:
    """Checked scores, relevance and validity."""
    scores, relevant = tensor(scores, "scores"), _as_relevance(relevant)
    valid = None if valid is None else tensor(valid, "valid")
    check_lists(scores, relevant, valid)
    if relevant.dtype == torch.float64 and bool((relevant.float() != relevant).any()):
        scores = scores.double()  # gains are converted to the dtype of the scores
    bad = ~scores.isfinite() if valid is None else ~scores.isfinite() & valid
    if bool(bad.any()):
        row = int(bad.any(1).nonzero()[0])
        raise ValueError(f"scores contain NaN or infinity, first in row {row}; set valid to False for such items")
    return scores, relevant, valid


def _reading(tied: TiedRanks, ties: Ties) -> Ranks:
    return {"pessimistic": tied.pessimistic, "optimistic": tied.optimistic, "index": tied.index}[ties]


def _as_relevance(relevant: Numbers) -> Tensor:
    """Integer relevance (0/1 or grades) as float gains. Unlike a loss, a metric often gets labels from files."""
    relevant = tensor(relevant, "relevant")
    check_relevance(relevant, levels=True)
    if relevant.dtype == torch.bool:
        return relevant
    gains = relevant if relevant.is_floating_point() else relevant.double()
    bad = ~((gains >= 0) & (gains <= SUMMABLE))
    if bool(bad.any()):
        raise ValueError(f"gains must be in 0 .. {SUMMABLE:g}; got {float(gains[bad][0])}")
    return gains


def _whole(k: object, what: str = "items") -> int:
    return list_length(k, f"k is a number of {what}")


def _mean(values: PerQuery, counted: Tensor, weights: Numbers | None, name: str) -> Tensor:
    if not bool(counted.any()):
        raise ValueError(f"{name} is undefined: none of the {len(values)} queries has a relevant item")
    if weights is None:
        return values[counted].mean()
    used = query_weights(weights, counted) * counted
    return (used * values).sum() / used.sum()


# --------------------------------------------------------------------------------------------- computed from ranks


def precision_at_relevant(ranks: Ranks) -> PerPair:
    """[pair] rank^+(i) / rank(i): precision of the list down to the relevant item i.

    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]])
    >>> precision_at_relevant(exact_ranks(scores, relevant))
    tensor([1.0000, 0.6667], dtype=torch.float64)
    """
    return (1 + ranks.above_pos) / ranks.rank


def average_precision(
    ranks: Source,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    ties: Literal["pessimistic", "average", "optimistic"] = "pessimistic",
) -> PerQuery:
    r"""AP_q = 1/|P_q| sum_{i in P_q} rank^+(i) / rank(i), in (0, 1].

    ROADMAP (Ramzi et al., NeurIPS 2021) eq. 1; RaMBO eqs. 4-5. With graded gains, the positives of item i are the items
    of at least its gain.

    Args:
        ranks: a record, or [query, item] scores (then `relevant` is needed).
        relevant: [query, item] bool or gains.
        valid: [query, item] bool.
        ties: for scores only. "pessimistic": a tied item counts as above, in both ranks (equals scikit-learn).
            "optimistic": it does not, in either rank. "average": expectation over all orders of the tied items (binary
            relevance only).

    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]])
    >>> average_precision(scores, relevant)
    tensor([0.8333], dtype=torch.float64)
    """
    one_of(ties, "ties", ("pessimistic", "average", "optimistic"))
    if ties == "average":
        if isinstance(ranks, Ranks):
            raise TypeError("ties='average' needs scores: a Ranks record does not contain which items were tied")
        low, high = (_ranks(ranks, relevant, valid, t) for t in ("optimistic", "pessimistic"))
        if bool((low.gain != 1).any()):
            raise ValueError("ties='average' works for binary relevance only; got graded gains")
        # A group of n tied items, p of them relevant, is below A items, P of them relevant. The expected precision at
        # a relevant item of the group, over all orders, is the mean over i = 0 .. n - 1 of
        # (P + 1 + i c) / (A + 1 + i), c = (p - 1) / (n - 1).
        level_pos, level = high.above_pos - low.above_pos + 1, high.rank - low.rank + 1
        share = torch.where(level > 1, (level_pos - 1) / (level - 1).clamp(min=1), 0)
        harmonic = torch.special.digamma(low.rank + level) - torch.special.digamma(low.rank)
        return low.mean_per_query(share + (low.above_pos + 1 - share * low.rank) * harmonic / level)
    if isinstance(ranks, Ranks) and ties != "pessimistic":
        raise TypeError(f"ties={ties!r} needs scores: a Ranks record does not contain which items were tied")
    read = _ranks(ranks, relevant, valid, ties)
    return read.mean_per_query(precision_at_relevant(read))


def mean_average_precision(
    ranks: Source,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    weights: Numbers | None = None,
) -> Tensor:
    """Mean of `average_precision` over the queries that have a relevant item. Scalar; ValueError if no query has one.

    With weights [query] >= 0 it is the weighted mean over the same queries: sum_q w_q AP_q / sum_q w_q.

    >>> mean_average_precision(torch.tensor([[0.9, 0.5], [0.9, 0.5]]), torch.tensor([[False, True], [False, False]]))
    tensor(0.5000, dtype=torch.float64)
    """
    read = _ranks(ranks, relevant, valid, "pessimistic")
    return _mean(average_precision(read), read.counted, weights, "mean average precision")


def average_precision_at_k(
    ranks: Source,
    relevant: Numbers | int | None = None,
    k: int | None = None,
    valid: Numbers | None = None,
    *,
    over: Literal["relevant", "found", "all"] = "relevant",
) -> PerQuery:
    r"""AP@K_q = 1 / min(K, p) sum_{i in P_q, rank(i) <= K} rank^+(i) / rank(i), p = |P_q|: AP of the K best items.

    It is 1 if the list begins with min(K, p) relevant items, and 0 if none of the K best is relevant. With K = p it is
    mAP@R. With K = the whole list it is AP. But here, of tied items the one of lower index comes first.

    Args:
        ranks: a record, or [query, item] scores.
        relevant: [query, item] bool or gains.
        k: length of the list, >= 1; None: 1.
        valid: [query, item] bool.
        over: the denominator. "relevant": min(K, p), the largest possible number of relevant items among the K best.
            "found": the actual number, as in papers on hashing and in torchmetrics (their "mAP@K"). "found" does not
            penalise missing relevant items. "all": p, as in trec_eval's map_cut, which is below 1 where K < p.

    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, True]])
    >>> average_precision_at_k(scores, relevant, k=2), average_precision_at_k(scores, relevant, k=2, over="found")
    (tensor([0.2500], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    one_of(over, "over", ("relevant", "found", "all"))
    read, k = _top(ranks, relevant, valid, k)
    most = {"relevant": read.num_relevant.clamp(max=k), "found": read.found(k), "all": read.num_relevant}[over]
    return read.sum_per_query(precision_at_relevant(read) * (read.rank <= k)) / most.clamp(min=1)


def map_at_r(ranks: Source, relevant: Numbers | None = None, valid: Numbers | None = None) -> PerQuery:
    r"""mAP@R_q = 1/R sum_{i in P_q, rank(i) <= R} rank^+(i) / rank(i), R = |P_q|; never above AP.

    Musgrave et al., ECCV 2020; ROADMAP eq. 11.

    >>> map_at_r(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]]))
    tensor([0.5000], dtype=torch.float64)
    """
    read = _ranks(ranks, relevant, valid, "pessimistic")
    inside = read.rank <= read.num_relevant[read.query]
    return read.mean_per_query(precision_at_relevant(read) * inside)


def recall_at_k(
    ranks: Source, relevant: Numbers | int | None = None, k: int | None = None, valid: Numbers | None = None
) -> PerQuery:
    """R@K of the retrieval papers: 1 if any of the K best items is relevant, else 0 (a hit rate).

    A k beyond the end means the whole list. The default of k is 1. For the fraction of relevant items among the K best
    see `item_recall_at_k`; for RaMBO's refined recall see `refined_recall_at_k`. With ranks: `recall_at_k(ranks, k=4)`.

    >>> recall_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, True]]), k=2)
    tensor([1.], dtype=torch.float64)
    """
    read, k = _top(ranks, relevant, valid, k)
    return (read.found(k) > 0).to(read.above_pos.dtype)


def item_recall_at_k(
    ranks: Source, relevant: Numbers | int | None = None, k: int | None = None, valid: Numbers | None = None
) -> PerQuery:
    """Recall at K of information retrieval: fraction of the relevant items that are among the K best.

    >>> item_recall_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, True]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    read, k = _top(ranks, relevant, valid, k)
    return read.found(k) / read.num_relevant.clamp(min=1)


def precision_at_k(
    ranks: Source, relevant: Numbers | int | None = None, k: int | None = None, valid: Numbers | None = None
) -> PerQuery:
    """Fraction of the K best items that are relevant. The denominator is K even if the list is shorter.

    >>> precision_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, True]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    read, k = _top(ranks, relevant, valid, k)
    return read.found(k) / k


def _top(ranks: Source, relevant: Numbers | int | None, valid: Numbers | None, k: int | None) -> tuple[Ranks, int]:
    """Ranks and the list length k. With ranks, k may be the second argument: metric(ranks, 4)."""
    if isinstance(ranks, (Ranks, TiedRanks)) and relevant is not None and getattr(relevant, "ndim", 0) == 0:
        if k is not None:
            raise TypeError(f"k is given twice, {relevant!r} and {k!r}; with ranks call metric(ranks, k={k!r})")
        k, relevant = _whole(relevant), None
    if isinstance(relevant, int):
        raise TypeError(f"scores need relevant: bool [query, item], or float gains; got {relevant!r}")
    return _ranks(ranks, relevant, valid, "index"), 1 if k is None else _whole(k)


def refined_recall_at_k(
    ranks: Source, relevant: Numbers | int | None = None, k: int | None = None, valid: Numbers | None = None
) -> PerQuery:
    r"""RaMBO eq. 16: |{i in P_q : r_i < K}| / |P_q|, r_i = number of irrelevant items above i.

    With gains, r_i is the number of items above i of less gain. The sum over K of w_K (1 - refined recall at K) is the
    recall loss, mean_i W(r_i) (Proposition 2).

    >>> refined_recall_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, True, False]]), k=1)
    tensor([1.], dtype=torch.float64)
    """
    read, k = _top(ranks, relevant, valid, k)
    return read.mean_per_query((read.above_neg < k).to(read.above_neg.dtype))


def r_precision(ranks: Source, relevant: Numbers | None = None, valid: Numbers | None = None) -> PerQuery:
    """Precision at R = |P_q|.

    >>> r_precision(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]]))
    tensor([0.5000], dtype=torch.float64)
    """
    read = _ranks(ranks, relevant, valid, "pessimistic")
    return read.mean_per_query((read.rank <= read.num_relevant[read.query]).to(read.above_pos.dtype))


def reciprocal_rank(
    ranks: Source, relevant: Numbers | None = None, valid: Numbers | None = None, *, k: int | None = None
) -> PerQuery:
    """1 / rank of the best relevant item. With k: 0 if that item is not among the k best (MRR@k).

    >>> reciprocal_rank(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, True]]))
    tensor([0.5000], dtype=torch.float64)
    """
    read = _ranks(ranks, relevant, valid, "index")
    value = 1 / read.rank
    if k is not None:
        value = value * (read.rank <= _whole(k))
    return value.new_zeros(read.num_queries).scatter_reduce(0, read.query, value, "amax")


def mean_reciprocal_rank(
    ranks: Source,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    k: int | None = None,
    weights: Numbers | None = None,
) -> Tensor:
    """Mean of `reciprocal_rank` over the queries that have a relevant item. Scalar; ValueError if no query has one.

    With weights [query] >= 0 it is the weighted mean over the same queries.

    >>> mean_reciprocal_rank(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, True]]))
    tensor(0.5000, dtype=torch.float64)
    """
    read = _ranks(ranks, relevant, valid, "index")
    return _mean(reciprocal_rank(read, k=k), read.counted, weights, "mean reciprocal rank")


def fall_out_at_k(
    ranks: Source,
    relevant: Numbers | int | None = None,
    k: int | None = None,
    valid: Numbers | None = None,
    *,
    irrelevant: Numbers | None = None,
) -> PerQuery:
    """Fraction of the irrelevant items that are among the K best. Lower is better.

    A query without irrelevant items has value 0. A query without relevant items has the value min(K / N, 1) for N
    irrelevant items, but like everywhere it does not count in means.

    Args:
        ranks: a record, or [query, item] scores.
        relevant: with scores: [query, item] bool or gains.
        k: length of the list, >= 1; None: 1.
        valid: with scores: [query, item] bool.
        irrelevant: with ranks: [query] number of irrelevant items.

    >>> fall_out_at_k(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[False, True, False]]), k=2)
    tensor([0.5000], dtype=torch.float64)
    """
    read, k = _top(ranks, relevant, valid, k)
    count = _irrelevant(ranks, relevant, valid, irrelevant, "fall-out")
    listed = (read.num_relevant + count).clamp(max=k) - read.found(k)
    return listed / count.clamp(min=1)


def _irrelevant(
    ranks: Source, relevant: Numbers | int | None, valid: Numbers | None, irrelevant: Numbers | None, name: str
) -> Tensor:
    """[query] number of irrelevant items: counted from scores, or given together with ranks."""
    if not isinstance(ranks, (Ranks, TiedRanks)):
        assert relevant is not None and not isinstance(relevant, int)
        _, gains, exists = _lists(ranks, relevant, valid)
        return (gains == 0 if exists is None else exists & (gains == 0)).sum(1)
    if irrelevant is None:
        raise TypeError(f"{name} of ranks needs the argument irrelevant: the number of irrelevant items of each query")
    count = tensor(irrelevant, "irrelevant")
    queries = (ranks if isinstance(ranks, Ranks) else ranks.index).num_queries
    if count.shape != (queries,):
        raise ValueError(f"irrelevant must be [query], {queries} numbers; got shape {tuple(count.shape)}")
    return count


def soft_recall_at_k(ranks: Ranks, k: int, tau: float = 1.0, *, clip: bool = True) -> PerQuery:
    r"""min(k, sum_{i in P_q} sigmoid((k - rank_i) / tau)) / min(k, |P_q|): the count of the Recall@k surrogate.

    Patel et al., CVPR 2022. A sum above k is clipped to k and has no gradient. Without the clip (SupRank, Ramzi et al.
    2023), a query with more than k relevant items may have a value above 1.

    Args:
        ranks: usually relaxed with one sigmoid (`RecallAtKLoss`).
        k: length of the list, >= 1.
        tau: temperature in ranks, > 0.
        clip: False: the sum is not clipped.

    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, False]])
    >>> soft_recall_at_k(exact_ranks(scores, relevant), k=2)  # sigmoid(2 - 1): the relevant item has rank 1
    tensor([0.7311], dtype=torch.float64)
    """
    k = _whole(k)
    expected = ranks.sum_per_query(torch.sigmoid((k - ranks.rank) / tau))
    return (expected.clamp(max=k) if clip else expected) / ranks.num_relevant.clamp(min=1, max=k)


def dcg(
    ranks: Source,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    k: int | None = None,
    gain: Gain = "linear",
) -> PerQuery:
    r"""DCG_q = sum_i g_i / log2(1 + rank_i); Järvelin & Kekäläinen 2002. It grows with the number of relevant items.

    Args:
        ranks: a record, or [query, item] scores; tied items share the mean discount of their ranks.
        relevant: [query, item] gains >= 0 (or bool).
        valid: [query, item] bool.
        k: only the first k ranks count; None: all.
        gain: "linear" g, or "exp2" 2^g - 1.

    >>> dcg(torch.tensor([[0.2, 0.1]]), torch.tensor([[1.0, 3.0]]), k=1)
    tensor([1.], dtype=torch.float64)
    """
    read, weight, discounts = _weighed(ranks, relevant, valid, k, gain)
    return read.sum_per_query(weight * discounts)


def ndcg(
    ranks: Source,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    k: int | None = None,
    gain: Gain = "linear",
) -> PerQuery:
    r"""NDCG_q = DCG_q / (DCG of the ideal order), in [0, 1]; Järvelin & Kekäläinen 2002.

    With scores, tied items share the mean discount of their ranks, as in scikit-learn.

    Args:
        ranks: a record, or [query, item] scores.
        relevant: [query, item] gains >= 0 (or bool).
        valid: [query, item] bool.
        k: only the first k ranks count, also in the ideal order; None: all.
        gain: "linear" g, or "exp2" 2^g - 1.

    >>> ndcg(torch.tensor([[0.1, 0.2]]), torch.tensor([[1.0, 3.0]]))
    tensor([1.], dtype=torch.float64)
    """
    read, weight, discounts = _weighed(ranks, relevant, valid, k, gain)
    best_first = torch.argsort(weight, descending=True, stable=True)
    best_first = best_first[torch.argsort(read.query[best_first], stable=True)]
    place = torch.arange(len(weight), device=weight.device)
    ideal_rank = 1 + place - (read.num_relevant.cumsum(0) - read.num_relevant)[read.query]
    weight = weight / _largest(read, weight)
    # a gain below 0 is possible in `trec`, and no part of the best order
    ideal = read.sum_per_query(weight[best_first].clamp(min=0) * _discount(ideal_rank.to(weight.dtype), k))
    return read.sum_per_query(weight * discounts) / torch.where(ideal > 0, ideal, 1)


def _discount(rank: Tensor, k: int | None) -> Tensor:
    value = 1 / torch.log2(1 + rank)
    return value if k is None else value * (rank <= _whole(k, "ranks"))


def _weighed(
    ranks: Source, relevant: Numbers | None, valid: Numbers | None, k: int | None, gain: Gain
) -> tuple[Ranks, PerPair, PerPair]:
    """Ranks, and [pair] the gain and the discount of each relevant item. Tied items share the mean discount."""
    if isinstance(ranks, Ranks):
        read = _ranks(ranks, relevant, valid, "index")
        discounts = _discount(read.rank, k)
        return read, gains_of(read.gain.to(discounts.dtype), gain), discounts
    read, low = (_ranks(ranks, relevant, valid, t) for t in ("pessimistic", "optimistic"))
    # a group of tied items has the ranks low.rank .. read.rank: its mean discount, from cumulated discounts
    longest = int(read.rank.max()) if len(read.rank) else 0
    places = torch.arange(1, longest + 1, dtype=torch.float64, device=read.rank.device)
    cumulated = torch.nn.functional.pad(_discount(places, k).cumsum(0), (1, 0))
    first, last = low.rank.long(), read.rank.long()
    weight = gains_of(read.gain.double(), gain)
    if not bool(weight.isfinite().all()):
        raise ValueError(f"gain='exp2' is 2^g - 1, so gains must be below 1024; got {float(read.gain.max()):g}")
    return read, weight, (cumulated[last] - cumulated[first - 1]) / (last - first + 1)


def hierarchical_ap(ranks: Source, relevant: Numbers | None = None, valid: Numbers | None = None) -> PerQuery:
    r"""H-AP_q = sum_i hrank_i / rank_i / sum_i g_i, hrank_i = g_i + sum_{j above i} min(g_i, g_j).

    HAPPIER (Ramzi et al., ECCV 2022). Equals AP when relevance is binary.

    >>> hierarchical_ap(torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, 2.0]]))
    tensor([0.8333], dtype=torch.float64)
    """
    read = _ranks(ranks, relevant, valid, "pessimistic")
    shared = read.above_pos if read.above_gain is None else read.above_gain
    gain = read.gain.to(shared.dtype)
    largest = _largest(read, gain)
    total = read.sum_per_query(gain / largest)
    return read.sum_per_query((gain + shared) / largest / read.rank) / torch.where(total > 0, total, 1)


def _largest(ranks: Ranks, weight: PerPair) -> PerPair:
    """[pair] the largest weight of the query. Divided by it, very small gains have a finite gradient in float32."""
    most = weight.new_zeros(ranks.num_queries).scatter_reduce(0, ranks.query, weight, "amax")
    return torch.where(most > 0, most, 1)[ranks.query]


# ------------------------------------------------------------------------------------------- not computed from ranks


def roc_auc(
    ranks: TiedRanks | Numbers,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    irrelevant: Numbers | None = None,
) -> PerQuery:
    r"""Fraction of the (relevant, irrelevant) pairs in the right order, per query. A tie counts 1/2 (Mann-Whitney).

    A query without relevant or without irrelevant items has value 0. Leave it out of means.

    Args:
        ranks: [query, item] scores, or exact ranks under each rule for ties, of bool relevance.
        relevant: with scores: [query, item] bool or gains.
        valid: with scores: [query, item] bool.
        irrelevant: with ranks: [query] number of irrelevant items.

    >>> roc_auc(torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[True, False, True]]))
    tensor([0.5000], dtype=torch.float64)
    """
    return partial_roc_auc(ranks, relevant, valid, fpr=1, irrelevant=irrelevant)


def partial_roc_auc(
    ranks: TiedRanks | Numbers,
    relevant: Numbers | None = None,
    valid: Numbers | None = None,
    *,
    fpr: float = 0.05,
    irrelevant: Numbers | None = None,
) -> PerQuery:
    r"""Area under the ROC curve up to a false positive rate, divided by that rate; per query, in [0, 1], 1 is best.

    This is the one-way partial AUC. The curve is straight within tied scores. If v is this value,
    scikit-learn's roc_auc_score(max_fpr=fpr) is (1 + (fpr v - m) / (fpr - m)) / 2, with m = fpr^2 / 2. Random scores
    give v = fpr / 2. With fpr = 1 it is `roc_auc`. A query without relevant or without irrelevant items has value 0.
    Leave it out of means.

    Args:
        ranks: [query, item] scores, or exact ranks under each rule for ties, of bool relevance.
        relevant: with scores: [query, item] bool or gains.
        valid: with scores: [query, item] bool.
        fpr: largest false positive rate, in (0, 1].
        irrelevant: with ranks: [query] number of irrelevant items.

    >>> scores, relevant = torch.tensor([[0.9, 0.5, 0.3, 0.1]]), torch.tensor([[True, False, True, False]])
    >>> partial_roc_auc(scores, relevant, fpr=0.5), partial_roc_auc(scores, relevant, fpr=1)
    (tensor([0.5000], dtype=torch.float64), tensor([0.7500], dtype=torch.float64))
    """
    share = number(fpr, "fpr is the largest false positive rate that counts", above=0, high=1)
    if not isinstance(ranks, TiedRanks) and relevant is not None:
        relevant = _as_relevance(relevant) > 0  # with gains, above_neg also counts relevant items of less gain
    low, high = (_ranks(ranks, relevant, valid, t) for t in ("optimistic", "pessimistic"))
    if low.above_gain is not None:
        raise ValueError("ROC AUC needs ranks of bool relevance; got ranks of gains. Rank with gains > 0")
    count = _irrelevant(ranks, relevant, valid, irrelevant, "ROC AUC")
    # While irrelevant items pass the threshold, an item is not yet found, then (tied ones pass together) found in part,
    # then found. Its area is that of this line up to the allowed number of irrelevant items.
    most = share * count.double()
    tied = high.above_neg - low.above_neg
    behind = most[low.query] - low.above_neg
    inside = behind.clamp(min=0).minimum(tied)
    area = inside.square() / (2 * tied).clamp(min=1) + (behind - tied).clamp(min=0)
    return low.mean_per_query(area) / torch.where(most > 0, most, 1)


def auc_hardest(scores: Numbers, relevant: Numbers, valid: Numbers | None = None) -> Tensor:
    r"""AUC of the hardest pairs: mean over queries i, l of [p_i > n_l] + [p_i = n_l] / 2; scalar.

    p_i is the lowest score of a relevant item of query i, n_i the highest score of an irrelevant item. Queries without
    either kind are left out. All pairs across queries are compared, so the threshold is global. `AUCLoss` estimates
    this value (Gajić et al., CVPRW 2022). ValueError if no query has both kinds.

    >>> auc_hardest(torch.tensor([[0.9, 0.5], [0.8, 0.95]]), torch.tensor([[True, False], [True, False]]))
    tensor(0.5000, dtype=torch.float64)
    """
    scores, gains, exists = _lists(scores, relevant, valid)
    pos, neg = _both_kinds(gains, exists)
    kept = pos.any(1) & neg.any(1)
    if not bool(kept.any()):
        raise ValueError("AUC of hardest pairs is undefined: no query has both a relevant and an irrelevant item")
    hard_pos = scores.masked_fill(~pos, torch.inf).amin(1)[kept]
    hard_neg = scores.masked_fill(~neg, -torch.inf).amax(1)[kept].sort().values
    below = torch.searchsorted(hard_neg, hard_pos) + torch.searchsorted(hard_neg, hard_pos, right=True)
    return below.double().mean() / (2 * len(hard_neg))


def _both_kinds(gains: Tensor, exists: Mask | None) -> tuple[Mask, Mask]:
    """Masks of the relevant and of the irrelevant valid items."""
    pos = gains > 0
    return (pos, ~pos) if exists is None else (pos & exists, ~pos & exists)


def fnmr_at_fmr(scores: Numbers, relevant: Numbers, valid: Numbers | None = None, *, fmr: float = 0.001) -> Tensor:
    r"""False non-match rate at a false match rate: verification of pairs by one threshold. Scalar, lower is better.

    All pairs of all queries form one list. A pair matches if its score is above the threshold; a score equal to the
    threshold does not match. The threshold is the lowest at which at most the fraction `fmr` of the irrelevant pairs
    match. FNMR is the fraction of relevant pairs that do not match (ISO/IEC 19795-1). So it is 1 - the highest true
    positive rate of the ROC curve up to that false positive rate.

    Args:
        scores: [query, item].
        relevant: [query, item] bool or gains.
        valid: [query, item] bool.
        fmr: allowed fraction of false matches, in [0, 1]. With less than 1 / fmr irrelevant pairs, none may match.

    Raises:
        ValueError: fmr is not in [0, 1], or there is no relevant or no irrelevant pair.

    >>> scores, relevant = torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[True, False, True, False]])
    >>> fnmr_at_fmr(scores, relevant, fmr=0), fnmr_at_fmr(scores, relevant, fmr=0.5)
    (tensor(0.5000, dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    share = number(fmr, "fmr is the allowed fraction of false matches", low=0, high=1)
    scores, gains, exists = _lists(scores, relevant, valid)
    pos, neg = (scores[kind] for kind in _both_kinds(gains, exists))
    if not len(pos) or not len(neg):
        raise ValueError("FNMR is undefined: there must be a relevant and an irrelevant pair")
    allowed = false_matches(share, len(neg))
    if allowed == len(neg):
        return torch.zeros((), dtype=torch.float64, device=scores.device)
    threshold = torch.kthvalue(neg, len(neg) - allowed).values  # highest score that must not match
    return (pos <= threshold).double().mean()


def false_matches(fmr: float, irrelevant: int) -> int:
    """The largest number of irrelevant pairs whose fraction is at most `fmr`.

    >>> false_matches(0.29, 100), false_matches(0.001, 999)
    (29, 0)
    """
    count = math.floor(fmr * irrelevant)
    return count + 1 if count < irrelevant and (count + 1) / irrelevant <= fmr else count


def average_ranks(values: Numbers) -> Tensor:
    """[..., n] float64 ranks 1 .. n of the values, 1 is the largest; tied values share their mean rank.

    Raises:
        ValueError: the values have no dimension.

    >>> average_ranks(torch.tensor([0.5, 0.9, 0.5]))
    tensor([2.5000, 1.0000, 2.5000], dtype=torch.float64)
    """
    values = real_tensor(values, "values")
    if values.dim() == 0:
        raise ValueError(f"values must be [..., n]; got one number, {values.item()}")
    if values.dtype == torch.long:
        values = ~values  # -values - 1; float64 would round large integers to the same number
    else:
        values = -(values if values.is_floating_point() else values.double())
    ordered, values = values.sort(dim=-1).values.contiguous(), values.contiguous()
    below, upto = torch.searchsorted(ordered, values), torch.searchsorted(ordered, values, right=True)
    return (below + upto + 1).double() / 2


def spearman(first: Numbers, second: Numbers) -> Tensor:
    """Spearman's rank correlation along the last dimension: Pearson of average ranks.

    NaN if a vector is constant or contains NaN.

    >>> spearman(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0, 30.0, 20.0]))
    tensor(0.5000, dtype=torch.float64)
    """
    first, second = tensor(first, "first"), tensor(second, "second")
    if first.shape != second.shape:
        raise ValueError(f"both must have the same shape; got {tuple(first.shape)} and {tuple(second.shape)}")
    a, b = (r - r.mean(-1, keepdim=True) for r in (average_ranks(first), average_ranks(second)))
    value = (a * b).sum(-1) / (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return torch.where(first.isnan().any(-1) | second.isnan().any(-1), torch.nan, value)


def nmi(labels: Labels, clusters: Labels) -> float:
    r"""Normalised mutual information 2 I(labels; clusters) / (H(labels) + H(clusters)), in [0, 1].

    Arithmetic normalisation, as in the retrieval papers; 1 if both partitions are trivial.

    Args:
        labels: [image] integers or strings.
        clusters: [image] integers or strings, e.g. from k-means with as many clusters as classes.

    >>> nmi(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 7, 7]))
    1.0
    """
    information, entropy, _, _ = _information(labels, clusters)
    return 1.0 if entropy == 0 else min(max(information / entropy, 0.0), 1.0)


def ami(labels: Labels, clusters: Labels) -> float:
    r"""Adjusted mutual information (I - E[I]) / ((H(labels) + H(clusters)) / 2 - E[I]), at most 1.

    E[I] is the mean over all pairs of partitions of the same sizes. So random clusters have 0 on average, and may have
    less; NMI instead grows with the number of clusters. Vinh, Epps & Bailey, JMLR 2010, eq. 24a; arithmetic
    normalisation. 1 for equal partitions, also for trivial ones.

    Args:
        labels: [image] integers or strings.
        clusters: [image] integers or strings.

    >>> ami(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 7, 7])), round(ami(["a", "a", "b", "b"], [0, 1, 0, 1]), 6)
    (1.0, -0.5)
    """
    information, entropy, rows, columns = _information(labels, clusters)
    if information >= entropy * (1 - 1e-14):  # I equals the mean entropy only if the partitions are equal
        return 1.0
    expected = _expected_information(rows, columns)
    return (information - expected) / (entropy - expected)


def _information(labels: Labels, clusters: Labels) -> tuple[float, float, Tensor, Tensor]:
    """Mutual information, mean entropy, and the sizes of the sets of two partitions."""
    (first,), (second,) = as_labels(labels), as_labels(clusters, names=("clusters",))
    if first.shape != second.shape or first.dim() != 1 or len(first) == 0:
        raise ValueError(
            f"labels and clusters must be two equally long vectors; got {tuple(first.shape)}, {tuple(second.shape)}"
        )
    a, b = (torch.unique(t, return_inverse=True)[1] for t in (first, second.to(first.device)))
    sizes = [a.bincount(), b.bincount(), torch.bincount(a * (int(b.max()) + 1) + b)]
    h_a, h_b, h_ab = map(_entropy, sizes)
    return h_a + h_b - h_ab, (h_a + h_b) / 2, sizes[0], sizes[1]


def _entropy(sizes: Tensor) -> float:
    p = sizes[sizes > 0].double() / sizes.sum()
    return float(-(p * p.log()).sum())


def _expected_information(rows: Tensor, columns: Tensor) -> float:
    """E[I] over random partitions with sets of these sizes. Sets of equal size have equal terms, computed once."""
    total = int(rows.sum())
    sizes, times = torch.unique(rows, return_counts=True)
    others, other_times = torch.unique(columns, return_counts=True)
    log_factorial = torch.lgamma(torch.arange(1, total + 2, dtype=torch.float64, device=rows.device))
    b = others.unsqueeze(1)
    expected = 0.0
    for a, count in zip(sizes.tolist(), times.tolist(), strict=True):
        n = torch.arange(1, min(a, int(others.max())) + 1, device=rows.device)  # items in both sets, a and b
        possible = (n <= b) & (n >= a + b - total)
        chance = (
            log_factorial[a]
            + log_factorial[b]
            + log_factorial[total - a]
            + log_factorial[total - b]
            - log_factorial[total]
            - log_factorial[n]
            - log_factorial[a - n]
            - log_factorial[(b - n).clamp(min=0)]
            - log_factorial[(total - a - b + n).clamp(min=0)]
        ).exp()
        worth = chance * n / total * (n.double() * total / (a * b)).log()
        expected += count * float((worth.where(possible, 0.0).sum(1) * other_times).sum())
    return expected


def _class_sums(embeddings: Numbers, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
    """[class, dim] sums of the L2-normalised rows in float64, [class] rows that are not 0, [class] counts."""
    embeddings, (truth,) = real_tensor(embeddings, "embeddings"), as_labels(labels)
    if embeddings.dim() != 2 or truth.shape != embeddings.shape[:1] or len(truth) == 0:
        raise ValueError(
            f"need embeddings [row, dim] and labels [row]; got {tuple(embeddings.shape)}, {tuple(truth.shape)}"
        )
    unit = unit_rows(embeddings.double())
    _, index, counts = torch.unique(truth.to(unit.device), return_inverse=True, return_counts=True)
    sums = unit.new_zeros(len(counts), unit.shape[1]).index_add(0, index, unit)
    return sums, unit.new_zeros(len(counts)).index_add(0, index, unit.square().sum(1)), counts


def dists_intra(embeddings: Numbers, labels: Labels) -> float:
    """Mean cosine distance 1 - cos over the ordered pairs of a class, then mean over the classes with >= 2 members.

    Roth et al., ICML 2020, as reported by PNP (Li et al., AAAI 2022). In [0, 2]. This function normalises the rows.

    >>> dists_intra(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 0, 1]))
    1.0
    """
    sums, squares, counts = _class_sums(embeddings, labels)
    sums, squares, n = sums[counts > 1], squares[counts > 1], counts[counts > 1].double()
    if len(n) == 0:
        raise ValueError("the distance inside classes is undefined: no class has two members")
    return float((1 - (sums.square().sum(1) - squares) / (n * (n - 1))).mean())


def dists_inter(embeddings: Numbers, labels: Labels) -> float:
    """Mean cosine distance 1 - cos over ordered pairs of the normalised class means; in [0, 2].

    >>> dists_inter(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    1.0
    """
    sums, _, counts = _class_sums(embeddings, labels)
    if len(counts) < 2:
        raise ValueError("the distance between classes is undefined: there is one class only")
    centre = torch.nn.functional.normalize(sums, dim=1)
    c = len(counts)
    return float(1 - (centre.sum(0).square().sum() - centre.square().sum()) / (c * (c - 1)))


# --------------------------------------------------------------------------------------------------- decomposability


def decomposability_gap(scores: Numbers, relevant: Numbers, batch: Labels, valid: Numbers | None = None) -> PerQuery:
    r"""DG_q = 1/K sum_b AP_q^b - AP_q: mean AP inside the batches minus the AP over all items (ROADMAP eq. 6).

    Only the K batches with a relevant item of the query count. The value may be negative.

    Args:
        scores: [query, item] float.
        relevant: [query, item] bool.
        batch: [item] long, the batch of each item.
        valid: [query, item] bool.

    >>> scores, relevant = torch.tensor([[0.9, 0.8, 0.2, 0.1]]), torch.tensor([[True, False, True, False]])
    >>> decomposability_gap(scores, relevant, torch.tensor([0, 0, 1, 1]))  # 1 in both batches, 5/6 over all
    tensor([0.1667], dtype=torch.float64)
    """
    scores, relevant, exists = _lists(scores, relevant, valid)
    (batches,) = as_labels(batch, names=("batch",))
    if batches.shape != scores.shape[1:]:
        raise ValueError(f"batch must hold the batch of each of {scores.shape[1]} items; got {tuple(batches.shape)}")
    total = scores.new_zeros(len(scores), dtype=torch.float64)
    counted = torch.zeros_like(total)
    for b in torch.unique(batches).tolist():
        columns = (batches == b).to(scores.device)
        inside = exact_ranks(scores[:, columns], relevant[:, columns], None if exists is None else exists[:, columns])
        total += average_precision(inside)
        counted += inside.counted
    return total / counted.clamp(min=1) - average_precision(scores, relevant, exists)


def decomposability_bound(
    positives: Sequence[int],
    negatives: Sequence[int],
    *,
    above_alpha: Sequence[int] | None = None,
    above_beta: Sequence[int] | None = None,
    order: Literal["worst", "given"] = "worst",
) -> float:
    r"""Upper bound of the decomposability gap when AP is 1 in every batch (ROADMAP eqs. 8 and 9).

    Eq. 8, with P_b positives and N_b negatives in batch b; "<b" means the sum over the batches before b:
        1 - 1/sum P  sum_b sum_{j=1..P_b} (j + P_<b) / (j + P_<b + N_<b)
    Eq. 9, with G_b positives of score >= alpha, E_b = P_b - G_b, and F_b negatives of score > beta:
        1 - 1/sum P  sum_b [ sum_{j=1..G_b} (j + G_<b) / (j + G_<b + F_<b)
                             + sum_{j=1..E_b} (j + G_b + P_<b) / (j + G_b + P_<b + N_<b) ]
    The printed equations have typos: the inner sum of 8 must run to P_b, and 9 misses a "+". For batches of unequal
    size, and always for eq. 9, only the maximum over all orders of the batches is a bound.

    Args:
        positives: P_b.
        negatives: N_b.
        above_alpha: G_b; give both above_alpha and above_beta for eq. 9.
        above_beta: F_b.
        order: "worst": maximum over all orders, for up to 7 batches; with more, a warning and "given". "given": the
            order of the arguments.

    >>> round(decomposability_bound([2, 2, 2], [3, 3, 3]), 6)
    0.329004
    """
    if len(positives) != len(negatives) or not positives or sum(positives) == 0:
        raise ValueError("positives and negatives must have one number per batch, and a batch must have a positive")
    if (above_alpha is None) != (above_beta is None):
        raise ValueError("eq. 9 needs both above_alpha and above_beta, eq. 8 neither")
    good = list(above_alpha) if above_alpha is not None else [0] * len(positives)
    wrong = list(above_beta) if above_beta is not None else [0] * len(positives)
    one_of(order, "order", ("worst", "given"))
    if not len(positives) == len(good) == len(wrong):
        raise ValueError("above_alpha and above_beta must have one number per batch, like positives and negatives")
    rows = list(zip(positives, negatives, good, wrong, strict=True))
    if any(min(row) < 0 or row[2] > row[0] or row[3] > row[1] for row in rows):
        raise ValueError("counts must be >= 0, with above_alpha <= positives and above_beta <= negatives")
    if order == "worst" and len(rows) > 7:
        warnings.warn(f"{len(rows)} batches have too many orders; the bound is for the given order only", stacklevel=2)
        order = "given"
    return max(map(_bound, itertools.permutations(rows) if order == "worst" else [rows]))


def _bound(rows: Sequence[tuple[int, int, int, int]]) -> float:
    total, pos_before, neg_before, good_before, wrong_before = 0.0, 0, 0, 0, 0
    for pos, neg, good, wrong in rows:
        for j in range(1, good + 1):
            total += (j + good_before) / (j + good_before + wrong_before)
        for j in range(1, pos - good + 1):
            total += (j + good + pos_before) / (j + good + pos_before + neg_before)
        pos_before, neg_before = pos_before + pos, neg_before + neg
        good_before, wrong_before = good_before + good, wrong_before + wrong
    return 1 - total / pos_before
