"""Data sets: images, texts or vectors -> a table of (input, label, split, super-label). `glyphs` is built in.

Data sets of other packages are plug-ins (docs/plugins.md). docs/design.md says how to add one here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankgrad.batches import samplers as samplers

    from .base import ImageSet, Table
    from .folder import find_images, load_folder
    from .glyphs import GlyphFontWarning, load_glyphs
    from .images import read_image
    from .inspection import CountWarning, Inspection
    from .manifest import load_manifest
    from .protocols import Trial, over_draws, trials
    from .rows import Rows
    from .sheet import contact_sheet
    from .text import TextTable, load_text
    from .vectors import VectorTable, load_table

    #: Name -> loader of each built-in data set.
    DATASETS: dict[str, Callable[..., Rows]]

_PLACES = {
    ".base": ("ImageSet", "Table"),
    ".folder": ("find_images", "load_folder"),
    ".glyphs": ("GlyphFontWarning", "load_glyphs"),
    ".images": ("read_image",),
    ".inspection": ("CountWarning", "Inspection"),
    ".manifest": ("load_manifest",),
    ".protocols": ("Trial", "over_draws", "trials"),
    ".rows": ("Rows",),
    ".sheet": ("contact_sheet",),
    ".text": ("TextTable", "load_text"),
    ".vectors": ("VectorTable", "load_table"),
}
_BUILT_IN = ("glyphs", "folder", "manifest", "text", "table")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: tables and run files are read without torch."""
    place = next((place for place, names in _PLACES.items() if name in names), None)
    if name == "samplers":
        found: Any = import_module("rankgrad.batches.samplers")
    elif name == "DATASETS":
        found = {each: __getattr__(f"load_{each}") for each in _BUILT_IN}
    elif place is not None:
        found = getattr(import_module(place, __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def find(name: str) -> Callable[..., Rows]:
    """The loader of a data set: a built-in one, or one of a plug-in.

    >>> find("glyphs").__name__
    'load_glyphs'
    """
    from rankgrad.common.checks import unknown
    from rankgrad.common.plugins import registered

    known: dict[str, Callable[..., Rows]] = __getattr__("DATASETS")
    others = {} if name in known else registered("datasets", known)
    if name in others:
        load: Callable[..., Rows] = others[name].load()
        return load
    if name not in known:
        raise ValueError(unknown("data set", name, sorted([*known, *others])))
    return known[name]


__all__ = [
    "DATASETS",
    "CountWarning",
    "GlyphFontWarning",
    "ImageSet",
    "Inspection",
    "Rows",
    "Table",
    "TextTable",
    "Trial",
    "VectorTable",
    "contact_sheet",
    "find",
    "find_images",
    "load_folder",
    "load_glyphs",
    "load_manifest",
    "load_table",
    "load_text",
    "over_draws",
    "read_image",
    "trials",
]
