"""The lines of YOLO's text files: a class and a box, a polygon, or a box with key points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    x, y, width, height = values[:4]
    for numbers in (2, 3):
        rest = values[4:]
        if len(rest) % numbers or len(rest) < FEWEST:
            continue
        points = [point for point in zip(rest[0::numbers], rest[1::numbers], strict=True) if any(point)]
        inside = all(abs(a - x) <= width / 2 + 1e-3 and abs(b - y) <= height / 2 + 1e-3 for a, b in points)
        visible = numbers == 3 and set(rest[2::3]) <= {0, 1, 2}
        if points and inside and (visible or (numbers == 2 and not _near((width, height), points))):
            return True
    return False


def _near(corner: tuple[float, float], points: Sequence[tuple[float, float]]) -> bool:
    """Whether a corner of a polygon is not far from its other corners: by half of their extent at most."""
    for side, values in zip(corner, zip(*points, strict=True), strict=True):
        margin = (max(values) - min(values)) / 2
        if not min(values) - margin <= side <= max(values) + margin:
            return False
    return True
