"""Baseline losses for comparison: cross-entropy, histogram, binomial deviance, tie-aware AP.

These are missing in pytorch-metric-learning, or have an error there. `adapters.pml_losses` has those of that library.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..common.checks import integer, number
from ..ranks.normalize import unit_rows
from ..ranks.relevance import from_labels
from .checked import Batch, ClassLoss, ReferencedLoss
from .histogram import SoftBinAPLoss


class CrossEntropyLoss(ClassLoss):
    r"""Classification of the training classes: cross-entropy of a linear layer on scale * embedding / |embedding|.

    Args:
        num_classes: number of training classes; labels must be 0 .. num_classes - 1.
        embedding_size: dimension of the embeddings.
        scale: length of the vectors that the classifier gets.
        label_smoothing: share of the probability that is spread over all classes, 0 .. 1.

    >>> loss = CrossEntropyLoss(num_classes=2, embedding_size=3)
    >>> loss(torch.eye(3), torch.tensor([0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(
        self, num_classes: int, embedding_size: int, scale: float = 10.0, label_smoothing: float = 0.0
    ) -> None:
        super().__init__()
        if num_classes < 2 or embedding_size < 1 or scale <= 0:
            raise ValueError(
                f"need num_classes >= 2, embedding_size >= 1, scale > 0; got {num_classes}, {embedding_size}, {scale}"
            )
        self.classifier = nn.Linear(embedding_size, num_classes)
        self.scale = scale
        self.label_smoothing = number(label_smoothing, "label_smoothing is a share of the probability", low=0, high=1)

    def logits(self, embeddings: Tensor) -> Tensor:
        """[row, class] scores of the classes."""
        weight, bias = (each.to(embeddings) for each in (self.classifier.weight, self.classifier.bias))
        return F.linear(self.scale * unit_rows(embeddings), weight, bias)

    def of_batch(self, batch: Batch) -> Tensor:
        """Mean cross-entropy of the batch."""
        rows, labels, classes = batch.embeddings, batch.labels, self.classifier.out_features
        assert labels is not None
        self._require_between("labels", labels.unsqueeze(1), 0, classes - 1, f"classes are numbered 0 .. {classes - 1}")
        return F.cross_entropy(self.logits(rows), labels, label_smoothing=self.label_smoothing)


class _PairLoss(ReferencedLoss):
    """A function of the cosines of all relevant and of all irrelevant pairs; no sample is compared with itself."""

    def of_pairs(self, relevant: Tensor, others: Tensor) -> Tensor:
        """The loss.

        Args:
            relevant: [pair] cosines of relevant pairs.
            others: [pair] cosines of irrelevant pairs.
        """
        raise NotImplementedError

    def of_batch(self, batch: Batch) -> Tensor:
        """Loss of the batch, or of the batch against references."""
        assert batch.labels is not None
        relevant, valid = from_labels(batch.labels, batch.ref_labels, ids=batch.ids, ref_ids=batch.ref_ids)
        valid = torch.ones_like(relevant) if valid is None else valid
        rows = unit_rows(batch.embeddings)
        cosine = rows @ (rows if batch.ref_emb is None else unit_rows(batch.ref_emb)).T
        return self.of_pairs(cosine[relevant & valid], cosine[~relevant & valid]) + 0 * cosine.sum()


class HistogramLoss(_PairLoss):
    r"""Probability that a random irrelevant pair is more similar than a random relevant one, from soft histograms.

        L = sum_r h-_r sum_{q <= r} h+_q        h: triangular bins of the cosine on [-1, 1], spaced 2 / bins

    Source: Ustinova and Lempitsky, "Learning deep embeddings with histogram loss", NeurIPS 2016, eqs. 1-6. The one of
    pytorch-metric-learning 2.9 raises an error as soon as a cosine is 1, and lists every pair in Python. Where it
    works, the values are equal. Every pair of images counts in both directions, as there.

    Args:
        bins: intervals of the histograms, >= 1.

    >>> HistogramLoss(bins=2)(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))    # cosines 1 and 0
    tensor(0.)
    >>> HistogramLoss(bins=2)(torch.eye(2)[[0, 1, 0, 1]], torch.tensor([0, 0, 1, 1]))    # relevant 0, irrelevant 0, 1
    tensor(1.)
    """

    def __init__(self, bins: int = 100) -> None:
        super().__init__()
        self.bins = integer(bins, "bins is the number of intervals of the histograms", low=1)

    def of_pairs(self, relevant: Tensor, others: Tensor) -> Tensor:
        """The double sum over bins; 0 where one kind of pair is missing."""
        return (self._density(others) * self._density(relevant).cumsum(0)).sum()

    def _density(self, values: Tensor) -> Tensor:
        """[bins + 1] fraction of the values at each bin centre -1, ..., 1. A value is split between its two centres."""
        place = (values.clamp(-1, 1) + 1) * (self.bins / 2)
        left = place.detach().floor().long().clamp(max=self.bins - 1)
        right_share = place - left
        empty = values.new_zeros(self.bins + 1)
        counts = empty.index_add(0, left, 1 - right_share).index_add(0, left + 1, right_share)
        return counts / max(len(values), 1)

    def extra_repr(self) -> str:
        """The argument."""
        return f"bins={self.bins}"


class BinomialDevianceLoss(_PairLoss):
    r"""Logistic cost of the cosine of every pair. Relevant and irrelevant pairs have the same total weight.

        L = mean_{relevant} log(1 + exp(-alpha (s - beta)))  +  mean_{irrelevant} log(1 + exp(alpha cost (s - beta)))

    Source: Yi, Lei and Li, "Deep metric learning for person re-identification", ICPR 2014, arXiv:1407.4979. The factor
    for irrelevant pairs is from Ustinova and Lempitsky (NeurIPS 2016), who compare their histogram loss with this one.
    The tables of retrieval papers repeat their numbers. A mean over no pairs is 0.

    Args:
        alpha: slope, > 0.
        beta: the cosine at which a pair costs log 2, -1 .. 1.
        cost: slope factor of irrelevant pairs, > 0; 25 and 10 are common.

    >>> loss = BinomialDevianceLoss(alpha=2, beta=0.5, cost=1)
    >>> loss(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1]))    # cosines 1 and 0: twice log(1 + 1/e)
    tensor(0.6265)
    """

    def __init__(self, alpha: float = 2.0, beta: float = 0.5, cost: float = 25.0) -> None:
        super().__init__()
        self.alpha = number(alpha, "alpha is the slope of the logistic cost", above=0)
        self.beta = number(beta, "beta is a cosine", low=-1, high=1)
        self.cost = number(cost, "cost is the slope factor of irrelevant pairs", above=0)

    def of_pairs(self, relevant: Tensor, others: Tensor) -> Tensor:
        """Both means."""
        near = F.softplus(-self.alpha * (relevant - self.beta)).sum() / max(len(relevant), 1)
        return near + F.softplus(self.alpha * self.cost * (others - self.beta)).sum() / max(len(others), 1)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"alpha={self.alpha}, beta={self.beta}, cost={self.cost}"


class TieAwareAPLoss(SoftBinAPLoss):
    r"""1 - AP of soft bins whose items are tied: AP is averaged over the possible orders of the items of a bin.

        L = 1 - 1/p sum_l h+_l (2 H+_{l-1} + h+_l + 1) / (2 H_{l-1} + h_l + 1)

    with h+_l and h_l the relevant and all items of bin l, high scores first, and H their cumulative sums. The fraction
    is the precision at the middle rank of the bin. `SoftBinAPLoss` takes the precision at the last rank of the bin, as
    if the relevant items came last. If each item is alone on a bin centre, the AP is exact.

    Source: tie-aware AP of McSherry and Najork (ECIR 2008), as a loss in He, Cakir, Bargal and Sclaroff, "Hashing as
    tie-aware learning to rank", CVPR 2018, arXiv:1705.08562; on soft bins of a score as in Revaud et al., ICCV 2019.
    Soft bins contain fractions of items, so the middle rank replaces the mean over the ranks [ours].

    Args:
        bins: see `SoftBinAPLoss`.
        low: lowest bin centre.
        high: highest bin centre.
        common: see `RetrievalLoss`.

    >>> loss = TieAwareAPLoss(bins=3)
    >>> loss.from_scores(torch.tensor([[0.0, 1.0, -1.0]]), torch.tensor([[True, False, False]]))    # alone: exact
    tensor(0.5000)
    >>> loss.from_scores(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]]))    # place 1.5 of a tie
    tensor(0.3333)
    """

    def precision(self, items: Tensor, hits: Tensor) -> Tensor:
        """[query, bin] precision at the middle rank of each bin."""
        items_before, hits_before = items.cumsum(1) - items, hits.cumsum(1) - hits
        return (2 * hits_before + hits + 1) / (2 * items_before + items + 1)
