"""Data sets: images on disk (or rendered) -> `Table` of (image, label, split, super-label); `glyphs` is built in.

A new data set is a file here with its loader, a row of `REGISTRY`, a file in configs/data, and a test. Commands, checks
and the tables of docs/datasets.md (docs/make_datasets.py) read the registry.
"""

from __future__ import annotations

from collections.abc import Callable

from . import cub, inaturalist, inshop, sop, vehicleid
from .base import ImageSet as ImageSet
from .base import Table as Table
from .check import CountWarning as CountWarning
from .check import Inspection as Inspection
from .check import Official as Official
from .check import inspect as inspect
from .contact_sheet import contact_sheet as contact_sheet
from .cub import load_cub as load_cub
from .cub import load_cub_cropped as load_cub_cropped
from .folder import find_images as find_images
from .folder import load_folder as load_folder
from .glyphs import GlyphFontWarning as GlyphFontWarning
from .glyphs import load_glyphs as load_glyphs
from .icons import load_icons as load_icons
from .images import read_image as read_image
from .inaturalist import load_inaturalist as load_inaturalist
from .inshop import load_inshop as load_inshop
from .omniglot import load_omniglot as load_omniglot
from .protocols import Trial as Trial
from .protocols import over_draws as over_draws
from .protocols import trials as trials
from .sop import load_sop as load_sop
from .vehicleid import load_vehicleid as load_vehicleid

# Name -> loader, and what was published of it, if files can be compared with that.
REGISTRY: dict[str, tuple[Callable[..., Table], Official | None]] = {
    "glyphs": (load_glyphs, None),
    "omniglot": (load_omniglot, None),
    "icons": (load_icons, None),
    "folder": (load_folder, None),
    "cub": (load_cub, cub.OFFICIAL),
    "cub_cropped": (load_cub_cropped, cub.OFFICIAL_CROPPED),
    "sop": (load_sop, sop.OFFICIAL),
    "inshop": (load_inshop, inshop.OFFICIAL),
    "inaturalist": (load_inaturalist, inaturalist.OFFICIAL),
    "vehicleid": (load_vehicleid, vehicleid.OFFICIAL),
}
DATASETS = {name: load for name, (load, _) in REGISTRY.items()}
OFFICIAL = {name: official for name, (_, official) in REGISTRY.items() if official is not None}
