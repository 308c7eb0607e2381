"""The record that ranks hand to metrics, and the words used for shapes everywhere.

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
    """Where the relevant items of each query stand: one entry per relevant (query, item) pair, ordered by query.

    "Above" is whatever the source of the ranks means by it: exactly (`ranks.exact_ranks`), relaxed
    (`ranks.soft_ranks`) or exactly forward and perturbed backward (`ranks.Blackbox`).

    Attributes:
        query: [pair] long, row of the query.
        item: [pair] long, column of the relevant item.
        gain: [pair] float, relevance of the item, > 0 (1 when relevance is binary).
        above_pos: [pair] float, valid items of gain >= mine above me, 0 .. P_q - 1 (may be fractional).
        above_neg: [pair] float, valid items of gain < mine above me, 0 .. N_q (SupAP's may exceed N_q).
        above_gain: [pair] float, sum over the items above me of min(their gain, mine); None when relevance is
            binary, where it equals above_pos.
        num_queries: rows of the score matrix, those without a relevant item included.
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
        """[pair] 1 + everything above: 1 is the best rank."""
        return 1 + self.above_pos + self.above_neg

    @property
    def num_relevant(self) -> Tensor:
        """[query] long, relevant items of each query."""
        return torch.bincount(self.query, minlength=self.num_queries)

    @property
    def counted(self) -> Tensor:
        """[query] bool, True where a query has a relevant item: only these enter a mean."""
        return self.num_relevant > 0

    def sum_per_query(self, values: PerPair) -> PerQuery:
        """[query] sum of a value of each pair over the pairs of a query, 0 where there are none."""
        return values.new_zeros(self.num_queries).index_add(0, self.query, values)

    def mean_per_query(self, values: PerPair) -> PerQuery:
        """[query] mean of a value of each pair over the pairs of a query, 0 where there are none."""
        return self.sum_per_query(values) / self.num_relevant.clamp(min=1)


@dataclass(frozen=True)
class TiedRanks:
    """One exact ranking under the three readings of a tie; each metric takes the one that it is defined with.

    Attributes:
        pessimistic: an item tied with me is above me, H(0) = 1 (AP, mAP@R, R-precision).
        optimistic: an item tied with me is below me; with `pessimistic` it bounds the tied group (NDCG, ROC AUC).
        index: a permutation, of tied items the one of lower index is above: a top-k list (R@K, P@K, MRR).
    """

    pessimistic: Ranks
    optimistic: Ranks
    index: Ranks
