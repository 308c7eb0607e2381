"""The pictures of a page: small, each stored once however often it is shown, decoded where it comes into sight."""

from __future__ import annotations

import base64
import hashlib
import io

import torch
from torch import Tensor

THUMBNAIL = 96  # longest side of a stored image in pixels; the page shows them at about 80
# Drawings stay as they are, pixel by pixel: images of so few values, or of so few colours. Others become JPEG.
FEW_VALUES, FEW_COLOURS = 3000, 64
QUALITY = 80


class Images:
    """Pictures as rules of a style sheet: an element shows one by its class.

    Unlike an <img> with the data in it, a rule is written once for all elements that show the picture. A browser
    decodes it when the first of them is drawn, so rows that are out of sight cost nothing, and no script is needed.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._rules: list[str] = []
        self.size = 0  # bytes of the rules so far

    def __len__(self) -> int:
        """Number of pictures."""
        return len(self._rules)

    def add(self, image: Tensor) -> str:
        """Store a picture unless it is there already; the class that shows it.

        Args:
            image: uint8 [1 or 3, height, width].

        Raises:
            ValueError: another kind of image.
        """
        if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] not in (1, 3) or 0 in image.shape:
            raise ValueError(
                f"an image of a report must be uint8 [1 or 3, height, width]; got {image.dtype} {list(image.shape)}"
            )
        pixels = image.cpu().permute(1, 2, 0).contiguous().numpy()
        key = hashlib.sha256(str(image.shape).encode() + pixels.tobytes()).digest()
        if key not in self._names:
            self._names[key] = f"i{len(self._rules)}"
            rule = f".{self._names[key]}{{background-image:url({_data_uri(image)})}}"
            self._rules.append(rule)
            self.size += len(rule) + 1
        return self._names[key]

    def css(self) -> str:
        """The style sheet."""
        return "\n".join(self._rules)


def _data_uri(image: Tensor) -> str:
    from PIL import Image

    array = image.cpu().permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    few = picture.width * picture.height * array.shape[2] <= FEW_VALUES or picture.getcolors(FEW_COLOURS) is not None
    kind, buffer = "png" if few else "jpeg", io.BytesIO()
    picture.save(buffer, kind, **({"optimize": True} if few else {"quality": QUALITY}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
