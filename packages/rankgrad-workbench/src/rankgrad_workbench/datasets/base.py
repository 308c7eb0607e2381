"""Images as a table with labels and splits. A torch Dataset reads its rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from rankgrad.common.checks import integer, one_of, setting
from rankgrad.common.text import shown

from . import cache
from .fingerprint import of_files, of_texts, of_values
from .images import Box, max_pixels
from .images import read_image as read_image
from .rows import SPLITS as SPLITS
from .rows import Listed, Rows

Cache = Literal["none", "ram", "disk"]


@dataclass(frozen=True, eq=False)
class Table(Rows):
    """A labelled set of images, in memory or as files; one row per image. `Rows` has the columns of every table.

    Attributes:
        channels: 1 (grey) or 3 (RGB).
        images: [image, channel, height, width] uint8, or None if `paths` is given.
        paths: [image] files, or None if `images` is given.
        shorter_side: pixels. A file whose shorter side is longer is resized to it when it is read; the aspect ratio is
            kept. A transform that resizes to exactly this size gets the same pixels as from the whole image. None:
            files are not resized.
        pixels: the decoded files, see `cached`; or None.
        box: [image, 4] float, the left, top, right and bottom edge of the crop of each file, in pixels of the upright
            image. Edges are rounded to whole pixels and clipped to the image. None: whole images.

    Raises:
        ValueError, TypeError: if the columns do not fit together.

    >>> table = Table("pair", torch.tensor([0, 1]), ("a", "b"), ("train", "test"), ("0.png", "1.png"), channels=1,
    ...               images=torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    >>> len(table), table.splits, len(table.select("test"))
    (2, ('train', 'test'), 1)
    """

    channels: int
    images: Tensor | None = None
    paths: tuple[Path, ...] | None = None
    _: KW_ONLY
    shorter_side: int | None = None
    pixels: cache.Pixels | None = None
    box: Tensor | None = None

    takes = "images"
    per_row = ("images", "paths", "pixels", "box")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self.channels, self.shorter_side)
        if (self.images is None) == (self.paths is None):
            raise ValueError(
                "a table holds its images either in memory (images=) or as files (paths=): give exactly one of them"
            )
        self.need("images", self.images, torch.uint8, len(self), self.channels, None, None)
        self.need("box", self.box, None, len(self), 4)
        if self.box is not None and self.paths is None:
            raise ValueError("box needs images as files (paths=); crop images in memory yourself")

    @property
    def asks(self) -> Mapping[str, int]:
        """See `Rows`."""
        return {"in_channels": self.channels}

    def dataset(self) -> ImageSet:
        """See `Rows`."""
        return ImageSet(self)

    def content(self) -> Mapping[str, str]:
        """Hashes of the sizes and times of the files, or of the pixels of images in memory."""
        return of_files(self.paths) if self.paths is not None else of_values("pixels", self.images)

    def picture(self, row: int, side: int) -> Tensor | None:
        """See `Rows`."""
        if self.paths is None or self.pixels is not None:
            return self.dataset()[row][0]
        return read_image(self.paths[row], self.channels, side, self.box_of(row), draft=True)

    def described(self) -> str:
        """Colour, size and storage of the images."""
        what = "files" if self.images is None else "{} x {}".format(*self.images.shape[-2:])
        if self.pixels is not None:
            where = "in memory" if isinstance(self.pixels.memory, Tensor) else "on disk"
            what += f" kept {where}: {self.pixels.nbytes / 1e6:.0f} MB"
        if self.box is not None:
            what += ", cropped to boxes"
        return f" ({'grey' if self.channels == 1 else 'RGB'}, {what})"

    def box_of(self, row: int) -> Box | None:
        """(left, top, right, bottom) of the crop of an image; None: the whole image."""
        return None if self.box is None else tuple(self.box[row].tolist())

    def cached(self, where: Cache, folder: Path | str | None = None) -> Table:
        """Return the same table with a cache of its decoded files: `ImageSet` gives identical images, but faster.

        The cache takes channels x height x width bytes per image (after `shorter_side`): 0.26 MB for 341 x 256 pixels
        in colour. Space is checked after the first images.

        Args:
            where: "ram": in memory. Each process decodes the files once and shares them with the workers of its
                DataLoaders. "disk": in one file that is mapped into memory. All runs and processes use it until an
                image file, a setting or the version of a decoder changes. "none": no cache. Images that are in memory
                already stay there.
            folder: of the cache file; None: $XDG_CACHE_HOME/rankgrad, or ~/.cache/rankgrad.

        Raises:
            ValueError: if there is too little memory or space on the disk, or `where` has another value.
            OSError: if an image cannot be read; it names the file.
        """
        check_reading(cache=where, cache_dir=folder)
        if where == "none" or self.paths is None:
            return replace(self, pixels=None)
        paths = [Path(os.path.abspath(path)) for path in self.paths]

        def read(row: int) -> Tensor:
            return read_image(paths[row], self.channels, self.shorter_side, self.box_of(row))

        if where == "ram":
            return replace(self, pixels=cache.in_memory(len(paths), read))
        import PIL

        # one file per data set and settings; it is replaced when the images change
        settings = [os.path.commonpath(paths), self.channels, self.shorter_side]
        name = f"{self.name}-{sha256(json.dumps(settings).encode()).hexdigest()[:12]}"
        of_images = [of_texts("paths", map(str, paths)), of_files(paths), of_values("box", self.box)]
        identity = json.dumps([settings, PIL.__version__, torch.__version__, *of_images])
        home = cache.default_folder() if folder is None else Path(folder)
        return replace(self, pixels=cache.on_disk(home, name, identity, len(paths), read))


def check_reading(
    channels: int = 3,
    shorter_side: int | None = None,
    cache: Cache = "none",
    cache_dir: Path | str | None = None,
) -> None:
    """Raise if a setting of how files are read is wrong. Loaders call this before they open any file.

    Args:
        channels: see `Table`.
        shorter_side: see `Table`.
        cache: see `Table.cached`.
        cache_dir: folder of the cache.

    Raises:
        ValueError: naming the setting.
        NotADirectoryError: if cache_dir is a file.
    """
    if isinstance(channels, bool) or channels not in (1, 3):
        raise ValueError(f"{setting('channels')} must be 1 (grey) or 3 (RGB); got {channels!r}")
    if shorter_side is not None:
        integer(shorter_side, f"{setting('shorter_side')} is in pixels", low=1)
    one_of(cache, setting("cache"), ("none", "ram", "disk"))
    if cache_dir is not None and Path(cache_dir).is_file():
        raise NotADirectoryError(f"{setting('cache_dir')} must be a folder; {shown(cache_dir)} is a file")
    max_pixels()


class ImageSet(Listed):
    """The rows of a table as a torch Dataset: item i is (uint8 [channel, height, width], label, i).

    A file is decoded on access, unless the table has a cache (`Table.cached`). The image is turned as its EXIF tag says
    and converted to grey or RGB. Transparent parts become white; 16-bit values keep their upper 8 bits. The items of an
    `EpochList` of indices are an `EpochList` of the same epoch (see `epochs`).

    Args:
        table: the rows to serve, e.g. `table.select("train")`.

    Raises:
        OSError: on access to an item whose file cannot be read; it names the file.

    >>> table = Table("pair", torch.tensor([0, 1]), ("a", "b"), ("train", "test"), ("0.png", "1.png"), channels=1,
    ...               images=torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    >>> image, label, index = ImageSet(table)[1]
    >>> image.shape, label, index
    (torch.Size([1, 8, 8]), 1, 1)
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table, table.label)
        self.table = table

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        """(image, label, index)."""
        table = self.table
        kept = table.pixels if table.images is None else table.images
        if kept is not None:
            return kept[index], self.label[index], index
        assert table.paths is not None
        image = read_image(table.paths[index], table.channels, table.shorter_side, table.box_of(index))
        return image, self.label[index], index
