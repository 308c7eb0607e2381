"""Data sets: images, texts or vectors -> a table of (what it is, label, split, super-label); `glyphs` is built in.

A new data set is a file here with its loader, a row of `REGISTRY`, a file in configs/data, and a test. Commands, checks
and the tables of docs/datasets.md (docs/make_datasets.py) read the registry.
"""

from __future__ import annotations

from collections.abc import Callable

from . import cub, inaturalist, inshop, sop, vehicleid
from .base import ImageSet, Table
from .check import CountWarning, Inspection, Official, inspect
from .contact_sheet import contact_sheet
from .cub import load_cub, load_cub_cropped
from .drawings import load_drawings
from .folder import find_images, load_folder
from .glyphs import GlyphFontWarning, load_glyphs
from .icons import load_icons
from .images import read_image
from .inaturalist import load_inaturalist
from .inshop import load_inshop
from .manifest import load_manifest
from .omniglot import load_omniglot
from .protocols import Trial, over_draws, trials
from .rows import Rows
from .sop import load_sop
from .text import TextTable, load_banking77, load_clinc150, load_text
from .vectors import VectorTable, load_table
from .vehicleid import load_vehicleid

#: Name -> loader, and what was published of it, if files can be compared with that.
REGISTRY: dict[str, tuple[Callable[..., Rows], Official | None]] = {
    "glyphs": (load_glyphs, None),
    "omniglot": (load_omniglot, None),
    "icons": (load_icons, None),
    "drawings": (load_drawings, None),
    "folder": (load_folder, None),
    "manifest": (load_manifest, None),
    "cub": (load_cub, cub.OFFICIAL),
    "cub_cropped": (load_cub_cropped, cub.OFFICIAL_CROPPED),
    "sop": (load_sop, sop.OFFICIAL),
    "inshop": (load_inshop, inshop.OFFICIAL),
    "inaturalist": (load_inaturalist, inaturalist.OFFICIAL),
    "vehicleid": (load_vehicleid, vehicleid.OFFICIAL),
    "text": (load_text, None),
    "clinc150": (load_clinc150, None),
    "banking77": (load_banking77, None),
    "table": (load_table, None),
}
#: Name -> loader.
DATASETS = {name: load for name, (load, _) in REGISTRY.items()}
#: Name -> what was published of a data set, where files can be compared with that.
OFFICIAL = {name: official for name, (_, official) in REGISTRY.items() if official is not None}

__all__ = [
    "DATASETS",
    "OFFICIAL",
    "REGISTRY",
    "CountWarning",
    "GlyphFontWarning",
    "ImageSet",
    "Inspection",
    "Official",
    "Rows",
    "Table",
    "TextTable",
    "Trial",
    "VectorTable",
    "contact_sheet",
    "find_images",
    "inspect",
    "load_banking77",
    "load_clinc150",
    "load_cub",
    "load_cub_cropped",
    "load_drawings",
    "load_folder",
    "load_glyphs",
    "load_icons",
    "load_inaturalist",
    "load_inshop",
    "load_manifest",
    "load_omniglot",
    "load_sop",
    "load_text",
    "load_table",
    "load_vehicleid",
    "over_draws",
    "read_image",
    "trials",
]
