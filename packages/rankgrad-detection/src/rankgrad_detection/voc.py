"""Annotated images in the layout of Pascal VOC: the official years, and any folder of the same structure.

VOC counts pixels from 1 and includes the last one, so its box (xmin, ymin, xmax, ymax) covers the area from
(xmin - 1, ymin - 1) to (xmax, ymax). These are the edges of `scenes`.
"""

from __future__ import annotations

import math
import os
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rankgrad.common.files import open_file, read_text
from rankgrad.common.text import shown
from rankgrad_workbench.datasets.images import image_size

from .annotations import Read, Sources, Wrong, chosen, collected, gathered, label
from .scenes import LARGEST, LeftOut, Scene, Scenes, some_names

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
FOLDERS = ("Annotations", "ImageSets/Main", "JPEGImages")
NEEDS = ", ".join(FOLDERS)
ENDINGS = (".jpg", ".jpeg", ".png")


def load_voc(
    root: str | Path, split: str, classes: str | Sequence[str] = "voc", wrong: list[Wrong] | None = None
) -> Scenes:
    """Read the images of one or several sets.

    Args:
        root: VOCdevkit, its parent, one year's folder, or any folder with Annotations, ImageSets/Main and JPEGImages.
        split: "YEAR/SET", several joined by "+", e.g. "2007/trainval+2012/trainval"; or "SET" for a folder without
            years.
        classes: "voc": VOC's twenty classes. "data": all classes of the folder's annotations, sorted. Or a list of
            names.
        wrong: gets each annotation that cannot be used. Its image is left out. None: the first one is raised.

    Raises:
        FileNotFoundError: a folder, list, annotation or image is missing.
        ValueError: an annotation cannot be read, or has an unknown class.

    >>> import tempfile
    >>> from PIL import Image
    >>> edges = "<xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax>"
    >>> annotation = f"<annotation><object><name>cell</name><bndbox>{edges}</bndbox></object></annotation>"
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for place in FOLDERS:
    ...         Path(root, place).mkdir(parents=True)
    ...     Image.new("RGB", (8, 8)).save(Path(root, "JPEGImages", "a.png"))
    ...     _ = Path(root, "Annotations", "a.xml").write_text(annotation)
    ...     _ = Path(root, "ImageSets", "Main", "train.txt").write_text("a")
    ...     load_voc(root, "train", ["cell"]).summary()
    'train: 1 images, 1 objects (cell 1)'
    """
    root = Path(root)
    parts = [(folder(root, year), name) for year, name in map(_year, split.split("+"))]
    names = chosen(
        CLASSES if classes == "voc" else classes,
        lambda: sorted({name for home in dict(parts) for name in class_names(home, wrong)}),
        "voc, data",
    )
    return gathered(root, split, names, _sources(parts, {name: index for index, name in enumerate(names)}), wrong)


load = load_voc


def _sources(parts: Sequence[tuple[Path, str]], number: Mapping[str, int]) -> Sources:
    """Annotations, and how each is read, of (folder, list) parts."""
    for home, name in parts:
        files = image_files(home)
        listed = image_names(home, name)
        missing = [each for each in listed if each not in files]
        if missing:
            raise FileNotFoundError(
                f"{home / 'JPEGImages'} lacks {len(missing)} of the {len(listed)} images of {name}: "
                f"{some_names(missing)}"
            )
        for each in listed:
            if len(files[each]) > 1:  # which of them was annotated?
                raise ValueError(
                    f"{home / 'JPEGImages'} has {len(files[each])} images of the name {each}: "
                    f"{', '.join(path.name for path in files[each])}. Remove all but one"
                )
            path = home / "Annotations" / f"{each}.xml"
            yield path, partial(read_scene, path, files[each][0], number)


def _year(part: str) -> tuple[str | None, str]:
    year, slash, name = part.rpartition("/")
    if not name or (slash and not (year.isdigit() and len(year) == 4)):
        raise ValueError(f"a split must be SET or YEAR/SET, e.g. trainval or 2007/trainval+2012/trainval; got {part!r}")
    return (year if slash else None), name


def homes(root: Path, year: str) -> list[Path]:
    """The folders of a year: below VOCdevkit, below root, or root itself."""
    choices = [
        root / "VOCdevkit" / f"VOC{year}",
        root / f"VOC{year}",
        *([root] if root.absolute().name == f"VOC{year}" else []),
    ]
    return [choice for choice in choices if choice.is_dir()]


