"""The pictures of several runs on one page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....workbench.html.images import Images
from .retrieved import RetrievalRun


@dataclass(frozen=True, eq=False)
class Shelf:
    """Adds pictures of runs to a page.

    Attributes:
        runs: with their pictures; several runs may share them.
        images: the pictures of the page.
    """

    runs: Sequence[RetrievalRun]
    images: Images

    def show(self, run: int, name: str, budget: float = math.inf) -> str | None:
        """CSS class of an image of a run; None: it cannot be read, or the pictures would exceed `budget` bytes."""
        pictures = self.runs[run].pictures
        if pictures is None:
            return None
        return self.images.get((id(pictures), name), lambda: pictures.get(name), budget)
