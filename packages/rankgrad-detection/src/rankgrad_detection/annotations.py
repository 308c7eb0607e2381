"""What all formats of annotated images share: a reader gives the objects of each image as its file has them, and here
they are judged once, and become scenes.

Files of annotations may be from somebody else, so paths in them stay below the data's folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from rankgrad.common.files import read_text
from rankgrad.common.text import brief, shown
from rankgrad_workbench.datasets.images import image_size
from rankgrad_workbench.trec.alike import key

from .scenes import LARGEST, Scene, Scenes, some_names

SMALL = 2  # pixels; in an image with such a side, every box is near the first pixel
FLAGS = {"": False, "0": False, "false": False, "1": True, "true": True}
CONFINED = (
    "Only what lies below data.root is opened, because the file that names it may be from somebody else. Move it below "
    "that folder, or link it there (ln -s), and name it relative to the folder"
)

Wrong = tuple[Path, str]  # a file of annotations, or an image, that cannot be used, and the message
Key = TypeVar("Key")


class Found(NamedTuple):
    """An object, as a file has it.

    Attributes:
        where: the file, and the place in it, for messages.
        name: its class.
        box: edges (left, top, right, bottom) in pixels.
        difficult: whether it counts neither as found nor as missed.
        crowd: whether it is a box around many objects.
    """

    where: str
    name: str
    box: tuple[float, float, float, float]
    difficult: bool = False
    crowd: bool = False


class Source(NamedTuple):
    """An image of a split.

    Attributes:
        path: what is left out if its annotation cannot be used: the file of it, or the image.
        name: name of the image, without the file ending.
        image: its file.
        read: returns (width, height) as annotated, in any form, and the objects.
    """

    path: Path
    name: str
    image: Path
    read: Callable[[], tuple[Sequence[object], Sequence[Found]]]


def gathered(
    root: Path,
    split: str,
    names: Sequence[str],
    sources: Iterable[Source],
    wrong: list[Wrong] | None,
    once: bool = False,
) -> Scenes:
    """The scenes of a split.

    Args:
        root: the folder of the data.
        split: its name.
        names: of the classes.
        sources: the images.
        wrong: gets each annotation that cannot be used. Its image is left out. None: the first error is raised.
        once: leave out an object that is there a second time.

    Raises:
        ValueError: an object cannot be used, or see `oddities`.
    """
    scenes, left_out = list[Scene](), list[str]()
    labels = {name: label for label, name in enumerate(names)}
    for source in sources:
        with collected(wrong, source.path):
            scene, without = _scene(source, labels, once)
            scenes.append(scene)
            left_out += without
    return Scenes(split, tuple(names), tuple(scenes), tuple(left_out), tuple(oddities(root, names, scenes)))


def _scene(source: Source, labels: Mapping[str, int], once: bool) -> tuple[Scene, list[str]]:
    size, objects = source.read()
    kept, left_out = dict[object, Found](), list[str]()
    for place, each in enumerate(objects):
        if each.name not in labels:
            raise ValueError(
                f"{each.where} has an object of class {each.name!r}, which is not among {', '.join(labels)}. "
                "classes=data uses all classes of the annotations"
            )
        x1, y1, x2, y2 = each.box
        same = each[1:] if once else place
        if same in kept or not (x2 > x1 and y2 > y1):
            why = "the same as an earlier one" if same in kept else f"box {x1:g}, {y1:g}, {x2:g}, {y2:g} without area"
            left_out.append(f"{os.path.basename(each.where)}, {each.name}: {why}")
        else:
            kept[same] = each
    sides = [int(side) if re.fullmatch(r"0*[1-9]\d{0,8}", side) else 0 for side in map(str, size)]
    width, height = sides if all(sides) else image_size(source.image)[::-1]
    found = [*kept.values()]
    crowd = torch.tensor([each.crowd for each in found], dtype=torch.bool)
    scene = Scene(
        source.name,
        source.image,
        (width, height),
        boxes=torch.tensor([each.box for each in found], dtype=torch.float64).float().reshape(-1, 4),
        labels=torch.tensor([labels[each.name] for each in found], dtype=torch.int64),
        difficult=torch.tensor([each.difficult for each in found], dtype=torch.bool) | crowd,
        crowd=crowd if crowd.any() else None,
    )
    return scene, left_out


@contextmanager
def collected(wrong: list[Wrong] | None, path: Path) -> Iterator[None]:
    """Append an error to `wrong`, if that is a list."""
    try:
        yield
    except (OSError, ValueError) as error:
        if wrong is None:
            raise
        wrong.append((path, str(error)))


def chosen(classes: str | Sequence[str], data: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """The names of the classes.

    Args:
        classes: "data": what `data()` returns. Or a list of names.
        data: the classes of the files.

    Raises:
        ValueError: it is another word, or the names are not different texts.
    """
    names = tuple(data() if classes == "data" else classes)
    texts = all(isinstance(name, str) for name in names)  # not converted: 01 was read as 1
    if (isinstance(classes, str) and classes != "data") or not names or not texts or len(set(names)) < len(names):
        raise ValueError(
            f"classes must be data (of VOC also voc), or a list of different texts; got {brief(classes)}. Quote "
            "numbers: \"classes=['1','2']\""
        )
    return names


def numbers(where: str, values: object) -> tuple[float, float, float, float]:
    """The four numbers of a box.

    Raises:
        ValueError: they are not finite, or not four; the message begins with `where`.
    """
    try:
        a, b, c, d = (float(value) for value in values)  # type: ignore[attr-defined]
    except (OverflowError, TypeError, ValueError):
        a = b = c = d = float("nan")
    if not all(abs(value) <= LARGEST for value in (a, b, c, d)):
        raise ValueError(f"{where} must have a box of four finite numbers; got {brief(values)}")
    return a, b, c, d


def flag(where: str, name: str, value: object) -> bool:
    """Whether an object is difficult, or a crowd. Some tools write true and false; empty is false.

    Raises:
        ValueError: it is another text or number; the message begins with `where`.
    """
    text = str(value or "").strip().lower()
    if text not in FLAGS:
        raise ValueError(f"{where}: {name} must be 0 or 1; got {brief(text)}")
    return FLAGS[text]


def lines_of(path: Path) -> list[str]:
    """The lines of a text, without white space around them and without empty ones at the end of the file.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return read_text(path).removeprefix("\ufeff").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None


