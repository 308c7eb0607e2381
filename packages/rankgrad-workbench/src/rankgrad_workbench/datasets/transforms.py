"""Images of a batch -> float tensor, with augmentation that depends only on (seed, epoch, image).

A transform is called as `transform(images, index, epoch)`: `images` is a list of uint8 [channel, height, width]
tensors, `index` their row numbers in the table, [image] long. It returns float32 [image, channel, height, width]. The
result does not depend on the other images of the batch, the number of workers, or torch's global generator. So a
resumed run, or a run with more workers, gets the same pixels.

`Ink*` are for drawings and characters (bright ink on a dark background, any number of channels), `Photo*` for
photographs. `Collated` leaves texts, vectors and other inputs unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import default_collate

from rankgrad.batches.epochs import EpochList
from rankgrad.common.checks import number

from .images import resized, shorter

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# Largest ratio of the sides of a photograph. If an image of 1 x 20 000 pixels were resized by its shorter side, it
# would need gigabytes.
STRIP = 64
LARGEST_SIDE = 2**13  # pixels of an input; a file of settings of somebody else could ask for all memory

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Transform(Protocol):
    """A transform as `Collate` calls it: images of a batch -> float32 [image, channel, height, width]."""

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Transform the images whose rows in the table are `index`, [image] long, for `epoch`."""
        ...


def counter_uniform(seed: int, epoch: int, index: Tensor, n: int) -> Tensor:
    """Uniform random numbers in [0, 1), a pure function of (seed, epoch, index, column).

    This is a hash and not a generator with a state. The output function of splitmix64 (Steele, Lea and Flood, OOPSLA
    2014) combines seed, epoch and index into a 64-bit key. Row b is the splitmix64 stream of its key. The top 24 bits
    become the float32, so 1 is never reached. Integer arithmetic gives the same result on every machine.

    Args:
        seed: integer, taken modulo 2**64.
        epoch: integer, taken modulo 2**64.
        index: [image] long; a row of the result depends on its own entry only.
        n: numbers per image.

    Returns:
        [image, n] float32 on CPU.

    >>> counter_uniform(0, 0, torch.tensor([5, 6]), 2)
    tensor([[0.8621, 0.5052],
            [0.0773, 0.1316]])
    >>> counter_uniform(0, 0, torch.tensor([6]), 2)
    tensor([[0.0773, 0.1316]])
    """
    bits = _splitmix(_keys(seed, epoch, index)[:, None] + np.arange(1, n + 1, dtype=np.uint64) * _GAMMA)
    return torch.from_numpy((bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24))


def _keys(seed: int, epoch: int, index: Tensor) -> npt.NDArray[np.uint64]:
    key = np.zeros(1, dtype=np.uint64)  # arrays overflow without a warning, as wanted; numpy scalars warn
    for part in (np.array([seed % 2**64], np.uint64), np.array([epoch % 2**64], np.uint64)):
        key = _splitmix(key + part + _GAMMA)
    return _splitmix(key + index.to(torch.int64).cpu().numpy().astype(np.uint64) * _GAMMA)


def _splitmix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Output function of splitmix64: a bijection of 64-bit words in which every input bit moves every output bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def warp(
    images: Tensor,
    size: int,
    *,
    angle: Tensor,
    scale: Tensor,
    shear: Tensor,
    shift: Tensor,
    field: Tensor | None = None,
) -> Tensor:
    """Warp each image by its own affine map and smooth displacement, with one bilinear sampling.

    Args:
        images: [image, channel, height, width] float.
        size: height and width of the result.
        angle: [image] radians.
        scale: [image] > 0; 1.1 makes the content 10 % larger.
        shear: [image] x displacement per unit of y.
        shift: [image, 2] (x, y) as a fraction of the frame.
        field: [image, 2, control, control] displacements (x, y) of a square grid of control points, as a fraction
            of the frame, with bicubic interpolation between them; None for none.

    Returns:
        [image, channel, size, size] float.

    >>> image = torch.tensor([[[[0.0, 1.0], [0.0, 0.0]]]])
    >>> half_turn = torch.tensor([math.pi])
    >>> still = dict(scale=torch.ones(1), shear=torch.zeros(1), shift=torch.zeros(1, 2))
    >>> warp(image, 2, angle=half_turn, **still).round()
    tensor([[[[0., 0.],
              [1., 0.]]]])
    """
    cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
    # the map from output to input: the shear, and rotation(-angle) / scale
    matrix = torch.stack([cos, sin + shear * cos, -2 * shift[:, 0], -sin, cos - shear * sin, -2 * shift[:, 1]], dim=1)
    grid = F.affine_grid(matrix.view(-1, 2, 3), [len(images), 1, size, size], align_corners=False)
    if field is not None:
        basis = _bicubic_basis(field.shape[-1], size)
        grid = grid + 2 * torch.einsum("yi,ndij,xj->nyxd", basis, field, basis)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


