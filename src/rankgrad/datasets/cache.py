"""Decoded images kept in memory or in one file, so that every epoch but the first does without decoding.

A cache is never trusted: the file holds what it was made of (names, sizes and times of the image files, settings,
versions of the decoders) and a checksum of each image; one that does not fit or is not whole is built again. An image
is held to its checksum when a process first reads it, so that a large cache can be used at once.
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

from ..checks import setting
from ..files import atomic_write, remove_leftovers
from ..files.folders import alone
from ..progress import through

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]
Shape = tuple[int, int, int]  # channels, height, width

MAGIC = b"rankgrad pixels\n"
_PAGE = 4096  # the pixels begin on a page of the memory map


class CacheWarning(UserWarning):
    """A cache file was damaged; it is built again."""


class DamageError(Exception):
    """A cache file is not as it was written; the message says how."""


class Pixels:
    """Images of different sizes, one after the other in one piece of memory or in one file; rows can be picked.

    The memory is not copied for the processes of a DataLoader: forked ones share it, others get it as torch's shared
    memory; a file is mapped by each.

    Args:
        shapes: [image] (channels, height, width).
        starts: [image] where its first byte is.
        memory: [byte] uint8, rows of pixels; or
        path: file that holds these bytes from `offset` on.
        offset: of the first image in the file.
        checksums: [image] uint32, CRC-32 of each; None: nobody looks.

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
            raise ValueError("pixels lie either in memory or in a file: give one of them")
        self.shapes, self.starts = list(shapes), list(starts)
        self.memory, self.path, self.offset = memory, path, offset
        self.checksums, self._right = checksums, np.zeros(len(self.shapes), dtype=bool)
        self._map: Bytes | None = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.shapes)

    def __getitem__(self, row: int) -> Tensor:
        """Uint8 [channel, height, width] of its own: writing to it changes nothing here.

        Raises:
            DamageError: it is not what was written.
        """
        channels, height, width = self.shapes[row]
        start = self.starts[row]
        image = np.array(self.mapped()[start : start + channels * height * width])
        if self.checksums is not None and not self._right[row]:
            if zlib.crc32(image.data) != self.checksums[row]:
                raise DamageError(f"the cache {self.path} is damaged: its image {row} is not what was written")
            self._right[row] = True
        return torch.from_numpy(image).view(height, width, channels).permute(2, 0, 1)

    def take(self, rows: Sequence[int]) -> Pixels:
        """The given rows in the given order, of the same memory or file."""
        shapes, starts = [self.shapes[row] for row in rows], [self.starts[row] for row in rows]
        sums = None if self.checksums is None else self.checksums[list(rows)]
        return Pixels(shapes, starts, memory=self.memory, path=self.path, offset=self.offset, checksums=sums)

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return sum(map(math.prod, self.shapes))

    def mapped(self) -> Bytes:
        """All bytes, those of a file read-only."""
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
        sizes: [image] bytes of what `read` will give.
        read: number of an image -> uint8 [channel, height, width].

    Raises:
        ValueError: if there is not memory enough; nothing has been read by then.
    """
    total, free = sum(sizes), free_memory()
    if free is not None and total > 0.9 * free:
        raise ValueError(
            f"keeping {len(sizes)} images in memory needs {_size(total)}, and {_size(free)} are free (a tenth of which "
            f"stays so). Keep them on disk ({setting('cache', 'disk')}), keep smaller ones "
            f"({setting('shorter_side')}), or read them each time ({setting('cache', 'none')})"
        )
    memory = torch.empty(total, dtype=torch.uint8)
    shapes, _ = _fill(memory.numpy(), sizes, read)
    return Pixels(shapes, _starts(sizes), memory=memory)


def on_disk(path: Path, identity: str, sizes: Callable[[], Sequence[int]], read: Callable[[int], Tensor]) -> Pixels:
    """Map the images of a file, which is written first where there is none that fits.

    It is written to the side and renamed when it is whole. Processes that want the same file wait for the first, and
    what one left that was killed is removed.

    Args:
        path: of the file.
        identity: all that the pixels depend on; a file of another identity is replaced.
        sizes: () -> [image] bytes of what `read` will give; called only if the file is written.
        read: number of an image -> uint8 [channel, height, width].

    Raises:
        OSError: if there is not space enough on the disk, or the folder cannot be written.
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
    """A file name for what the parts say, that a person recognises by `name`.

    >>> file_name("my photos", "/data/my photos", 256)
    'my_photos-cf06d2975536.pixels'
    """
    digest = sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}-{digest}.pixels"


