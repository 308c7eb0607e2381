"""Spearman's rank correlation as a loss. It uses the ranks of all items of a list, not only of the relevant ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ..common.checks import flag, number
from ..metrics import average_ranks
from ..ranks import blackbox_rank
from ..ranks.types import Mask, PerQuery, Scores
from .base import Common, RetrievalLoss

if TYPE_CHECKING:
    from typing_extensions import Unpack

# (scores, valid) -> [query, item] ranks with a gradient, 1 is the best; values of absent items are ignored
FullRanks = Callable[[Scores, Mask | None], Tensor]


class SpearmanLoss(RetrievalLoss):
    r"""1 - Pearson(ranks of the scores, average ranks of the gains) over the valid items of each query, in [0, 2].

    The ranks of the scores are a permutation: of tied scores the lower index ranks first, so with ties the value
    depends on the order of the rows. Tied gains share their mean rank. So the loss is linear in the ranks:
    1 - sum_j b_j rk_j / |a|, where b are the target ranks, centred and scaled to length 1, and |a| is the length of the
    centred numbers 1 .. n.

    The gradient is that of Algorithm 1 (Rolínek et al., CVPR 2020) with g_j = -b_j / |a| / (counted queries) for
    *every* valid item. All items are perturbed at once: O(n log n) per list. `ranks.Blackbox` says why this is the
    gradient of the loss. If |a| were differentiated as well, items of equal gain would be moved against each other;
    this trained worse (papers/docs/sodeep.md).

    We know no paper that trains this loss with this gradient. SoDeep (Engilberge et al., CVPR 2019) minimises the
    squared difference of learned and true ranks, which for two permutations is the same up to a factor.

    Gains are either given as `relevant` (only their order counts), or come from labels. Labels that match have gain 1,
    others 0. Hierarchical labels have HAPPIER's gains (`relevance.from_labels`), which are divided by the size of a
    group; to rank by the level alone, pass relevant=relevance.shared_levels(labels, labels).float(). If all valid items
    of a query have the same gain, the correlation is undefined and the query does not count. With gains 1 and 0 the
    best loss is not 0, because gains are tied and ranks are not: with p relevant of n items it is
    1 - sqrt(3 p (n - p) / (n^2 - 1)).

    Args:
        lambda_: size of the perturbation, > 0. No paper gives a value; 1, for normalised ranks, is our choice
            (papers/docs/sodeep.md).
        normalized_ranks: True: lambda is for ranks divided by the length of the list. False: lambda is for ranks
            1 .. n, Algorithm 1 as printed. lambda n with False equals lambda with True.
        ranks: "blackbox", or a learned sorter (such as that of SoDeep), or any differentiable function
            (scores, valid) -> [query, item] ranks. Such a function brings its own gradient, and lambda_ has no effect.
        common: see `RetrievalLoss`.

    >>> SpearmanLoss().from_scores(torch.tensor([[0.5, 0.9, 0.1]]), torch.tensor([[3.0, 1.0, 0.0]]))  # 1 - .5
    tensor(0.5000)
    """

    optimises: ClassVar[str] = "Spearman's correlation of scores and gains, blackbox gradient"
    source: ClassVar[str] = "ours, with RaMBO's gradient: [SoDeep and Spearman](../papers/docs/sodeep.md)"
    differences_only: ClassVar[bool] = True

    def __init__(
        self,
        lambda_: float = 1.0,
        normalized_ranks: bool = True,
        ranks: Literal["blackbox"] | FullRanks = "blackbox",
        **common: Unpack[Common],
    ) -> None:
        super().__init__(**common)
        number(lambda_, "lambda_ is the size of the perturbation", above=0)
        flag(normalized_ranks, "normalized_ranks")
        if ranks != "blackbox" and not callable(ranks):
            raise ValueError(f"ranks must be 'blackbox' or a function (scores, valid) -> ranks; got {ranks!r}")
        self.lambda_, self.normalized_ranks, self.ranks = lambda_, normalized_ranks, ranks

    @property
    def by_parts(self) -> bool:
        """Whether the ranks are ours. Another function may see all queries."""
        return isinstance(self.ranks, str)

    def per_query(self, scores: Scores, relevant: Tensor, valid: Mask | None) -> tuple[PerQuery, Tensor]:
        """1 - correlation; a query counts if its valid items differ in gain."""
        wanted, counted = wanted_ranks(relevant, valid)
        if isinstance(self.ranks, str):
            size = scores.new_full((len(scores), 1), self.lambda_, dtype=torch.float64)
            if self.normalized_ranks:
                size = size * _length(scores, valid)
            number = self.over_batch("counted", _counted, relevant, valid).clamp(min=1)
            values: PerQuery = _BlackboxCorrelation.apply(scores, valid, wanted, number, size)
            return values, counted
        given = _centred(self.ranks(scores, valid), valid)
        spread = given.square().sum(1)
        # all ranks are equal, as a sorter may return for a constant list: the correlation is 0
        spread = torch.where(spread > 0, spread, 1).sqrt()
        return 1 - (given * wanted.to(given.dtype)).sum(1) / spread, counted


def wanted_ranks(relevant: Tensor, valid: Mask | None) -> tuple[Tensor, Tensor]:
    """Target ranks [query, item] and a mask [query], True where the gains of a query differ.

    The target ranks are the average ranks of the gains, centred and scaled to length 1; 0 for absent items.

    >>> wanted, counted = wanted_ranks(torch.tensor([[True, False, False]]), None)
    >>> wanted  # of the ranks 1, 2.5, 2.5
    tensor([[-0.8165,  0.4082,  0.4082]], dtype=torch.float64)
    """
    if relevant.dtype == torch.bool:  # two groups of tied items: p / 2 and (n - p) / 2 from the middle rank
        relevant = relevant if valid is None else relevant & valid
        positives = relevant.sum(1, keepdim=True).double()
        centred = torch.where(relevant, positives - _length(relevant, valid), positives) / 2
    else:
        gains = relevant if valid is None else relevant.masked_fill(~valid, -torch.inf)
        centred = average_ranks(gains) - (_length(relevant, valid) + 1) / 2
    if valid is not None:
        centred = centred.masked_fill(~valid, 0)
    norm = centred.square().sum(1, keepdim=True).sqrt()
    return centred / torch.where(norm > 0, norm, 1), (norm > 0).squeeze(1)


def _counted(relevant: Tensor, valid: Mask | None) -> Tensor:
    return wanted_ranks(relevant, valid)[1].sum()


class _BlackboxCorrelation(torch.autograd.Function):
    """1 - Pearson per query. The forward pass also computes the gradient of the mean over the counted queries."""

    @staticmethod
    def forward(
        ctx: Any, scores: Scores, valid: Mask | None, wanted: Tensor, num_counted: Tensor, size: Tensor
    ) -> PerQuery:
        length = _length(scores, valid)
        ranks = _permutation(scores, valid)
        # the length of the centred numbers 1 .. n
        spread = (length * (length.square() - 1) / 12).sqrt().clamp(min=1e-3)
        correlation = ((ranks - (length + 1) / 2) * wanted).sum(1, keepdim=True) / spread
        ctx.num_counted = num_counted
        if ctx.needs_input_grad[0]:
            g = -wanted / (spread * ctx.num_counted)  # 0 for a query that does not count
            change = _permutation(scores + (size * g).to(scores.dtype), valid) - ranks
            ctx.save_for_backward((change / size.clamp(min=torch.finfo(torch.float32).tiny)).to(scores.dtype))
        return (1 - correlation.squeeze(1)).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, upstream: PerQuery) -> tuple[Tensor, None, None, None, None]:
        (change,) = ctx.saved_tensors
        return change * (upstream * ctx.num_counted).unsqueeze(1), None, None, None, None


def _length(rows: Tensor, valid: Mask | None) -> Tensor:
    """[query, 1] float64, number of valid items."""
    if valid is None:
        return rows.new_full((len(rows), 1), rows.shape[1], dtype=torch.float64)
    return valid.sum(1, keepdim=True).double()


def _centred(ranks: Tensor, valid: Mask | None) -> Tensor:
    """[query, item] the ranks minus their mean over the valid items; 0 where absent."""
    if valid is None:
        return ranks - ranks.mean(1, keepdim=True)
    ranks = torch.where(valid, ranks, 0)
    mean = ranks.sum(1, keepdim=True) / valid.sum(1, keepdim=True).clamp(min=1)
    return torch.where(valid, ranks - mean, 0)


def _permutation(scores: Scores, valid: Mask | None) -> Tensor:
    """[query, item] float64 ranks 1 .. n; absent items come last."""
    return blackbox_rank(scores if valid is None else scores.masked_fill(~valid, -torch.inf), 1.0).double()
