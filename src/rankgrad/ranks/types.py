"""The `Ranks` records that metrics read, and the names of dimensions in all shapes.

query: rows of a score matrix (Q).  item: its columns (n).  pair: one relevant (query, item) entry.  dim: embedding
size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:  # jaxtyping is a development dependency; the core needs torch alone
    from jaxtyping import Bool, Float, Int

    Embeddings = Float[Tensor, "query dim"]
    Scores = Float[Tensor, "query item"]
    Mask = Bool[Tensor, "query item"]
    PerQuery = Float[Tensor, " query"]
    PerPair = Float[Tensor, " pair"]
    PairIndex = Int[Tensor, " pair"]
else:
    Embeddings = Scores = Mask = PerQuery = PerPair = PairIndex = Tensor


@dataclass(frozen=True)
class Ranks:
    """Ranks of the relevant items of each query: one entry per relevant (query, item) pair, ordered by query.

    The function that made the ranks defines "above": exact (`ranks.exact_ranks`), relaxed (`ranks.soft_ranks`), or
    exact in the forward and perturbed in the backward pass (`ranks.Blackbox`).

    Attributes:
        query: [pair] long, row of the query.
        item: [pair] long, column of the relevant item.
        gain: [pair] float, relevance of the item, > 0 (1 when relevance is binary).
        above_pos: [pair] float, number of other valid items above this one with at least its gain, 0 .. P_q - 1 (may be
            fractional).
        above_neg: [pair] float, number of valid items above this one with less gain, 0 .. N_q (SupAP: may exceed N_q).
        above_gain: [pair] float, sum over the items above this one of min(their gain, its gain). None if relevance is
            binary: then it equals above_pos.
        num_queries: rows of the score matrix, including those without a relevant item.
    """

    query: PairIndex
    item: PairIndex
    gain: PerPair
    above_pos: PerPair
    above_neg: PerPair
    num_queries: int
    above_gain: PerPair | None = None

    @property
    def rank(self) -> PerPair:
        """[pair] 1 + number of items above: 1 is the best rank."""
        return 1 + self.above_pos + self.above_neg

    @property
    def num_relevant(self) -> Tensor:
        """[query] long, number of relevant items of each query."""
        return torch.bincount(self.query, minlength=self.num_queries)

    @property
    def counted(self) -> Tensor:
        """[query] bool, True if a query has a relevant item. Only these queries count in a mean."""
        return self.num_relevant > 0

    def sum_per_query(self, values: PerPair) -> PerQuery:
        """[query] sum of the values over the pairs of each query, 0 without pairs."""
        # in float64: one after the other in float32, a sum of 50,000 equal values is wrong by 5e-4
        sums = values.new_zeros(self.num_queries, dtype=torch.float64).index_add(0, self.query, values.double())
        return sums.to(values.dtype)

    def found(self, k: int) -> PerQuery:
        """[query] number of relevant items of rank k or better."""
        return self.sum_per_query((self.rank <= k).to(self.above_pos.dtype))

    def mean_per_query(self, values: PerPair) -> PerQuery:
        """[query] mean of the values over the pairs of each query, 0 without pairs."""
        return self.sum_per_query(values) / self.num_relevant.clamp(min=1)


@dataclass(frozen=True)
class TiedRanks:
    """One exact ranking under three rules for ties. Each metric uses the rule of its definition.

    Attributes:
        pessimistic: a tied item counts as above, H(0) = 1 (AP, mAP@R, R-precision).
        optimistic: a tied item counts as below. Together with `pessimistic` this gives the first and the last rank of
            the tied items (NDCG, ROC AUC).
        index: of tied items the one of lower index is above, so the ranks are a permutation. This is a top-k list (R@K,
            P@K, MRR).
    """

    pessimistic: Ranks
    optimistic: Ranks
    index: Ranks
