"""A folder of images: class = sub-folder. Files that can't be read are found now, not in the middle of training."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..files import shown
from .base import SPLITS, Cache, Table, check_reading
from .cache import PATIENCE, in_threads
from .division import divide, need_fractions
from .images import EXTENSIONS, SIDECARS, Skipped, check_image, not_an_image, some

# Folders that divide the images, by their names in any capitals; the first of each is the name to prefer.
DIVISIONS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
UNLABELLED = ("unlabelled", "unlabeled")  # beside a division: images without a class, left out

Listed = list[tuple[str, str, Path]]  # split or "", class, file


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

    If `root` holds folders called `train` and `test` (and perhaps `val`) and nothing else, these are the division, each
    with its class folders. Other names that people use are known, in any capitals: see `DIVISIONS`. A folder
    `unlabelled` beside them is left out. A class name that occurs in two of them is one class; `Table.summary` says so,
    because the test then doesn't ask for unseen classes. Otherwise whole classes are divided: in the order of a hash of
    (seed, class name), the first `test_fraction` are test, the next `val_fraction` are val; a class added later moves
    hardly any other class. How the folder was understood is the first line of `Table.summary`.

    Links are followed; hidden files and folders and texts that lie beside images are left alone (`images.SIDECARS`);
    the order is that of the names. Files that can't be used are listed in `Table.skipped`: no images, unreadable,
    empty, truncated or too large (`images.max_pixels`), and those that lie beside the class folders. A class of which
    no file is readable is no class. A class with one image is kept; `Table.summary` counts it.

    Names of classes and images are as they may be shown: what no terminal should get is escaped (`files.shown`).

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
        ValueError: if there are no sub-folders, no readable images, or fewer than two classes in a split; if a division
            lacks `train` or `test`, or another folder stands in its way; if a setting is out of range.
    """
    root = Path(root)
    need_fractions(test_fraction, val_fraction)
    check_reading(channels, shorter_side, draft, cache, cache_dir)
    if not root.exists():
        raise FileNotFoundError(
            f"the image folder {shown(root)} does not exist; set data.root to a folder with one sub-folder per class"
        )
    if not root.is_dir():
        raise NotADirectoryError(f"data.root must be a folder with one sub-folder per class; {shown(root)} is a file")
    layout = _layout(root)
    listed = [entry for home in layout.homes for entry in _listed(home, layout.split_of(home))]
    reasons = [not_an_image(path) for _, _, path in listed]
    images = [row for row, reason in enumerate(reasons) if reason is None]
    if check:
        if len(images) > PATIENCE and sys.stderr.isatty():
            print(shown(layout), file=sys.stderr)  # a mistake is seen now, not in some minutes
        for row, reason in zip(images, check_images([listed[row][2] for row in images]), strict=True):
            reasons[row] = reason
    good = [entry for entry, reason in zip(listed, reasons, strict=True) if reason is None]
    broken = [(str(path), reason) for (_, _, path), reason in zip(listed, reasons, strict=True) if reason is not None]
    if not good:
        raise ValueError(
            f"{shown(root)} has no readable images in its class folders; looked for {', '.join(EXTENSIONS)}, found "
            f"{len(broken)} other or broken files"
            + "".join(f"\n  {shown(path)}: {reason}" for path, reason in broken[:10])
        )
    class_names = sorted({name for _, name, _ in good})
    if len(class_names) < 2:
        raise ValueError(
            f"{shown(root)} has readable images of one class only ({shown(class_names[0])!r}); ranking needs at least "
            "two"
        )
    if not layout.divided:
        split_of = divide(class_names, test_fraction, val_fraction, seed)
        good = [(split_of[name], name, path) for _, name, path in good]
    number = {name: i for i, name in enumerate(class_names)}
    table = Table(
        name=root.resolve().name,
        label=torch.tensor([number[name] for _, name, _ in good], dtype=torch.int64),
        class_names=tuple(map(shown, class_names)),
        split=tuple(split for split, _, _ in good),
        names=tuple(shown(path.relative_to(root).as_posix()) for _, _, path in good),
        channels=channels,
        paths=tuple(path for _, _, path in good),
        skipped=(*_beside([root, *layout.homes]), *broken),
        shorter_side=shorter_side,
        draft=draft,
        understood=str(layout),
    )
    _need_two_classes(table, layout)
    return table.cached(cache, cache_dir)


def find_images(root: str | Path, check: bool = True) -> tuple[tuple[Path, ...], Skipped]:
    """All usable image files at any depth below a folder, in the order of their names, and the unusable ones.

    Args:
        root: the folder; classes play no part.
        check: read every file; False takes all that have the name of an image.

    Returns:
        (paths, ((path, reason), ...)).

    Raises:
        NotADirectoryError: if root is no folder.
    """
    root = Path(root)
    if not root.is_dir():
        raise NotADirectoryError(f"need a folder of images; {shown(root)} is none")
    found = list(_walk(root))
    reason_of = {path: not_an_image(path) for path in found}
    if check:
        images = [path for path in found if reason_of[path] is None]
        reason_of.update(zip(images, check_images(images), strict=True))
    return (
        tuple(path for path in found if reason_of[path] is None),
        tuple((str(path), reason) for path, reason in reason_of.items() if reason is not None),
    )


# ------------------------------------------------------------------------------------------ how a folder is understood