def default_folder() -> Path:
    """Return the folder of caches if nobody says otherwise: $XDG_CACHE_HOME/rankgrad, else ~/.cache/rankgrad."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "rankgrad" if home else Path.home() / ".cache" / "rankgrad"


def in_threads(function: Callable[[int], T], count: int, title: str) -> Iterable[T]:
    """Function(0), function(1), ... in order, computed by threads; decoders leave Python's lock free.

    Args:
        function: number -> result.
        count: how many.
        title: of the progress bar.
    """
    pool = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        yield from through(pool.map(function, range(count)), title, "image", count)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C need not wait for the files still to come


def free_memory() -> int | None:
    """Bytes that a process may still take, where the system says so: of the machine and of its container."""
    limits = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    if not limits and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):  # no such group; "max": no limit
            most, now = (int(Path(folder, name).read_text()) for name in (limit, used))
            stat = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            files = stat.get("inactive_file", stat.get("total_inactive_file", "0"))  # given back when needed
            limits.append(max(0, most - now + int(files)))
    return min(limits) if limits else None


def _starts(sizes: Sequence[int]) -> list[int]:
    """First byte of each image."""
    return [0, *itertools.accumulate(sizes)][: len(sizes)]


def _fill(
    memory: Bytes, sizes: Sequence[int], read: Callable[[int], Tensor]
) -> tuple[list[Shape], npt.NDArray[np.uint32]]:
    """Read all images into their places; their shapes and checksums."""
    starts = _starts(sizes)

    def one(row: int) -> tuple[Shape, int]:
        image = read(row)
        if image.numel() != sizes[row]:
            raise OSError(f"image {row} has {image.numel()} pixels and not {sizes[row]} as before: was it changed now?")
        place = memory[starts[row] : starts[row] + sizes[row]]
        place[:] = image.permute(1, 2, 0).numpy().reshape(-1)
        channels, height, width = image.shape
        return (channels, height, width), zlib.crc32(place.data)

    done = list(in_threads(one, len(sizes), "caching images"))
    return [shape for shape, _ in done], np.array([checksum for _, checksum in done], dtype=np.uint32)


# The file: MAGIC, length of the rest of the head, its checksum, head (JSON), shapes, checksums; then, from the next
# page on, the pixels.


def _head(key: str, shapes: Sequence[Shape], checksums: npt.NDArray[np.uint32]) -> bytes:
    about = json.dumps({"key": key, "images": len(shapes)}).encode()
    table = np.array(shapes, dtype="<i4").reshape(-1, 3).tobytes() + checksums.astype("<u4").tobytes()
    rest = struct.pack("<I", len(about)) + about + table
    return MAGIC + struct.pack("<QI", len(rest), zlib.crc32(rest)) + rest


def _offset(head: int) -> int:
    """Return the place of the first pixel."""
    return -(-head // _PAGE) * _PAGE


def _written(path: Path, key: str, sizes: Sequence[int], read: Callable[[int], Tensor]) -> Pixels:
    count, total = len(sizes), sum(sizes)
    offset = _offset(len(_head(key, [(0, 0, 0)] * count, np.zeros(count, dtype=np.uint32))))
    free = shutil.disk_usage(path.parent).free
    if offset + total > free:
        raise OSError(
            f"keeping {count} images in {path.parent} needs {_size(offset + total)}, and {_size(free)} are free. "
            f"Name a folder on another disk ({setting('cache_dir', 'DIR')}), or keep smaller images "
            f"({setting('shorter_side')})"
        )
    with atomic_write(path) as file:
        if hasattr(os, "posix_fallocate"):  # now, with an error: a page that finds no place later ends the process
            os.posix_fallocate(file.fileno(), 0, offset + total)
        else:
            file.truncate(offset + total)
        memory: np.memmap[Any, np.dtype[np.uint8]] = np.memmap(
            file, dtype=np.uint8, mode="r+", offset=offset, shape=(total,)
        )
        shapes, checksums = _fill(memory, sizes, read)
        memory.flush()
        del memory  # Windows renames no file that is mapped
        file.seek(0)
        file.write(_head(key, shapes, checksums))
    return Pixels(shapes, _starts(sizes), path=path, offset=offset, checksums=checksums)


def _opened(path: Path, key: str) -> Pixels | None:
    """The images of a file; None if there is none, it holds others, or it is damaged."""
    try:
        return _checked(path, key)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, struct.error, DamageError) as error:
        warnings.warn(f"the cache {path} is damaged ({error}) and is built again", CacheWarning, stacklevel=2)
        return None


def _checked(path: Path, key: str) -> Pixels | None:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise DamageError("it does not begin as one")
        length, checksum = struct.unpack("<QI", file.read(12))
        rest = file.read(min(length, path.stat().st_size))
    if len(rest) != length or zlib.crc32(rest) != checksum:
        raise DamageError("its head is not what was written")
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
        raise DamageError("it is not as long as it was")
    return Pixels(shapes, starts, path=path, offset=offset, checksums=checksums)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
