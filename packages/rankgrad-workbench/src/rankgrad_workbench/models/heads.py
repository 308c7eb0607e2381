"""Heads: features -> embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from torch import Tensor, nn

from rankgrad.common.checks import integer, unknown

Head = Literal["linear", "none", "layer_norm", "mlp"]


class EmbeddingHead(nn.Module):
    """Features [image, feature] -> embeddings [image, dim], not normalised.

    One can be trained on the features of `extract_features`; `EmbeddingModel.with_head` then attaches it to the model.

    Args:
        feature_size: size of the input features.
        embedding_size: dim; None keeps `feature_size`.
        head: None: "linear" if embedding_size is not that of the features, else "none". "linear": one affine map.
            "layer_norm": layer norm without scale and shift, then an affine map (ROADMAP's recipe on CUB). "mlp": the
            sum of an affine map and a hidden layer of feature_size units with ReLU, which is 0 at the start. "none":
            the features unchanged; embedding_size must then be None or feature_size.

    Raises:
        ValueError: the head is unknown, or "none" is used with another size than that of the features.

    >>> import torch
    >>> EmbeddingHead(64, 16, head="layer_norm")(torch.randn(2, 64)).shape
    torch.Size([2, 16])
    """

    def __init__(self, feature_size: int, embedding_size: int | None = 128, head: Head | None = None) -> None:
        super().__init__()
        if head is None:
            head = "none" if embedding_size in (None, feature_size) else "linear"
        size = feature_size if embedding_size is None else embedding_size
        integer(size, "embedding_size is None (the backbone's own size) or a dimension", low=1)
        if head not in HEADS:
            raise ValueError(unknown("head", head, HEADS))
        if head == "none" and size != feature_size:
            raise ValueError(
                f"head 'none' keeps the {feature_size} features; got embedding_size={size}: set embedding_size=None"
            )
        self.feature_size, self.embedding_size, self.kind = feature_size, size, head
        self.layers: nn.Module = HEADS[head](feature_size, size)

    @property
    def affine(self) -> nn.Linear | None:
        """The affine map of the head; None for head "none"."""
        return next((layer for layer in self.layers.modules() if isinstance(layer, nn.Linear)), None)

    def start_as_projection(self) -> None:
        """Let the affine map start as the identity if it is square, else as a random orthogonal projection.

        So the neighbours before training are those of the features, or close to them.
        """
        layer = self.affine
        if layer is not None:
            square = layer.in_features == layer.out_features
            nn.init.eye_(layer.weight) if square else nn.init.orthogonal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """[row, feature] -> [row, dim]."""
        if features.ndim != 2 or features.shape[1] != self.feature_size:
            raise ValueError(f"the head needs features [row, {self.feature_size}]; got {list(features.shape)}")
        return cast(Tensor, self.layers(features))


class _AffineAndHidden(nn.Module):
    """The sum of an affine map and a hidden layer, whose output is 0 before training."""

    def __init__(self, feature_size: int, size: int) -> None:
        super().__init__()
        self.straight = nn.Linear(feature_size, size)
        self.inward, self.outward = nn.Linear(feature_size, feature_size), nn.Linear(feature_size, size, bias=False)
        nn.init.zeros_(self.outward.weight)

    def forward(self, features: Tensor) -> Tensor:
        bent: Tensor = self.straight(features) + self.outward(self.inward(features).relu())
        return bent


def _normed(feature_size: int, size: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(feature_size, elementwise_affine=False), nn.Linear(feature_size, size))


HEADS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": nn.Linear,
    "none": nn.Identity,
    "layer_norm": _normed,
    "mlp": _AffineAndHidden,
}
