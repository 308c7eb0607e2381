"""The one reader of image files: upright, 8 bits, grey or RGB. What is too large or can't be read is named.

Every command and every loader reads pictures here, so that one rule holds for all: EXIF orientation is applied,
transparent parts become white, 16-bit values keep their upper 8 bits, CMYK and palettes are converted, an animation
gives its first frame. Only the formats of a list are tried, by content and not by name: some that Pillow knows would
start other programs.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..files import shown

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

Skipped = tuple[tuple[str, str], ...]  # (path, reason) of files that were found and could not be used
Box = tuple[float, float, float, float]  # left, top, right, bottom; pixels of the upright image

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "DIB", "GIF", "PPM", "MPO", "JPEG2000", "AVIF", "HEIF")

# Files with these endings are taken for images ...
EXTENSIONS = (
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".hif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm"),
    *(".png", ".ppm", ".tif", ".tiff", ".webp"),
)
# ... and those with these could be meant as some: they are named with what to do.
FOREIGN = {
    **dict.fromkeys((".svg", ".svgz", ".eps", ".ai", ".ps"), "a drawing and no image: render it to PNG"),
    ".pdf": "a document and no image: export its pages as PNG or JPEG",
    **dict.fromkeys((".psd", ".xcf", ".kra"), "a project of a paint program: export it as PNG or JPEG"),
    **dict.fromkeys((".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".rw2"), "a raw photograph: export it"),
    **dict.fromkeys((".mov", ".mp4", ".avi", ".mkv", ".webm"), "a video: export frames of it"),
    ".jxl": "JPEG XL can't be read here: convert it to JPEG or PNG",
}


class SkippedWarning(UserWarning):
    """Files were left out that may have been meant."""


EMPTY = "a class folder without an image"  # reason of a folder among the files that were skipped

# What lies beside images and is never meant as one: captions, annotations, lists.
SIDECARS = (
    *(".csv", ".db", ".htm", ".html", ".ini", ".json", ".jsonl", ".log", ".md", ".tsv", ".txt", ".xml", ".xmp"),
    *(".yaml", ".yml"),
)

MAX_PIXELS = 178_956_970  # as many as Pillow opens without being asked; 0.5 GB as RGB
VARIABLE = "RANKGRAD_MAX_PIXELS"
LARGE = 2**26  # pixels; an image with more is averaged over squares first: the steps behind would need 10 bytes a pixel
ENOUGH = 4  # what is left of its shorter side then, as a multiple of the side that is asked for


def max_pixels() -> int:
    """The most pixels that an image may have: `MAX_PIXELS`, or what the environment variable RANKGRAD_MAX_PIXELS says.

    Larger ones are refused before they are decoded: a file of some kilobytes can unfold into more than the memory
    holds. A variable reaches all commands, and the workers of a DataLoader as well.

    Raises:
        ValueError: if the variable is no integer >= 1.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return MAX_PIXELS
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{VARIABLE} is the most pixels that an image may have, an integer >= 1; got {text!r}")
    return int(text)


def read_image(
    path: Path, channels: int, shorter_side: int | None = None, draft: bool = False, box: Box | None = None
) -> Tensor:
    """An image file as uint8 [channels, height, width].

    Args:
        path: the file.
        channels: 3 (RGB) or 1 (grey).
        shorter_side: make the image smaller if its shorter side has more pixels; as `transforms.PhotoTrain` does it. Of
            an image with more than `LARGE` pixels, squares of pixels are averaged before, so that its shorter side
            keeps at least `ENOUGH` times as many as asked for. Not with a box.
        draft: let a JPEG decode at a fraction of its size, at least twice `shorter_side` (see `Table`). Not with a box:
            the part that is shown may be small.
        box: left, top, right, bottom of the part to keep, see `Table`; None: all of it.

    Raises:
        OSError: if the file can't be read or decoded, has more than `max_pixels`, or the box lies outside; it names the
            file and the reason.
    """
    whole = shorter_side if box is None else None
    least = 2 * whole if draft and whole else None
    try:
        image, (height, width) = _decoded(path, channels, least, ENOUGH * whole if whole else None)
        if box is not None:
            image = image.crop(_edges(box, height, width))
            height, width = image.height, image.width
    except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
        raise _unreadable(path, error) from error
    pixels = _pixels(image, channels)
    size = _bounded(height, width, shorter_side)
    if pixels.shape[1:] == size:
        return pixels
    from torchvision.transforms.v2 import functional

    smaller: Tensor = functional.resize(pixels, list(size), antialias=True)
    return smaller


