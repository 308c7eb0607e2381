"""A cache of decoded images, in memory or in one file. Only the first epoch decodes them.

A cache file is always checked. It holds a hash of its sources (names, sizes and times of the image files, settings,
versions of the decoders) and a checksum of each image. A file with another hash, or a damaged file, is built again. The
checksum of an image is compared when a process first reads this image. So even a large cache can be used at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import shutil
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..common.checks import setting
from ..common.files import atomic_write, open_file, remove_leftovers
from ..common.files.folders import alone
from ..common.progress import through

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
Shape = tuple[int, int, int]  # channels, height, width

MAGIC = b"rankgrad pixels\n"
_PAGE = 4096  # bytes; the pixels begin at a multiple of the page size


class CacheWarning(UserWarning):
    """A cache file is damaged. It is built again."""


class DamageError(Exception):
    """A cache file has changed since it was written; the message says what is wrong."""


class Pixels:
    """Images of different sizes, stored one after the other in one tensor or in one file.

    The workers of a DataLoader do not copy the memory. Forked workers share it; other workers get it as torch's shared
    memory. Each process maps a file by itself.

    Args:
        shapes: [image] (channels, height, width).
        starts: [image] position of its first byte.
        memory: [byte] uint8, rows of pixels; or
        path: file that holds these bytes from `offset` on.
        offset: of the first image in the file.
        checksums: [image] uint32, CRC-32 of each image; None: images are not checked.

    >>> pixels = Pixels([(1, 1, 2), (1, 1, 1)], [0, 2], memory=torch.tensor([7, 8, 9], dtype=torch.uint8))
    >>> pixels[0], pixels.take([1])[0]
    (tensor([[[7, 8]]], dtype=torch.uint8), tensor([[[9]]], dtype=torch.uint8))
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        starts: Sequence[int],
        *,
        memory: Tensor | None = None,
        path: Path | None = None,
        offset: int = 0,
        checksums: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        if (memory is None) == (path is None):
            raise ValueError("pixels are stored either in memory= or in a file (path=): give exactly one of them")
        self.shapes, self.starts = list(shapes), list(starts)
        self.memory, self.path, self.offset = memory, path, offset
        self.checksums, self._right = checksums, np.zeros(len(self.shapes), dtype=bool)
        self._map: Bytes | None = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.shapes)

    def __getitem__(self, row: int) -> Tensor:
        """A copy of an image, uint8 [channel, height, width].

        Raises:
            DamageError: its checksum is wrong.
        """
        channels, height, width = self.shapes[row]
        start = self.starts[row]
        image = np.array(self.mapped()[start : start + channels * height * width])
        if self.checksums is not None and not self._right[row]:
            if zlib.crc32(image.data) != self.checksums[row]:
                raise DamageError(f"the cache {self.path} is damaged: the checksum of its image {row} is wrong")
            self._right[row] = True
        return torch.from_numpy(image).view(height, width, channels).permute(2, 0, 1)

    def take(self, rows: Sequence[int]) -> Pixels:
        """The given rows in the given order. They share the memory or the file."""
        shapes, starts = [self.shapes[row] for row in rows], [self.starts[row] for row in rows]
        sums = None if self.checksums is None else self.checksums[list(rows)]
        return Pixels(shapes, starts, memory=self.memory, path=self.path, offset=self.offset, checksums=sums)

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return sum(map(math.prod, self.shapes))

    def mapped(self) -> Bytes:
        """All bytes; those of a file are read-only."""
        if self._map is None:
            if self.memory is not None:
                self._map = self.memory.numpy()
            else:
                self._map = np.memmap(str(self.path), dtype=np.uint8, mode="r", offset=self.offset)
        return self._map

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}  # each process maps the file itself


