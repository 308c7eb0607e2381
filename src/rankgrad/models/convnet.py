"""A small convolutional network for small images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from torch import nn

from ..checks import unknown
from .embedding_model import EmbeddingModel
from .heads import EmbeddingHead, Head
from .inputs import ImageInput
from .pooling import POOLINGS
from .record import load_backbone


def convnet(
    in_channels: int = 1,
    widths: Sequence[int] = (32, 64, 64, 128),
    embedding_size: int | None = 128,
    *,
    head: Head = "linear",
    pooling: Literal["avg", "max", "gem"] = "avg",
    weights: str | os.PathLike[str] | None = None,
    freeze_batch_norm: bool = False,
) -> EmbeddingModel:
    """A small convnet for small images: conv3x3 - batch norm - ReLU - maxpool2 for each width, then pooling and a head.

    With the default four widths, a 28 x 28 image becomes a 1 x 1 map; the map of a larger image is pooled. It has 180 k
    parameters; 114 k with `widths=(16, 32, 64, 128)`.

    Args:
        in_channels: channels of an image.
        widths: channels after each block; each block halves height and width.
        embedding_size: dim of the embeddings; None keeps the last width (with head "none" or a square linear map).
        head: see `EmbeddingHead`.
        pooling: "avg", "max" or "gem" of the last map.
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
    widths = tuple(int(width) for width in widths)
    if not widths or min(widths) < 1 or in_channels < 1:
        raise ValueError(f"convnet needs in_channels >= 1 and widths >= 1; got {in_channels} and {widths}")
    if pooling not in POOLINGS:
        raise ValueError(unknown("pooling", pooling, POOLINGS))
    blocks = [
        nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1, bias=False),  # batch norm has the bias
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        for before, after in zip((in_channels, *widths), widths, strict=False)
    ]
    backbone = nn.Sequential(*blocks)
    pixels = None if weights is None else load_backbone(Path(weights), backbone)
    model = EmbeddingModel(
        backbone,
        POOLINGS[pooling](),
        EmbeddingHead(widths[-1], embedding_size, head),
        ImageInput(in_channels, smallest=2 ** len(widths)),
        freeze_batch_norm=freeze_batch_norm,
        config={
            "kind": "convnet",
            "in_channels": in_channels,
            "widths": list(widths),
            "embedding_size": embedding_size,
            "head": head,
            "pooling": pooling,
            "freeze_batch_norm": freeze_batch_norm,
        },
    )
    if pixels is not None:
        model.pixel_mean, model.pixel_std = pixels
    return model
