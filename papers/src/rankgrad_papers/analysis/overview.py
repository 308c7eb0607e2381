"""ROADMAP, Fig. 1: two flaws of relaxed AP, the gradient on three scores and the gap between batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import figure_style as style
from . import decomposability, gradients

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = ("Smooth-AP", "SupAP")


@dataclass(frozen=True, eq=False)
class Overview:
    """The results of both halves.

    Attributes:
        toy: losses and gradients of a list of three items.
        example: two batches that are each ranked perfectly, but whose union is not.
    """

    toy: gradients.Toy
    example: decomposability.Example

    def __str__(self) -> str:
        """Both results, one after the other."""
        return f"{self.toy}\n{self.example}"


def compute() -> Overview:
    """Compute both halves.

    >>> print(compute().example)
    AP in the batches 1.0000, 1.0000; of all 0.8105; gap 0.1895; bounds 0.1895 (eq. 8), 0.1895 (eq. 9)
    """
    return Overview(gradients.toy(), decomposability.example("worst"))


@style.styled
def draw(results: Overview) -> Figure:
    """(a) arrows show how gradient descent moves three scores; (b) two batches and their union."""
    height = max(gradients.toy_height(len(LOSSES)), decomposability.examples_height([results.example])) + 0.2
    drawing = style.figure(style.TWO, height)
    parts: Any = drawing.subfigures(1, 2)
    left, right = parts
    gradients.toy_onto(left, results.toy, LOSSES)
    decomposability.examples_onto(right, [results.example])
    for part, title in ((left, "(a) gradients on one list"), (right, "(b) batches and their union")):
        part.suptitle(title, x=0.02, ha="left")
    return drawing