# --------------------------------------------------------------------------------------------------------------- paths


def below(root: Path, path: Path) -> Path | None:
    """A path without `..`, if it stays below `root`; else None. What is a link there stays one.

    >>> below(Path("cells"), Path("cells/annotations/../train/a.jpg")).as_posix()
    'cells/train/a.jpg'
    >>> below(Path("cells"), Path("cells/../private/a.jpg")), below(Path("cells"), Path("/private/a.jpg"))
    (None, None)
    """
    if "\0" in str(path):
        return None
    flat = Path(os.path.normpath(path))
    if Path(os.path.abspath(flat)).is_relative_to(os.path.abspath(root)):
        return flat
    # root may be named through a link, and the path without it
    real, top = Path(os.path.realpath(path)), os.path.realpath(root)
    return root / real.relative_to(top) if real.is_relative_to(top) else None


def first_below(root: Path, bases: Iterable[Path], *names: str) -> Path | None:
    """The first file or folder that one of these names means in one of these folders, if it is below `root`.

    Windows separates folders by a backslash.
    """
    spelled = (each for name in names for each in dict.fromkeys((name, name.replace("\\", "/"))))
    paths = (below(root, base / name) for name in spelled for base in bases)
    return next((path for path in paths if path is not None and path.exists()), None)


def images_below(root: Path, path: Path, bases: Sequence[Path], names: Mapping[Key, str]) -> dict[Key, Path]:
    """The images that a file names, all below `root`.

    Raises:
        FileNotFoundError: some are not.
    """
    found = {key: at for key, name in names.items() if (at := first_below(root, bases, name)) and at.is_file()}
    if lacking := [name for key, name in names.items() if key not in found]:
        raise FileNotFoundError(
            f"{path} lists {len(names)} images, and {len(lacking)} of them are not below {root}: "
            f"{some_names(lacking)}. {CONFINED}"
        )
    return found


# --------------------------------------------------------------------------------- what can be read, but looks like a m


def oddities(root: Path, names: Sequence[str], scenes: Sequence[Scene]) -> list[str]:
    """Notes about names of classes that look alike, repeated objects, boxes in the first pixel, and links.

    Args:
        root: the folder of the data.
        names: of the classes.
        scenes: the images.

    Raises:
        ValueError: most boxes are fractions of the image.
    """
    notes, repeated, corner = list[str](), list[str](), list[str]()
    if alike := look_alike(names):
        notes.append(f"the classes {alike[0]!a} and {alike[1]!a} look alike")
    for scene in scenes:
        rows = {(label, *box) for label, box in zip(scene.labels.tolist(), scene.boxes.tolist(), strict=True)}
        repeated += [scene.name] * (len(scene.labels) - len(rows))
        if min(scene.size) > SMALL:
            corner += [scene.name] * int((scene.boxes[:, 2:] <= 1).all(1).sum())
    if repeated:
        what = f"{len(repeated)} objects are annotated twice, with the same class and box, e.g. in"
        notes.append(f"{what} {some_names(repeated)}; both count")
    if corner:
        text = f"{len(corner)} boxes lie in the first pixel of their image, e.g. in {some_names(corner)}"
        if 2 * len(corner) >= sum(len(scene.boxes) for scene in scenes):
            raise ValueError(
                f"{text}: they are fractions of the image, and must be pixels. Multiply them by its width and height"
            )
        notes.append(f"{text}; are they fractions?")
    if links := _links_out(root, scenes):
        notes.append(f"{len(links)} images are links out of the folder, and are opened, e.g. {links[0]}")
    return notes


def look_alike(names: Sequence[str]) -> tuple[str, str] | None:
    r"""The first two names that differ only in what one does not see.

    >>> look_alike(["caf\u00e9", "tea", "cafe\u0301"]) == ("caf\u00e9", "cafe\u0301"), look_alike(["a", "b"])
    (True, None)
    """
    first: dict[str, str] = {}
    return next(((before, name) for name in names if (before := first.setdefault(key(name), name)) != name), None)


def _links_out(root: Path, scenes: Iterable[Scene]) -> list[str]:
    """Those files below `root` that are elsewhere, because they or their folders are links. Links are followed."""
    top, folders = Path(os.path.realpath(root)), cache(os.path.realpath)
    paths = [scene.path for scene in scenes]
    real = ((path, os.path.realpath(path) if path.is_symlink() else folders(path.parent)) for path in paths)
    return [f"{shown(path.name)} -> {shown(place)}" for path, place in real if not Path(place).is_relative_to(top)]
