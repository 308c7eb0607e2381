"""Icons: 2122 symbols of Material Design in five styles: small drawings of many classes with few images each.

Google, Material Design icons, Apache License 2.0, rendered at 48 x 48 pixels. As in Stanford Online Products and
In-shop, a class has few images; here a query has four relevant images. The first word of a name (arrow, battery) is the
super-label. Some symbols look equal in several styles, and some have two names; this is so in the original data.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from rankgrad.common.checks import setting
from rankgrad_workbench.datasets.base import SPLITS, Table
from rankgrad_workbench.files import read_npz

from .lists import numbered

PACKED = "icons48.npz"
ARRAYS = ("images", "name", "names", "split", "style", "styles")
SIDE = 48  # pixels of a drawing
QUERY_STYLE = "outlined"  # style of the queries in the protocol query_gallery

Protocol = Literal["leave_one_out", "query_gallery"]
Families = Literal["mixed", "apart"]


def load_icons(
    root: str | Path, size: int = SIDE, protocol: Protocol = "leave_one_out", families: Families = "mixed"
) -> Table:
    """Material Design icons as a table of grey images, ink 255 on 0: 2122 names in 5 styles; super-label = first word.

    Args:
        root: folder that holds `icons48.npz`, or the path of that file.
        size: height and width, 1 .. 48 pixels; below 48 by adaptive average pooling.
        protocol: "leave_one_out": every image is a query, and the four other styles of its name are relevant.
            "query_gallery": images of the outlined style are queries, those of the four others are the gallery.
        families: "mixed": the division in the file, by a checksum of the name: 1032 names train, 367 val and 723 test;
            arrow_back may be in train and arrow_forward in test. "apart": by a checksum of the first word, so that the
            words of the test are not in training.

    Returns:
        Table; names such as "arrow_back/round".

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if an argument is out of range, or the file has wrong columns.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= SIDE:
        raise ValueError(f"size must be 1 .. {SIDE} pixels, the size of the drawings; got {size!r}")
    if protocol not in ("leave_one_out", "query_gallery"):
        raise ValueError(f"the icons' protocols are 'leave_one_out' and 'query_gallery'; got {protocol!r}")
    if families not in ("mixed", "apart"):
        raise ValueError(f"families must be 'mixed' or 'apart'; got {families!r}")
    root = Path(root)
    path = root if root.is_file() else root / PACKED
    if not path.is_file():
        raise FileNotFoundError(
            f"the icons are read from {path}, which does not exist; give its folder: {setting('root', 'DIR')}"
        )
    packed = _read(path)
    names: list[str] = packed["names"].tolist()
    words = [name.split("_")[0] for name in names]
    division = packed["split"] if families == "mixed" else np.array([_part(word) for word in words])
    label, style = packed["name"].astype(np.int64), packed["styles"][packed["style"]].tolist()
    split = [SPLITS[part] for part in division[label].tolist()]
    supers, super_names = numbered([words[name] for name in label.tolist()])
    images = torch.from_numpy(packed["images"])[:, None]
    if size != SIDE:
        images = torch.cat([F.adaptive_avg_pool2d(part.float(), size) for part in torch.split(images, 512)])
        images = images.round().to(torch.uint8)
    role = None
    if protocol == "query_gallery":
        role = tuple(_role(part, drawn) for part, drawn in zip(split, style, strict=True))
    return Table(
        name="icons" + (", families apart" if families == "apart" else ""),
        label=torch.from_numpy(label),
        class_names=tuple(names),
        split=tuple(split),
        names=tuple(f"{names[name]}/{drawn}" for name, drawn in zip(label.tolist(), style, strict=True)),
        channels=1,
        images=images,
        super_label=supers,
        super_names=tuple(super_names),
        role=role,
        protocol=protocol,
    )


def _part(word: str) -> int:
    """Index in `SPLITS` of a first word: two of six words are test, one is val.

    >>> [_part(word) for word in ("arrow", "battery", "wifi")]
    [0, 2, 2]
    """
    return (2, 2, 1, 0, 0, 0)[zlib.crc32(word.encode()) % 6]


def _role(split: str, style: str) -> str:
    if split == "train":
        return ""
    return "query" if style == QUERY_STYLE else "gallery"


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    packed = read_npz(path, *ARRAYS)
    images, count = packed["images"], len(packed["name"])
    if images.shape != (count, SIDE, SIDE) or images.dtype != np.uint8 or len(packed["style"]) != count:
        raise ValueError(
            f"{path} should hold uint8 images [{count}, {SIDE}, {SIDE}]; got {images.dtype} {images.shape}"
        )
    return packed
