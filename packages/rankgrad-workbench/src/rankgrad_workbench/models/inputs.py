"""The inputs of a model: images, texts or vectors. Each class checks batches and names the arguments from the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rankgrad.common.checks import integer


@dataclass(frozen=True)
class ImageInput:
    """Images [image, channel, height, width] float.

    Attributes:
        channels: of an image.
        smallest: smallest height and width that the backbone accepts.
        size: the only (height, width) that it accepts; None: any size.
    """

    channels: int
    smallest: int = 1
    size: tuple[int, int] | None = None

    takes: ClassVar[str] = "images"

    @property
    def asks(self) -> Mapping[str, int]:
        """Arguments of the model that depend on the data; the same as in `Rows.asks`."""
        return {"in_channels": self.channels}

    def ready(self, given: Any) -> Tensor:
        """Check a batch, or raise TypeError or ValueError; the memory format is channels_last."""
        images = _tensor(given, self.takes)
        if images.ndim != 4 or images.shape[1] != self.channels:
            raise ValueError(
                f"the model takes images [image, {self.channels}, height, width]; got {list(images.shape)}. "
                f"Build it with in_channels= the channels of the images, or convert the images"
            )
        if not images.is_floating_point():
            raise TypeError(f"the model takes float images; got {images.dtype}. Convert with images.float() / 255")
        height, width = images.shape[2:]
        if self.size is not None and self.size != (height, width):
            raise ValueError(
                f"the backbone takes images of {self.size} pixels; got {(height, width)}. Set image_size={height}"
            )
        if min(height, width) < self.smallest:
            raise ValueError(f"images must be at least {self.smallest} x {self.smallest}; got {height} x {width}")
        return images.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class TextInput:
    """Texts: a list of strings."""

    takes: ClassVar[str] = "texts"
    asks: ClassVar[Mapping[str, int]] = {}

    def ready(self, given: Any) -> list[str]:
        """Check a batch."""
        if isinstance(given, (str, Tensor)) or not all(isinstance(text, str) for text in given):
            raise TypeError(f"the model takes texts, a list of strings; got a {type(given).__name__}")
        return list(given)


@dataclass(frozen=True)
class VectorInput:
    """Vectors [row, width] float.

    Attributes:
        width: length of a vector.
    """

    width: int

    takes: ClassVar[str] = "vectors"

    def __post_init__(self) -> None:
        integer(self.width, "width is the length of a vector", low=1)

    @property
    def asks(self) -> Mapping[str, int]:
        """As of images."""
        return {"width": self.width}

    def ready(self, given: Any) -> Tensor:
        """Check a batch."""
        vectors = _tensor(given, self.takes)
        if vectors.ndim != 2 or vectors.shape[1] != self.width or not vectors.is_floating_point():
            raise ValueError(
                f"the model takes vectors, float [row, {self.width}]; got {vectors.dtype} {list(vectors.shape)}"
            )
        return vectors


def _tensor(given: Any, takes: str) -> Tensor:
    if not isinstance(given, Tensor):
        raise TypeError(f"the model takes {takes}, a tensor; got a {type(given).__name__}")
    return given


Input = ImageInput | TextInput | VectorInput
