"""The inputs of a model: images, texts or vectors. Each class checks batches and names the arguments from the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from rankgrad.common.checks import integer


class Input(Protocol):
    """The kind of input of a model."""

    takes: ClassVar[str]

    @property
    def asks(self) -> Mapping[str, int]:
        """Arguments of the model that depend on the data, such as in_channels; the same as in `Rows.asks`."""
        ...

    def ready(self, given: Any) -> Any:
        """Check a batch and convert it to the memory format of the backbone.

        Raises:
            TypeError, ValueError: the batch is of another kind or shape.
        """
        ...


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
        """See `Input`."""
        return {"in_channels": self.channels}

    def ready(self, given: Any) -> Tensor:
        """See `Input`; the memory format is channels_last."""
        need_tensor(given, self.takes)
        if given.ndim != 4 or given.shape[1] != self.channels:
            raise ValueError(
                f"the model takes images [image, {self.channels}, height, width]; got {list(given.shape)}. "
                f"Build it with in_channels= the channels of the images, or convert the images"
            )
        if not given.is_floating_point():
            raise TypeError(f"the model takes float images; got {given.dtype}. Convert with images.float() / 255")
        height, width = given.shape[2:]
        if self.size is not None and (height, width) != self.size:
            raise ValueError(
                f"the backbone takes images of exactly {self.size[0]} x {self.size[1]} pixels; got "
                f"{height} x {width}. Resize them, or build the model with image_size={height}"
            )
        if min(height, width) < self.smallest:
            raise ValueError(f"images must be at least {self.smallest} x {self.smallest}; got {height} x {width}")
        images: Tensor = given.contiguous(memory_format=torch.channels_last)
        return images


@dataclass(frozen=True)
class TextInput:
    """Texts: a list of strings."""

    takes: ClassVar[str] = "texts"

    @property
    def asks(self) -> Mapping[str, int]:
        """See `Input`; texts have no size."""
        return {}

    def ready(self, given: Any) -> list[str]:
        """See `Input`."""
        if isinstance(given, Tensor):
            raise TypeError(
                f"the model takes texts, a list of strings; got a tensor {list(given.shape)}. Images need a model such "
                "as convnet; vectors need the model vectors"
            )
        if isinstance(given, str) or not all(isinstance(text, str) for text in given):
            raise TypeError("the model takes texts, a list of strings; got " + _kind(given))
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
        """See `Input`."""
        return {"width": self.width}

    def ready(self, given: Any) -> Tensor:
        """See `Input`."""
        need_tensor(given, self.takes)
        if given.ndim != 2 or given.shape[1] != self.width or not given.is_floating_point():
            raise ValueError(
                f"the model takes vectors, float [row, {self.width}]; got {given.dtype} {list(given.shape)}. Did "
                "another model make them?"
            )
        vectors: Tensor = given
        return vectors


def need_tensor(given: Any, takes: str) -> None:
    """Raise unless a batch of images or vectors is a tensor.

    Raises:
        TypeError: the batch is of another type, such as a list of texts.
    """
    if not isinstance(given, Tensor):
        raise TypeError(f"the model takes {takes}, a tensor; got {_kind(given)}. Texts need a model such as ngrams")


def _kind(given: Any) -> str:
    """The type of a batch, in words."""
    if isinstance(given, (list, tuple)):
        return "a list of " + (type(given[0]).__name__ if given else "nothing")
    return f"a {type(given).__name__}"
