"""Draws detections into images: right ones, wrong ones with the kind of mistake, and missed objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .scenes import Scene
from .voc_ap import Detections, judged, match, of_class

if TYPE_CHECKING:
    from PIL.Image import Image

# Kinds of wrong detections, and their meaning.
WRONG = {
    "place": "near an object of its class, but not near enough",
    "twice": "an object that a detection of higher score has found",
    "class": "on an object of another class",
    "nothing": "on no object",
}
HIT, MISSED, IGNORED = "hit", "missed", "difficult"
NEAR = 0.1  # from this overlap on, a wrong detection counts as near its object ("place")
COLOURS = {HIT: "#087a57", MISSED: "#1f5fbf", IGNORED: "#5d626b", **dict.fromkeys(WRONG, "#c2410c")}  # of the page
WIDTH = 640  # width of a drawn image in pixels


@dataclass(frozen=True)
class Mark:
    """A box to draw.

    Attributes:
        box: left, top, right, bottom in pixels of the file.
        kind: hit, missed, difficult, or a key of `WRONG`.
        text: class, and for a detection its score.
    """

    box: tuple[float, float, float, float]
    kind: str
    text: str


def marks(
    detections: Sequence[Detections],
    scenes: Sequence[Scene],
    class_names: Sequence[str],
    above: Mapping[str, float],
    iou: float = 0.5,
    inclusive: bool = False,
) -> list[list[Mark]]:
    """The boxes to draw in each image.

    Args:
        detections: [image] detections.
        scenes: [image] annotated objects.
        class_names: C names.
        above: class -> lowest score to draw.
        iou: overlap from which an object counts as found.
        inclusive: see `voc_ap.overlaps`.
    """
    marked: list[list[Mark]] = [[] for _ in scenes]
    first = np.cumsum([0, *(len(scene.labels) for scene in scenes)])
    taken: set[int] = set()
    matches = match(detections, scenes, len(class_names), inclusive)
    for number, name in enumerate(class_names):
        own = of_class(matches, number)
        hits, ignored = judged(own, iou)
        for row in np.flatnonzero(own.score >= above[name]).tolist():
            image, place = int(own.image[row]), int(own.place[row])
            if hits[row]:
                kind = HIT
                taken.add(int(own.object[row]))
            elif ignored[row]:
                kind = IGNORED
            elif own.overlap[row] >= iou:
                kind = "twice"
            elif own.overlap[row] >= NEAR:
                kind = "place"
            else:
                kind = "class" if own.elsewhere[row] >= iou else "nothing"
            box = tuple(detections[image].boxes[place].tolist())
            marked[image].append(Mark(box, kind, f"{name} {own.score[row]:.2f}"))
    for image, scene in enumerate(scenes):
        for place, (box, label, hard) in enumerate(
            zip(scene.boxes.tolist(), scene.labels.tolist(), scene.difficult.tolist(), strict=True)
        ):
            if int(first[image]) + place not in taken and not hard:
                marked[image].append(Mark(tuple(box), MISSED, class_names[label]))
    return marked


def tally(marked: Sequence[Sequence[Mark]]) -> dict[str, int]:
    """Kind -> number of boxes in all images."""
    count = Counter(mark.kind for image in marked for mark in image)
    return {kind: count[kind] for kind in (HIT, *WRONG, MISSED)}


def worth_seeing(marked: Sequence[Sequence[Mark]], most: int = 8, seed: int = 0) -> list[int]:
    """Images to show, in the order of the list: half of them with the most mistakes, the others drawn at random.

    >>> wrong = Mark((0, 0, 1, 1), "nothing", "a")
    >>> 2 in worth_seeing([[], [wrong], [wrong, wrong], []], most=2)
    True
    """
    mistakes = [sum(mark.kind in WRONG or mark.kind == MISSED for mark in image) for image in marked]
    worst = sorted(range(len(marked)), key=lambda image: (-mistakes[image], image))[: most // 2]
    others = [image for image in range(len(marked)) if image not in worst]
    drawn = np.random.RandomState(seed).permutation(len(others))[: most - len(worst)]
    return sorted([*worst, *(others[place] for place in drawn.tolist())])


def draw(scene: Scene, marked: Sequence[Mark], width: int = WIDTH) -> Image:
    """Draw boxes: right ones green, wrong ones red (with the kind), missed objects blue, difficult ones grey."""
    from PIL import Image as Images
    from PIL import ImageDraw, ImageFont

    image: Image = scene.image()
    scale = width / image.width
    image = image.resize((width, max(round(image.height * scale), 1)), Images.Resampling.LANCZOS)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=13)
    order = {HIT: 0, IGNORED: 0, MISSED: 1}  # mistakes on top, and all texts above all boxes
    ordered = [
        (mark, [side * scale for side in mark.box]) for mark in sorted(marked, key=lambda mark: order.get(mark.kind, 2))
    ]
    for mark, box in ordered:
        pen.rectangle(box, outline=COLOURS[mark.kind], width=2)
    for mark, box in ordered:
        text = mark.text + (f": {mark.kind}" if mark.kind in WRONG else " missed" if mark.kind == MISSED else "")
        _tag(pen, font, box, text, COLOURS[mark.kind], image.size)
    return image


def _tag(pen: Any, font: Any, box: Sequence[float], text: str, colour: str, size: tuple[int, int]) -> None:
    """Write a text above a box, or at its top inside the image."""
    wide, high = pen.textlength(text, font=font) + 6, 16
    x = min(max(box[0], 0), size[0] - wide)
    y = min(max(box[1] - high, 0), size[1] - high)
    pen.rectangle((x, y, x + wide, y + high), fill=colour)
    pen.text((x + 3, y), text, fill="white", font=font)
