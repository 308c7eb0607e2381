"""Every loss as a loss of pytorch-metric-learning: its reducers, miners, wrappers and trainers take it for their own.

The other way round, a loss of that library called like ours, is `baselines.PMLLoss`.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

try:
    from pytorch_metric_learning import distances
    from pytorch_metric_learning import losses as theirs
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("pytorch_metric_learning"):
        raise
    raise ModuleNotFoundError(
        "rankgrad.pml needs pytorch-metric-learning: pip install pytorch-metric-learning", name=error.name
    ) from None

from ..losses import RetrievalLoss

Pairs = tuple[Tensor, ...]


class PMLAdapter(theirs.BaseMetricLossFunction):  # type: ignore[misc]  # the library has no types
    r"""A rankgrad loss behind the call of pytorch-metric-learning: embeddings, labels, pairs, reference embeddings.

    Its reducer gets one value per counted query ("element"; its indices are the queries). Queries without a relevant
    item are not there at all, so MeanReducer gives the rankgrad loss and its gradient; calibration and ROADMAP count
    every query. If no query counts, the loss is 0.

    `indices_tuple` names the pairs that exist: the labels then decide nothing. Without it, and without references, a
    query is compared with all others of the batch.

    Args:
        loss: a rankgrad loss. It is called with reduction="none", by way of a shallow copy: parameters are shared,
            `stats` of the last call are those of `adapter.loss`.
        options: `reducer`, `embedding_regularizer`, `embedding_reg_weight`, `collect_stats` of that library. Not
            `distance`: a rankgrad loss normalises by itself (its `normalize`).

    Raises:
        TypeError: if loss is no rankgrad loss, or a distance is given.
        ValueError: by the call, for labels other than one class per row.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> loss = PMLAdapter(SmoothAPLoss())
    >>> embeddings, labels = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> loss(embeddings, labels)  # the queries cost 1/2 and 0; nothing can match the third
    tensor(0.2500)
    >>> loss.loss.stats["counted"]
    tensor([ True,  True, False])
    """

    def __init__(self, loss: RetrievalLoss, **options: Any) -> None:
        if not isinstance(loss, RetrievalLoss):
            raise TypeError(f"PMLAdapter takes a loss of rankgrad.losses; got {type(loss).__name__}")
        if "distance" in options:
            raise TypeError("a rankgrad loss has its own: normalize=True is the cosine, normalize=False the product")
        self._normalize = loss.normalize  # before the base asks for its default distance
        super().__init__(**options)
        each = copy.copy(loss)
        each.reduction = "none"
        self.loss = each

    def get_default_distance(self) -> nn.Module:
        """What the loss compares by; the library asks, nothing is computed with it."""
        distance: nn.Module = distances.DotProductSimilarity(normalize_embeddings=self._normalize)
        return distance

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Pairs | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The reduced loss of a batch: against itself, or against references."""
        for name, given in (("labels", labels), ("ref_labels", ref_labels)):
            if given is not None and (given.ndim != 1 or given.is_floating_point() or given.dtype == torch.bool):
                raise ValueError(
                    f"inside pytorch-metric-learning {name} are integers [row], one class each; got {given.dtype} "
                    f"{tuple(given.shape)}. For multi-hot or hierarchical labels call the rankgrad loss itself."
                )
        reduced: Tensor = super().forward(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        return reduced

    def compute_loss(
        self, embeddings: Tensor, labels: Tensor | None, indices_tuple: Pairs | None, ref_emb: Tensor, ref_labels: Any
    ) -> dict[str, dict[str, Any]]:
        """Values of the counted queries, for the reducer."""
        if indices_tuple is not None:
            indices_tuple = tuple(index.to(embeddings.device) for index in indices_tuple)
        # the base class puts the batch itself where there are no references
        references = () if ref_emb is embeddings else (ref_emb, ref_labels)
        values = self.loss(embeddings, labels, indices_tuple, *references)
        counted = self.loss.stats["counted"].nonzero().squeeze(1)
        if len(counted) == 0:
            none: dict[str, dict[str, Any]] = self.zero_losses()  # the mean of no values would be NaN
            return none
        return {
            "loss": {
                "losses": values[counted],
                "indices": counted,
                "reduction_type": "element",
                "divisor": len(counted),
            }
        }


class CrossBatchMemory(theirs.CrossBatchMemory):  # type: ignore[misc]
    """pytorch-metric-learning's CrossBatchMemory, that also takes a `PMLAdapter`.

    That library's own class knows the losses it takes by the names of their classes; nothing else differs. See
    docs/pytorch-metric-learning.md for what it does with a rank loss, and `memory.CrossBatchMemory` for ours.

    >>> from rankgrad.losses import SupAPLoss
    >>> memory = CrossBatchMemory(PMLAdapter(SupAPLoss()), embedding_size=2, memory_size=8)
    >>> memory(torch.eye(2), torch.tensor([0, 1]))  # nothing to find yet
    tensor(0.)
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Names of the classes that may be wrapped."""
        return [*theirs.CrossBatchMemory.supported_losses(), PMLAdapter.__name__]


class SelfSupervisedLoss(theirs.SelfSupervisedLoss):  # type: ignore[misc]
    """pytorch-metric-learning's SelfSupervisedLoss (two views of each image), that also takes a `PMLAdapter`.

    >>> from rankgrad.losses import SupAPLoss
    >>> loss = SelfSupervisedLoss(PMLAdapter(SupAPLoss()))
    >>> loss(torch.eye(2), torch.eye(2))
    tensor(0.)
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Names of the classes that may be wrapped."""
        return [*theirs.SelfSupervisedLoss.supported_losses(), PMLAdapter.__name__]
