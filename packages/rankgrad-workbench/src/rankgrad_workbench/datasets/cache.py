"""A cache of decoded images, in memory or in a file that is mapped into it. Only the first epoch decodes them.

The name of a file has a hash of all that its pixels depend on: names, sizes and times of the image files, settings, and
versions of the decoders. A json beside it has the shapes of the images, and is written when all pixels are.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rankgrad.common.checks import setting
from rankgrad.common.files import read_text
from rankgrad.common.progress import through

from ..files import atomic_write, write_text
from ..files.folders import alone

T = TypeVar("T")
Shape = tuple[int, int, int]  # channels, height, width
TRIED = 64  # images by whose size the space for all of them is estimated
PART = 1024  # images that wait in memory at most


class CacheWarning(UserWarning):
    """A cache file is damaged. It is built again."""


class Pixels:
    """Images of different sizes, stored one after the other in one tensor or in one file.

    The workers of a DataLoader do not copy the memory. Forked workers share it; other workers get it as torch's shared
    memory. Each process maps a file by itself.

    Args:
        shapes: [image] (channels, height, width).
        starts: [image] position of its first byte.
        memory: [byte] uint8, rows of pixels, or the file that holds them.

    >>> pixels = Pixels([(1, 1, 2), (1, 1, 1)], [0, 2], torch.tensor([7, 8, 9], dtype=torch.uint8))
    >>> pixels[0], pixels.take([1])[0]
    (tensor([[[7, 8]]], dtype=torch.uint8), tensor([[[9]]], dtype=torch.uint8))
    """

    def __init__(self, shapes: Sequence[Shape], starts: Sequence[int], memory: Tensor | Path) -> None:
        self.shapes, self.starts, self.memory = list(shapes), list(starts), memory
        self._map: Any = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.shapes)

    def __getitem__(self, row: int) -> Tensor:
        """A copy of an image, uint8 [channel, height, width]."""
        if self._map is None:
            memory = self.memory
            self._map = memory.numpy() if isinstance(memory, Tensor) else np.memmap(memory, dtype=np.uint8, mode="r")
        channels, height, width = self.shapes[row]
        image = np.array(self._map[self.starts[row] : self.starts[row] + channels * height * width])
        return torch.from_numpy(image).view(height, width, channels).permute(2, 0, 1)

    def take(self, rows: Sequence[int]) -> Pixels:
        """The given rows in the given order. They share the memory or the file."""
        return Pixels([self.shapes[row] for row in rows], [self.starts[row] for row in rows], self.memory)

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return sum(map(math.prod, self.shapes))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}  # each process maps the file itself


def in_memory(count: int, read: Callable[[int], Tensor]) -> Pixels:
    """Read all images into memory.

    Args:
        count: number of images.
        read: number of an image -> uint8 [channel, height, width].

    Raises:
        ValueError: if there is too little memory, by the size of the first images.
    """
    memory, free = bytearray(), free_memory()
    spare = None if free is None else int(0.9 * free)
    shapes = _fill(count, read, memory.extend, spare)
    return Pixels(shapes, _starts(shapes), torch.frombuffer(memory, dtype=torch.uint8))


def on_disk(folder: Path, name: str, identity: str, count: int, read: Callable[[int], Tensor]) -> Pixels:
    """The images of a cache file, which is written first if it does not exist. Other processes that need it wait.

    Args:
        folder: of the cache.
        name: begin of the file's name. Files of this name and of another identity are deleted.
        identity: everything that the pixels depend on.
        count: number of images.
        read: number of an image -> uint8 [channel, height, width].

    Raises:
        ValueError: if the disk has too little space, by the size of the first images.
        OSError: if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    path = folder / f"{name}-{sha256(identity.encode()).hexdigest()[:16]}.pixels"
    about = path.with_suffix(".json")
    with alone(folder / f"{name}.lock"):
        shapes = _shapes(path, about)
        if shapes is None:
            for old in (*folder.glob(f"{escape(name)}-*"), *folder.glob(f".{escape(name)}-*")):
                old.unlink()
            with atomic_write(path) as file:
                shapes = _fill(count, read, file.write, shutil.disk_usage(folder).free)
            write_text(about, json.dumps(shapes))
    return Pixels(shapes, _starts(shapes), path)


def default_folder() -> Path:
    """Return the default folder of caches: $XDG_CACHE_HOME/rankgrad, else ~/.cache/rankgrad."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "rankgrad")


def in_threads(function: Callable[[int], T], count: int, title: str) -> Iterable[T]:
    """Function(0), function(1), ... in order, computed by threads. Threads help because decoders release Python's lock.

    Args:
        function: number -> result.
        count: number of calls.
        title: of the progress bar.
    """
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    parts = (range(at, min(at + PART, count)) for at in range(0, count, PART))
    try:
        yield from through((each for part in parts for each in pool.map(function, part)), title, "image", count)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the remaining files


def free_memory() -> int | None:
    """Free memory of the machine and of its container, in bytes, the smaller of the two; None: unknown."""
    free, group = list[int](), Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
        free += [] if found is None else [1024 * int(found[1])]
    with contextlib.suppress(OSError, ValueError):  # no such group; "max": no limit
        most, now = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        free.append(max(0, most - now))
    return min(free, default=None)


def _starts(shapes: Sequence[Shape]) -> list[int]:
    """[image] position of its first byte."""
    return [0, *itertools.accumulate(map(math.prod, shapes))][: len(shapes)]


def _fill(count: int, read: Callable[[int], Tensor], write: Callable[[bytes], Any], free: int | None) -> list[Shape]:
    """Read all images, and write the pixels of each; returns their shapes."""
    shapes, size = list[Shape](), 0
    for image in in_threads(read, count, "caching images"):
        pixels = image.permute(1, 2, 0).numpy().tobytes()
        channels, height, width = image.shape
        shapes.append((channels, height, width))
        size += len(pixels)
        if free is not None and len(shapes) == min(count, TRIED) and size / len(shapes) * count > free:
            raise ValueError(
                f"a cache of {count} images needs about {size / len(shapes) * count / 1e6:.3g} MB; {free / 1e6:.3g} MB "
                f"are free. Choose another {setting('cache')}, {setting('cache_dir')} or {setting('shorter_side')}"
            )
        write(pixels)
    return shapes


def _shapes(path: Path, about: Path) -> list[Shape] | None:
    """The shapes of the images of a cache file; None if the file does not exist, or is damaged."""
    if not about.exists():
        return None
    try:
        shapes = [(int(c), int(h), int(w)) for c, h, w in json.loads(read_text(about))]
        if not path.is_file() or path.stat().st_size != sum(map(math.prod, shapes)):
            raise ValueError("its length is wrong")
    except (OSError, TypeError, ValueError) as error:
        warnings.warn(f"the cache {path} is damaged ({error}). It is built again", CacheWarning, stacklevel=2)
        return None
    return shapes
