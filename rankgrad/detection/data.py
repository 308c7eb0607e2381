"""Annotated images as batches for a detector: resized, flipped, in an order that a seed fixes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset

from ..distributed import world
from ..samplers import EpochList
from .voc import Scene

Target = dict[str, Tensor]


class Sample(NamedTuple):
    """One image for a detector.

    Attributes:
        image: [3, height, width] float32, 0 .. 1.
        target: boxes [object, 4] in pixels of `image`, labels [object] long, 1 .. C: 0 is background.
        row: of the data set.
        size: (width, height) of the file.
    """

    image: Tensor
    target: Target
    row: int
    size: tuple[int, int]


class DetectionSet(Dataset[Sample]):
    """The images of a split, read when they are asked for.

    A flip is a function of (seed, epoch, image): a run that is resumed sees what it would have seen.

    Args:
        scenes: images and their objects.
        shorter: shorter side in pixels after resizing.
        longer: longest that the longer side may become; then the shorter is less.
        difficult: whether difficult objects are among the targets.
        flip: probability of a flip from left to right.
        upend: probability of a flip upside down: for images without an up.
        seed: of the flips.
        cache: keep resized images in memory.
    """

    def __init__(
        self,
        scenes: Sequence[Scene],
        shorter: int,
        longer: int,
        *,
        difficult: bool = False,
        flip: float = 0.0,
        upend: float = 0.0,
        seed: int = 0,
        cache: bool = False,
    ) -> None:
        for name, side in (("shorter", shorter), ("longer", longer)):
            if isinstance(side, bool) or not isinstance(side, int) or side < 1:
                raise ValueError(f"{name} is a side in pixels, an integer >= 1; got {side!r}")
        if longer < shorter:
            raise ValueError(f"longer must be at least shorter; got {longer} < {shorter}")
        for name, share in (("flip", flip), ("upend", upend)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is a probability, 0 .. 1; got {share}")
        self.scenes, self.shorter, self.longer = tuple(scenes), shorter, longer
        self.difficult, self.flip, self.upend, self.seed = difficult, flip, upend, seed
        self._pixels: dict[int, tuple[Tensor, tuple[int, int]]] | None = {} if cache else None

    def __len__(self) -> int:
        """Images."""
        return len(self.scenes)

    def __getitem__(self, index: int) -> Sample:
        """An image as it is in epoch 0."""
        return self.sample(index, 0)

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        """A batch; the epoch comes with it (`EpochList`)."""
        epoch = indices.epoch if isinstance(indices, EpochList) else 0
        return [self.sample(index, epoch) for index in indices]

    def sample(self, index: int, epoch: int) -> Sample:
        """An image in an epoch."""
        scene = self.scenes[index]
        pixels, size = self._read(index)
        height, width = pixels.shape[1:]
        boxes = scene.boxes.clone()
        boxes[:, 0::2] = (boxes[:, 0::2] * (width / size[0])).clamp(0, width)
        boxes[:, 1::2] = (boxes[:, 1::2] * (height / size[1])).clamp(0, height)
        kept = (boxes[:, 2:] > boxes[:, :2]).all(1)  # something of it lies inside
        if not self.difficult:
            kept &= ~scene.difficult
        boxes, labels = boxes[kept], scene.labels[kept] + 1
        draws = np.random.RandomState([self.seed, epoch, index]).random_sample(2)
        if draws[0] < self.flip:
            pixels, boxes = pixels.flip(2), _mirrored(boxes, 0, width)
        if draws[1] < self.upend:
            pixels, boxes = pixels.flip(1), _mirrored(boxes, 1, height)
        return Sample(pixels.float() / 255, {"boxes": boxes, "labels": labels}, index, size)

    def _read(self, index: int) -> tuple[Tensor, tuple[int, int]]:
        if self._pixels is not None and index in self._pixels:
            return self._pixels[index]
        found = read_image(self.scenes[index].path, self.shorter, self.longer)
        if self._pixels is not None:
            self._pixels[index] = found
        return found


def read_image(path: Path, shorter: int, longer: int) -> tuple[Tensor, tuple[int, int]]:
    """[3, height, width] uint8 with the given shorter side, or less so that no side is above `longer`; and file size.

    Raises:
        OSError: it can't be decoded.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (OSError, SyntaxError) as error:
        raise OSError(f"{path} can't be decoded: {error}") from None
    size = image.size
    scale = min(shorter / min(size), longer / max(size))
    if scale != 1:
        sides = [max(round(side * scale), 1) for side in size]
        # PIL averages over what a pixel covers where it makes an image smaller
        image = image.resize((sides[0], sides[1]), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous(), size


def _mirrored(boxes: Tensor, axis: int, length: int) -> Tensor:
    """Boxes of the mirrored image: what was left is right."""
    mirrored = boxes.clone()
    mirrored[:, axis], mirrored[:, axis + 2] = length - boxes[:, axis + 2], length - boxes[:, axis]
    return mirrored


class ShuffledBatches(BatchSampler):
    """Batches of an epoch, all of the same size, in an order that (seed, epoch) fix; can go on in the middle.

    Images that are left over after the last whole batch have their turn in another epoch. With several processes each
    has every n-th image of the same batch.

    Args:
        images: their number.
        batch_size: of all processes together.
        seed: 0 .. 2**32 - 1.

    >>> batches = ShuffledBatches(images=5, batch_size=2)
    >>> len(batches), [len(batch) for batch in batches]
    (2, [2, 2])
    """

    def __init__(self, images: int, batch_size: int, seed: int = 0) -> None:
        # not BatchSampler's constructor: there is no sampler of single images
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or not 1 <= batch_size <= images:
            raise ValueError(f"batch_size must be 1 .. {images}, the number of images; got {batch_size!r}")
        if batch_size < world()[1]:
            raise ValueError(f"{world()[1]} processes cannot share a batch of {batch_size} images: raise batch_size")
        self.images, self.batch_size, self.seed = images, batch_size, seed
        self.epoch = 0
        self.start_batch = 0

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self.images // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's part of the batches from `start_batch` on, then forget `start_batch`."""
        start, epoch = self.start_batch, self.epoch
        self.start_batch = 0
        order = np.random.RandomState([self.seed, epoch]).permutation(self.images)
        whole = order[: len(self) * self.batch_size].reshape(len(self), self.batch_size)
        rank, processes = world()
        return (EpochList(batch, epoch) for batch in whole[start:, rank::processes].tolist())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration."""
        self.epoch = epoch

    def state_dict(self, batches_done: int) -> dict[str, int]:
        """What `load_state_dict` needs to go on after so many batches of this epoch."""
        return {**self._identity(), "epoch": self.epoch, "start_batch": batches_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            ValueError: the state is of other batches.
        """
        wrong = [f"{k}: saved {state.get(k)}, now {v}" for k, v in self._identity().items() if state.get(k) != v]
        if wrong:
            raise ValueError(f"the saved state belongs to other batches ({'; '.join(wrong)}); was the data changed?")
        self.epoch, self.start_batch = int(state["epoch"]), int(state["start_batch"])

    def _identity(self) -> dict[str, int]:
        return {"images": self.images, "batch_size": self.batch_size, "seed": self.seed}


class _Once(torch.utils.data.Sampler[list[int]]):
    """The batches, asked for only when they are read: with workers a loader makes two iterators and reads one."""

    def __init__(self, batches: ShuffledBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batches


def as_lists(samples: Sequence[Sample]) -> tuple[list[Tensor], list[Target]]:
    """Images and targets as torchvision's detectors take them."""
    return [sample.image for sample in samples], [sample.target for sample in samples]


class DetectionData(L.LightningDataModule):
    """Training batches; knows where in an epoch it stands, so that a run resumes there.

    Args:
        dataset: training images.
        batch_size: of all processes together.
        seed: of the order.
        workers: of the DataLoader.
    """

    def __init__(self, dataset: DetectionSet, batch_size: int, seed: int, workers: int = 0) -> None:
        super().__init__()
        self.dataset, self.workers = dataset, workers
        self.sampler = ShuffledBatches(len(dataset), batch_size, seed)

    def train_dataloader(self) -> DataLoader[Any]:
        """One loader for all epochs; `training.SetEpoch` names the epoch before each."""
        return DataLoader(
            self.dataset,
            batch_sampler=_Once(self.sampler),
            collate_fn=as_lists,
            generator=torch.Generator(),
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def state_dict(self) -> dict[str, int]:
        """Epoch and batches done, from Lightning's own counters."""
        trainer = self.trainer
        assert trainer is not None
        done = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        epoch = trainer.current_epoch
        if done >= trainer.num_training_batches:
            epoch, done = epoch + 1, 0
        self.sampler.set_epoch(epoch)
        return self.sampler.state_dict(batches_done=done)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on in the middle of the epoch."""
        self.sampler.load_state_dict(state_dict)
