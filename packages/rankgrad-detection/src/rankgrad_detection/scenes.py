"""Annotated images, whatever file their boxes are in.

Boxes are stored as edges (left, top, right, bottom); the top left corner of the image is 0. With edges, the ordinary
overlap equals VOC's with "+ 1" (`voc_ap.overlaps`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rankgrad.common.text import shown
from rankgrad_workbench.datasets.images import open_image

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = torch.finfo(torch.float32).max  # boxes are float32
NAMED = 5  # largest number of names that a message lists


@dataclass(frozen=True, eq=False)
class Scene:
    """An image and the objects in it.

    Attributes:
        name: name of the image, without the file ending.
        path: file.
        size: (width, height) in pixels, as annotated; if that is missing or 0, the size of the upright file.
        boxes: [object, 4] float32, edges (left, top, right, bottom) in pixels of the file; the top left corner is 0.
        labels: [object] long, 0 .. C - 1.
        difficult: [object] bool; such objects count neither as found nor as missed.
        crowd: [object] bool, boxes around many objects (COCO's iscrowd). They are difficult, too, and never learned.
            None: there are none.
    """

    name: str
    path: Path
    size: tuple[int, int]
    boxes: Tensor
    labels: Tensor
    difficult: Tensor
    crowd: Tensor | None = None

    def image(self) -> Image:
        """The image in full size, RGB, upright (see `datasets.images`), so that the boxes fit.

        Some annotation tools ignore the EXIF tag that turns an image. If the annotated size is that of the stored
        pixels, and not that of the upright image, the boxes belong to the stored pixels, and the image is not turned.

        Raises:
            OSError: the image cannot be read.
        """
        image = open_image(self.path)
        turned = image.size != self.size and image.size == self.size[::-1]
        return open_image(self.path, upright=False) if turned else image

    def outside(self) -> Tensor:
        """[object] bool, whether no part of the box is in the image."""
        sides = torch.tensor(self.size, dtype=self.boxes.dtype)
        return ((self.boxes[:, :2] >= sides) | (self.boxes[:, 2:] <= 0)).any(1)


@dataclass(frozen=True, eq=False)
class Scenes:
    """Annotated images.

    Attributes:
        name: name of the split.
        class_names: C names.
        scenes: one per image, in the order of the list.
        left_out: each object that was left out, with its file and the reason.
        notes: what else is to be said about these files.
    """

    name: str
    class_names: tuple[str, ...]
    scenes: tuple[Scene, ...]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of images."""
        return len(self.scenes)

    def objects(self, difficult: bool = False) -> dict[str, int]:
        """Class -> number of objects, with or without the difficult ones."""
        counter = Counter(
            label
            for scene in self.scenes
            for label, hard in zip(scene.labels.tolist(), scene.difficult.tolist(), strict=True)
            if difficult or not hard
        )
        return {name: counter[number] for number, name in enumerate(self.class_names)}

    def summary(self) -> str:
        """One line of text: numbers of images and objects."""
        counts = self.objects()
        total, hard = sum(counts.values()), sum(self.objects(difficult=True).values()) - sum(counts.values())
        crowds = sum(int(scene.crowd.sum()) for scene in self.scenes if scene.crowd is not None)
        outside = sum(int(scene.outside().sum()) for scene in self.scenes)
        first = ", ".join(f"{name} {count}" for name, count in list(counts.items())[:6])
        more = f", and {len(counts) - 6} more classes" if len(counts) > 6 else ""
        text = f"{self.name}: {len(self)} images, {total} objects ({first}{more})"
        text += f", {hard - crowds} difficult ones" if hard > crowds else ""
        text += f", {crowds} crowds" if crowds else ""
        if self.left_out:
            text += f"; {len(self.left_out)} objects left out, e.g. {self.left_out[0]}"
        text += (
            f"; {outside} boxes are outside of their image: not learned, and missed in evaluation" if outside else ""
        )
        return shown("; ".join([text, *self.notes]))


def some_names(names: Sequence[str]) -> str:
    """The first few of some names."""
    return shown(", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else ""))
