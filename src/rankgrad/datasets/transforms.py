"""Images of a batch -> float tensor, with augmentation that depends on (seed, epoch, image) and on nothing else.

A transform is called as `transform(images, index, epoch)` with a list of uint8 [channel, height, width] tensors, their
row numbers in the table, [image] long, and the epoch; it gives float32 [image, channel, height, width]. Neither the
other images of the batch, nor the number of workers, nor torch's global generator enters: a resumed run, or one with
more workers, sees the same pixels.

`Ink*` are for drawings and characters (ink bright on dark, any number of channels), `Photo*` for photographs. `Texts`
and `Vectors` take what is no image as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import default_collate, get_worker_info

from .delivery import lend, send
from .samplers import EpochList

Padding = Literal["zeros", "border", "reflection"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Transform(Protocol):
    """A transform as `Collate` calls it: images of a batch -> float32 [image, channel, height, width]."""

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Transform the images whose rows in the table are `index`, [image] long, for `epoch`."""
        ...


def counter_uniform(seed: int, epoch: int, index: Tensor, n: int) -> Tensor:
    """Uniform numbers in [0, 1) that are a function of (seed, epoch, index, column) and have no state.

    A hash in place of a generator: seed, epoch and index are folded into a 64-bit key by the output function of
    splitmix64 (Steele, Lea and Flood, OOPSLA 2014), and row b is the splitmix64 stream of its key. The top 24 bits
    become the float32, so 1 is never reached. Integer arithmetic: the same on every machine.

    Args:
        seed: integer, taken modulo 2**64.
        epoch: integer, taken modulo 2**64.
        index: [image] long; a row of the result depends on its own entry alone.
        n: numbers per image.

    Returns:
        [image, n] float32 on CPU.

    Raises:
        TypeError: if index is not a 1-d integer tensor.

    >>> counter_uniform(0, 0, torch.tensor([5, 6]), 2)
    tensor([[0.8621, 0.5052],
            [0.0773, 0.1316]])
    >>> counter_uniform(0, 0, torch.tensor([6]), 2)
    tensor([[0.0773, 0.1316]])
    """
    if index.ndim != 1 or index.dtype.is_floating_point or index.dtype == torch.bool:
        raise TypeError(f"index must be [image] integers; got {index.dtype} {tuple(index.shape)}")
    bits = _splitmix(_keys(seed, epoch, index)[:, None] + np.arange(1, n + 1, dtype=np.uint64) * _GAMMA)
    return torch.from_numpy((bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24))


