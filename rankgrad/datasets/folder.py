"""A folder of images: class = sub-folder. Files that can't be read are found now, not in the middle of training."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import torch

from .base import SPLITS, Cache, Table, check_image
from .cache import in_threads

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

Skipped = tuple[tuple[str, str], ...]


def load_folder(
    root: str | Path,
    test_fraction: float = 0.5,
    val_fraction: float = 0.0,
    seed: int = 0,
    channels: int = 3,
    check: bool = True,
    shorter_side: int | None = None,
    draft: bool = False,
    cache: Cache = "none",
    cache_dir: str | Path | None = None,
) -> Table:
    """A table of the image files below `root`: each sub-folder is a class, all images below it belong to it.

    If `root` holds the folders `train` and `test` (and perhaps `val`) and no others, these are the division, each with
    its class folders. A class name that occurs in two of them is one class; `Table.summary` says so, because the test
    then doesn't ask for unseen classes. Otherwise whole classes are divided: in the order of a hash of (seed, class
    name), the first `test_fraction` are test, the next `val_fraction` are val; a class added later moves hardly any
    other class.

    Links are followed, hidden files and folders left alone, the order is that of the names.
    Files with an image extension that can't be used are listed in `Table.skipped`: unreadable, empty or truncated
    ones, and those that lie beside the class folders. A class of which no file is readable is no class. A class with
    one image is kept; `Table.summary` counts it.

    Args:
        root: the folder.
        test_fraction: of the classes, 0 .. 1; not used with a `train` / `test` division.
        val_fraction: of the classes, 0 .. 1; not used with a division.
        seed: of the division.
        channels: 3 (RGB) or 1 (grey): what the files are converted to.
        check: read every file now. False is quicker; a broken file then stops training with an `OSError`.
        shorter_side: make larger images smaller when they are read, pixels; see `Table`.
        draft: let large JPEG files decode at a fraction of their size; see `Table`.
        cache: "none": decode files each time they are asked for; "ram", "disk": once, see `Table.cached`.
        cache_dir: folder for "disk"; None: $XDG_CACHE_HOME/rankgrad, or ~/.cache/rankgrad.

    Raises:
        FileNotFoundError, NotADirectoryError: if root is no folder.
        ValueError: if there are no sub-folders, no readable images, or fewer than two classes in a split; if only one
            of `train` and `test` is there; if a fraction is out of range.
    """
    root = Path(root)
    _need_fractions(test_fraction, val_fraction)
    if not root.exists():
        raise FileNotFoundError(
            f"the image folder {root} does not exist; set data.root to a folder with one sub-folder per class"
        )
    if not root.is_dir():
        raise NotADirectoryError(f"data.root must be a folder with one sub-folder per class; {root} is a file")
    division = _division(root)
    homes = {split: root / split for split in division} if division else {"": root}
    listed: list[tuple[str, str, Path]] = []  # split or "", class, file
    for split, home in homes.items():
        folders = _folders(home)
        if not folders:
            raise ValueError(f"{home} has no sub-folders; every class needs a folder of its own with its images in it")
        listed += [(split, folder.name, path) for folder in folders for path in _walk(folder)]
    beside = [path for home in dict.fromkeys([root, *homes.values()]) for path in sorted(home.iterdir())]
    stray = [(str(path), "lies beside the class folders") for path in beside if path.is_file() and _is_image(path)]
    reasons = _check_all([path for _, _, path in listed]) if check else [None] * len(listed)
    good = [entry for entry, reason in zip(listed, reasons, strict=True) if reason is None]
    broken = [(str(path), reason) for (_, _, path), reason in zip(listed, reasons, strict=True) if reason is not None]
    if not good:
        raise ValueError(
            f"{root} has no readable images in its class folders; looked for {', '.join(EXTENSIONS)}, found "
            f"{len(broken)} broken files" + "".join(f"\n  {path}: {reason}" for path, reason in broken[:10])
        )
    class_names = sorted({name for _, name, _ in good})
    if len(class_names) < 2:
        raise ValueError(
            f"{root} has readable images of one class only ({class_names[0]!r}); ranking needs at least two"
        )
    if not division:
        split_of = _divide(class_names, test_fraction, val_fraction, seed)
        good = [(split_of[name], name, path) for _, name, path in good]
    number = {name: i for i, name in enumerate(class_names)}
    table = Table(
        name=root.resolve().name,
        label=torch.tensor([number[name] for _, name, _ in good], dtype=torch.int64),
        class_names=tuple(class_names),
        split=tuple(split for split, _, _ in good),
        names=tuple(path.relative_to(root).as_posix() for _, _, path in good),
        channels=channels,
        paths=tuple(path for _, _, path in good),
        skipped=(*stray, *broken),
        shorter_side=shorter_side,
        draft=draft,
    )
    _need_two_classes(table, division)
    return table.cached(cache, cache_dir)


def find_images(root: str | Path, check: bool = True) -> tuple[tuple[Path, ...], Skipped]:
    """All usable image files at any depth below a folder, in the order of their names, and the unusable ones.

    Args:
        root: the folder; classes play no part.
        check: read every file; False takes all that have an image extension.

    Returns:
        (paths, ((path, reason), ...)).

    Raises:
        NotADirectoryError: if root is no folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise NotADirectoryError(f"need a folder of images; {root} is none")
    paths = list(_walk(root))
    reasons = _check_all(paths) if check else [None] * len(paths)
    return (
        tuple(path for path, reason in zip(paths, reasons, strict=True) if reason is None),
        tuple((str(path), reason) for path, reason in zip(paths, reasons, strict=True) if reason is not None),
    )