def in_memory(sizes: Sequence[int], read: Callable[[int], Tensor]) -> Pixels:
    """Read all images into memory.

    Args:
        sizes: [image] bytes of the result of `read`.
        read: number of an image -> uint8 [channel, height, width].

    Raises:
        ValueError: if there is too little memory. This is checked before any image is read.
    """
    total, free = sum(sizes), free_memory()
    if free is not None and total > 0.9 * free:
        raise ValueError(
            f"a cache of {len(sizes)} images in memory needs {_size(total)}; {_size(free)} are free, of which a tenth "
            f"must stay free. Cache them on disk ({setting('cache', 'disk')}), cache smaller images "
            f"({setting('shorter_side')}), or use no cache ({setting('cache', 'none')})"
        )
    memory = torch.empty(total, dtype=torch.uint8)
    shapes, _ = _fill(memory.numpy(), sizes, read)
    return Pixels(shapes, _starts(sizes), memory=memory)


def on_disk(path: Path, identity: str, sizes: Callable[[], Sequence[int]], read: Callable[[int], Tensor]) -> Pixels:
    """Map the images of a cache file into memory. The file is written first if it does not exist or does not fit.

    It is written under a temporary name and renamed when it is complete. Other processes that need the same file wait.
    Temporary files of killed processes are removed.

    Args:
        path: of the file.
        identity: everything that the pixels depend on. A file with another identity is replaced.
        sizes: () -> [image] bytes of the result of `read`; called only if the file is written.
        read: number of an image -> uint8 [channel, height, width].

    Raises:
        OSError: if the disk has too little space, or the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    key = sha256(identity.encode()).hexdigest()
    with alone(path.with_name(f"{path.name}.lock")):
        kept = _opened(path, key)
        if kept is not None:
            return kept
        remove_leftovers(path.parent, path.name)
        return _written(path, key, sizes(), read)


def file_name(name: str, *parts: object) -> str:
    """A file name: `name`, which a person recognises, and a hash of the parts.

    >>> file_name("my photos", "/data/my photos", 256)
    'my_photos-cf06d2975536.pixels'
    """
    digest = sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}-{digest}.pixels"


def default_folder() -> Path:
    """Return the default folder of caches: $XDG_CACHE_HOME/rankgrad, else ~/.cache/rankgrad."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "rankgrad" if home else Path.home() / ".cache" / "rankgrad"


def in_threads(function: Callable[[int], T], count: int, title: str) -> Iterable[T]:
    """Function(0), function(1), ... in order, computed by threads. Threads help because decoders release Python's lock.

    Args:
        function: number -> result.
        count: number of calls.
        title: of the progress bar.
    """
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        yield from through(pool.map(function, range(count)), title, "image", count)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the remaining files


