"""Annotated images in the layout of Pascal VOC: the official years, and any folder of the same structure.

VOC counts pixels from 1 and includes the last one, so its box (xmin, ymin, xmax, ymax) covers the area from
(xmin - 1, ymin - 1) to (xmax, ymax). These are the edges of `scenes`.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rankgrad.common.files import open_file
from rankgrad.common.text import shown

from .annotations import Found, Source, Wrong, chosen, collected, first_below, flag, gathered, lines_of, numbers
from .scenes import Scenes, some_names

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
FOLDERS = ("Annotations", "ImageSets/Main", "JPEGImages")
NEEDS = ", ".join(FOLDERS)
ENDINGS = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")


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
    )
    return gathered(root, split, names, _sources(parts), wrong)


load = load_voc


def _sources(parts: Sequence[tuple[Path, str]]) -> Iterator[Source]:
    """The images of (folder, list) parts."""
    for home, name in parts:
        listed, images = image_names(home, name), home / "JPEGImages"
        found = {each: first_below(home, [images], *(f"{each}{end}" for end in ENDINGS)) for each in listed}
        for each, image in found.items():
            if image is None:
                missing = [name for name, path in found.items() if path is None]
                raise FileNotFoundError(
                    f"{images} lacks {len(missing)} of the {len(found)} images of {name}: {some_names(missing)}"
                )
            path = home / "Annotations" / f"{each}.xml"
            yield Source(path, each, image, partial(read_annotation, path))


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
    # a list of one class has a second column
    names = [line.split()[0] for line in lines_of(path) if line.strip()]
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


def class_names(home: Path, wrong: list[Wrong] | None = None) -> list[str]:
    """The classes in the annotations of a folder, sorted. `wrong` is as for `load_voc`.

    Raises:
        ValueError: an annotation cannot be read, or none has an object.
    """
    names: set[str] = set()
    for path in sorted((home / "Annotations").glob("*.xml")):
        with collected(wrong, path):
            names |= {_name(entry, path) for entry in _root(path).findall("object")}
    if not names and not wrong:
        raise ValueError(f"{home / 'Annotations'} has no annotated object")
    return sorted(names)


def read_annotation(path: Path) -> tuple[Sequence[object], Sequence[Found]]:
    """The size of an image, and its objects. Body parts, which are objects inside an object, are ignored.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file cannot be read, or an object of it.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. The annotations of VOC 2012's test set are not public")
    root, objects = _root(path), []
    for entry in root.findall("object"):
        name, where = _name(entry, path), str(path)
        sides = [entry.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        x1, y1, x2, y2 = numbers(f"{where}: an object ({name})", sides)
        difficult = flag(where, "difficult", entry.findtext("difficult"))
        objects.append(Found(where, name, (x1 - 1, y1 - 1, x2, y2), difficult))
    return [root.findtext(f"size/{side}") for side in ("width", "height")], objects


def _root(path: Path) -> ElementTree.Element:
    try:
        with open_file(path) as file:
            root = ElementTree.parse(file).getroot()
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the last two: an encoding that is not known
        raise ValueError(f"{path} is not a readable annotation: {error}") from None
    if root.tag != "annotation" and root.find("object") is None:  # otherwise an image without objects
        raise ValueError(f"{shown(path)} is not an annotation of VOC: its root is {shown(root.tag)!r}, not annotation")
    return root


def _name(entry: ElementTree.Element, path: Path) -> str:
    name = (entry.findtext("name") or "").strip()
    if not name:
        raise ValueError(f"{path}: an object has no name")
    return name