@cache
def _bicubic_basis(control: int, size: int) -> Tensor:
    """[size, control] weights of the control points; bicubic interpolation is linear and separable."""
    eye = torch.eye(control).view(control, 1, control, 1)
    rows = F.interpolate(eye, size=(size, 1), mode="bicubic", align_corners=True)
    return rows.view(control, size).t().contiguous()


@dataclass(frozen=True)
class InkTrain:
    """Random affine map, elastic displacement and stroke width for drawings and characters; values 0 .. 1.

    Each change is drawn uniformly from [-amount, amount]; 0 switches it off. An image of another size is resized to
    `size` x `size` first (antialiased; the aspect ratio is not kept).

    Args:
        size: height and width of the result, pixels.
        degrees: rotation.
        scale: zoom, 0.2 for 0.8 to 1.2.
        shear: x displacement per unit of y.
        shift: of x and of y, as a fraction of the frame.
        elastic: displacement of a 4 x 4 grid of control points, as a fraction of the frame.
        stroke: fraction of the images whose strokes change. Half of these become wider (mixed with the maximum of the
            3 x 3 neighbourhood), half thinner (mixed with the minimum). The weight of the maximum or minimum is drawn
            from 0 .. 0.5, because the full minimum would remove strokes of 1 or 2 pixels.
        seed: of the augmentation.

    >>> InkTrain()([torch.zeros(1, 28, 28, dtype=torch.uint8)], torch.tensor([7]), epoch=0).shape
    torch.Size([1, 1, 28, 28])
    """

    size: int = 28
    degrees: float = 15.0
    scale: float = 0.2
    shear: float = 0.2
    shift: float = 0.1
    elastic: float = 0.06
    stroke: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        _shortest("size", self.size)
        for name in ("degrees", "scale", "shear", "shift", "elastic"):
            number(getattr(self, name), f"{name} is the largest amount", low=0)
        if not self.scale < 1:
            raise ValueError(f"scale must be < 1 (0.2 zooms by 0.8 to 1.2); got {self.scale}")
        number(self.stroke, "stroke is a fraction of the images", low=0, high=1)

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size] in 0 .. 1."""
        batch = _stack_ink(images, self.size)
        u = counter_uniform(self.seed, epoch, index, 7 + 2 * _CONTROL**2)
        even = 2 * u - 1  # [-1, 1)
        if self.stroke:
            wider, changed = u[:, 5] < self.stroke / 2, u[:, 5] < self.stroke
            batch = stroke(batch, torch.where(wider, u[:, 6], torch.where(changed, -u[:, 6], 0.0)) / 2)
        warped = warp(
            batch,
            self.size,
            angle=even[:, 0] * math.radians(self.degrees),
            scale=1 + self.scale * even[:, 1],
            shear=self.shear * even[:, 2],
            shift=self.shift * even[:, 3:5],
            field=self.elastic * even[:, 7:].view(-1, 2, _CONTROL, _CONTROL) if self.elastic else None,
        )
        return warped.clamp_(0, 1)  # rounding errors may leave the range by 1e-7


_CONTROL = 4  # control points of the elastic displacement, per side


@dataclass(frozen=True)
class InkEval:
    """Drawings and characters without augmentation, resized to `size` x `size` where needed; values 0 .. 1.

    >>> InkEval(size=2)([torch.full((1, 2, 2), 255, dtype=torch.uint8)], torch.tensor([0]), epoch=0)
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """

    size: int = 28

    def __post_init__(self) -> None:
        _shortest("size", self.size)

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size] in 0 .. 1; index and epoch are not used."""
        return _stack_ink(images, self.size)


def _stack_ink(images: Sequence[Tensor], size: int) -> Tensor:
    _need_images(images)
    same = all(image.shape == images[0].shape for image in images)
    parts = [torch.stack([*images])] if same else [image[None] for image in images]
    return torch.cat([_resize(part, size) for part in parts])


def _resize(images: Tensor, size: int) -> Tensor:
    scaled = images.float() / 255
    if images.shape[-2:] == (size, size):
        return scaled
    return F.interpolate(scaled, size=(size, size), mode="bilinear", antialias=True, align_corners=False)


def stroke(images: Tensor, amount: Tensor) -> Tensor:
    """Wider strokes where amount > 0, thinner where it is < 0, [image]; 1 is the full 3 x 3 neighbourhood."""
    sign = torch.where(amount < 0, -1.0, 1.0).view(-1, 1, 1, 1)
    extreme = sign * F.max_pool2d(sign * images, 3, stride=1, padding=1)
    return torch.lerp(images, extreme, amount.abs().view(-1, 1, 1, 1))


