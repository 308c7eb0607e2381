"""A picture of a data set with one row per class, to look at before training."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch

from ..files import atomic_write
from .base import ImageSet, Table


def contact_sheet(table: Table, path: Path | str, classes: int = 24, per_class: int = 12, cell: int = 48) -> Path:
    """Write a PNG with one row per class: its name, then its first images.

    The names are drawn in matplotlib's font, which has Latin, Greek, Cyrillic, Armenian and Georgian letters.

    Args:
        table: the images, e.g. `table.select("test")`.
        path: of the PNG; missing folders are made.
        classes: number of classes, spread evenly over those that have an image.
        per_class: largest number of images per row.
        cell: longer side of an image on the sheet, pixels. Images are resized to it; the aspect ratio is kept.

    Returns:
        The path of the PNG.

    >>> import tempfile
    >>> from PIL import Image
    >>> tiles = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    >>> table = Table("tiles", torch.tensor([0, 0, 1, 1]), ("a", "b"), ("test",) * 4, tuple("wxyz"), 1, tiles)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Image.open(contact_sheet(table, Path(folder, "sheet.png"))) as sheet:
    ...         print(sheet.format, sheet.height)  # a row of 48 + 2 pixels for each class
    PNG 100
    """
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont, ImageOps
    from torchvision.transforms.v2.functional import to_pil_image

    present = torch.unique(table.label).numpy()
    shown = present[np.linspace(0, len(present) - 1, min(classes, len(present))).round().astype(int)].tolist()
    rows = [(table.label == label).nonzero().flatten()[:per_class].tolist() for label in shown]
    font = ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), 13)
    titles = [table.class_names[label] for label in shown]
    margin, step = 12 + min(260, max(int(font.getlength(title)) for title in titles)), cell + 2
    sheet = Image.new("RGB", (margin + step * max(map(len, rows)), step * len(rows)), "white")
    draw, images = ImageDraw.Draw(sheet), ImageSet(table)
    for y, (title, row) in enumerate(zip(titles, rows, strict=True)):
        draw.text((4, y * step + cell // 2), title, fill="black", font=font, anchor="lm")
        # over the end of a title that is too long
        draw.rectangle((margin - 2, y * step, sheet.width, (y + 1) * step), fill="white")
        for x, index in enumerate(row):
            tile = to_pil_image(images[index][0])
            sheet.paste(ImageOps.contain(tile, (cell, cell)), (margin + x * step, y * step))
    path, picture = Path(path), io.BytesIO()
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(picture, format="PNG")
    with atomic_write(path) as out:
        out.write(picture.getvalue())
    return path