@dataclass(frozen=True)
class _Layout:
    """The folders of a root as they are understood: classes, or splits that hold them. Print it for a sentence.

    Attributes:
        root: that was looked at.
        divisions: split -> its folder, in the order train, val, test; empty if the folders of root are the classes.
        unlabelled: folders that are left out.
    """

    root: Path
    divisions: Mapping[str, Path]
    unlabelled: tuple[Path, ...] = ()

    @property
    def divided(self) -> bool:
        """Say whether the folders are splits."""
        return bool(self.divisions)

    @property
    def homes(self) -> tuple[Path, ...]:
        """Folders that hold class folders."""
        return tuple(self.divisions.values()) or (self.root,)

    def split_of(self, home: Path) -> str:
        """The split that a folder stands for; "" if there is no division."""
        return next((split for split, folder in self.divisions.items() if folder == home), "")

    def __str__(self) -> str:
        if not self.divided:
            count = len(_folders(self.root))
            return f"{self.root} is understood as {count} class folder{'s' * (count != 1)}, to be divided by class"
        parts = [f"{home.name}/ = {split} ({len(_folders(home))} classes)" for split, home in self.divisions.items()]
        parts += [f"{folder.name}/ left out ({sum(1 for _ in _walk(folder))} files)" for folder in self.unlabelled]
        return f"{self.root} is understood as a division: {', '.join(parts)}"


def _layout(root: Path) -> _Layout:
    """Find out what the folders of a root stand for.

    Raises:
        ValueError: half a division, or something that stands in its way.
    """
    folders = _folders(root)
    meant: dict[str, list[Path]] = {}
    for folder in folders:
        meant.setdefault(_meaning(folder.name), []).append(folder)
    classes, unlabelled = meant.pop("", []), meant.pop("unlabelled", [])
    if not meant or (classes and not _looks_divided(meant)):
        return _Layout(root, {})
    if classes:
        raise ValueError(
            f"{shown(root)} holds {_and(meant['train'] + meant['test'])} with folders in them, which looks like a "
            f"division into splits, but {_and(classes)} {'stands' if len(classes) == 1 else 'stand'} in the way. Move "
            f"{'it' if len(classes) == 1 else 'them'} out of {shown(root)}, or point data.root elsewhere"
        )
    for split, homes in meant.items():
        if len(homes) > 1:
            raise ValueError(f"{shown(root)} holds {_and(homes)}, which both mean {split}: make them one folder")
    if not {"train", "test"} <= set(meant):
        there = [folder for homes in meant.values() for folder in homes]
        absent = " and ".join(f"{split}/" for split in ("train", "test") if split not in meant)
        raise ValueError(
            f"{shown(root)} holds {_and(there)} and no {absent}; a division needs both train/ and test/. Add or rename "
            "what is missing, or point data.root at the folder that holds the class folders."
        )
    return _Layout(root, {split: meant[split][0] for split in SPLITS if split in meant}, tuple(unlabelled))


def _meaning(name: str) -> str:
    """The split that a folder's name means, "unlabelled", or "" for a class.

    >>> [_meaning(name) for name in ("Train", "VALIDATION", "unlabeled", "cat")]
    ['train', 'val', 'unlabelled', '']
    """
    name = name.casefold()
    if name in UNLABELLED:
        return "unlabelled"
    return next((split for split, names in DIVISIONS.items() if name in names), "")


def _looks_divided(meant: Mapping[str, Sequence[Path]]) -> bool:
    """Say whether train and test are there and hold folders; a class of that name (a railway train) holds images."""
    return all(split in meant and all(map(_folders, meant[split])) for split in ("train", "test"))


def _and(folders: Sequence[Path]) -> str:
    """Names of folders, in words.

    >>> _and([Path("a/cat"), Path("a/dog")])
    'cat/ and dog/'
    """
    names = [f"{shown(folder.name)}/" for folder in folders]
    if len(names) > 5:
        return some(names)
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _listed(home: Path, split: str) -> Listed:
    """All files of the class folders in a folder."""
    folders = _folders(home)
    if not folders:
        raise ValueError(
            f"{shown(home)} has no sub-folders; every class needs a folder of its own with its images in it"
        )
    return [(split, folder.name, path) for folder in folders for path in _walk(folder)]


def _beside(homes: Sequence[Path]) -> list[tuple[str, str]]:
    """Files beside the class folders."""
    files = [path for home in dict.fromkeys(homes) for path in sorted(home.iterdir())]
    return [
        (str(path), not_an_image(path) or "lies beside the class folders")
        for path in files
        if path.is_file() and _counts(path.name)
    ]


def _walk(folder: Path) -> Iterable[Path]:
    """Files at any depth that count, sorted by name; links are followed, but no folder is visited twice."""
    visited: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in visited:  # a link to a folder above would never end
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(files) if _counts(name))


def _counts(name: str) -> bool:
    """Say whether a file may be meant as an image: it is not hidden, and no list or caption that lies beside one."""
    return not name.startswith(".") and Path(name).suffix.lower() not in SIDECARS


# ------------------------------------------------------------------------------------------------------ what is checked


def check_images(paths: Sequence[Path]) -> list[str | None]:
    """Why each file can't be used; None where it can. All of each file is read."""
    return list(in_threads(lambda row: check_image(paths[row]), len(paths), "checking images"))


def _need_two_classes(table: Table, layout: _Layout) -> None:
    for split in layout.divisions or SPLITS:
        classes = len(torch.unique(table.select(split).label)) if split in table.splits else 0
        if classes == 1 or (layout.divided and classes == 0):
            raise ValueError(
                f"{split} has readable images of {classes} class(es); ranking needs at least two in each split. "
                + (
                    f"Add classes to it. {shown(layout)}"
                    if layout.divided
                    else f"There are {len(table.class_names)} classes in all: change test_fraction or val_fraction, "
                    "add classes, or divide the images yourself into train/ and test/."
                )
            )