@dataclass(frozen=True)
class PhotoTrain:
    """Random crop, flip and colour change for photographs, then normalisation.

    The defaults are those of ROADMAP's code and of most retrieval papers. torchvision.transforms.v2 does the work, with
    its own generator state for each image.

    Args:
        size: height and width of the result, pixels.
        resize: shorter side before the crop, pixels; or (height, width), which changes the aspect ratio, as RaMBO and
            PNP do with (256, 256); None: the image is not resized before the crop. With a shorter side, only the middle
            of a strip is used, see `STRIP`.
        scale: smallest and largest area of the crop, as a fraction of the image; the crop is resized to `size`. None:
            a crop of `size` x `size` pixels at a random place, which is not resized; `resize` must be at least `size`.
        ratio: smallest and largest width / height of a crop that is resized.
        flip: probability of a horizontal flip.
        color_jitter: largest change of brightness, contrast and saturation, as a fraction (hue: a quarter of it, at
            most 0.5); 0 for none.
        mean, std: mean and standard deviation of each channel, for values 0 .. 1. The default is ImageNet's.
            1-channel images need one number each.
        seed: of the augmentation.

    >>> PhotoTrain(size=8, resize=None)([torch.zeros(3, 9, 12, dtype=torch.uint8)], torch.tensor([0]), epoch=0).shape
    torch.Size([1, 3, 8, 8])
    """

    size: int = 224
    resize: int | tuple[int, int] | None = 256
    scale: tuple[float, float] | None = (0.16, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    color_jitter: float = 0.0
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    seed: int = 0

    def __post_init__(self) -> None:
        _shortest("size", self.size)
        shortest = None if self.resize is None else _shortest("resize", self.resize)
        if self.scale is None:
            if shortest is None or shortest < self.size:
                raise ValueError(
                    f"scale=None crops {self.size} pixels: resize must be at least that; got {self.resize}"
                )
        elif not (0 < self.scale[0] <= self.scale[1] <= 1 and 0 < self.ratio[0] <= self.ratio[1]):
            raise ValueError(
                f"scale must be (smallest, largest) in (0, 1], ratio > 0; got {self.scale} and {self.ratio}"
            )
        number(self.flip, "flip is a probability", low=0, high=1)
        number(self.color_jitter, "color_jitter is a fraction", low=0, high=1)
        _need_statistics(self.mean, self.std)
        _ = self._pipeline  # imports torchvision once, here, and not in each worker of each DataLoader

    @cached_property
    def _pipeline(self) -> Callable[[Tensor], Tensor]:
        from torchvision.transforms import v2

        c = self.color_jitter
        crop = v2.RandomResizedCrop(self.size, scale=self.scale or (1, 1), ratio=self.ratio, antialias=True)
        steps = [
            _no_strip if isinstance(self.resize, int) else None,
            None if self.resize is None else v2.Resize(self.resize, antialias=True),
            v2.RandomCrop(self.size) if self.scale is None else crop,
            v2.RandomHorizontalFlip(self.flip) if self.flip else None,
            v2.ColorJitter(brightness=c, contrast=c, saturation=c, hue=min(c / 4, 0.5)) if c else None,
        ]
        return v2.Compose([step for step in steps if step is not None])  # type: ignore[no-any-return]

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size], normalised."""
        _need_images(images, channels=len(self.mean))
        seeds = _keys(self.seed, epoch, index).view(np.int64).tolist()
        with torch.random.fork_rng(devices=[]):  # v2 uses torch's global generator; its state is restored afterwards

            def augmented() -> Iterator[Tensor]:
                for image, seed in zip(images, seeds, strict=True):
                    torch.default_generator.manual_seed(seed)
                    yield self._pipeline(image)

            return _normalised(augmented(), self.mean, self.std)


@dataclass(frozen=True)
class PhotoEval:
    """Resize the shorter side to `resize`, crop `size` x `size` pixels at the centre, normalise.

    Args:
        size: height and width of the result, pixels.
        resize: shorter side before the crop, pixels; or (height, width), which changes the aspect ratio. With a shorter
            side, only the middle of a strip is used, see `STRIP`.
        mean, std: per channel, of values 0 .. 1; the default is ImageNet's.

    >>> PhotoEval(size=8, resize=9)([torch.zeros(3, 9, 12, dtype=torch.uint8)], torch.tensor([0]), epoch=0).shape
    torch.Size([1, 3, 8, 8])
    """

    size: int = 224
    resize: int | tuple[int, int] = 256
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        _shortest("size", self.size)
        if _shortest("resize", self.resize) < self.size:
            raise ValueError(
                f"resize must be >= size, otherwise the crop would be padded; got {self.resize} < {self.size}"
            )
        _need_statistics(self.mean, self.std)

    def _prepared(self, image: Tensor) -> Tensor:
        if not isinstance(self.resize, int):
            return _centre(resized(image, (self.resize[0], self.resize[1])), self.size, self.size)
        image = _no_strip(image)
        height, width = image.shape[-2:]
        return _centre(resized(image, shorter(height, width, self.resize)), self.size, self.size)

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size], normalised; index and epoch are not used."""
        _need_images(images, channels=len(self.mean))
        return _normalised(map(self._prepared, images), self.mean, self.std)


