"""Photographs of 64 x 64 pixels: animals to retrieve, and 101 other classes to pretrain a network on.

They are from Tiny ImageNet, that is from ImageNet. Its terms allow research and nothing commercial. Do not commit or
pass on an image, a page that shows one, or weights that were trained on them. A run's folder holds all of these.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rankgrad.common.checks import setting
from rankgrad.common.text import shown
from rankgrad_workbench.datasets.base import Table

from .lists import numbered

SIDE = 64  # pixels of an image
CLASSES = "classes.csv"  # columns: folder, split, group, words
HELD_OUT = 10  # of the classes to pretrain on, one image in so many is test

Part = Literal["animals", "pretrain"]
FOLDERS = {"animals": ("train", "test"), "pretrain": ("pretrain",)}


def load_photographs(root: str | Path, part: Part = "animals") -> Table:
    """Photographs of 64 x 64 pixels from Tiny ImageNet, for research only: 29 classes of animals to train, 30 to test.

    Args:
        root: folder with `classes.csv` and either the archives `animals.tar` and `pretrain.tar`, or their unpacked
            folders `train`, `test` and `pretrain`. An archive is preferred.
        part: "animals": classes of train and test; super-label = group, such as birds. "pretrain": 101 classes of
            things, food and places. Every class has its own test images: those whose number ends with 9.

    Returns:
        Table in memory, 12 kB for an image; class names from the column `words`.

    Raises:
        FileNotFoundError: classes.csv, or the images, are missing.
        ValueError: the part is unknown; an image cannot be read, has another size, or a class that the csv lacks.
    """
    if part not in FOLDERS:
        raise ValueError(f"part must be 'animals' or 'pretrain'; got {part!r}")
    root = Path(root)
    known = _classes(root)
    found = sorted(_files(root, part), key=lambda each: each[0])
    images = torch.empty(len(found), 3, SIDE, SIDE, dtype=torch.uint8)
    folders, splits = [], []
    for row, (name, content) in enumerate(found):
        split, folder, file = name.split("/")
        if known.get(folder, ("",))[0] != split:
            raise ValueError(f"{shown(name)}: {CLASSES} has no class {shown(folder)} with the split {split}")
        images[row] = _pixels(name, content)
        folders.append(folder)
        splits.append(_held_out(file) if split == "pretrain" else split)
    label, classes = numbered(folders)
    groups = [known[folder][1] for folder in folders]
    supers = numbered(groups) if part == "animals" else None
    return Table(
        name="photographs" if part == "animals" else "photographs to pretrain on",
        label=label,
        class_names=tuple(known[folder][2] for folder in classes),
        split=tuple(splits),
        names=tuple(name for name, _ in found),
        channels=3,
        images=images,
        super_label=None if supers is None else supers[0],
        super_names=() if supers is None else tuple(supers[1]),
    )


def _classes(root: Path) -> dict[str, tuple[str, str, str]]:
    """Folder -> (split, group, first word) of every class."""
    path = root / CLASSES
    if not path.is_file():
        raise FileNotFoundError(
            f"{shown(root)} has no {CLASSES}; give the folder of the photographs: {setting('root', 'DIR')}"
        )
    with path.open(encoding="utf-8", newline="") as opened:
        return {
            row["folder"]: (row["split"], row["group"], row["words"].split(",")[0]) for row in csv.DictReader(opened)
        }


def _files(root: Path, part: Part) -> Iterator[tuple[str, bytes]]:
    """("train/CLASS/FILE.jpg", content) of every image of a part, from its archive or its folders."""
    archive, folders = root / f"{part}.tar", [root / name for name in FOLDERS[part]]
    if archive.is_file():
        with tarfile.open(archive) as opened:
            for member in opened:
                content = opened.extractfile(member) if member.name.endswith(".jpg") else None
                if content is not None:
                    yield member.name, content.read()
    elif all(folder.is_dir() for folder in folders):
        for folder in folders:
            for path in folder.glob("*/*.jpg"):
                yield path.relative_to(root).as_posix(), path.read_bytes()
    else:
        names = " and ".join(f"{folder.name}/" for folder in folders)
        raise FileNotFoundError(f"{shown(root)} has neither {archive.name} nor {names}")


def _pixels(name: str, content: bytes) -> Tensor:
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(content)).convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise ValueError(f"{shown(name)} is no readable image: {type(error).__name__}") from None
    if image.size != (SIDE, SIDE):
        raise ValueError(f"{shown(name)} must have {SIDE} x {SIDE} pixels; got {image.size[0]} x {image.size[1]}")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _held_out(file: str) -> str:
    """The split of an image to pretrain on, by the number at the end of its name.

    >>> _held_out("n02666196_19.jpg"), _held_out("n02666196_90.jpg")
    ('test', 'train')
    """
    return "test" if int(file.removesuffix(".jpg").rpartition("_")[2]) % HELD_OUT == HELD_OUT - 1 else "train"
