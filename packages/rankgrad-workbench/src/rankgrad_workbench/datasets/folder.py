"""A folder of images with a sub-folder per class. Unreadable files are found here, not in the middle of training."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rankgrad.common.checks import setting
from rankgrad.common.progress import through
from rankgrad.common.text import shown

from ..files.tables.text import opened
from .base import SPLITS, Cache, Table, check_reading
from .cache import in_threads
from .division import divide, need_fractions, split_called
from .identical import identical_lines
from .images import (
    EMPTY,
    EXTENSIONS,
    SIDECARS,
    SYSTEM,
    Skipped,
    look,
    made_by_system,
    not_an_image,
    skipped_lines,
    some,
)
from .rows import class_columns

UNLABELLED = ("unlabelled", "unlabeled")  # names of a folder of images without a class, beside train and test; ignored
BESIDE = "lies beside the class folders"

Entry = tuple[str, str, Path]  # split or "", class or "", file


def load_folder(
    root: str | Path,
    test_fraction: float = 0.5,
    val_fraction: float = 0.0,
    seed: int = 0,
    channels: int = 3,
    check: bool = True,
    shorter_side: int | None = None,
    cache: Cache = "none",
    cache_dir: str | Path | None = None,
) -> Table:
    """A table of the image files below `root`. Each sub-folder is a class; all images below it belong to this class.

    If `root` holds only the folders `train` and `test` (and perhaps `val`), these are the splits, each with its class
    folders. `division.CALLED` lists other accepted names of splits. A folder `unlabelled` beside them is ignored. A
    class name that occurs in two splits is one class; `Table.summary` says so, because the test classes are then not
    all unseen. Without split folders, whole classes are divided: they are sorted by a hash of (seed, class name), the
    first `test_fraction` are test, the next `val_fraction` are val. If a class is added later, nearly all others keep
    their split. The first line of `Table.summary` says how the folder was understood.

    Links are followed. Hidden files and folders are ignored, and texts beside images as well (`images.SIDECARS`).
    Folders that a server or an operating system makes, such as @eaDir, are left out (`images.SYSTEM_FOLDERS`). Rows are
    sorted by name. `Table.skipped` lists what cannot be used: files that are no images, unreadable, empty,
    truncated or too large (`images.max_pixels`), files beside the class folders, broken links, and links to a folder
    that is read already, such as a parent. A class without a readable file is left out. A class with one image is kept;
    `Table.summary` counts such classes.

    Characters that could harm a terminal are escaped in the names of classes and images (`files.shown`).

    Args:
        root: the folder.
        test_fraction: fraction of the classes, 0 .. 1; not used with split folders.
        val_fraction: fraction of the classes, 0 .. 1; not used with split folders.
        seed: of the division.
        channels: 3 (RGB) or 1 (grey); files are converted to it.
        check: read every file now, and look for identical files and for one picture in two splits. False is faster; a
            broken file then stops training with an `OSError`.
        shorter_side: resize larger images when they are read, pixels; see `Table`.
        cache: "none": decode a file at each access; "ram", "disk": decode it once, see `Table.cached`.
        cache_dir: folder for "disk"; None: $XDG_CACHE_HOME/rankgrad, or ~/.cache/rankgrad.

    Raises:
        FileNotFoundError, NotADirectoryError: if root is no folder.
        ValueError: if there are no sub-folders, no readable images, or fewer than two classes in a split; if no class
            has two images; if only one of `train` and `test` exists, or another folder is beside them; if a setting is
            out of range.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("ant", "bee", "cat", "dog"):
    ...         Path(root, name).mkdir()
    ...         for number in range(2):
    ...             Image.new("RGB", (8, 8)).save(Path(root, name, f"{number}.png"))
    ...     table = load_folder(root)
    >>> table.class_names, table.splits, table.names[:3]
    (('ant', 'bee', 'cat', 'dog'), ('train', 'test'), ('ant/0.png', 'ant/1.png', 'bee/0.png'))
    """
    root = Path(root)
    need_fractions(test_fraction, val_fraction)
    check_reading(channels, shorter_side, cache, cache_dir)
    folder = read_folder(root)
    _need_division(folder)
    rows, broken, small = usable([path for _, _, path in folder.images], check)
    good, skipped = [folder.images[row] for row in rows], (*folder.skipped, *broken)
    _need_classes(folder, good, skipped)
    if not folder.divisions:
        yourself = (
            "folders train/ and test/ with every class in each. To train on all images, and evaluate on them too: "
            f"{setting('test_fraction', 0)} {setting('val_fraction', 0)}, in a command with evaluation.split=train. "
        )
        yourself += "\n".join([shown(folder), *skipped_lines(skipped)])
        split_of = divide({name for _, name, _ in good}, test_fraction, val_fraction, seed, yourself)
        good = [(split_of[name], name, path) for _, name, path in good]
    splits, classes, paths = zip(*good, strict=True)
    names = tuple(shown(path.relative_to(root).as_posix()) for path in paths)
    table = Table(
        name=root.resolve().name,
        **class_columns(classes),
        split=splits,
        names=names,
        channels=channels,
        paths=paths,
        skipped=skipped,
        remarks=identical_lines(paths, names, splits, classes, small) if check else (),
        shorter_side=shorter_side,
        understood=str(folder) if folder.divisions else f"{folder}, to be divided by class",
    )
    return table.cached(cache, cache_dir)


def _need_division(folder: ClassFolders) -> None:
    """Raise unless there are class folders, in both train and test or in neither."""
    absent = " and ".join(f"{split}/" for split in ("train", "test") if split not in folder.divisions)
    if folder.divisions and absent:
        raise ValueError(
            f"{shown(folder.root)} holds {_names([*folder.divisions.values(), *folder.unlabelled])} and no {absent}; "
            "both are needed. Add or rename the missing folder, or give the folder that holds the class folders as "
            f"{setting('root')}"
        )
    for home, classes in folder.classes.items():
        if not classes:
            raise ValueError(f"{shown(home)} has no sub-folders; every class needs a folder of its own with its images")


def _need_classes(folder: ClassFolders, good: Sequence[Entry], skipped: Skipped) -> None:
    """Raise unless each split folder has two classes, and a class has two images. `divide` checks its own splits."""
    root, names = shown(folder.root), {name for _, name, _ in good}
    of_split = {split: {name for here, name, _ in good if here == split} for split in folder.divisions}
    few = next((split for split, classes in (of_split or {root: names}).items() if len(classes) < 2), None)
    wrong = ""
    if not good:
        wrong = f"{root} has no readable images in its class folders. Expected are {', '.join(EXTENSIONS)}"
    elif few is not None:
        wrong = f"{few} has readable images of {len(of_split.get(few, names))} class(es); ranking needs at least two"
    elif len(good) == len(names):
        wrong = (
            f"each of the {len(good)} classes of {root} has one image only. A query must find other images of its "
            f"class: put all images of a class into one folder, such as {shown(good[0][2].parent)}/"
        )
    if wrong:
        raise ValueError("\n".join([f"{wrong}. {shown(folder)}", *skipped_lines(skipped)]))


@dataclass(frozen=True)
class ClassFolders:
    """A folder of images as `read_folder` understands it. Print it to get a sentence.

    Attributes:
        root: the folder.
        divisions: split -> its folder, in the order train, val, test; empty if the folders of root are the classes.
        classes: folder that holds class folders (root, or the split folders) -> number of class folders in it.
        unlabelled: ignored folder -> number of files in it.
        images: (split, class, file) of every file with the extension of an image, sorted by name.
        skipped: (path, reason) of every other file that may be meant as an image.
    """

    root: Path
    divisions: Mapping[str, Path]
    classes: Mapping[Path, int]
    unlabelled: Mapping[Path, int]
    images: tuple[Entry, ...]
    skipped: Skipped

    def __str__(self) -> str:
        counts = {home: f"{count} class{'es' * (count != 1)}" for home, count in self.classes.items()}
        parts = [f"{home.name}/ = {split} ({counts[home]})" for split, home in self.divisions.items()]
        parts += [f"{folder.name}/ left out ({files} files)" for folder, files in self.unlabelled.items()]
        what = f"a division: {', '.join(parts)}" if parts else "images without classes"
        if not parts and (count := self.classes[self.root]):
            what = f"{count} class folder{'s' * (count != 1)}"
        return f"{self.root} is understood as {what}"


def read_folder(root: str | Path) -> ClassFolders:
    """The image files below a folder with their classes, as all commands read it. No file is opened.

    `load_folder` defines classes and splits. This function accepts more folders than `load_folder`, because embedding
    needs less than training: one split is enough, and images of a folder without class folders have the class "".

    Args:
        root: the folder.

    Raises:
        FileNotFoundError, NotADirectoryError: if root is no folder.
        ValueError: if another folder is beside the split folders.
    """
    root = Path(root)
    if not root.exists():
        raise FileNotFoundError(
            f"{shown(root)} does not exist; {setting('root')} is a folder with one sub-folder per class"
        )
    if not root.is_dir():
        with opened(root):  # which names a packed file
            raise NotADirectoryError(
                f"{setting('root')} must be a folder with one sub-folder per class; {shown(root)} is a file. A list of "
                "images is data=manifest, texts are data=text, embeddings are data=table"
            )
    os.scandir(root).close()  # raises if the folder cannot be read
    top = next(_levels(root))
    divisions, unlabelled = _division(top.folders)
    homes = {home: (split, next(_levels(home))) for split, home in divisions.items()} or {root: ("", top)}
    images, skipped = list[Entry](), list[tuple[Path, str]]()
    for here in {id(here): here for here in (top, *(here for _, here in homes.values()))}.values():
        if here.folders:  # files beside class folders have no class
            skipped += [*here.odd, *((path, not_an_image(path) or BESIDE) for path in here.files)]
    for home, (split, here) in homes.items():
        for folder in through(here.folders or [home], "listing images", "folder", len(here.folders) or 1):
            entries = list(_walk(folder))
            found = [path for path, reason in entries if reason is None]
            images += [(split, shown(folder.name) if here.folders else "", path) for path in found]
            skipped += [(path, reason) for path, reason in entries if reason is not None]
            # a folder that cannot be read is among its own entries, with the reason
            if here.folders and not found and folder not in dict(entries):
                skipped.append((folder, EMPTY))
    return ClassFolders(
        root,
        divisions,
        {home: len(here.folders) for home, (_, here) in homes.items()},
        {folder: sum(1 for _ in _walk(folder)) for folder in unlabelled},
        tuple(images),
        tuple((str(path), reason) for path, reason in skipped),
    )


def find_images(root: str | Path, check: bool = True) -> tuple[tuple[Path, ...], Skipped]:
    """All usable image files at any depth below a folder, sorted by name, and the unusable files.

    Args:
        root: the folder; classes do not matter.
        check: read every file. False: take every file with the extension of an image.

    Returns:
        (paths, ((path, reason), ...)).

    Raises:
        NotADirectoryError: if root is no folder.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root:
    ...     Image.new("L", (8, 8)).save(Path(root, "good.png"))
    ...     _ = Path(root, "bad.png").write_text("no image")
    ...     paths, skipped = find_images(root)
    >>> [path.name for path in paths], [Path(path).name for path, _ in skipped]
    (['good.png'], ['bad.png'])
    """
    root = Path(root)
    if not root.is_dir():
        raise NotADirectoryError(f"need a folder of images; {shown(root)} is not a folder")
    reason_of = dict(_walk(root))
    if check:
        images = [path for path, reason in reason_of.items() if reason is None]
        reason_of.update(zip(images, look_at(images)[0], strict=True))
    return (
        tuple(path for path, reason in reason_of.items() if reason is None),
        tuple((str(path), reason) for path, reason in reason_of.items() if reason is not None),
    )


def _division(folders: Sequence[Path]) -> tuple[dict[str, Path], list[Path]]:
    """({split: its folder}, in the order of `SPLITS`; ignored folders).

    Raises:
        ValueError: another folder is beside the split folders, or two folders mean one split.
    """
    meant: dict[str, list[Path]] = {}
    for folder in folders:
        name = "unlabelled" if folder.name.casefold() in UNLABELLED else split_called(folder.name)
        meant.setdefault(name, []).append(folder)
    classes, unlabelled = meant.pop("", []), meant.pop("unlabelled", [])
    # a class that is called train (a railway train) holds images and no folders
    divided = all(split in meant and all(next(_levels(home)).folders for home in meant[split]) for split in SPLITS[::2])
    if not meant or (classes and not divided):
        return {}, []
    homes = [folder for folders in meant.values() for folder in folders]
    if classes or len(homes) > len(meant):
        beside = f" with folders in them, which look like splits, beside {_names(classes)}" if classes else ""
        raise ValueError(
            f"{shown(homes[0].parent)} holds {_names(homes)}{beside}: keep one folder for each split and move all "
            f"others out of it, or give another folder as {setting('root')}"
        )
    return {split: meant[split][0] for split in SPLITS if split in meant}, unlabelled


def _names(folders: Sequence[Path]) -> str:
    return some([f"{folder.name}/" for folder in folders])


class _Here(NamedTuple):
    """The content of a folder, sorted by name, without hidden entries and `SIDECARS`.

    Attributes:
        folders: folders, and links to folders.
        files: files, and links to files.
        odd: (path, reason) of folders that are not read.
    """

    folders: list[Path]
    files: list[Path]
    odd: list[tuple[Path, str]]


def _levels(folder: Path) -> Iterator[_Here]:
    """The content of a folder and of all folders in it. No folder is read twice."""
    refused: list[OSError] = []
    home = os.path.realpath(folder)
    read = {home: folder}
    for name, below, files in os.walk(folder, onerror=refused.append, followlinks=True):
        here = _Here([], [Path(name, each) for each in sorted(files) if not each.startswith(".")], [])
        for path in (Path(name, each) for each in sorted(below) if not each.startswith(".")):
            target = os.path.realpath(path)
            if made_by_system(path.name):
                here.odd.append((path, SYSTEM))
            elif Path(home).is_relative_to(target) or read.setdefault(target, path) != path:
                here.odd.append((path, f"a link to {target}, which is read already or contains this folder"))
            else:
                here.folders.append(path)
        below[:] = [path.name for path in here.folders]
        here.odd.extend((path, "a broken link") for path in here.files if not path.exists())
        here.files[:] = [path for path in here.files if path.exists() and path.suffix.lower() not in SIDECARS]
        yield here
    yield _Here([], [], [(Path(error.filename), error.strerror or type(error).__name__) for error in refused])


def _walk(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Files at any depth, each with the reason why it is no image; None: it is an image. Links are followed.

    The files of a folder come before those of its sub-folders, sorted by name.
    """
    for here in _levels(folder):
        yield from ((path, not_an_image(path)) for path in here.files)
        yield from here.odd


def look_at(paths: Sequence[Path]) -> tuple[list[str | None], list[bytes]]:
    """What `images.look` returns for each file. Every file is read completely."""
    seen = list(in_threads(lambda row: look(paths[row]), len(paths), "checking images"))
    return [reason for reason, _ in seen], [pixels for _, pixels in seen]


def usable(paths: Sequence[Path], check: bool = True) -> tuple[list[int], Skipped, list[bytes]]:
    """(rows of the files that can be used, the others with the reasons, grey pixels of the usable ones).

    Args:
        paths: [row] files.
        check: read every file. False: all count as usable, and there are no pixels.
    """
    reasons, small = look_at(paths) if check else ([None] * len(paths), [])
    rows = [row for row, reason in enumerate(reasons) if reason is None]
    broken = tuple((str(path), reason) for path, reason in zip(paths, reasons, strict=True) if reason is not None)
    return rows, broken, [pixels for pixels in small if pixels]