def _keys(seed: int, epoch: int, index: Tensor) -> npt.NDArray[np.uint64]:
    key = np.zeros(1, dtype=np.uint64)  # arrays wrap around silently, as wanted; numpy scalars would warn
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
    padding: Padding = "zeros",
) -> Tensor:
    """Every image under its own affine map and smooth displacement, sampled once (bilinear).

    Args:
        images: [image, channel, height, width] float.
        size: height and width of the result.
        angle: [image] radians.
        scale: [image] > 0; 1.1 makes the content 10 % larger.
        shear: [image] x displacement per unit of y.
        shift: [image, 2] (x, y) as a fraction of the frame.
        field: [image, 2, control, control] displacements (x, y) of a square grid of control points, as a fraction
            of the frame, with bicubic interpolation between them; None for none.
        padding: what lies outside the frame, as in `torch.nn.functional.grid_sample`.

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
    # the map from output to input: rows of rotation(-angle) / scale, then the shear
    matrix = torch.stack([cos, sin + shear * cos, -2 * shift[:, 0], -sin, cos - shear * sin, -2 * shift[:, 1]], dim=1)
    grid = F.affine_grid(matrix.view(-1, 2, 3), [len(images), 1, size, size], align_corners=False)
    if field is not None:
        basis = _bicubic_basis(field.shape[-1], size)
        grid = grid + 2 * torch.einsum("yi,ndij,xj->nyxd", basis, field, basis)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode=padding, align_corners=False)


@cache
def _bicubic_basis(control: int, size: int) -> Tensor:
    """[size, control] weights of the control points: bicubic interpolation is linear and separable."""
    eye = torch.eye(control).view(control, 1, control, 1)
    rows = F.interpolate(eye, size=(size, 1), mode="bicubic", align_corners=True)
    return rows.view(control, size).t().contiguous()


@dataclass(frozen=True)
class InkTrain:
    """Random affine map, elastic displacement and stroke width for drawings and characters; values 0 .. 1.

    Each amount is drawn evenly from [-amount, amount]; 0 switches it off. An image of another size is resized to
    `size` x `size` first (antialiased, aspect not kept).

    Args:
        size: height and width of the result, pixels.
        degrees: rotation.
        scale: zoom, 0.2 for 0.8 to 1.2.
        shear: x displacement per unit of y.
        shift: of x and of y, as a fraction of the frame.
        elastic: displacement of a 4 x 4 grid of control points, as a fraction of the frame.
        stroke: share of the images whose strokes change: half of them become wider (mixed with the maximum of the
            3 x 3 neighbourhood), half thinner (with the minimum). Its weight is drawn from 0 .. 0.5: the full minimum
            would wipe out strokes of 1 or 2 pixels.
        padding: what lies outside the frame: "zeros" for clean ink on an empty ground, "border" or "reflection" for a
            ground that is not black.
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
    padding: Padding = "zeros"
    seed: int = 0

    def __post_init__(self) -> None:
        _need_size(self.size)
        for name in ("degrees", "scale", "shear", "shift", "elastic"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is the largest amount and must be >= 0; got {getattr(self, name)}")
        if not self.scale < 1:
            raise ValueError(f"scale must be < 1 (0.2 zooms by 0.8 to 1.2); got {self.scale}")
        if not 0 <= self.stroke <= 1:
            raise ValueError(f"stroke is a share of the images, 0 .. 1; got {self.stroke}")
        if self.padding not in ("zeros", "border", "reflection"):
            raise ValueError(f"padding must be 'zeros', 'border' or 'reflection'; got {self.padding!r}")

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size] in 0 .. 1."""
        batch = _stack_ink(images, self.size)
        u = counter_uniform(self.seed, epoch, index, 7 + 2 * _CONTROL**2)
        even = 2 * u - 1  # [-1, 1)
        if self.stroke:
            batch = _change_stroke(batch, self.stroke, kind=u[:, 5], amount=u[:, 6])
        warped = warp(
            batch,
            self.size,
            angle=even[:, 0] * math.radians(self.degrees),
            scale=1 + self.scale * even[:, 1],
            shear=self.shear * even[:, 2],
            shift=self.shift * even[:, 3:5],
            field=self.elastic * even[:, 7:].view(-1, 2, _CONTROL, _CONTROL) if self.elastic else None,
            padding=self.padding,
        )
        return warped.clamp_(0, 1)  # rounding may leave the range by 1e-7


_CONTROL = 4  # control points of the elastic displacement, per side


@dataclass(frozen=True)
class InkEval:
    """Drawings and characters as they are, resized to `size` x `size` if they are not, values 0 .. 1.

    >>> InkEval(size=2)([torch.full((1, 2, 2), 255, dtype=torch.uint8)], torch.tensor([0]), epoch=0)
    tensor([[[[1., 1.],
              [1., 1.]]]])
    """

    size: int = 28

    def __post_init__(self) -> None:
        _need_size(self.size)

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size] in 0 .. 1; index and epoch are not used."""
        return _stack_ink(images, self.size)


def _stack_ink(images: Sequence[Tensor], size: int) -> Tensor:
    _need_images(images)
    if all(image.shape == images[0].shape for image in images):
        return _resize(torch.stack(list(images)), size)
    return torch.cat([_resize(image[None], size) for image in images])


def _resize(images: Tensor, size: int) -> Tensor:
    scaled = images.float() / 255
    if images.shape[-2:] == (size, size):
        return scaled
    return F.interpolate(scaled, size=(size, size), mode="bilinear", antialias=True, align_corners=False)


def _change_stroke(images: Tensor, share: float, kind: Tensor, amount: Tensor) -> Tensor:
    """Mix a share of the images with the maximum (half of them) or minimum of each 3 x 3 neighbourhood."""
    changed = images.clone()
    for chosen, sign in ((kind < share / 2, 1), ((kind >= share / 2) & (kind < share), -1)):
        rows = chosen.nonzero().squeeze(1)
        if len(rows):
            before = images[rows]
            extreme = sign * F.max_pool2d(sign * before, 3, stride=1, padding=1)
            changed[rows] = torch.lerp(before, extreme, amount[rows].view(-1, 1, 1, 1) / 2)
    return changed


