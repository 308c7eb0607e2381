"""The pictures of a page, and a query with its nearest items, which neighbours.html draws.

Each thumbnail is stored once, and decoded when it becomes visible.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

THUMBNAIL = 96  # longest side of a stored image in pixels; a report shows them at about 80
# Images with at most this many values or colours are stored as PNG without loss (drawings). Others become JPEG.
FEW_VALUES, FEW_COLOURS = 3000, 64
QUALITY = 80


class Images:
    """Pictures as rules of a style sheet: an element shows a picture by its CSS class.

    Unlike an <img> that contains the data, a rule is written once for all elements that show the picture. A browser
    decodes it when the first of them is drawn. So hidden rows cost nothing, and no script is needed.

    Args:
        side: longest side of a stored picture in pixels.

    Attributes:
        size: bytes of the pictures so far.
    """

    def __init__(self, side: int = THUMBNAIL) -> None:
        self.side, self.size = side, 0
        self._names: dict[str, str] = {}
        self._read: dict[Hashable, str | None] = {}

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self._names)

    def add(self, image: Tensor) -> str:
        """Store a picture, unless it is stored already; returns its CSS class.

        Args:
            image: uint8 [1 or 3, height, width].
        """
        from PIL import Image as Picture

        pixels = image.cpu().permute(1, 2, 0).contiguous().numpy()
        picture = Picture.fromarray(pixels[:, :, 0] if len(image) == 1 else pixels)
        picture.thumbnail((self.side, self.side))
        uri = data_uri(picture)
        if uri not in self._names:
            self._names[uri] = f"i{len(self._names)}"
            self.size += len(uri)
        return self._names[uri]

    def get(self, key: Hashable, read: Callable[[], Tensor | None], budget: float = float("inf")) -> str | None:
        """The CSS class of the picture of a key, which is read at the first call; None: there is no picture.

        Args:
            key: of the picture.
            read: returns the picture, or None if it cannot be read.
            budget: if the pictures have more bytes than this, no further picture is read.
        """
        if key not in self._read:
            if self.size > budget:
                return None
            image = read()
            self._read[key] = None if image is None else self.add(image)
        return self._read[key]

    def css(self) -> str:
        """The style sheet."""
        return "\n".join(f".{name}{{background-image:url({uri})}}" for uri, name in self._names.items())


def data_uri(picture: Image, quality: int = QUALITY) -> str:
    """A picture as a data URI: PNG for a drawing, JPEG for a photograph."""
    values = picture.width * picture.height * len(picture.getbands())
    few = values <= FEW_VALUES or picture.getcolors(FEW_COLOURS) is not None
    kind, buffer = "png" if few else "jpeg", io.BytesIO()
    picture.save(buffer, kind, optimize=True, **({} if few else {"quality": quality}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


@dataclass(frozen=True)
class Asked:
    """A query.

    Attributes:
        picture: CSS class of its picture, see `images.Images`; None: no picture.
        spoken: description of the picture, for screen readers.
        name: its class or its name.
        detail: second line, such as its file.
        quality: metrics of its results.
        text: the query itself, if it is a text; it replaces the picture.
    """

    picture: str | None
    spoken: str
    name: str
    detail: str
    quality: str = ""
    text: str | None = None


@dataclass(frozen=True)
class Neighbour:
    """A retrieved item.

    Attributes:
        picture: as for a query.
        rank: 1 is the nearest.
        score: similarity to the query.
        name: its class.
        title: its full name, shown under the pointer.
        right: whether it is relevant; None: unknown.
        file: name of its file; empty: not shown.
        text: as for a query.
    """

    picture: str | None
    rank: int
    score: float
    name: str
    title: str
    right: bool | None = None
    file: str = ""
    text: str | None = None
