"""Data sets: images on disk (or rendered) -> `Table` of (image, label, split, super-label); `glyphs` is built in."""

from __future__ import annotations

from collections.abc import Callable

from . import cub, inaturalist, inshop, sop, vehicleid
from .base import ImageSet, Table, contact_sheet, read_image
from .check import CountWarning, Inspection, Official, inspect
from .cub import load_cub, load_cub_cropped
from .folder import find_images, load_folder
from .glyphs import GlyphFontWarning, load_glyphs
from .inaturalist import load_inaturalist
from .inshop import load_inshop
from .omniglot import load_omniglot
from .protocols import Trial, over_draws, trials
from .sop import load_sop
from .vehicleid import load_vehicleid

DATASETS: dict[str, Callable[..., Table]] = {
    "glyphs": load_glyphs,
    "omniglot": load_omniglot,
    "folder": load_folder,
    "cub": load_cub,
    "cub_cropped": load_cub_cropped,
    "sop": load_sop,
    "inshop": load_inshop,
    "inaturalist": load_inaturalist,
    "vehicleid": load_vehicleid,
}

# What was published of those that can be checked.
OFFICIAL: dict[str, Official] = {
    "cub": cub.OFFICIAL,
    "cub_cropped": cub.OFFICIAL_CROPPED,
    "sop": sop.OFFICIAL,
    "inshop": inshop.OFFICIAL,
    "inaturalist": inaturalist.OFFICIAL,
    "vehicleid": vehicleid.OFFICIAL,
}

__all__ = [
    "DATASETS",
    "OFFICIAL",
    "CountWarning",
    "GlyphFontWarning",
    "ImageSet",
    "Inspection",
    "Official",
    "Table",
    "Trial",
    "contact_sheet",
    "find_images",
    "inspect",
    "load_cub",
    "load_cub_cropped",
    "load_folder",
    "load_glyphs",
    "load_inaturalist",
    "load_inshop",
    "load_omniglot",
    "load_sop",
    "load_vehicleid",
    "over_draws",
    "read_image",
    "trials",
]
