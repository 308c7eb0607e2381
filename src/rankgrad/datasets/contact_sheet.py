"""A picture of a data set: one row per class, so that a person sees what is there before training on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from .base import ImageSet, Table


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
