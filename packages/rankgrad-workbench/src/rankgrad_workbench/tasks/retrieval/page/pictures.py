"""The images of a run, for its page."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from torch import Tensor

from ....datasets.images import read_image
from ....datasets.rows import Rows
from ....files import inside
from ....report.html.images import THUMBNAIL, Images


class Pictures:
    """The images of an evaluated split, or those of a folder, by their names.

    Args:
        source: the rows; or the folder that the names are relative to.

    Attributes:
        failed: name of each image that could not be read -> the reason.
    """

    def __init__(self, source: Rows | Path) -> None:
        self.source = source
        self.failed: dict[str, str] = {}
        names = () if isinstance(source, Path) else source.names
        times = Counter(names)
        # a repeated name is not used: no picture is better than a wrong one
        self._row = {name: row for row, name in enumerate(names) if times[name] == 1}

    def get(self, name: str) -> Tensor | None:
        """The image, uint8 [channel, height, width], a thumbnail if read from a file; None: it cannot be read."""
        try:
            if isinstance(self.source, Path):
                return read_image(inside(self.source, name), 3, THUMBNAIL, True)
            return self.source.picture(self._row[name], THUMBNAIL)
        except KeyError:
            self.failed[name] = "the data set has no row with this name, or several"
        except (OSError, ValueError) as error:
            self.failed[name] = str(error)
        return None

    def show(self, images: Images, name: str, budget: float = math.inf) -> str | None:
        """CSS class of an image on a page; None: it cannot be read, or the pictures would exceed `budget` bytes."""
        return images.get((id(self), name), lambda: self.get(name), budget)
