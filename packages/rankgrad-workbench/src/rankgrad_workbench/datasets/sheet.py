"""A picture of a data set with one row per class, to look at before training."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..files import atomic_write
from .base import ImageSet, Table
from .images import some

if TYPE_CHECKING:
    from PIL import ImageFont


class FontWarning(UserWarning):
    """The names of some classes cannot be drawn on a sheet."""


def contact_sheet(
    table: Table, path: Path | str, classes: int | Sequence[int] = 24, per_class: int = 12, cell: int = 48
) -> Path:
    """Write a PNG with one row per class: its name, then its first images.

    Args:
        table: the images, e.g. `table.select("test")`.
        path: of the PNG; missing folders are made.
        classes: the labels to show; or their number, then spread evenly over the classes that have an image.
        per_class: largest number of images per row.
        cell: longer side of an image on the sheet, pixels. Images are resized to it; the aspect ratio is kept.

    Returns:
        The path of the PNG.

    Raises:
        ValueError: if there is nothing to show.

    Warns:
        FontWarning: no font of this machine has the letters of a name; its row shows the number of the class instead.

    >>> import tempfile
    >>> from PIL import Image
    >>> tiles = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    >>> table = Table("tiles", torch.tensor([0, 0, 1, 1]), ("a", "b"), ("test",) * 4, tuple("wxyz"), 1, tiles)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Image.open(contact_sheet(table, Path(folder, "sheet.png"))) as sheet:
    ...         print(sheet.format, sheet.height)  # a row of 48 + 2 pixels for each class
    PNG 100
    """
    from PIL import Image, ImageDraw

    present = torch.unique(table.label).tolist()
    if isinstance(classes, int):
        picked = np.linspace(0, len(present) - 1, min(classes, len(present))).round().astype(int)
        wanted = [present[i] for i in picked]
    else:
        wanted = [label for label in classes if label in set(present)]
    if not wanted or per_class < 1:
        raise ValueError(
            f"nothing to show: {len(present)} classes have images; got classes={classes!r}, per_class={per_class}"
        )
    rows = [(table.label == label).nonzero().squeeze(1)[:per_class].tolist() for label in wanted]
    titles = _titles({label: table.class_names[label] for label in wanted})
    margin = 12 + min(260, max(int(font.getlength(title)) for title, font in titles))
    step = cell + 2
    sheet = Image.new("RGB", (margin + step * max(map(len, rows)), step * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    images = ImageSet(table, channels=3)
    for y, ((title, font), row) in enumerate(zip(titles, rows, strict=True)):
        draw.text((4, y * step + cell // 2), title, fill="black", font=font, anchor="lm")
        draw.rectangle(
            (margin - 2, y * step, sheet.width, (y + 1) * step), fill="white"
        )  # covers the end of a title that is too long
        for x, index in enumerate(row):
            tile = Image.fromarray(images[index][0].permute(1, 2, 0).contiguous().numpy())
            zoom = cell / max(tile.size)
            size = (max(1, round(tile.width * zoom)), max(1, round(tile.height * zoom)))
            sheet.paste(tile.resize(size), (margin + x * step, y * step))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = io.BytesIO()
    sheet.save(picture, format="PNG")
    with atomic_write(path) as file:
        file.write(picture.getvalue())
    return path


def _titles(names: Mapping[int, str]) -> list[tuple[str, ImageFont.FreeTypeFont]]:
    """Title of each row, and the first font that has its letters: matplotlib's own font, then those of the machine.

    Matplotlib's font has the Greek, Cyrillic, Armenian and Georgian letters. Pillow's font lacks them.

    Args:
        names: label -> name of the class.
    """
    from matplotlib import font_manager, get_data_path
    from PIL import ImageFont

    own = Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    others = [] if all(_has(own, name) for name in names.values()) else sorted(font_manager.findSystemFonts())
    titles, unknown = [], []
    for label, name in names.items():
        font = next((path for path in (own, *map(Path, others)) if _has(path, name)), None)
        titles.append((f"class {label}" if font is None else name, ImageFont.truetype(str(font or own), 13)))
        unknown += [name] if font is None else []
    if unknown:
        warnings.warn(
            f"no font of this machine has the letters of {some(unknown)}: the sheet shows the numbers of these "
            f"{len(unknown)} classes instead. Install a font that has them (Noto Sans CJK has Chinese, Japanese and "
            "Korean)",
            FontWarning,
            stacklevel=3,
        )
    return titles


@lru_cache(maxsize=512)
def _has(font: Path, text: str) -> bool:
    """Whether a font has all letters of a text. Fonts called LastResort are ignored: they draw a box for any letter."""
    return "lastresort" not in font.name.lower() and set(map(ord, text)) <= _letters(font)


@lru_cache(maxsize=512)
def _letters(font: Path) -> Set[int]:
    """Code points that a font has; empty if it cannot be read, or not at the size of a title."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    try:
        ImageFont.truetype(str(font), 13)
        return frozenset(FT2Font(str(font)).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