def folder(root: Path, year: str | None = None) -> Path:
    """The folder with Annotations, ImageSets and JPEGImages: that of a year, or root itself.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    choices = [root] if year is None else homes(root, year) or [root / f"VOC{year}"]
    absent = {choice: [name for name in FOLDERS if not (choice / name).is_dir()] for choice in choices}
    if found := next((choice for choice, names in absent.items() if not names), None):
        return found
    masks = (choices[0] / "ImageSets" / "Segmentation").is_dir()
    raise FileNotFoundError(
        f"{choices[0]} {'has no ' + ', '.join(absent[choices[0]]) if choices[0].is_dir() else 'does not exist'}"
        f"{' (ImageSets/Segmentation lists images with masks, which are not read)' if masks else ''}: pass a folder "
        f"with {', '.join(FOLDERS)}, or VOCdevkit and a year: 2007/trainval"
    )


def image_names(home: Path, name: str) -> list[str]:
    """The names of the images in a list of ImageSets/Main.

    Raises:
        FileNotFoundError: the list does not exist; the message has the existing lists.
        ValueError: the list is empty, has an image twice, or is not UTF-8.
    """
    path = home / "ImageSets" / "Main" / f"{name}.txt"
    if not path.exists():
        known = ", ".join(set_names(home)) or "none"
        raise FileNotFoundError(f"{path} does not exist; lists there: {known}")
    try:
        text = read_text(path).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    # a list of one class has a second column
    names = [line.split()[0] for line in text.splitlines() if line.strip()]
    if not names:
        raise ValueError(f"{path} has no image")
    twice = [each for each, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} has {len(twice)} images more than once, e.g. {twice[0]}")
    return names


def here(root: Path) -> bool:
    """Whether a folder looks like one of VOC."""
    return any((root / name).is_dir() for name in ("JPEGImages", "ImageSets", "VOCdevkit")) or any(root.glob("VOC20??"))


def set_names(home: Path) -> list[str]:
    """The lists of a folder, without the lists of a single class."""
    names = sorted(path.stem for path in (home / "ImageSets" / "Main").glob("*.txt"))
    return [name for name in names if "_" not in name] or names


def image_files(home: Path) -> dict[str, list[Path]]:
    """Name without ending -> its files, of all images of a folder."""
    with os.scandir(home / "JPEGImages") as entries:
        paths = [Path(entry.path) for entry in entries]
    files: dict[str, list[Path]] = {}
    for path in sorted(paths):
        if path.suffix.lower() in ENDINGS:
            files.setdefault(path.stem, []).append(path)
    return files


def class_names(home: Path, wrong: list[Wrong] | None = None) -> list[str]:
    """The classes in the annotations of a folder, sorted. `wrong` is as for `load_voc`.

    Raises:
        ValueError: an annotation cannot be read, or none has an object.
    """
    names: set[str] = set()
    for path in sorted((home / "Annotations").glob("*.xml")):
        with collected(wrong, path):
            names |= {_text(entry, "name", path) for entry in _root(path).findall("object")}
    if not names and not wrong:
        raise ValueError(f"{home / 'Annotations'} has no annotated object")
    return sorted(names)


def read_scene(path: Path, image: Path, number: Mapping[str, int]) -> Read:
    """One annotation, and (file, reason) of each box that is left out because it ends before it begins.

    A box with xmax = xmin is one pixel wide, because VOC includes the last pixel.

    Args:
        path: xml file.
        image: its image.
        number: class -> label.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file cannot be read, it has an unknown class, a corner of a box is not a finite number, or
            difficult is neither 0 nor 1.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. The annotations of VOC 2012's test set are not public")
    root = _root(path)
    boxes, labels, difficult = [], [], []
    left_out: list[LeftOut] = []
    # body parts are objects inside an object; they are ignored
    for entry in root.findall("object"):
        name = _text(entry, "name", path)
        which = label(path, name, number)
        corners = entry.find("bndbox")
        if corners is None:
            raise ValueError(f"{path}: an object ({name}) has no bndbox")
        x1, y1, x2, y2 = (_number(corners, side, path) for side in ("xmin", "ymin", "xmax", "ymax"))
        if not (x2 > x1 - 1 and y2 > y1 - 1):  # the box has no area
            left_out.append((path.name, f"{name}: box {x1:g}, {y1:g}, {x2:g}, {y2:g} ends before it begins"))
            continue
        boxes.append((x1 - 1, y1 - 1, x2, y2))
        labels.append(which)
        difficult.append(_difficult(entry, path))
    return Scene.of(path.stem, image, _size(root, path, image), boxes, labels, difficult), left_out


def _root(path: Path) -> ElementTree.Element:
    try:
        with open_file(path) as file:
            root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the last two: an encoding that is not known
        raise ValueError(f"{path} is not a readable annotation: {error}") from None
    if root.tag != "annotation" and root.find("object") is None:  # otherwise an image without objects
        raise ValueError(f"{shown(path)} is not an annotation of VOC: its root is {shown(root.tag)!r}, not annotation")
    return root


def _text(entry: ElementTree.Element, key: str, path: Path) -> str:
    text = (entry.findtext(key) or "").strip()
    if not text:
        raise ValueError(f"{path}: an object has no {key}")
    return text


def _number(entry: ElementTree.Element, key: str, path: Path) -> float:
    text = _text(entry, key, path)
    try:
        number = float(text)  # some files of 2012 have fractions of a pixel
    except ValueError:
        number = math.nan
    if not abs(number) <= LARGEST:
        raise ValueError(f"{shown(path)}: {key} must be a finite number; got {text!r}")
    return number


def _difficult(entry: ElementTree.Element, path: Path) -> bool:
    """Whether an object is difficult. Some tools write true and false; an object without the entry is not difficult."""
    text = (entry.findtext("difficult") or "0").strip().lower()
    if text not in ("0", "1", "false", "true"):
        raise ValueError(f"{shown(path)}: difficult must be 0 or 1; got {text!r}")
    return text in ("1", "true")


def _size(root: ElementTree.Element, path: Path, image: Path) -> tuple[int, int]:
    """The annotated size; if it is missing or 0, the size of the file."""
    entry = root.find("size")
    try:
        width, height = (0, 0) if entry is None else (int(entry.findtext(key) or 0) for key in ("width", "height"))
    except ValueError as error:
        raise ValueError(f"{shown(path)}: width and height of the image must be integers: {error}") from None
    if max(width, height) > LARGEST:
        raise ValueError(f"{shown(path)}: width and height of the image must be numbers of pixels; one is too large")
    if width > 0 and height > 0:
        return width, height
    height, width = image_size(image)
    return width, height