def open_image(path: Path, channels: int = 3, upright: bool = True) -> Image:
    """Read a file as an image of Pillow, of mode RGB or L, in full size.

    Args:
        path: the file.
        channels: 3 (RGB) or 1 (grey).
        upright: turn the image as its EXIF tag says.

    Raises:
        OSError: as `read_image`.
    """
    try:
        return _decoded(path, channels, upright=upright)[0]
    except Exception as error:
        raise _unreadable(path, error) from error


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) of the upright image, from the head of the file.

    Raises:
        OSError: as `read_image`.
    """
    try:
        with _opened(path) as image:
            return (image.width, image.height) if _lies(image) else (image.height, image.width)
    except Exception as error:
        raise _unreadable(path, error) from error


def image_area(path: Path, shorter_side: int | None = None, box: Box | None = None) -> int:
    """Pixels of what `read_image` will give, from the head of the file.

    Raises:
        OSError: if the file can't be read, or the box lies outside; it names the file and the reason.
    """
    size = image_size(path)
    if box is not None:
        try:
            left, top, right, bottom = _edges(box, *size)
        except ValueError as error:
            raise _unreadable(path, error) from error
        size = (bottom - top, right - left)
    return math.prod(_bounded(*size, shorter_side))


def check_image(path: Path) -> str | None:
    """Say why an image file can't be used; None if it can. Reads all of it, a JPEG at 1/8 of its size."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            return "not a regular file"
        if status.st_size == 0:
            return "empty file"
        with _opened(path) as image:
            image.verify()  # checksums, where the format has them
        _decoded(path, 3, least=32, enough=32)
    except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
        return _reason(error, path)
    return None


def not_an_image(path: Path) -> str | None:
    """Say why a file is not taken for an image, judging by its name alone; None: it is taken for one.

    >>> not_an_image(Path("a/B.JPEG")), not_an_image(Path("plan.dwg"))
    (None, 'not an image by its name')
    >>> not_an_image(Path("plan.pdf"))
    'a document and no image: export its pages as PNG or JPEG'
    """
    ending = path.suffix.lower()
    return None if ending in EXTENSIONS else FOREIGN.get(ending, "not an image by its name")


def skipped_lines(skipped: Sequence[tuple[str, str]], most: int = 10) -> list[str]:
    """List the files and folders that were left out: how many, which, why; many of one kind in one line.

    >>> skipped_lines([("a/b.svg", "a drawing"), ("a/c", EMPTY)])
    ['skipped 1 file and 1 folder:', '  a/b.svg: a drawing', '  a/c: a class folder without an image']
    """
    if not skipped:
        return []
    lines = [f"  {shown(path)}: {reason}" for path, reason in skipped]
    if len(skipped) > most:
        by_reason: dict[str, list[str]] = {}
        for path, reason in skipped:
            by_reason.setdefault(reason, []).append(shown(path))
        groups = sorted(by_reason.items(), key=lambda group: -len(group[1]))
        lines = [f"  {len(paths)} {reason}: {some(paths)}" for reason, paths in groups[:most]]
        if len(groups) > most:
            lines.append(f"  ... and {sum(len(paths) for _, paths in groups[most:])} more")
    folders = sum(reason == EMPTY for _, reason in skipped)
    counts = ((len(skipped) - folders, "file"), (folders, "folder"))
    reasons = " and ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count)
    return [f"skipped {reasons}:", *lines]


def some(names: Sequence[object], most: int = 5) -> str:
    """The first of some names, in words.

    >>> some(["a", "b", "c"], most=2)
    'a, b, ...'
    """
    return ", ".join(map(shown, names[:most])) + (", ..." if len(names) > most else "")


# ---------------------------------------------------------------------------------------------------------- decoding


@cache
def _formats() -> tuple[str, ...]:
    """List the `FORMATS` that can be read here: HEIF with pillow-heif, AVIF with a Pillow that was built for it."""
    from PIL import Image, features

    with contextlib.suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    absent = {"AVIF"} if "AVIF" in Image.OPEN and not features.check("avif") else set()
    return tuple(name for name in FORMATS if name in Image.OPEN and name not in absent)


def _opened(path: Path) -> ImageFile:
    """The file, its head read and its size within bounds; nothing is decoded yet."""
    from PIL import Image

    most = max_pixels()
    if VARIABLE in os.environ and (Image.MAX_IMAGE_PIXELS or most) < most:
        Image.MAX_IMAGE_PIXELS = most  # Pillow has a limit of its own, for the whole process
    try:
        image = Image.open(path, formats=_formats())
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(_too_large("its pixels are", min(most, 2 * (Image.MAX_IMAGE_PIXELS or most)))) from None
    if image.width * image.height > most:
        size = f"its {image.width} x {image.height} pixels are"
        image.close()
        raise ValueError(_too_large(size, most))
    return image


