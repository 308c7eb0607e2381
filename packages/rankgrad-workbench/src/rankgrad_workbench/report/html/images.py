"""The pictures of a page. Each thumbnail is stored once, and decoded when it becomes visible."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Hashable
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
        size: bytes of the rules so far.
    """

    def __init__(self, side: int = THUMBNAIL) -> None:
        self.side, self.size = side, 0
        self._names: dict[bytes, str] = {}
        self._rules: list[str] = []
        self._read: dict[Hashable, str | None] = {}

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self._rules)

    def add(self, image: Tensor) -> str:
        """Store a picture, unless it is stored already; returns its CSS class.

        Args:
            image: uint8 [1 or 3, height, width].

        Raises:
            ValueError: the image has another dtype or shape.
        """
        from PIL import Image as Picture

        if str(image.dtype) != "torch.uint8" or image.ndim != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
            raise ValueError(
                f"an image of a page must be uint8 [1 or 3, height, width]; got {image.dtype} {list(image.shape)}"
            )
        pixels = image.cpu().permute(1, 2, 0).contiguous().numpy()
        key = hashlib.sha256(str(image.shape).encode() + pixels.tobytes()).digest()
        if key not in self._names:
            picture = Picture.fromarray(pixels[:, :, 0] if len(image) == 1 else pixels)
            picture.thumbnail((self.side, self.side))
            self._names[key] = f"i{len(self._rules)}"
            rule = f".{self._names[key]}{{background-image:url({data_uri(picture)})}}"
            self._rules.append(rule)
            self.size += len(rule) + 1
        return self._names[key]

    def get(self, key: Hashable, read: Callable[[], Tensor | None], budget: float = float("inf")) -> str | None:
        """The CSS class of the picture of a key, which is read at the first call; None: there is no picture.

        Args:
            key: of the picture.
            read: returns the picture, or None if it cannot be read.
            budget: if the rules have more bytes than this, no further picture is read.
        """
        if key not in self._read:
            if self.size > budget:
                return None
            image = read()
            self._read[key] = None if image is None else self.add(image)
        return self._read[key]

    def css(self) -> str:
        """The style sheet."""
        return "\n".join(self._rules)


def data_uri(picture: Image, quality: int = QUALITY) -> str:
    """A picture as a data URI: PNG for a drawing, JPEG for a photograph."""
    values = picture.width * picture.height * len(picture.getbands())
    few = values <= FEW_VALUES or picture.getcolors(FEW_COLOURS) is not None
    kind, buffer = "png" if few else "jpeg", io.BytesIO()
    picture.save(buffer, kind, optimize=True, **({} if few else {"quality": quality}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
