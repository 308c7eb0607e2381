"""Folders in VOC's layout, drawn: red squares and blue discs on grey, with the oddities of real annotations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

Corners = tuple[float, float, float, float]
COLOURS = {"square": (200, 40, 40), "disc": (40, 60, 200)}


def annotation(objects: Sequence[tuple[str, Corners, int]], size: tuple[int, int] | None = (64, 48)) -> str:
    """An xml file; corners as VOC has them: from 1, the last pixel included."""
    parts = ["<annotation>"]
    if size is not None:
        parts.append(f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>")
    for name, (x1, y1, x2, y2), difficult in objects:
        box = f"<xmin>{x1:g}</xmin><ymin>{y1:g}</ymin><xmax>{x2:g}</xmax><ymax>{y2:g}</ymax>"
        parts.append(f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{box}</bndbox></object>")
    return "\n".join([*parts, "</annotation>"])


def write_image(path: Path, objects: Sequence[tuple[str, Corners, int]], size: tuple[int, int], seed: int) -> None:
    noise = np.random.RandomState(seed).randint(90, 150, (size[1], size[0], 1)).repeat(3, 2).astype(np.uint8)
    image = Image.fromarray(noise)
    pen = ImageDraw.Draw(image)
    for name, (x1, y1, x2, y2), _ in objects:
        shape = pen.ellipse if name == "disc" else pen.rectangle
        shape((x1 - 1, y1 - 1, x2 - 1, y2 - 1), fill=COLOURS.get(name, (220, 220, 60)))
    image.save(path, quality=95)


def some_objects(seed: int, size: tuple[int, int] = (64, 48)) -> list[tuple[str, Corners, int]]:
    """A square in the left half and a disc in the right one."""
    g = np.random.RandomState(seed)
    found: list[tuple[str, Corners, int]] = []
    for half, name in enumerate(("square", "disc")):
        side = int(g.randint(12, 22))
        left = int(g.randint(2, size[0] // 2 - side)) + half * size[0] // 2
        top = int(g.randint(2, size[1] - side))
        found.append((name, (left, top, left + side - 1, top + side - 1), 0))
    return found


def write_tree(
    home: Path,
    lists: dict[str, list[str]],
    objects: dict[str, list[tuple[str, Corners, int]]] | None = None,
    size: tuple[int, int] = (64, 48),
) -> Path:
    """A folder with these lists; images without given objects get `some_objects`."""
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (home / name).mkdir(parents=True, exist_ok=True)
    for name, images in lists.items():
        (home / "ImageSets" / "Main" / f"{name}.txt").write_text("".join(f"{image}\n" for image in images))
    for seed, image in enumerate(dict.fromkeys(image for images in lists.values() for image in images)):
        chosen = (objects or {}).get(image, some_objects(seed, size))
        (home / "Annotations" / f"{image}.xml").write_text(annotation(chosen, size))
        write_image(home / "JPEGImages" / f"{image}.jpg", chosen, size, seed)
    return home


def shapes(home: Path, train: int = 8, test: int = 3) -> Path:
    """Images for a run of seconds."""
    names = [f"{number:03}" for number in range(train + test)]
    return write_tree(home, {"trainval": names[:train], "train": names[: train // 2], "test": names[train:]})
