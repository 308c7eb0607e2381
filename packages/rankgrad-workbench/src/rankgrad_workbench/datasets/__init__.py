"""Data sets: images, texts or vectors -> a table of (input, label, split, super-label). `glyphs` is built in.

Data sets of other packages are plug-ins (docs/plugins.md). docs/design.md says how to add one here.
"""

from __future__ import annotations

from collections.abc import Callable

from rankgrad.batches import samplers as samplers  # so that `import rankgrad` is enough for rankgrad.batches.samplers
from rankgrad.common.plugins import registered

from ..files.elsewhere import unknown
from .base import ImageSet, Table
from .folder import find_images, load_folder
from .glyphs import load_glyphs
from .images import read_image
from .inspection import CountWarning, Inspection
from .manifest import load_manifest
from .protocols import Trial, over_draws, trials
from .rows import Rows
from .sheet import contact_sheet
from .text import TextTable, load_text
from .vectors import VectorTable, load_table

#: Name -> loader of each built-in data set.
DATASETS: dict[str, Callable[..., Rows]] = {
    "glyphs": load_glyphs,
    "folder": load_folder,
    "manifest": load_manifest,
    "text": load_text,
    "table": load_table,
}


def find(name: str) -> Callable[..., Rows]:
    """The loader of a data set: a built-in one, or one of a plug-in.

    >>> find("glyphs").__name__
    'load_glyphs'
    """
    others = {} if name in DATASETS else registered("datasets", DATASETS)
    if name in others:
        load: Callable[..., Rows] = others[name].load()
        return load
    if name not in DATASETS:
        raise ValueError(unknown("data set", name, sorted([*DATASETS, *others])))
    return DATASETS[name]


__all__ = [
    "DATASETS",
    "CountWarning",
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
