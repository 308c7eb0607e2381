"""The lines of YOLO's text files: a class and a box, a polygon, or a box with key points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rankgrad.common.text import shown

FAR = 2.0  # fractions beyond this are pixels, or damaged
CORNER = 1.5  # of a polygon; a 2 is how key points say that they are visible
FEWEST = 6  # numbers of key points without kpt_shape that are told from a polygon; four are like an oriented box
KEY_POINTS = "Key points after a box need their shape in data.yaml, such as kpt_shape: [17, 3]"

Line = tuple[int, tuple[float, float, float, float]]  # class, and the edges of the box as fractions
Shape = tuple[int, int]  # number of key points after a box, and of numbers of each


def key_points(path: Path | None, given: Any) -> Shape | None:
    """`kpt_shape` of a yaml, or None.

    Raises:
        ValueError: it does not have two such numbers.
    """
    if given is None:
        return None
    two = isinstance(given, list) and len(given) == 2 and all(type(each) is int for each in given)
    if not two or given[0] < 1 or given[1] not in (2, 3):
        raise ValueError(
            f"{path}: kpt_shape must be the number of key points, and 2 or 3 numbers of each, such as [17, 3]; "
            f"got {shown(str(given)[:80])}"
        )
    return given[0], given[1]


@dataclass
class Lines:
    """Reads the lines of a split.

    Attributes:
        classes: number of classes.
        points: key points after each box; None: there are none.
        polygons: for each polygon so far, the number of its values, and whether they look like key points.
    """

    classes: int
    points: Shape | None = None
    polygons: list[tuple[int, bool]] = field(default_factory=list)

    def read(self, where: str, line: str) -> Line:
        """The class of a line, and the edges of its box.

        Raises:
            ValueError: it is no box and no polygon; the message begins with `where`.

        >>> Lines(2).read("a.txt, line 1", "1 0.5 0.5 0.2 0.4")
        (1, (0.4, 0.3, 0.6, 0.7))
        """
        try:
            label, *values = map(float, line.split())
        except ValueError:
            label, values = math.nan, []
        more, used = len(values) - 4, values[:4] if self.points else values
        fits = more == 0 or (more > 0 and (more % 2 == 0 if self.points is None else more == math.prod(self.points)))
        far = CORNER if len(used) > 4 else FAR
        if not fits or label not in range(self.classes) or not all(abs(value) <= far for value in used):
            also = "a polygon" if self.points is None else f"a box and {self.points[0]} key points (kpt_shape)"
            raise ValueError(
                f"{where} must be class (0 .. {self.classes - 1}), centre x, centre y, width, height; or {also}; got "
                f"{shown(line.strip()[:80])!r}. Numbers are fractions of the image, 0 .. 1, and not pixels. The last "
                "number may be the confidence of a detection, or an angle. To leave a confidence out: cut -d' ' "
                f"-f1-{len(values)}. {KEY_POINTS}"
            )
        if len(used) > 4:
            self.polygons.append((len(values), _like_key_points(values)))
            xs, ys = values[0::2], values[1::2]
            return int(label), (min(xs), min(ys), max(xs), max(ys))
        x, y, width, height = used
        return int(label), (x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def notes(self, split: str) -> list[str]:
        """What is to be said about polygons.

        Raises:
            ValueError: they look like boxes with key points, in most lines.
        """
        if not self.polygons:
            return []
        lengths = {length for length, _ in self.polygons}
        if len(lengths) == 1 and 2 * sum(like for _, like in self.polygons) > len(self.polygons):
            raise ValueError(
                f"lines of {split} with {lengths.pop()} numbers look like a box and key points, and not like a "
                f"polygon. {KEY_POINTS}"
            )
        return [f"{len(self.polygons)} objects are polygons or oriented boxes: the box around each is used"]


def _like_key_points(values: Sequence[float]) -> bool:
    """Whether numbers look like a box with key points inside: their first four as a box, and not as two corners."""
    box, rest = np.array(values[:4]), np.array(values[4:])
    for each in (2, 3):
        if len(rest) % each or len(rest) < FEWEST:
            continue
        numbers = rest.reshape(-1, each)
        points = numbers[numbers[:, :2].any(1), :2]
        if not len(points) or (abs(points - box[:2]) > box[2:] / 2 + 1e-3).any():
            continue
        low, high = points.min(0), points.max(0)
        margin = (high - low) / 2  # a corner of a polygon is not farther from its other corners
        near = bool(((low - margin <= box[2:]) & (box[2:] <= high + margin)).all())
        if {*numbers[:, 2].tolist()} <= {0, 1, 2} if each == 3 else not near:
            return True
    return False
