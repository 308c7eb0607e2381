"""What every data set becomes: a table of images with labels and splits, and a torch Dataset that reads its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rankgrad.samplers import EpochList

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = ("train", "val", "test")


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
    skipped: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.label)
        _need_labels("label", self.label, "class_names", len(self.class_names), rows)
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 (grey) or 3 (RGB); got {self.channels}")
        if len(set(self.class_names)) != len(self.class_names):
            raise ValueError(f"class_names must all be different; got {_repeated(self.class_names)} more than once")
        for column, values in (("split", self.split), ("names", self.names), ("paths", self.paths)):
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
        )

    def summary(self) -> str:
        """A small text: per split images, classes, images per class, super-labels; then what a user should know.

        Named below the table: classes that occur in several splits (then the test does not ask for unseen classes),
        classes with a single image in a split (no match can be found for it there), and skipped files.
        """
        what = "files" if self.images is None else "{} x {}".format(*self.images.shape[-2:])
        mode = "grey" if self.channels == 1 else "RGB"
        lines = [f"{self.name}: {len(self)} images, {len(torch.unique(self.label))} classes ({mode}, {what})"]
        head = f"{'split':8}{'images':>8}{'classes':>9}{'images/class':>14}"
        lines.append(head + (f"{'super-labels':>14}" if self.super_label is not None else ""))
        notes: list[str] = []
        classes: dict[str, set[int]] = {}
        for split in self.splits:
            rows = torch.tensor([here == split for here in self.split])
            present, counts = torch.unique(self.label[rows], return_counts=True)
            classes[split] = set(present.tolist())
            low, high = int(counts.min()), int(counts.max())
            spread = str(low) if low == high else f"{low}-{high}"
            line = f"{split:8}{int(rows.sum()):>8}{len(present):>9}{spread:>14}"
            if self.super_label is not None:
                line += f"{len(torch.unique(self.super_label[rows])):>14}"
            lines.append(line)
            single = int((counts == 1).sum())
            if single:
                notes.append(f"{split}: {single} classes have one image only; nothing in {split} can match it")
        for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
            shared = classes.get(one, set()) & classes.get(other, set())
            if shared:
                notes.append(f"{len(shared)} classes are in both {one} and {other}: not a test on unseen classes")
        if self.skipped:
            notes.append(f"skipped {len(self.skipped)} files:")
            notes.extend(f"  {path}: {reason}" for path, reason in self.skipped[:10])
            if len(self.skipped) > 10:
                notes.append(f"  ... and {len(self.skipped) - 10} more")
        return "\n".join(lines + notes)


class ImageSet(Dataset[tuple[Tensor, int, int]]):
    """The rows of a table as a torch Dataset: item i is (uint8 [channel, height, width], label, i).

    Files are decoded when asked for, turned as their EXIF tag says, and converted to grey or RGB; transparent parts
    become white, 16-bit values keep their upper 8 bits. A list of indices that carries an epoch gives a list of items
    that carries it (`samplers.EpochList`).

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
        assert self.table.paths is not None
        return read_image(self.table.paths[index], self.channels)


def read_image(path: Path, channels: int) -> Tensor:
    """An image file as uint8 [channels, height, width].

    EXIF orientation is applied, transparent parts become white, 16-bit values keep their upper 8 bits, an animation
    gives its first frame.

    Raises:
        OSError: if the file can't be read or decoded; it names the file and the reason.
    """
    try:
        image = _open(path, channels)
    except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
        raise OSError(
            f"cannot read image {path}: {_reason(error)}. Was it changed after the data set was checked?"
        ) from error
    array = np.array(image, dtype=np.uint8)  # a copy: torch needs writable memory
    return torch.from_numpy(array[None] if channels == 1 else array.transpose(2, 0, 1).copy())