def _too_large(what: str, most: int) -> str:
    return (
        f"{what} more than {most:,}, which may be an attempt to fill the memory. If the file is to be trusted, set the "
        f"environment variable {VARIABLE} to a larger number"
    )


def _lies(image: Image) -> bool:
    """Say whether an EXIF tag turns the image by a quarter."""
    return _orientation(image) in (5, 6, 7, 8)


def _orientation(image: Image) -> int:
    from PIL import ExifTags

    orientation: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    return orientation


def _decoded(
    path: Path, channels: int, least: int | None = None, enough: int | None = None, upright: bool = True
) -> tuple[Image, tuple[int, int]]:
    """Decoded 8-bit image of mode L or RGB, and (height, width) of the whole image.

    Args:
        path: the file.
        channels: 1 or 3.
        least: a JPEG may decode to 1/2, 1/4 or 1/8 of its size if its sides keep so many pixels; None: it may not.
        enough: an image of more than `LARGE` pixels may be averaged over squares if its sides keep so many pixels;
            None: it may not.
        upright: turn the image as its EXIF tag says.
    """
    from PIL import Image, ImageOps

    mode = "L" if channels == 1 else "RGB"
    with _opened(path) as opened:
        size = opened.height, opened.width
        if least is not None:
            opened.draft(None, (least, least))
        opened.load()
        sixteen_bits = opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format == "PNG")
        # both this and `convert` copy the image where there is nothing to do
        turned = upright and _orientation(opened) != 1
        image: Image.Image = ImageOps.exif_transpose(opened) if turned else opened
        if turned and _lies(opened):
            size = size[::-1]
    if sixteen_bits:
        # Pillow's own conversion to 8 bits clips at 255, which makes most 16-bit images white
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no known range; store the image with 8 or 16 bits")
    if enough is not None and image.width * image.height > LARGE:
        image = _averaged(image, enough)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == mode else image.convert(mode), size


def _averaged(image: Image, enough: int) -> Image:
    """The image with squares of pixels averaged, as large as its sides allow that keep so many pixels."""
    if image.has_transparency_data and image.mode not in ("RGBA", "LA"):
        image = image.convert("RGBA")  # a colour that stands for transparent must be found before it is averaged
    elif image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    factor = min(image.size) // enough
    return image.reduce(factor) if factor > 1 else image


def _pixels(image: Image, channels: int) -> Tensor:
    array = np.array(image, dtype=np.uint8)  # a copy: torch needs writable memory
    # rows of pixels as the decoder left them: the next step, resizing, is twice as fast on this layout
    return torch.from_numpy(array).view(image.height, image.width, channels).permute(2, 0, 1)


def _bounded(height: int, width: int, shorter_side: int | None) -> tuple[int, int]:
    """(height, width) of an image whose shorter side has at most so many pixels; rounds as torchvision's Resize."""
    short, long = sorted((height, width))
    if shorter_side is None or short <= shorter_side:
        return height, width
    longer = int(shorter_side * long / short)
    return (shorter_side, longer) if height <= width else (longer, shorter_side)


def _edges(box: Box, height: int, width: int) -> tuple[int, int, int, int]:
    """Left, top, right, bottom in whole pixels of the image.

    >>> _edges((-3.0, 2.4, 7.6, 90.0), height=10, width=20)
    (0, 2, 8, 10)
    """
    left, top, right, bottom = (round(edge) for edge in box)
    inside = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        raise ValueError(f"its box {box} has nothing of its {width} x {height} pixels")
    return inside


def _unreadable(path: Path, error: Exception) -> OSError:
    # a ValueError is about what is in the file; anything else would have stood out when the data was checked
    hint = "" if isinstance(error, ValueError) else ". Was it changed after the data set was checked?"
    return OSError(f"cannot read image {shown(path)}: {_reason(error, path)}{hint}")


def _reason(error: Exception, path: Path) -> str:
    from PIL import UnidentifiedImageError

    ending = path.suffix.lower()
    if isinstance(error, UnidentifiedImageError):
        if ending in (".heic", ".heif", ".hif") and "HEIF" not in _formats():
            return "HEIC needs one more package: pip install pillow-heif"
        if ending == ".avif" and "AVIF" not in _formats():
            return "AVIF needs a newer Pillow: pip install --upgrade pillow"
        return FOREIGN.get(ending, "not an image of a known format")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return shown(error) or type(error).__name__