def _normalised(images: Iterable[Tensor], mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Float32 [image, channel, size, size]: (image / 255 - mean) / std."""
    deviation = torch.tensor(std).view(-1, 1, 1)
    factor, offset = 1 / (255 * deviation), -torch.tensor(mean).view(-1, 1, 1) / deviation
    return torch.stack([*images]).mul(factor).add_(offset)


@dataclass(frozen=True)
class Collated:
    """Unchanged rows, joined by torch's default_collate: tensors are stacked, also inside tuples; texts stay a list.

    Args:
        join: list of rows -> batch.

    >>> Collated()([(torch.ones(2), 1), (torch.zeros(2), 2)], torch.tensor([0, 1]), epoch=0)
    [tensor([[1., 1.],
            [0., 0.]]), tensor([1, 2])]
    """

    join: Callable[[list[Any]], Any] = default_collate

    def __call__(self, given: Sequence[Any], index: Tensor, epoch: int) -> Any:
        """Join them."""
        return self.join(list(given))


class Collate:
    """`collate_fn` of a DataLoader: list of (image, label, index) -> (images, labels, index), transformed as a batch.

    If the batch is an `EpochList`, its epoch is used, which is right in every worker (`MPerClassBatchSampler` yields
    `EpochList`s, and `ImageSet` passes them on). For any other sampler call `set_epoch` before each iteration. That
    number is in shared memory, so running workers read it, too.

    Args:
        transform: called as transform(images, index, epoch), e.g. `InkTrain()`.

    >>> collate = Collate(InkEval(size=28))
    >>> images, labels, index = collate([(torch.zeros(1, 28, 28, dtype=torch.uint8), 3, 0)])
    >>> images.shape, labels, index
    (torch.Size([1, 1, 28, 28]), tensor([3]), tensor([0]))
    """

    def __init__(self, transform: Callable[[Any, Tensor, int], Any]) -> None:
        self.transform = transform
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of batches that carry none, for all workers; call it between iterations of the DataLoader."""
        self._epoch.fill_(epoch)

    def __call__(self, samples: Sequence[tuple[Any, int, int]]) -> tuple[Any, Tensor, Tensor]:
        """(images, labels, index): the result of the transform, [row] long and [row] long."""
        epoch = samples.epoch if isinstance(samples, EpochList) else int(self._epoch)
        index = torch.tensor([row for _, _, row in samples], dtype=torch.int64)
        labels = torch.tensor([label for _, label, _ in samples], dtype=torch.int64)
        return self.transform([image for image, _, _ in samples], index, epoch), labels, index


def _no_strip(image: Tensor) -> Tensor:
    """The image, or the middle of one whose longer side is more than `STRIP` times the shorter."""
    height, width = image.shape[-2:]
    most = STRIP * min(height, width)
    return _centre(image, min(height, most), min(width, most))


def _centre(image: Tensor, height: int, width: int) -> Tensor:
    """The middle of an image that is at least as large."""
    top, left = (round((there - wanted) / 2) for there, wanted in zip(image.shape[-2:], (height, width), strict=True))
    return image[..., top : top + height, left : left + width]


def _shortest(name: str, sides: int | Sequence[int]) -> int:
    """The shorter of the sides: one, or (height, width)."""
    each = sides if isinstance(sides, Sequence) else [sides]
    if not 1 <= len(each) <= 2 or not all(type(side) is int and 1 <= side <= LARGEST_SIDE for side in each):
        raise ValueError(
            f"{name} is in pixels, an integer in 1 .. {LARGEST_SIDE} (resize: or height and width); got {sides!r}"
        )
    return min(each)


def _need_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    if len(mean) != len(std) or not all(s > 0 for s in std):
        raise ValueError(f"mean and std need one number per channel, std > 0; got mean={mean}, std={std}")


def _need_images(images: Sequence[Tensor], channels: int | None = None) -> None:
    if not images:
        raise ValueError("a transform needs at least one image; got an empty batch")
    for image in images:
        if image.dtype != torch.uint8 or image.ndim != 3 or channels not in (None, image.shape[0]):
            raise TypeError(
                f"images must be uint8 [channel, height, width], with a channel for each mean and std ({channels}); "
                f"got {image.dtype} {tuple(image.shape)}. Load them with channels=, or set mean and std to match"
            )


__all__ = ["Transform", "InkTrain", "InkEval", "PhotoTrain", "PhotoEval", "Collate", "Collated"]
