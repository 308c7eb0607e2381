"""Stanford Online Products: 120 053 photographs of 22 634 products of 12 kinds, from an auction site.

Song, Xiang, Jegelka and Savarese, Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankgrad_workbench.datasets.base import Table

from .lists import Reading, find_home, finished, first_of, listed, read_rows
from .official import Need, Official, parts_of, published

if TYPE_CHECKING:
    from typing_extensions import Unpack

TITLE = "Stanford Online Products"
GET = "Get Stanford_Online_Products.zip (2.9 GB) from https://cvgl.stanford.edu/projects/lifted_struct/ and unpack it."
COUNTS = {"train": (59551, 11318), "test": (60502, 11316)}
COLUMNS = {"image_id": int, "class_id": int, "super_class_id": int, "path": str}
LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


def load_sop(root: str | Path, check: bool = True, **reading: Unpack[Reading]) -> Table:
    """Stanford Online Products: 59 551 images of 11 318 products to train, 60 502 of 11 316 to test; 12 super-labels.

    Args:
        root: the folder Stanford_Online_Products, or its parent folder. The lists may also be in its folder Info_Files
            and the images in its folder `images`, as some published code needs it.
        check: check that every listed file exists, and warn if the counts differ from the published ones.
        reading: shorter_side, cache and cache_dir, see `load_folder`.

    Raises:
        FileNotFoundError: if the folder, a list or a listed image does not exist.
        ValueError: if a list has a wrong format; it names file and line.
    """
    return finished(lambda: _table(_home(root)), COUNTS, check=check, **reading)


def _home(root: str | Path) -> Path:
    lists = [f"{folder}{name}" for name in LISTS.values() for folder in ("", "Info_Files/")]
    return find_home(root, TITLE, lists, ["Stanford_Online_Products"], GET)


def _table(home: Path) -> Table:
    rows, split = [], []
    for part, name in LISTS.items():
        own = read_rows(first_of(home, name, f"Info_Files/{name}"), COLUMNS, header=" ".join(COLUMNS))
        rows += own
        split += [part] * len(own)
    kinds: dict[int, str] = {}
    for _, _, super_id, path in rows:
        kind = path.split("/")[0].removesuffix("_final")  # bicycle_final/111085122871_0.JPG
        if kinds.setdefault(super_id, kind) != kind:
            raise ValueError(
                f"{home}: super_class_id {super_id} is {kinds[super_id]!r}, but {path} gives it as {kind!r}"
            )
    kind_of = {label: kinds[super_id] for _, label, super_id, _ in rows}
    images = home / "images"
    return listed(
        "sop",
        images if images.is_dir() else home,
        [path for *_, path in rows],
        split,
        [label for _, label, _, _ in rows],
        lambda label: f"{kind_of[label]} {label}",
        super_labels=[kinds[super_id] for _, _, super_id, _ in rows],
    )


OFFICIAL = Official(
    title=TITLE,
    get=GET,
    home=_home,
    needs=tuple(
        Need((name, f"Info_Files/{name}"), "unpack Stanford_Online_Products.zip again") for name in LISTS.values()
    ),
    parts=lambda home: parts_of(_table(home)),
    counts=COUNTS,
    super_labels=12,
    ks=(1, 10, 100, 1000),
    archives={"Stanford_Online_Products.zip": "unzip Stanford_Online_Products.zip, then check again"},
)
published(load_sop, OFFICIAL)
