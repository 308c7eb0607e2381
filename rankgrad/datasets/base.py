"""Every data set becomes a table of images with labels and splits; a torch Dataset reads its rows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..files import shown
from ..tables import aligned
from . import cache
from .images import Box, Skipped, image_area, max_pixels, skipped_lines
from .images import read_image as read_image
from .samplers import EpochList

SPLITS = ("train", "val", "test")
ROLES = ("query", "gallery", "")
PROTOCOLS = ("leave_one_out", "query_gallery", "one_gallery")

Cache = Literal["none", "ram", "disk"]


@dataclass(frozen=True, eq=False)
class Table:
    """A labelled set of images, in memory or as files; one row per image.

    Attributes:
        name: of the data set.
        label: [image] long, class of each image, 0 .. C - 1 counted over the whole table, all splits together.
        class_names: C names, all different.
        split: [image] "train", "val" or "test".
        names: [image] what a person calls the image, e.g. its file name.
        channels: 1 (grey) or 3 (RGB).
        images: [image, channel, height, width] uint8, or None if `paths` is given.
        paths: [image] files, or None if `images` is given.
        super_label: [image] long, coarser class (alphabet, script), or None.
        super_names: names of the super-labels; empty if there are none.
        skipped: (path, reason) of each file that was found and could not be used.
        shorter_side: files whose shorter side has more pixels are made smaller when they are read, aspect kept; None:
            as they are. A transform that resizes to this or less gets what it would have made of the whole image: the
            same pixels where it resizes to just this.
        draft: let large JPEG files decode at 1/2, 1/4 or 1/8 of their size, as long as that is at least twice
            shorter_side. Photographs of 5 to 11 megapixels are read 3 to 4 times as fast; pixels at 256 differ by 0.2
            of 255 on average, and by 4 at most (measured on photographs from a microscope).
        pixels: decoded files, see `cached`; or None.
        box: [image, 4] float, left, top, right and bottom edge of what is shown of each file, in pixels of the upright
            image; rounded to whole pixels, and cut off at the border. None: whole images.
        role: [image] "query", "gallery", or "" where a division into queries and gallery does not apply (training
            images); or None.
        protocol: what is ranked for whom when a split is evaluated, see `protocols.trials`.
        understood: how a loader took what it found, a sentence that stands first in the summary.

    Raises:
        ValueError, TypeError: if the columns do not fit together.

    >>> table = Table("pair", torch.tensor([0, 1]), ("a", "b"), ("train", "test"), ("0.png", "1.png"), channels=1,
    ...               images=torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    >>> len(table), table.splits, len(table.select("test"))
    (2, ('train', 'test'), 1)
    """

    name: str
    label: Tensor
    class_names: tuple[str, ...]
    split: tuple[str, ...]
    names: tuple[str, ...]
    channels: int
    images: Tensor | None = None
    paths: tuple[Path, ...] | None = None
    super_label: Tensor | None = None
    super_names: tuple[str, ...] = ()
    skipped: Skipped = ()
    shorter_side: int | None = None
    draft: bool = False
    pixels: cache.Pixels | None = None
    box: Tensor | None = None
    role: tuple[str, ...] | None = None
    protocol: str = "leave_one_out"
    understood: str = ""

    def __post_init__(self) -> None:
        rows = len(self.label)
        _need_labels("label", self.label, "class_names", len(self.class_names), rows)
        check_reading(self.channels, self.shorter_side, self.draft)
        if len(set(self.class_names)) != len(self.class_names):
            raise ValueError(f"class_names must all be different; got {_repeated(self.class_names)} more than once")
        columns = {"split": self.split, "names": self.names, "paths": self.paths, "role": self.role}
        for column, values in columns.items():
            if values is not None and len(values) != rows:
                raise ValueError(f"{column} needs one entry per image ({rows}); got {len(values)}")
        unknown = sorted(set(self.split) - set(SPLITS))
        if unknown:
            raise ValueError(f"split must be one of {SPLITS} for each image; got {unknown}")
        if (self.images is None) == (self.paths is None):
            raise ValueError(
                "a table holds its images either in memory (images=) or as files (paths=): give one of them"
            )
        if self.images is not None:
            expected = (rows, self.channels)
            if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[:2] != expected:
                raise ValueError(
                    f"images must be uint8 [{rows}, {self.channels}, height, width]; got "
                    f"{self.images.dtype} {tuple(self.images.shape)}"
                )
        if self.super_label is not None:
            _need_labels("super_label", self.super_label, "super_names", len(self.super_names), rows)
        elif self.super_names:
            raise ValueError("super_names were given without super_label")
        if self.pixels is not None and (self.paths is None or len(self.pixels) != rows):
            raise ValueError(f"pixels are of files, one image per row ({rows}); got {len(self.pixels)}")
        if self.box is not None:
            _need_boxes(self.box, rows, files=self.paths is not None)
        strange = sorted(set(self.role or ()) - set(ROLES))
        if strange:
            raise ValueError(f"role must be one of {ROLES} for each image; got {strange}")
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {PROTOCOLS}; got {self.protocol!r}")
        if self.protocol == "query_gallery" and self.role is None:
            raise ValueError("protocol 'query_gallery' needs to know which images are queries: give role=")

    def __len__(self) -> int:
        """Number of images."""
        return len(self.label)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have an image, in the order train, val, test."""
        present = set(self.split)
        return tuple(split for split in SPLITS if split in present)

    def select(self, split: str) -> Table:
        """Rows of one split. Labels, class names and `skipped` stay those of the whole table.

        Raises:
            ValueError: if the table has no image of that split.
        """
        if split not in self.splits:
            raise ValueError(f"{self.name} has no images of split {split!r}; it has {', '.join(self.splits) or 'none'}")
        return self.take([row for row, here in enumerate(self.split) if here == split])

    def take(self, rows: Sequence[int]) -> Table:
        """The given rows in the given order. Labels, class names and `skipped` stay those of the whole table."""
        where = torch.as_tensor(rows, dtype=torch.int64)
        return replace(
            self,
            label=self.label[where],
            split=tuple(self.split[row] for row in rows),
            names=tuple(self.names[row] for row in rows),
            images=None if self.images is None else self.images[where],
            paths=None if self.paths is None else tuple(self.paths[row] for row in rows),
            super_label=None if self.super_label is None else self.super_label[where],
            pixels=None if self.pixels is None else self.pixels.take(rows),
            box=None if self.box is None else self.box[where],
            role=None if self.role is None else tuple(self.role[row] for row in rows),
        )

    def box_of(self, row: int) -> Box | None:
        """Left, top, right, bottom of what is shown of an image; None: all of it."""
        if self.box is None:
            return None
        left, top, right, bottom = self.box[row].tolist()
        return left, top, right, bottom

    def cached(self, where: Cache, folder: Path | str | None = None) -> Table:
        """Return the same table with its files decoded once: `ImageSet` gives the same, bit by bit, only sooner.

        What a cache needs is known before anything is decoded: channels x height x width bytes per image (after
        `shorter_side`), 0.26 MB for 341 x 256 pixels in colour.

        Args:
            where: "ram": in memory, decoded anew by each run (by each of its processes, where several train) and shared
                with the workers of its DataLoaders; "disk": in one file that is mapped into memory, used by all runs
                and processes until an image file, a setting or a decoder's version changes; "none": the table as it
                is. Images that are in memory anyway stay there.
            folder: of that file; None: $XDG_CACHE_HOME/rankgrad, or ~/.cache/rankgrad.

        Raises:
            ValueError: if there is not memory enough, or `where` is something else.
            OSError: if there is not space enough on the disk, or an image cannot be read; it names the file.
        """
        check_reading(cache=where, cache_dir=folder)
        if where == "none" or self.paths is None:
            return replace(self, pixels=None)
        paths = [Path(os.path.abspath(path)) for path in self.paths]

        def sizes() -> list[int]:
            return list(cache.in_threads(size, len(paths), "measuring images"))

        def size(row: int) -> int:
            return self.channels * image_area(paths[row], self.shorter_side, self.box_of(row))

        def read(row: int) -> Tensor:
            return read_image(paths[row], self.channels, self.shorter_side, self.draft, self.box_of(row))

        if where == "ram":
            return replace(self, pixels=cache.in_memory(sizes(), read))
        import PIL

        settings = [self.channels, self.shorter_side, self.draft]
        status = [path.stat() for path in paths]
        files = [(str(path), found.st_size, found.st_mtime_ns) for path, found in zip(paths, status, strict=True)]
        boxes = [] if self.box is None else [self.box.tolist()]
        identity = json.dumps([settings, PIL.__version__, torch.__version__, files, *boxes])
        # one file per data set and settings: it is replaced when the images change
        name = cache.file_name(self.name, os.path.commonpath(paths), *settings)
        home = cache.default_folder() if folder is None else Path(folder)
        return replace(self, pixels=cache.on_disk(home / name, identity, sizes, read))

    def summary(self) -> str:
        """A small text: how a folder was understood; images, classes and super-labels per split; what is to be known.

        Named below the table: classes that occur in several splits (then the test does not ask for unseen classes),
        classes with a single image in a split (no match can be found for it there), and skipped files.
        """
        what = "files" if self.images is None else "{} x {}".format(*self.images.shape[-2:])
        if self.pixels is not None:
            what += f" kept {'in memory' if self.pixels.path is None else 'on disk'}: {self.pixels.nbytes / 1e6:.0f} MB"
        if self.box is not None:
            what += ", cropped to boxes"
        mode = "grey" if self.channels == 1 else "RGB"
        head = f"{shown(self.name)}: {len(self)} images, {len(torch.unique(self.label))} classes ({mode}, {what})"
        lines = [shown(self.understood), head] if self.understood else [head]
        table = [["split", "images", "classes", "images/class"]]
        if self.super_label is not None:
            table[0].append("super-labels")
        notes: list[str] = []
        classes: dict[str, set[int]] = {}
        for split in self.splits:
            rows = torch.tensor([here == split for here in self.split])
            present, counts = torch.unique(self.label[rows], return_counts=True)
            classes[split] = set(present.tolist())
            low, high = int(counts.min()), int(counts.max())
            spread = str(low) if low == high else f"{low}-{high}"
            table.append([split, str(int(rows.sum())), str(len(present)), spread])
            if self.super_label is not None:
                table[-1].append(str(len(torch.unique(self.super_label[rows]))))
            single = int((counts == 1).sum())
            if single:
                notes.append(f"{split}: {single} classes have one image only; nothing in {split} can match it")
        for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
            shared = classes.get(one, set()) & classes.get(other, set())
            if shared:
                notes.append(f"{len(shared)} classes are in both {one} and {other}: not a test on unseen classes")
        if self.protocol != "leave_one_out":
            roles, words = self.role or (), (("query", "queries"), ("gallery", "in the gallery"))
            counts = [f"{roles.count(role)} {word}" for role, word in words if role in roles]
            notes.append(", ".join([f"evaluated as {self.protocol}", *counts]))
        notes += skipped_lines(self.skipped)
        return "\n".join([*lines, aligned(table), *notes])


def check_reading(
    channels: int = 3,
    shorter_side: int | None = None,
    draft: bool = False,
    cache: Cache = "none",
    cache_dir: Path | str | None = None,
) -> None:
    """Raise if files can't be read in this way; loaders ask before they look at any file.

    Args:
        channels: see `Table`, as the next two.
        shorter_side: in pixels.
        draft: of large JPEG files.
        cache: see `Table.cached`.
        cache_dir: its folder.

    Raises:
        ValueError: naming the setting.
        NotADirectoryError: if cache_dir is a file.
    """
    if isinstance(channels, bool) or channels not in (1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (RGB); got {channels!r}")
    side = shorter_side
    if side is not None and (isinstance(side, bool) or not isinstance(side, int) or side < 1):
        raise ValueError(f"shorter_side is in pixels, an integer >= 1, or None; got {side!r}")
    if draft and side is None:
        raise ValueError("draft decodes files at a smaller size: say with shorter_side how small they may become")
    if cache not in ("none", "ram", "disk"):
        raise ValueError(f"a cache is 'none', 'ram' or 'disk'; got {cache!r}")
    if cache_dir is not None and Path(cache_dir).is_file():
        raise NotADirectoryError(f"cache_dir is the folder of kept images; {shown(cache_dir)} is a file")
    max_pixels()


class ImageSet(Dataset[tuple[Tensor, int, int]]):
    """The rows of a table as a torch Dataset: item i is (uint8 [channel, height, width], label, i).

    Files are decoded when asked for (unless the table has them decoded, see `Table.cached`), turned as their EXIF tag
    says, and converted to grey or RGB; transparent parts become white, 16-bit values keep their upper 8 bits. A list of
    indices that carries an epoch gives a list of items that carries it (`samplers.EpochList`).

    Args:
        table: the rows to serve, e.g. `table.select("train")`.
        channels: 1 or 3; None takes the table's. Images in memory are repeated (1 -> 3) or weighted as Pillow does
            (3 -> 1).

    Raises:
        OSError: by an item whose file can't be read any more; it names the file.

    >>> table = Table("pair", torch.tensor([0, 1]), ("a", "b"), ("train", "test"), ("0.png", "1.png"), channels=1,
    ...               images=torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    >>> image, label, index = ImageSet(table, channels=3)[1]
    >>> image.shape, label, index
    (torch.Size([3, 8, 8]), 1, 1)
    """

    def __init__(self, table: Table, channels: int | None = None) -> None:
        self.table = table
        self.channels = table.channels if channels is None else channels
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (grey) or 3 (RGB); got {self.channels}")

    def __len__(self) -> int:
        """Number of images."""
        return len(self.table)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        """(image, label, index)."""
        if not 0 <= index < len(self):
            raise IndexError(f"index must be 0 .. {len(self) - 1}; got {index}")
        return self._image(index), int(self.table.label[index]), index

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, int, int]]:
        """Items of a batch; called by DataLoader's workers in place of one `__getitem__` per index."""
        items = [self[index] for index in indices]
        return EpochList(items, indices.epoch) if isinstance(indices, EpochList) else items

    def _image(self, index: int) -> Tensor:
        if self.table.images is not None:
            return _with_channels(self.table.images[index], self.channels)
        table = self.table
        assert table.paths is not None
        if table.pixels is not None and self.channels == table.channels:
            return table.pixels[index]
        return read_image(table.paths[index], self.channels, table.shorter_side, table.draft, table.box_of(index))


