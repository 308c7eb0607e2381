"""What is to be said about images and boxes that can be read, but look like a mistake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad_workbench.trec.alike import key

from .paths import links_out
from .scenes import Scene, some_names

SMALL = 2  # pixels; in an image with such a side, every box is near the first pixel


def oddities(root: Path, names: Sequence[str], scenes: Sequence[Scene]) -> list[str]:
    """Notes about names of classes that look alike, repeated objects, boxes in the first pixel, and links.

    Args:
        root: the folder of the data.
        names: of the classes.
        scenes: the images.

    Raises:
        ValueError: most boxes are fractions of the image.
    """
    notes = []
    if alike := look_alike(names):
        notes.append(f"the classes {alike[0]!a} and {alike[1]!a} look alike")
    if repeated := _repeated(scenes):
        notes.append(
            f"{len(repeated)} objects are annotated twice, with the same class and box, e.g. in "
            f"{some_names(repeated)}; both count"
        )
    if corner := _in_first_pixel(scenes):
        text = f"{len(corner)} boxes lie in the first pixel of their image, e.g. in {some_names(corner)}"
        if 2 * len(corner) >= sum(len(scene.boxes) for scene in scenes):
            raise ValueError(
                f"{text}: they are fractions of the image, and must be pixels. Multiply them by its width and height"
            )
        notes.append(f"{text}; are they fractions?")
    if links := links_out(root, (scene.path for scene in scenes)):
        notes.append(f"{len(links)} images are links out of the folder, and are opened, e.g. {links[0]}")
    return notes


def look_alike(names: Sequence[str]) -> tuple[str, str] | None:
    r"""The first two names that differ only in what one does not see.

    >>> look_alike(["caf\u00e9", "tea", "cafe\u0301"]) == ("caf\u00e9", "cafe\u0301"), look_alike(["a", "b"])
    (True, None)
    """
    first: dict[str, str] = {}
    return next(((before, name) for name in names if (before := first.setdefault(key(name), name)) != name), None)


def _repeated(scenes: Sequence[Scene]) -> list[str]:
    """The image of each object that is there a second time."""
    found = []
    for scene in scenes:
        rows = [(label, *box) for label, box in zip(scene.labels.tolist(), scene.boxes.tolist(), strict=True)]
        found += [scene.name] * (len(rows) - len(set(rows)))
    return found


def _in_first_pixel(scenes: Sequence[Scene]) -> list[str]:
    """The image of each box that ends before its second pixel."""
    return [
        scene.name
        for scene in scenes
        if min(scene.size) > SMALL
        for _ in range(int((scene.boxes[:, 2:] <= 1).all(1).sum()))
    ]
