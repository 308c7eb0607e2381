"""A picture of a data set: one row per class, so that a person sees what is there before training on it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from .base import ImageSet, Table
from .images import some

if TYPE_CHECKING:
    from PIL import ImageFont


class FontWarning(UserWarning):
    """Names of classes are not on a sheet."""


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

    Warns:
        FontWarning: no font of this machine has the letters of a name; its row is called by the number of the class.
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
            f"nothing to show: {len(present)} classes have images, asked for {classes!r}, {per_class} each"
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


def _titles(names: Mapping[int, str]) -> list[tuple[str, ImageFont.FreeTypeFont]]:
    """What stands at each row, and the first font that has its letters: matplotlib's own, then those of the machine.

    Matplotlib's own has the Greek, Cyrillic, Armenian and Georgian letters; Pillow's has not.

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
            f"no font of this machine has the letters of {some(unknown)}: on the sheet the rows of these "
            f"{len(unknown)} classes are called by their numbers. Install such a font (Noto Sans CJK has Chinese, "
            "Japanese and Korean)",
            FontWarning,
            stacklevel=3,
        )
    return titles


@lru_cache(maxsize=512)
def _has(font: Path, text: str) -> bool:
    """Whether a font has all letters of a text; those called LastResort have a box for every letter."""
    return "lastresort" not in font.name.lower() and set(map(ord, text)) <= _letters(font)


@lru_cache(maxsize=512)
def _letters(font: Path) -> Set[int]:
    """Code points that a font has; none of a file that cannot be read, or not at the size of a title."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    try:
        ImageFont.truetype(str(font), 13)
        return frozenset(FT2Font(str(font)).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
