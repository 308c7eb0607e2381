"""Annotated images as batches for a detector. They are resized and flipped, and a seed decides their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankgrad.batches.epochs import EpochList
from rankgrad.common.checks import integer, number

from .scenes import Scene

Target = dict[str, Tensor]


class Example(NamedTuple):
    """One image for a detector.

    Attributes:
        image: [3, height, width] float32, 0 .. 1.
        target: boxes [object, 4] in pixels of `image`, labels [object] long, 1 .. C; 0 is background.
        row: index in the data set.
        size: (width, height) of the annotated image, before resizing.
    """

    image: Tensor
    target: Target
    row: int
    size: tuple[int, int]


class DetectionSet(Dataset[Example]):
    """The images of a split. An image is read when it is needed.

    A flip depends on (seed, epoch, image), so a resumed run gets the same images.

    Args:
        scenes: images and their objects.
        shorter: shorter side in pixels after resizing.
        longer: upper limit of the longer side. If it is reached, the shorter side is smaller.
        difficult: whether the targets contain difficult objects; never crowds.
        flip: probability of a horizontal flip.
        vertical_flip: probability of a vertical flip, for images without a top side.
        seed: seed of the flips.
        cache: whether to keep resized images in memory.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        shorter: int,
        longer: int,
        *,
        difficult: bool = False,
        flip: float = 0.0,
        vertical_flip: float = 0.0,
        seed: int = 0,
        cache: bool = False,
    ) -> None:
        shorter = integer(shorter, "shorter is a side in pixels", low=1)
        longer = integer(longer, "longer is a side in pixels", low=1)
        if longer < shorter:
            raise ValueError(f"longer must be at least shorter; got {longer} < {shorter}")
        number(flip, "flip is a probability", low=0, high=1)
        number(vertical_flip, "vertical_flip is a probability", low=0, high=1)
        self.scenes, self.shorter, self.longer = tuple(scenes), shorter, longer
        self.difficult, self.flip, self.vertical_flip, self.seed = difficult, flip, vertical_flip, seed
        self.cache, self._kept = cache, dict[int, tuple[Tensor, tuple[int, int]]]()

    def __len__(self) -> int:
        """Number of images."""
        return len(self.scenes)

    def __getitem__(self, index: int) -> Example:
        """An image in epoch 0."""
        return self.sample(index, 0)

    def __getitems__(self, indices: list[int]) -> list[Example]:
        """A batch. The indices contain the epoch (`EpochList`)."""
        epoch = indices.epoch if isinstance(indices, EpochList) else 0
        return [self.sample(index, epoch) for index in indices]

    def sample(self, index: int, epoch: int) -> Example:
        """An image in an epoch."""
        scene = self.scenes[index]
        pixels, size = self._kept.get(index) or read_resized(scene, self.shorter, self.longer)
        if self.cache:
            self._kept[index] = pixels, size
        height, width = pixels.shape[1:]
        boxes = scene.boxes.clone()
        boxes[:, 0::2] = (boxes[:, 0::2] * (width / size[0])).clamp(0, width)
        boxes[:, 1::2] = (boxes[:, 1::2] * (height / size[1])).clamp(0, height)
        kept = (boxes[:, 2:] > boxes[:, :2]).all(1)  # boxes that are partly inside
        if not self.difficult:
            kept &= ~scene.difficult
        if scene.crowd is not None:
            kept &= ~scene.crowd
        boxes, labels = boxes[kept], scene.labels[kept] + 1
        draws = np.random.RandomState([self.seed, epoch, index]).random_sample(2)
        for axis, (chance, length) in enumerate(((self.flip, width), (self.vertical_flip, height))):
            if draws[axis] < chance:
                pixels = pixels.flip(2 - axis)
                boxes[:, [axis, axis + 2]] = length - boxes[:, [axis + 2, axis]]
        return Example(pixels.float() / 255, {"boxes": boxes, "labels": labels}, index, size)


def read_resized(scene: Scene, shorter: int, longer: int) -> tuple[Tensor, tuple[int, int]]:
    """The resized image, [3, height, width] uint8, and the (width, height) of the file.

    The shorter side is `shorter`, or less if the longer side would exceed `longer`.

    Raises:
        OSError: the image cannot be read, see `datasets.images`.
    """
    from PIL.Image import Resampling

    image = scene.image()
    size = image.size
    scale = min(shorter / min(size), longer / max(size))
    if scale != 1:
        sides = [max(round(side * scale), 1) for side in size]
        # when PIL makes an image smaller, it averages over the area of each new pixel
        image = image.resize((sides[0], sides[1]), Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), size


def as_lists(samples: Sequence[Example]) -> tuple[list[Tensor], list[Target]]:
    """Images and targets in the form of torchvision's detectors."""
    return [sample.image for sample in samples], [sample.target for sample in samples]
