"""Reads image files: upright, 8 bits, grey or RGB. Errors name files that are too large or unreadable.

All commands and loaders read images here, so that the rules are the same everywhere: EXIF orientation is applied,
transparent parts become white, 16-bit values keep their upper 8 bits, CMYK and palettes are converted, an animation
gives its first frame. The format is detected from the content of the file, not from its name. Only the formats of a
list are allowed, because Pillow starts other programs for some formats.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import yaml
from torch import Tensor
from torch.nn.functional import interpolate

from rankgrad.common.text import shown

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

Skipped = tuple[tuple[str, str], ...]  # (path, reason) of files that cannot be used
Box = tuple[float, ...]  # left, top, right, bottom; pixels of the upright image

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "DIB", "GIF", "PPM", "MPO", "JPEG2000", "AVIF", "HEIF")

_NAMES = yaml.safe_load(Path(__file__).with_name("image_names.yaml").read_text(encoding="utf-8"))
EXTENSIONS = tuple(_NAMES["images"])
SIDECARS = tuple(_NAMES["sidecars"])
FOREIGN: dict[str, str] = {ending: advice for advice, endings in _NAMES["foreign"].items() for ending in endings}
SYSTEM_FOLDERS = frozenset(_NAMES["system_folders"])


class SkippedWarning(UserWarning):
    """Some files were skipped that the user may have meant to use."""


LISTED = 10  # largest number of lines about skipped files
# reasons for which a folder is listed among the skipped files
EMPTY = "a class folder without an image"
SYSTEM = "a folder that a system made (small previews, deleted files), left out"

THUMB = 9, 8  # width and height of the grey picture by which the same picture in another size or format is found

MAX_PIXELS = 178_956_970  # Pillow's default limit; 0.5 GB as RGB
VARIABLE = "RANKGRAD_MAX_PIXELS"


def max_pixels() -> int:
    """The largest allowed number of pixels of an image: the environment variable RANKGRAD_MAX_PIXELS, or `MAX_PIXELS`.

    Larger images are refused before they are decoded, because a file of some kilobytes can decode to more than the
    memory holds. An environment variable reaches all commands and the workers of a DataLoader.

    Raises:
        ValueError: if the variable is not an integer >= 1.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return MAX_PIXELS
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{VARIABLE} is the largest number of pixels of an image, an integer >= 1; got {text!r}")
    return int(text)


def read_image(
    path: Path, channels: int, shorter_side: int | None = None, box: Box | None = None, draft: bool = False
) -> Tensor:
    """An image file as uint8 [channels, height, width].

    Args:
        path: the file.
        channels: 3 (RGB) or 1 (grey).
        shorter_side: pixels. An image whose shorter side is longer is resized to it, as in `transforms.PhotoTrain`.
        box: left, top, right, bottom of the crop, see `Table`; None: the whole image.
        draft: decode a JPEG at a fraction of its size, at no less than twice `shorter_side`, for thumbnails. Ignored
            with a box, which may be a small part of the image.

    Raises:
        OSError: if the file cannot be read or decoded, has more than `max_pixels`, or the box is outside of the image;
            it names the file and the reason.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (40, 20), "red").save(Path(folder, "red.png"))
    ...     pixels = read_image(Path(folder, "red.png"), channels=3, shorter_side=10)
    >>> pixels.shape, pixels[:, 0, 0]
    (torch.Size([3, 10, 20]), tensor([255, 0, 0], dtype=torch.uint8))
    """
    least = 2 * shorter_side if draft and shorter_side and box is None else None
    with _naming(path):
        image, (height, width) = _decoded(path, channels, least)
        if box is not None:
            image = image.crop(_edges(box, height, width))
            height, width = image.height, image.width
    array = np.array(image, dtype=np.uint8)  # a copy: torch needs writable memory
    # keep the decoder's layout, rows of pixels: the next step, resizing, is twice as fast on it
    pixels = torch.from_numpy(array).view(image.height, image.width, channels).permute(2, 0, 1)
    if shorter_side is None or min(height, width) <= shorter_side:
        return resized(pixels, (height, width))
    return resized(pixels, shorter(height, width, shorter_side))


def shorter(height: int, width: int, side: int) -> tuple[int, int]:
    """(height, width) after the shorter side is resized to `side`; rounds as torchvision's Resize.

    >>> shorter(30, 40, 10)
    (10, 13)
    """
    longer = int(side * max(height, width) / min(height, width))
    return (side, longer) if height <= width else (longer, side)


def resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Pixels [channel, height, width] uint8 in another size, by antialiased bilinear interpolation.

    The result is the same on all processors. It is that of torchvision's `resize`, which differs by a grey level where
    there is no AVX2. Importing torchvision takes three times as long as all else that a query needs.
    """
    if pixels.shape[1:] == size:
        return pixels
    return interpolate(pixels[None], size, mode="bilinear", align_corners=False, antialias=True)[0]


def open_image(path: Path, channels: int = 3, upright: bool = True) -> Image:
    """Read a file as a Pillow image of mode RGB or L, in full size.

    Args:
        path: the file.
        channels: 3 (RGB) or 1 (grey).
        upright: turn the image as its EXIF tag says.

    Raises:
        OSError: as `read_image`.
    """
    with _naming(path):
        return _decoded(path, channels, upright=upright)[0]


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) of the upright image, read from the header of the file.

    Raises:
        OSError: as `read_image`.
    """
    with _naming(path), _opened(path) as image:
        return _upright_size(image)


def look(path: Path) -> tuple[str | None, bytes]:
    """(why an image file cannot be used, None if it can; the image as `THUMB` grey pixels, empty if unusable).

    Decodes all of it, a JPEG at 1/8 of its size.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
            return "not a regular file", b""
        if status.st_size == 0:
            return "empty file", b""
        with _opened(path) as image:
            image.verify()  # compares checksums, if the format has them
        small = _decoded(path, 3, least=32)[0].convert("L")
        return None, small.resize(THUMB, resample=4).tobytes()  # 4: the mean of the pixels below (BOX)
    except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
        return _reason(error, path), b""


def made_by_system(folder: str) -> bool:
    """Whether the name of a folder is one of `SYSTEM_FOLDERS`.

    >>> made_by_system("@eaDir"), made_by_system("found.000"), made_by_system("cat")
    (True, True, False)
    """
    name = folder.casefold()
    return name in SYSTEM_FOLDERS or re.fullmatch(r"found\.\d{3}|.*\.lrdata", name) is not None


def not_an_image(path: Path) -> str | None:
    """The reason why a file is not an image, by its name alone; None: its name is that of an image.

    >>> not_an_image(Path("a/B.JPEG")), not_an_image(Path("plan.dwg"))
    (None, 'not an image by its name')
    >>> not_an_image(Path("plan.pdf"))
    'a document and no image: export its pages as PNG or JPEG'
    """
    ending = path.suffix.lower()
    return None if ending in EXTENSIONS else FOREIGN.get(ending, "not an image by its name")


def skipped_lines(skipped: Sequence[tuple[str, str]]) -> list[str]:
    """Lines that list the skipped files and folders with the reasons. A long list has one line per reason.

    >>> skipped_lines([("a/b.svg", "a drawing"), ("a/c", EMPTY)])
    ['skipped 1 file and 1 folder:', '  a/b.svg: a drawing', '  a/c: a class folder without an image']
    """
    if not skipped:
        return []
    lines = [f"  {shown(path)}: {reason}" for path, reason in skipped]
    if len(skipped) > LISTED:
        paths: dict[str, list[str]] = {}
        for path, reason in skipped:
            paths.setdefault(reason, []).append(shown(path))
        often = sorted(paths, key=lambda reason: -len(paths[reason]))[:LISTED]
        lines = [f"  {reason}, {len(paths[reason])} times: {some(paths[reason])}" for reason in often]
        lines += ["  ..."] * (len(paths) > LISTED)
    return [f"skipped {number_of(skipped)}:", *lines]


def number_of(skipped: Sequence[tuple[str, str]]) -> str:
    """How many files and folders these are.

    >>> number_of([("a/b.svg", "a drawing"), ("a/c", EMPTY)])
    '1 file and 1 folder'
    """
    folders = sum(reason in (EMPTY, SYSTEM) for _, reason in skipped)
    counts = ((len(skipped) - folders, "file"), (folders, "folder"))
    return " and ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count)


def some(names: Sequence[object], most: int = 5) -> str:
    """The first `most` names, as text.

    >>> some(["a", "b", "c"], most=2)
    'a, b, ...'
    """
    return ", ".join(map(shown, names[:most])) + (", ..." if len(names) > most else "")


# ---------------------------------------------------------------------------------------------------------- decoding


@cache
def _formats() -> tuple[str, ...]:
    """The `FORMATS` that can be read here: HEIF needs pillow-heif."""
    from PIL import Image

    with contextlib.suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _opened(path: Path) -> ImageFile:
    """The opened file. Its header is read and its size is checked; nothing is decoded yet."""
    from PIL import Image

    most = max_pixels()
    if VARIABLE in os.environ and (Image.MAX_IMAGE_PIXELS or most) < most:
        Image.MAX_IMAGE_PIXELS = most  # Pillow's own limit, which holds for the whole process
    size = "its pixels"
    with contextlib.suppress(Image.DecompressionBombError, Image.DecompressionBombWarning):
        image = Image.open(path, formats=_formats())
        if image.width * image.height <= most:
            return image
        size = f"its {image.width} x {image.height} pixels"
        image.close()
    raise ValueError(
        f"{size} are more than {most:,}, which may be an attempt to fill the memory. If you trust the file, set the "
        f"environment variable {VARIABLE} to a larger number"
    )


def _upright_size(image: Image) -> tuple[int, int]:
    """(height, width) of an image after it is turned as its EXIF tag says. It must not be loaded yet."""
    from PIL import ExifTags

    # new versions of Pillow turn the size of a TIFF file when they open it, and leave the tag
    width = getattr(image, "tag_v2", {}).get(ExifTags.Base.ImageWidth, image.width)
    lies = _orientation(image) in (5, 6, 7, 8) and width == image.width
    return (image.width, image.height) if lies else (image.height, image.width)


def _orientation(image: Image) -> int:
    """The EXIF tag of the orientation; 1, upright, if there is none or the EXIF data is damaged."""
    from PIL import ExifTags

    if image.format == "PNG":
        image.load()  # getexif would do it too, but an error of the pixels is none of the EXIF data
    with contextlib.suppress(Exception):  # Pillow raises nearly anything on broken data
        orientation: int = image.getexif().get(ExifTags.Base.Orientation, 1)
        return orientation
    return 1


def _decoded(
    path: Path, channels: int, least: int | None = None, upright: bool = True
) -> tuple[Image, tuple[int, int]]:
    """Decoded 8-bit image of mode L or RGB, and (height, width) of the whole image.

    Args:
        path: the file.
        channels: 1 or 3.
        least: a JPEG may decode at 1/2, 1/4 or 1/8 of its size if its sides keep this many pixels; None: full size.
        upright: turn the image as its EXIF tag says.
    """
    from PIL import Image, ImageOps

    mode = "L" if channels == 1 else "RGB"
    with _opened(path) as opened:
        size = _upright_size(opened) if upright else (opened.height, opened.width)
        if least is not None:
            opened.draft(None, (least, least))
        opened.load()
        # a PGM with more than 8 bits is scaled to 16 bits by Pillow
        sixteen_bits = opened.mode.startswith("I;16") or (opened.mode == "I" and opened.format in ("PNG", "PPM"))
        # exif_transpose and `convert` copy the image even if there is nothing to do
        turned = upright and _orientation(opened) != 1
        image: Image.Image = ImageOps.exif_transpose(opened) if turned else opened
    if sixteen_bits:
        # Pillow's own conversion to 8 bits clips at 255, which makes most 16-bit images white
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no known range; store the image with 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode != mode:
        image = image.convert(mode)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == mode else image.convert(mode), size


def _edges(box: Box, height: int, width: int) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a box in whole pixels, clipped to the image.

    >>> _edges((-3.0, 2.4, 7.6, 90.0), height=10, width=20)
    (0, 2, 8, 10)
    """
    left, top, right, bottom = (round(edge) for edge in box)
    inside = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    if not (inside[0] < inside[2] and inside[1] < inside[3]):
        raise ValueError(f"its box {box} is not inside the image of {width} x {height} pixels")
    return inside


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """A context whose errors name the file: Pillow's decoders raise nearly anything on a broken one."""
    try:
        yield
    except Exception as error:
        raise OSError(f"cannot read image {shown(path)}: {_reason(error, path)}") from error


def _reason(error: Exception, path: Path) -> str:
    from PIL import UnidentifiedImageError

    ending = path.suffix.lower()
    if isinstance(error, UnidentifiedImageError):
        if ending in (".heic", ".heif", ".hif") and "HEIF" not in _formats():
            return "HEIC needs one more package: pip install pillow-heif"
        return FOREIGN.get(ending, "not an image of a known format")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return shown(error) or type(error).__name__
