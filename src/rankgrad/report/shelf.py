"""The pictures that several runs show on one page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..html.images import Images
from .retrieved import RetrievalRun


@dataclass(frozen=True, eq=False)
class Shelf:
    """Where pictures come from and go to.

    Attributes:
        runs: with their pictures; several may share them.
        images: the store of the page.
    """

    runs: Sequence[RetrievalRun]
    images: Images

    def show(self, run: int, name: str, budget: float = math.inf) -> str | None:
        """Class that shows an image of a run; None: it is not to be had, or would be one beyond so many bytes."""
        pictures = self.runs[run].pictures
        if pictures is None:
            return None
        return self.images.get((id(pictures), name), lambda: pictures.get(name), budget)
