"""Data sets: images on disk (or rendered) -> `Table` of (image, label, split, super-label); `glyphs` is built in."""

from __future__ import annotations

from collections.abc import Callable

from rankgrad.datasets.base import ImageSet, Table, contact_sheet, read_image
from rankgrad.datasets.folder import find_images, load_folder
from rankgrad.datasets.glyphs import GlyphFontWarning, load_glyphs
from rankgrad.datasets.omniglot import load_omniglot

DATASETS: dict[str, Callable[..., Table]] = {"glyphs": load_glyphs, "omniglot": load_omniglot, "folder": load_folder}

__all__ = [
    "DATASETS",
    "GlyphFontWarning",
    "ImageSet",
    "Table",
    "contact_sheet",
    "find_images",
    "load_folder",
    "load_glyphs",
    "load_omniglot",
    "read_image",
]
