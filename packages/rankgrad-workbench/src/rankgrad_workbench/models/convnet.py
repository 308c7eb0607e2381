"""A small convolutional network for small images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from rankgrad.common.checks import flag, integer, unknown

from .embedding_model import EmbeddingModel, described
from .heads import EmbeddingHead, Head
from .inputs import ImageInput
from .pooling import POOLINGS
from .record import load_backbone


@described("convnet", "weights")
def convnet(
    in_channels: int = 1,
    widths: Sequence[int] = (32, 64, 64, 128),
    embedding_size: int | None = 128,
    *,
    head: Head | None = "linear",
    pooling: Literal["avg", "max", "gem"] = "avg",
    residual: bool = False,
    weights: str | os.PathLike[str] | None = None,
    freeze_batch_norm: bool = False,
) -> EmbeddingModel:
    """A small convnet for small images: conv3x3 - batch norm - ReLU - maxpool2 for each width, then pooling and a head.

    With the default four widths, a 28 x 28 image becomes a 1 x 1 map; the map of a larger image is pooled. It has 180 k
    parameters; 114 k with `widths=(16, 32, 64, 128)`.

    `residual` makes it a small ResNet for photographs of 64 pixels or so: a stride of 2 takes the place of the pooling,
    and every block but the first ends with a `Residual`. It has 3.7 M parameters with `widths=(32, 64, 128, 256, 256)`.

    Args:
        in_channels: channels of an image.
        widths: channels after each block; each block halves height and width.
        embedding_size: dim of the embeddings; None keeps the last width (with head "none" or a square linear map).
        head: see `EmbeddingHead`.
        pooling: "avg", "max" or "gem" of the last map.
        residual: whether it is a ResNet.
        weights: file of `save_weights` (a run's model.pt). The backbone starts with the weights of this file; the head
            is new. To load the head too, use `load_weights`.
        freeze_batch_norm: see `EmbeddingModel`; useful only with loaded weights.

    Raises:
        ValueError: no width, a width below 1, an unknown pooling or head; weights of another backbone.
        FileNotFoundError: no file at `weights`.

    >>> model = convnet(widths=(16, 32, 64, 128))
    >>> sum(p.numel() for p in model.parameters())
    113904
    """
    widths = tuple(integer(width, "each entry of widths counts channels", low=1) for width in widths)
    integer(in_channels, "in_channels is that of an image", low=1)
    if not widths:
        raise ValueError("widths is empty; a convnet needs at least one block")
    flag(residual, "residual")
    if pooling not in POOLINGS:
        raise ValueError(unknown("pooling", pooling, POOLINGS))
    blocks = [
        _block(before, after, residual, first=place == 0)
        for place, (before, after) in enumerate(zip((in_channels, *widths), widths, strict=False))
    ]
    model = EmbeddingModel(
        nn.Sequential(*blocks),
        POOLINGS[pooling](),
        EmbeddingHead(widths[-1], embedding_size, head),
        ImageInput(in_channels, smallest=2 ** len(widths)),
        freeze_batch_norm,
    )
    if weights is not None:
        model.pixel_mean, model.pixel_std = load_backbone(Path(weights), model.backbone)
    return model


def _block(before: int, after: int, residual: bool, first: bool) -> nn.Sequential:
    """A block of `convnet`. Batch norm has the bias of the convolution."""
    convolution = nn.Conv2d(before, after, 3, stride=2 if residual else 1, padding=1, bias=False)
    layers: list[nn.Module] = [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    if not residual:
        layers.append(nn.MaxPool2d(2))
    elif not first:
        layers.append(Residual(after))
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """relu(x + norm(conv(relu(norm(conv(x)))))): the basic block of a ResNet (He et al., CVPR 2016, figure 2).

    Args:
        width: channels of the map, which keeps its size.

    >>> Residual(8)(torch.zeros(1, 8, 4, 4)).shape
    torch.Size([1, 8, 4, 4])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """[image, width, height, width of the map] -> the same shape."""
        return torch.relu(maps + self.change(maps))