@dataclass(frozen=True)
class PhotoTrain:
    """Random crop, flip and colour change for photographs, normalised: resize, crop a random part to `size` x `size`.

    The defaults are those of ROADMAP's code and of most retrieval papers. Uses torchvision.transforms.v2, each image
    under its own generator state.

    Args:
        size: height and width of the result, pixels.
        resize: shorter side before the crop, pixels; or (height, width), aspect not kept, as RaMBO and PNP do with
            (256, 256); None leaves the image as it is.
        scale: smallest and largest area of the crop, as a fraction of the image; the crop is resized to `size`. None:
            a crop of `size` x `size` pixels at a random place, not resized; `resize` must then make room for it.
        ratio: smallest and largest width / height of a crop that is resized.
        flip: probability of a horizontal flip.
        color_jitter: largest change of brightness, contrast and saturation, as a fraction (hue: a quarter of it, at
            most 0.5); 0 for none.
        mean, std: per channel, of values 0 .. 1; the default is ImageNet's. One number each for 1-channel images.
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
        _need_size(self.size)
        shortest = None if self.resize is None else _shortest(self.resize)
        if self.scale is None:
            if shortest is None or shortest < self.size:
                raise ValueError(
                    f"scale=None cuts {self.size} x {self.size} pixels out of the image: resize it to no less than "
                    f"that; got resize={self.resize}"
                )
        elif not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale is (smallest, largest) area of the crop, within (0, 1]; got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio is (smallest, largest) width / height of the crop, > 0; got {self.ratio}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip is a probability, 0 .. 1; got {self.flip}")
        if not 0 <= self.color_jitter <= 1:
            raise ValueError(f"color_jitter is a fraction, 0 .. 1; got {self.color_jitter}")
        _need_statistics(self.mean, self.std)
        _ = self._pipeline  # torchvision is imported now, once, and not by each worker of each DataLoader

    @cached_property
    def _pipeline(self) -> Callable[[Tensor], Tensor]:
        from torchvision.transforms import v2

        steps: list[Any] = [] if self.resize is None else [v2.Resize(self.resize, antialias=True)]
        if self.scale is None:
            steps.append(v2.RandomCrop(self.size))
        else:
            steps.append(v2.RandomResizedCrop(self.size, scale=self.scale, ratio=self.ratio, antialias=True))
        if self.flip:
            steps.append(v2.RandomHorizontalFlip(self.flip))
        if self.color_jitter:
            c = self.color_jitter
            steps.append(v2.ColorJitter(brightness=c, contrast=c, saturation=c, hue=min(c / 4, 0.5)))
        pipeline: Callable[[Tensor], Tensor] = v2.Compose(steps)
        return pipeline

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size], normalised."""
        _need_images(images, channels=len(self.mean))
        seeds = _keys(self.seed, epoch, index).view(np.int64).tolist()
        with torch.random.fork_rng(devices=[]):  # v2 draws from torch's global generator; it gets its state back

            def augmented() -> Iterator[Tensor]:
                for image, seed in zip(images, seeds, strict=True):
                    torch.default_generator.manual_seed(seed)
                    yield self._pipeline(image)

            return _normalised(augmented(), len(images), self.size, self.mean, self.std)