def _need_fractions(test: float, val: float) -> None:
    if not (0 <= test <= 1 and 0 <= val <= 1 and test + val <= 1):
        raise ValueError(
            f"test_fraction and val_fraction are shares of the classes, >= 0 with a sum <= 1; got {test} and {val}"
        )


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _division(root: Path) -> tuple[str, ...]:
    """The splits that the folders of root stand for; none if the folders are classes."""
    names = {folder.name for folder in _folders(root)}
    if not names or not names <= set(SPLITS):
        return ()
    if not {"train", "test"} <= names:
        raise ValueError(
            f"{root} holds {' and '.join(sorted(names))} and no other folder; a division needs both train/ and test/. "
            "Add the missing one, or point data.root at the folder that holds the class folders."
        )
    return tuple(split for split in SPLITS if split in names)


def _is_image(path: Path) -> bool:
    return not path.name.startswith(".") and path.suffix.lower() in EXTENSIONS


def _walk(folder: Path) -> Iterable[Path]:
    """Image files at any depth, sorted by name; links are followed, but no folder is visited twice."""
    visited: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:  # a link to a folder above would never end
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (path for name in sorted(files) if _is_image(path := Path(here, name)))


def _check_all(paths: list[Path]) -> list[str | None]:
    return list(in_threads(lambda row: check_image(paths[row]), len(paths), "checking images"))


def _divide(names: list[str], test_fraction: float, val_fraction: float, seed: int) -> dict[str, str]:
    """Split of each class."""
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
    tests, vals = round(test_fraction * len(names)), round(val_fraction * len(names))
    splits = ["test"] * tests + ["val"] * vals + ["train"] * len(names)
    return dict(zip(order, splits, strict=False))


def _need_two_classes(table: Table, division: tuple[str, ...]) -> None:
    for split in division or SPLITS:
        classes = len(torch.unique(table.select(split).label)) if split in table.splits else 0
        if classes == 1 or (division and classes == 0):
            raise ValueError(
                f"{split} has readable images of {classes} class(es); ranking needs at least two in each split. "
                + (
                    "Add classes to it."
                    if division
                    else f"There are {len(table.class_names)} classes in all: change test_fraction or val_fraction, "
                    "add classes, or divide the images yourself into train/ and test/."
                )
            )