def _with_channels(image: Tensor, channels: int) -> Tensor:
    if image.shape[0] == channels:
        return image
    if channels == 3:
        return image.expand(3, -1, -1)
    weights = torch.tensor([19595, 38470, 7471]).view(3, 1, 1)  # ITU-R 601 in 1/65536, as Pillow's "L"
    return (((image * weights).sum(0, keepdim=True) + 0x8000) >> 16).to(torch.uint8)


def _need_labels(name: str, label: Tensor, names: str, count: int, rows: int) -> None:
    if label.dtype != torch.int64 or label.ndim != 1:
        raise TypeError(f"{name} must be long [image]; got {label.dtype} {tuple(label.shape)}")
    if len(label) != rows:
        raise ValueError(f"{name} needs one entry per image ({rows}); got {len(label)}")
    if rows and not (0 <= int(label.min()) and int(label.max()) < count):
        raise ValueError(
            f"{name} must be 0 .. {count - 1}, one of the {count} {names}; got {int(label.min())} .. {int(label.max())}"
        )


def _need_boxes(box: Tensor, rows: int, files: bool) -> None:
    if not files:
        raise ValueError("boxes are cut from files (paths=); crop images in memory yourself")
    if not box.is_floating_point() or box.shape != (rows, 4):
        raise ValueError(f"box must be float [{rows}, 4]; got {box.dtype} {tuple(box.shape)}")
    bad = (~box.isfinite().all(1) | (box[:, 2:] <= box[:, :2]).any(1)).nonzero().flatten().tolist()
    if bad:
        raise ValueError(
            f"boxes are (left, top, right, bottom), left < right, top < bottom; got {box[bad[0]].tolist()} in row "
            f"{bad[0]}" + (f" and {len(bad) - 1} more like it" if bad[1:] else "")
        )


def _repeated(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return sorted({name for name in names if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
