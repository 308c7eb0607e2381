"""CUB-200-2011: 11 788 photographs of 200 kinds of birds, with a box around each bird.

Wah, Branson, Welinder, Perona and Belongie, Caltech technical report CNS-TR-2011-001, 2011. Retrieval papers train on
classes 1 to 100 and test on 101 to 200. The file `train_test_split.txt` of the data set divides each class and is not
used.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rankgrad_workbench.datasets.base import Table

from .lists import Reading, by_id, find_home, finished, listed, read_rows
from .official import Need, Official, parts_of, published

if TYPE_CHECKING:
    from typing_extensions import Unpack

TITLE = "CUB-200-2011"
GET = "Get CUB_200_2011.tgz (1.1 GB) from https://www.vision.caltech.edu/datasets/cub_200_2011/ and unpack it."
COUNTS = {"train": (5864, 100), "test": (5924, 100)}
LISTS = ("images.txt", "image_class_labels.txt", "classes.txt")
TRAIN_CLASSES = 100  # the first 100 classes


def load_cub(root: str | Path, cropped: bool = False, check: bool = True, **reading: Unpack[Reading]) -> Table:
    """CUB-200-2011: train is the first 100 kinds of birds, test the other 100 (5864 and 5924 images).

    Args:
        root: the folder CUB_200_2011, or its parent folder.
        cropped: crop each image to its box (x, y, x + width, y + height; clipped to the image).
        check: check that every listed file exists, and warn if the counts differ from the published ones.
        reading: shorter_side, cache and cache_dir, see `load_folder`.

    Raises:
        FileNotFoundError: if the folder, a list or a listed image does not exist.
        ValueError: if a list has a wrong format; it names file and line.
    """
    return finished(lambda: _table(_home(root), cropped), COUNTS, check=check, **reading)


def load_cub_cropped(root: str | Path, check: bool = True, **reading: Unpack[Reading]) -> Table:
    """CUB-200-2011, cropped to the boxes around the birds: `load_cub` with cropped=True."""
    return finished(lambda: _table(_home(root), cropped=True), COUNTS, check=check, **reading)


def _home(root: str | Path) -> Path:
    return find_home(root, TITLE, LISTS, ["CUB_200_2011"], GET)


def _table(home: Path, cropped: bool) -> Table:
    files_list, labels_list, classes_list = (home / name for name in LISTS)
    files = by_id(files_list, read_rows(files_list, {"image id": int, "path": str}), "image")
    label_of = by_id(labels_list, read_rows(labels_list, {"image id": int, "class id": int}), "image")
    name_of = by_id(classes_list, read_rows(classes_list, {"class id": int, "name": str}), "class")
    _need_same_ids(files_list, set(files), labels_list, set(label_of))
    classes = [label_of[image][0] for image in files]
    unnamed = sorted(set(classes) - set(name_of))
    if unnamed:
        raise ValueError(f"{labels_list} has classes that {classes_list} does not name: {unnamed[:5]}")
    table = listed(
        "cub",
        home / "images",
        [path for (path,) in files.values()],
        ["train" if label <= TRAIN_CLASSES else "test" for label in classes],
        classes,
        lambda label: str(name_of[label][0]),
    )
    return _cropped(table, home / "bounding_boxes.txt", files_list, list(files)) if cropped else table


def _cropped(table: Table, boxes_list: Path, files_list: Path, images: list[int]) -> Table:
    columns = {"image id": int, "x": float, "y": float, "width": float, "height": float}
    box_of = by_id(boxes_list, read_rows(boxes_list, columns), "image")
    _need_same_ids(files_list, set(images), boxes_list, set(box_of))
    empty = [image for image, (_, _, width, height) in box_of.items() if not (width > 0 and height > 0)]
    if empty:
        raise ValueError(f"{boxes_list}: the box of image {empty[0]} has no width or height")
    corner_and_size = torch.tensor([box_of[image] for image in images], dtype=torch.float64)
    corner, size = corner_and_size[:, :2], corner_and_size[:, 2:]
    return replace(table, name="cub_cropped", box=torch.cat([corner, corner + size], dim=1))


def _need_same_ids(one: Path, there: set[int], other: Path, here: set[int]) -> None:
    if there != here:
        raise ValueError(
            f"{one.name} and {other.name} in {one.parent} must list the same images; "
            f"{len(there - here)} are only in the first and {len(here - there)} only in the second, such as image "
            f"{min(there ^ here)}"
        )


def _official(cropped: bool) -> Official:
    again = "unpack CUB_200_2011.tgz again"
    boxes = Need(("bounding_boxes.txt",), f"{again}; data=cub_cropped needs it", required=cropped)
    return Official(
        title=TITLE + (", cropped to boxes" if cropped else ""),
        get=GET,
        home=_home,
        needs=(*(Need((name,), again) for name in LISTS), boxes, Need(("images",), again)),
        parts=lambda home: parts_of(_table(home, cropped)),
        counts=COUNTS,
        ks=(1, 2, 4, 8),
        archives={"CUB_200_2011.tgz": "tar xzf CUB_200_2011.tgz, then check again"},
    )


OFFICIAL, OFFICIAL_CROPPED = _official(cropped=False), _official(cropped=True)
published(load_cub, OFFICIAL)
published(load_cub_cropped, OFFICIAL_CROPPED)