@dataclass(frozen=True)
class PhotoEval:
    """Shorter side to `resize`, centre crop of `size` x `size`, normalised.

    Args:
        size: height and width of the result, pixels.
        resize: shorter side before the crop, pixels; or (height, width), aspect not kept.
        mean, std: per channel, of values 0 .. 1; the default is ImageNet's.

    >>> PhotoEval(size=8, resize=9)([torch.zeros(3, 9, 12, dtype=torch.uint8)], torch.tensor([0]), epoch=0).shape
    torch.Size([1, 3, 8, 8])
    """

    size: int = 224
    resize: int | tuple[int, int] = 256
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __post_init__(self) -> None:
        _need_size(self.size)
        if _shortest(self.resize) < self.size:
            raise ValueError(f"resize must be >= size, else the crop would be padded; got {self.resize} < {self.size}")
        _need_statistics(self.mean, self.std)
        _ = self._pipeline  # as in PhotoTrain

    @cached_property
    def _pipeline(self) -> Callable[[Tensor], Tensor]:
        from torchvision.transforms import v2

        steps = [v2.Resize(self.resize, antialias=True), v2.CenterCrop(self.size)]
        pipeline: Callable[[Tensor], Tensor] = v2.Compose(steps)
        return pipeline

    def __call__(self, images: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Float32 [image, channel, size, size], normalised; index and epoch are not used."""
        _need_images(images, channels=len(self.mean))
        return _normalised(map(self._pipeline, images), len(images), self.size, self.mean, self.std)


def _normalised(images: Iterable[Tensor], count: int, size: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Float32 [image, channel, size, size]: (image / 255 - mean) / std, each image while it is in the cache.

    The batch is written once and never copied. In a DataLoader's worker it lies in shared memory from the start.
    """
    deviation = torch.tensor(std).view(-1, 1, 1)
    factor, offset = 1 / (255 * deviation), -torch.tensor(mean).view(-1, 1, 1) / deviation
    batch = _empty((count, len(mean), size, size))
    for place, image in zip(batch, images, strict=True):
        torch.mul(image, factor, out=place).add_(offset)
    return batch


def _empty(shape: tuple[int, ...]) -> Tensor:
    """Float32 memory for a batch; shared where a worker has to hand it to another process."""
    if get_worker_info() is None:
        return torch.empty(shape)
    return lend(shape)


@dataclass(frozen=True)
class Texts:
    """Texts as they are.

    >>> Texts()(["where is my card"], torch.tensor([0]), epoch=0)
    ['where is my card']
    """

    def __call__(self, texts: Sequence[str], index: Tensor, epoch: int) -> list[str]:
        """Return the texts of a batch, for a model that reads texts."""
        return list(texts)


@dataclass(frozen=True)
class Vectors:
    """Vectors as they are: [row, width] of the rows of a batch.

    >>> Vectors()([torch.ones(2), torch.zeros(2)], torch.tensor([0, 1]), epoch=0)
    tensor([[1., 1.],
            [0., 0.]])
    """

    def __call__(self, vectors: Sequence[Tensor], index: Tensor, epoch: int) -> Tensor:
        """Stack them."""
        return torch.stack(list(vectors))


@dataclass(frozen=True)
class Collated:
    """Rows as torch's own DataLoader joins them: tensors are stacked, tuples and dicts of them too; texts stay a list.

    >>> Collated()([(torch.ones(2), 1), (torch.zeros(2), 2)], torch.tensor([0, 1]), epoch=0)
    [tensor([[1., 1.],
            [0., 0.]]), tensor([1, 2])]
    """

    def __call__(self, given: Sequence[Any], index: Tensor, epoch: int) -> Any:
        """Join them."""
        return default_collate(list(given))


class Collate:
    """`collate_fn` of a DataLoader: list of (image, label, index) -> (images, labels, index), transformed as a batch.

    The epoch comes with the batch if the batch carries one (`MPerClassBatchSampler` yields `EpochList`s, `ImageSet`
    hands them on): no worker can be late. For any other sampler call `set_epoch` before iterating; the number lies in
    shared memory, so workers that are already running read it too.

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
        """Epoch of batches that carry none, for all workers; call it between iterations of the DataLoader."""
        self._epoch.fill_(epoch)

    def __call__(self, samples: Sequence[tuple[Any, int, int]]) -> tuple[Any, Tensor, Tensor]:
        """Images float32 [image, channel, height, width], or what the transform gives; labels and index [row] long."""
        epoch = samples.epoch if isinstance(samples, EpochList) else int(self._epoch)
        index = torch.tensor([row for _, _, row in samples], dtype=torch.int64)
        labels = torch.tensor([label for _, label, _ in samples], dtype=torch.int64)
        images = self.transform([image for image, _, _ in samples], index, epoch)
        if get_worker_info() is not None and isinstance(images, Tensor):
            images = send(images)
        return images, labels, index


def _need_size(size: int, name: str = "size") -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"{name} is in pixels and must be an integer >= 1; got {size!r}")


def _shortest(resize: int | Sequence[int]) -> int:
    """The shorter side that an image has after resizing to a shorter side, or to (height, width)."""
    if not isinstance(resize, Sequence):
        _need_size(resize, "resize")
        return resize
    if len(resize) != 2:
        raise ValueError(f"resize is a shorter side or (height, width), pixels; got {resize!r}")
    for side in resize:
        _need_size(side, "resize")
    return min(resize)


def _need_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    if len(mean) != len(std) or not all(s > 0 for s in std):
        raise ValueError(f"mean and std need one number per channel, std > 0; got mean={mean}, std={std}")


def _need_images(images: Sequence[Tensor], channels: int | None = None) -> None:
    if not images:
        raise ValueError("a transform needs at least one image; got an empty batch")
    for image in images:
        if image.dtype != torch.uint8 or image.ndim != 3:
            raise TypeError(
                f"images must be uint8 [channel, height, width]; got {image.dtype} {tuple(image.shape)}. "
                "Floats are made by the transform itself."
            )
        if channels is not None and image.shape[0] != channels:
            raise ValueError(
                f"mean and std are given for {channels} channels, an image has {image.shape[0]}. "
                "Load the images with that many channels, or set mean and std to match."
            )
