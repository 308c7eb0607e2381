"""A weighted sum of losses, of this library or others, on the same embeddings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ..common.checks import number

REFERENCES = ("ref_emb", "ref_labels", "ids", "ref_ids")


class SumLoss(nn.Module):
    r"""sum_i w_i L_i of losses of the same batch: a rank loss with a pair loss or a classifier, for example.

    Each part gets the embeddings and the labels. If its `forward` takes sample ids and the references of a memory, it
    gets these, too.

    In settings, join the names with a plus sign: `loss=supndcg+pml/multi_similarity loss.weights.supndcg=0.3`. The
    settings of a part are `loss.losses.NAME`, where NAME is the last part of the loss's name. The default weight is
    1 / (number of parts).

    Args:
        losses: name -> loss, at least one.
        weights: name -> weight, finite and >= 0, for each loss. A loss of weight 0 is computed and shown, but has no
            gradient.

    Attributes:
        stats: from the last call: the unweighted value of each part by its name; and "counted", "has_relevant" and
            "has_irrelevant" of the first part that has them.

    Raises:
        TypeError: losses or weights are no dict.
        ValueError: there are no losses, the names of the weights differ, or a weight is out of range.

    >>> import torch
    >>> from rankgrad.losses import CalibrationLoss, SupAPLoss
    >>> loss = SumLoss({"rank": SupAPLoss(), "level": CalibrationLoss()}, {"rank": 0.5, "level": 0.5})
    >>> loss(torch.eye(2)[[0, 0, 1, 1]], torch.tensor([0, 0, 1, 1])), sorted(loss.components())
    (tensor(0.), ['level', 'rank'])
    """

    stats: dict[str, Tensor]

    def __init__(self, losses: Mapping[str, nn.Module], weights: Mapping[str, float]) -> None:
        super().__init__()
        if not isinstance(losses, Mapping) or not isinstance(weights, Mapping):
            raise TypeError(
                "losses and weights must be dicts with the same names, such as {'rank': SupAPLoss()} and "
                f"{{'rank': 1.0}}; got {type(losses).__name__} and {type(weights).__name__}"
            )
        if not losses or set(losses) != set(weights):
            raise ValueError(
                f"each loss needs one weight; got losses {', '.join(losses) or 'none'} and weights of "
                f"{', '.join(map(str, weights)) or 'none'}"
            )
        self.losses = nn.ModuleDict(losses)
        self.weights = {name: number(weight, f"weights.{name}", low=0) for name, weight in weights.items()}
        self._taken = {name: set(inspect.signature(loss.forward).parameters) for name, loss in losses.items()}
        self.stats = {}

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        ids: Tensor | None = None,
        ref_ids: Tensor | None = None,
    ) -> Tensor:
        """The weighted sum.

        Args:
            embeddings: [row, dim] float.
            labels: labels of a kind that all parts take; all take long [row].
            ref_emb: [item, dim] references, e.g. a memory.
            ref_labels: labels of the references.
            ids: [row] integer sample ids.
            ref_ids: [item] sample ids of the references.

        Raises:
            ValueError: there are references, and a part cannot use them.
        """
        without = [name for name, loss in self.losses.items() if missing_references(loss)]
        if ref_emb is not None and without:
            raise ValueError(f"{', '.join(without)} can't use references")
        given: dict[str, Any] = {"ref_emb": ref_emb, "ref_labels": ref_labels, "ids": ids, "ref_ids": ref_ids}
        total: Tensor | None = None
        stats: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            words = {key: value for key, value in given.items() if value is not None and key in self._taken[name]}
            value: Tensor = loss(embeddings, labels, **words)
            stats[name] = value.detach()
            for key, seen in getattr(loss, "stats", {}).items():
                if key in ("counted", "has_relevant", "has_irrelevant"):
                    stats.setdefault(key, seen)
            total = self.weights[name] * value if total is None else total + self.weights[name] * value
        assert total is not None
        self.stats = stats
        return total

    def components(self) -> dict[str, Tensor]:
        """Each part of the last value times its weight, detached; {} before the first call."""
        return {name: self.weights[name] * self.stats[name] for name in self.losses if name in self.stats}

    def extra_repr(self) -> str:
        """The weights."""
        return f"weights={self.weights}"


def missing_references(loss: Callable[..., Any]) -> list[str]:
    """Arguments for references that the `forward` of a loss, or of a class of losses, lacks. [] if it has all of them.

    >>> from rankgrad.losses import SmoothAPLoss
    >>> missing_references(SmoothAPLoss()), missing_references(nn.Identity())
    ([], ['ref_emb', 'ref_labels', 'ids', 'ref_ids'])
    """
    takes = inspect.signature(getattr(loss, "forward", loss)).parameters
    return [name for name in REFERENCES if name not in takes]