def free_memory() -> int | None:
    """Free memory of the machine and of its container, in bytes, the smaller of the two; None: unknown."""
    limits = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    if not limits:
        with contextlib.suppress(OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such group; "max": no limit
            most, now = (int(Path(folder, name).read_text()) for name in (limit, used))
            stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            files = stat.get("inactive_file", stat.get("total_inactive_file", "0"))  # the kernel frees it when needed
            limits.append(max(0, most - now + int(files)))
    return min(limits) if limits else None


def _starts(sizes: Sequence[int]) -> list[int]:
    """[image] position of its first byte."""
    return [0, *itertools.accumulate(sizes)][: len(sizes)]


def _fill(
    memory: Bytes, sizes: Sequence[int], read: Callable[[int], Tensor]
) -> tuple[list[Shape], npt.NDArray[np.uint32]]:
    """Read all images into `memory`; returns their shapes and checksums."""
    starts = _starts(sizes)

    def one(row: int) -> tuple[Shape, int]:
        image = read(row)
        if image.numel() != sizes[row]:
            raise OSError(
                f"image {row} now has {image.numel()} values, but had {sizes[row]} before; its file may have changed"
            )
        place = memory[starts[row] : starts[row] + sizes[row]]
        place[:] = image.permute(1, 2, 0).numpy().reshape(-1)
        channels, height, width = image.shape
        return (channels, height, width), zlib.crc32(place.data)

    done = list(in_threads(one, len(sizes), "caching images"))
    return [shape for shape, _ in done], np.array([checksum for _, checksum in done], dtype=np.uint32)


# The cache file: MAGIC, length of the rest of the head, checksum of that rest, head (JSON), shapes, checksums of the
# images. The pixels follow from the next page on.


def _head(key: str, shapes: Sequence[Shape], checksums: npt.NDArray[np.uint32]) -> bytes:
    about = json.dumps({"key": key, "images": len(shapes)}).encode()
    table = np.array(shapes, dtype="<i4").reshape(-1, 3).tobytes() + checksums.astype("<u4").tobytes()
    rest = struct.pack("<I", len(about)) + about + table
    return MAGIC + struct.pack("<QI", len(rest), zlib.crc32(rest)) + rest


def _offset(head: int) -> int:
    """Return the position of the first pixel.

    Args:
        head: bytes of the head.
    """
    return -(-head // _PAGE) * _PAGE


def _written(path: Path, key: str, sizes: Sequence[int], read: Callable[[int], Tensor]) -> Pixels:
    count, total = len(sizes), sum(sizes)
    offset = _offset(len(_head(key, [(0, 0, 0)] * count, np.zeros(count, dtype=np.uint32))))
    free = shutil.disk_usage(path.parent).free
    if offset + total > free:
        raise OSError(
            f"a cache of {count} images in {path.parent} needs {_size(offset + total)}; {_size(free)} are free. "
            f"Choose a folder on another disk ({setting('cache_dir', 'DIR')}), or cache smaller images "
            f"({setting('shorter_side')})"
        )
    with atomic_write(path) as file:
        if hasattr(os, "posix_fallocate"):  # raises now if the disk is full; writing to the map would kill the process
            os.posix_fallocate(file.fileno(), 0, offset + total)
        else:
            file.truncate(offset + total)
        memory: np.memmap[Any, np.dtype[np.uint8]] = np.memmap(
            file, dtype=np.uint8, mode="r+", offset=offset, shape=(total,)
        )
        shapes, checksums = _fill(memory, sizes, read)
        memory.flush()
        file.seek(0)
        file.write(_head(key, shapes, checksums))
    return Pixels(shapes, _starts(sizes), path=path, offset=offset, checksums=checksums)


def _opened(path: Path, key: str) -> Pixels | None:
    """The images of a cache file; None if the file does not exist, has another key, or is damaged."""
    try:
        return _checked(path, key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, struct.error, DamageError) as error:
        warnings.warn(f"the cache {path} is damaged ({error}). It is built again", CacheWarning, stacklevel=2)
        return None


def _checked(path: Path, key: str) -> Pixels | None:
    with open_file(path) as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise DamageError("its first bytes are wrong")
        length, checksum = struct.unpack("<QI", file.read(12))
        rest = file.read(min(length, path.stat().st_size))
    if len(rest) != length or zlib.crc32(rest) != checksum:
        raise DamageError("the checksum of its head is wrong")
    (end,) = struct.unpack_from("<I", rest)
    about = json.loads(rest[4 : 4 + end])
    if about["key"] != key:
        return None
    count = about["images"]
    table = np.frombuffer(rest, dtype="<i4", offset=4 + end, count=3 * count).reshape(-1, 3)
    checksums = np.frombuffer(rest, dtype="<u4", offset=4 + end + table.nbytes, count=count)
    shapes = [(int(c), int(h), int(w)) for c, h, w in table]
    sizes = [math.prod(shape) for shape in shapes]
    starts, offset = _starts(sizes), _offset(len(MAGIC) + 12 + length)
    if path.stat().st_size != offset + sum(sizes):
        raise DamageError("its length is wrong")
    return Pixels(shapes, starts, path=path, offset=offset, checksums=checksums)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
