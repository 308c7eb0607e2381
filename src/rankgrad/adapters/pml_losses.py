"""Losses of pytorch-metric-learning with the interface of our losses, as baselines in a training run."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..losses.checked import Batch, ClassLoss, ReferencedLoss
from ..ranks.normalize import unit_rows
from ..ranks.relevance import validity

Pairs = tuple[Tensor, ...]  # of pytorch-metric-learning: (anchor, positive, anchor, negative) or triplets


class PMLBatchLoss(ClassLoss):
    """A loss of pytorch-metric-learning without references, with an optional miner and the interface of our losses.

    It is for losses that compare the images with weights of their own (proxies, classifiers) or only with the batch.
    Such a loss cannot use a memory. Use `PMLLoss` for the other losses.

    Args:
        loss: loss object of that library, e.g. NormalizedSoftmaxLoss(100, 512).
        miner: miner of that library, or None.
        normalize: normalise the embeddings to length 1, for a loss that does not do it itself.

    >>> from pytorch_metric_learning.losses import ProxyAnchorLoss
    >>> loss = PMLBatchLoss(ProxyAnchorLoss(num_classes=3, embedding_size=4))
    >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 2])).isfinite()
    tensor(True)
    >>> sum(weight.numel() for weight in loss.parameters())  # a proxy for each class, which the optimizer must train
    12
    """

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None, normalize: bool = False) -> None:
        super().__init__()
        self.loss, self.miner, self.normalize = loss, miner, normalize

    @property
    def what(self) -> str:
        """Name of the class in that library."""
        return type(self.loss).__name__

    def of_batch(self, batch: Batch) -> Tensor:
        """The library's value. Its distances expect float32, so this runs outside autocast."""
        embeddings = unit_rows(batch.embeddings) if self.normalize else batch.embeddings
        pairs: Pairs | None = None if self.miner is None else self.miner(embeddings, batch.labels)
        result: Tensor = self.loss(embeddings, batch.labels, pairs)
        return result


class PMLLoss(PMLBatchLoss, ReferencedLoss):
    """A loss of pytorch-metric-learning on pairs or triplets, with an optional miner and the interface of our losses.

    With references (a `CrossBatchMemory`) the rows of the batch are the anchors. That library's own function or the
    miner lists the pairs. A sample is never paired with a copy of itself: neither with its own row in the references
    nor with an older embedding of the same image.

    `loss=pml/contrastive memory=sum memory.warmup=0` is XBM (Wang et al., CVPR 2020,
    arXiv:1912.06798) as its text describes it: batch and memory form one list. The published codes of XBM and ROADMAP
    add the loss of the batch alone (`memory=sum` here), and compare a query with older embeddings of its own image. The
    mean is that of pytorch-metric-learning: over the pairs whose loss is not 0.

    A list of all pairs takes 16 bytes for each row and reference. Losses on triplets need a miner with references,
    because there are rows x references^2 triplets.

    Args:
        loss: loss object of that library, e.g. MultiSimilarityLoss(2, 50, 0.5).
        miner: miner of that library, or None.

    Raises:
        ValueError: in a call with references, if the loss cannot use them.

    >>> from pytorch_metric_learning.losses import MultiSimilarityLoss
    >>> loss = PMLLoss(MultiSimilarityLoss())
    >>> labels, memory_labels = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1])
    >>> loss(torch.eye(4), labels) > loss(torch.eye(2)[labels], labels)  # the second batch is solved
    tensor(True)
    >>> loss(torch.eye(4), labels, ref_emb=torch.eye(4)[:2], ref_labels=memory_labels).isfinite()
    tensor(True)
    """

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__(loss, miner)

    def of_batch(self, batch: Batch) -> Tensor:
        """The loss of a batch, or of a batch against references."""
        embeddings, labels, ref_emb, ref_labels = batch.embeddings, batch.labels, batch.ref_emb, batch.ref_labels
        if ref_emb is None or ref_labels is None:
            return super().of_batch(batch)
        assert labels is not None
        self._need_pairs()
        valid = validity(*batch.shape, ids=batch.ids, ref_ids=batch.ref_ids, same=False)
        pairs = self._pairs(embeddings, labels, ref_emb, ref_labels, valid)
        result: Tensor = self.loss(embeddings, labels, pairs, ref_emb, ref_labels)
        return result

    def _need_pairs(self) -> None:
        """Raise for a loss that would use other pairs than it is given."""
        from pytorch_metric_learning import losses

        reasons = {
            losses.NCALoss: "reads the labels itself and would compare a query with its own older embeddings",
            losses.LiftedStructureLoss: "uses indices of references as indices of the batch; "
            "GeneralizedLiftedStructureLoss does not",
        }
        for kind, reason in reasons.items():
            if isinstance(self.loss, kind):
                raise ValueError(f"{type(self.loss).__name__} can't use references: it {reason}. Use it without them")

    def _pairs(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor, valid: Tensor | None
    ) -> Pairs:
        """The valid pairs of rows and references: all of them, or those that the miner selects."""
        from pytorch_metric_learning.utils import loss_and_miner_utils as listed

        if self.miner is None:
            anchor, positive, other, negative = listed.get_all_pairs_indices(labels, ref_labels)
            if valid is None:
                return anchor, positive, other, negative
            kept = valid[anchor, positive]  # a copy has the label of its sample, so it is a positive
            return anchor[kept], positive[kept], other, negative
        mined: Pairs = self.miner(embeddings, labels, ref_emb, ref_labels)
        if valid is None:
            return mined
        # A miner does not know about copies. Rows for which it selected one are mined again, each without its copies.
        again = torch.unique(mined[0][~valid[mined[0], mined[1]]])
        parts = [_without(mined, again)]
        for row in again:
            items = valid[row].nonzero().squeeze(1)
            triplets = self.miner(embeddings[row][None], labels[row][None], ref_emb[items], ref_labels[items])
            anchors = _anchors(triplets)
            parts.append(tuple(row.expand(len(t)) if i in anchors else items[t] for i, t in enumerate(triplets)))
        return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))


def _anchors(pairs: Pairs) -> tuple[int, ...]:
    """Which columns are indices into the batch: of (anchor, positive, anchor, negative), or of triplets."""
    return (0, 2) if len(pairs) == 4 else (0,)


def _without(pairs: Pairs, rows: Tensor) -> Pairs:
    """The pairs or triplets whose anchor is not one of these rows."""
    kept = [~torch.isin(pairs[column], rows) for column in _anchors(pairs)]
    width = len(pairs) // len(kept)
    return tuple(column[kept[i // width]] for i, column in enumerate(pairs))
