"""Loaders of the papers' data sets and of some others: files on disk -> a table.

The entry points in pyproject.toml name the loaders, so that `rankgrad train data=sop` finds them.
"""

from __future__ import annotations

from collections.abc import Callable

from rankgrad_workbench.datasets.rows import Rows

from . import cub, inaturalist, inshop, sop, vehicleid
from .cub import load_cub, load_cub_cropped
from .drawings import load_drawings
from .icons import load_icons
from .inaturalist import load_inaturalist
from .inshop import load_inshop
from .intents import load_banking77, load_clinc150
from .official import Official
from .omniglot import load_omniglot
from .photographs import load_photographs
from .sop import load_sop
from .vehicleid import load_vehicleid

#: Name -> loader; the entry points have the same names.
DATASETS: dict[str, Callable[..., Rows]] = {
    "cub": load_cub,
    "cub_cropped": load_cub_cropped,
    "sop": load_sop,
    "inshop": load_inshop,
    "inaturalist": load_inaturalist,
    "vehicleid": load_vehicleid,
    "omniglot": load_omniglot,
    "icons": load_icons,
    "drawings": load_drawings,
    "clinc150": load_clinc150,
    "banking77": load_banking77,
    "photographs": load_photographs,
}
#: Name -> its published layout and counts.
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
    "load_banking77",
    "load_clinc150",
    "load_cub",
    "load_cub_cropped",
    "load_drawings",
    "load_icons",
    "load_inaturalist",
    "load_inshop",
    "load_omniglot",
    "load_photographs",
    "load_sop",
    "load_vehicleid",
]