def check_image(path: Path) -> str | None:
    """Why an image file can't be used, None if it can. Reads it to its end; a JPEG is decoded at 1/8 of its size."""
    from PIL import Image

    try:
        if path.stat().st_size == 0:
            return "empty file"
        with Image.open(path) as image:
            image.verify()  # checksums, where the format has them
        _open(path, 3, fast=True)
    except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _open(path: Path, channels: int, fast: bool = False) -> Image:
    """Decoded 8-bit image of mode L or RGB; `fast` lets a JPEG decode to a smaller size."""
    from PIL import Image, ImageOps

    mode = "L" if channels == 1 else "RGB"
    with Image.open(path) as opened:
        if fast:
            opened.draft(mode, (32, 32))
        opened.load()
        sixteen_bits = opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format == "PNG")
        image: Image.Image = ImageOps.exif_transpose(opened)
    if sixteen_bits:
        # Pillow's own conversion to 8 bits clips at 255, which makes most 16-bit images white
        return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)).convert(mode)
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no known range; store the image with 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def _with_channels(image: Tensor, channels: int) -> Tensor:
    if image.shape[0] == channels:
        return image
    if channels == 3:
        return image.expand(3, -1, -1)
    weights = torch.tensor([19595, 38470, 7471]).view(3, 1, 1)  # ITU-R 601 in 1/65536, as Pillow's "L"
    return (((image * weights).sum(0, keepdim=True) + 0x8000) >> 16).to(torch.uint8)


def contact_sheet(
    table: Table, path: Path | str, classes: int | Sequence[int] = 24, per_class: int = 12, cell: int = 48
) -> Path:
    """Write a PNG with one row per class: its name, then its first images.

    Args:
        table: what to show, e.g. `table.select("test")`.
        path: of the PNG; missing folders are made.
        classes: labels to show, or how many, spread evenly over the classes that have an image.
        per_class: images per row, at most.
        cell: side of an image on the sheet, pixels; larger images are made smaller, aspect kept.

    Returns:
        The path of the PNG.

    Raises:
        ValueError: if there is nothing to show.
    """
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    present = torch.unique(table.label).tolist()
    if isinstance(classes, int):
        picked = np.linspace(0, len(present) - 1, min(classes, len(present))).round().astype(int)
        wanted = [present[i] for i in picked]
    else:
        wanted = [label for label in classes if label in set(present)]
    if not wanted or per_class < 1:
        raise ValueError(
            f"nothing to show: {len(present)} classes have images, asked for {classes!r}, {per_class} each"
        )
    rows = [(table.label == label).nonzero().squeeze(1)[:per_class].tolist() for label in wanted]
    # matplotlib's own font: it has the Greek, Cyrillic, Armenian and Georgian letters, Pillow's has not
    font = ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), 13)
    titles = [table.class_names[label] for label in wanted]
    margin = 12 + min(260, max(int(font.getlength(title)) for title in titles))
    step = cell + 2
    sheet = Image.new("RGB", (margin + step * max(map(len, rows)), step * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    images = ImageSet(table, channels=3)
    for y, (title, row) in enumerate(zip(titles, rows, strict=True)):
        draw.text((4, y * step + cell // 2), title, fill="black", font=font, anchor="lm")
        draw.rectangle(
            (margin - 2, y * step, sheet.width, (y + 1) * step), fill="white"
        )  # covers a title that is too long
        for x, index in enumerate(row):
            tile = Image.fromarray(images[index][0].permute(1, 2, 0).contiguous().numpy())
            zoom = cell / max(tile.size)
            size = (max(1, round(tile.width * zoom)), max(1, round(tile.height * zoom)))
            sheet.paste(tile.resize(size), (margin + x * step, y * step))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")
    return path


def _need_labels(name: str, label: Tensor, names: str, count: int, rows: int) -> None:
    if label.dtype != torch.int64 or label.ndim != 1:
        raise TypeError(f"{name} must be long [image]; got {label.dtype} {tuple(label.shape)}")
    if len(label) != rows:
        raise ValueError(f"{name} needs one entry per image ({rows}); got {len(label)}")
    if rows and not (0 <= int(label.min()) and int(label.max()) < count):
        raise ValueError(
            f"{name} must be 0 .. {count - 1}, one of the {count} {names}; got {int(label.min())} .. {int(label.max())}"
        )


def _repeated(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return sorted({name for name in names if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
