"""Annotated images in the layout of YOLO: a text file of normalised boxes for each image.

A line has the number of the class, and the centre, width and height of a box as fractions of the image. Of a polygon or
an oriented box (class x1 y1 x2 y2 x3 y3 ...) the box around it is used. Key points after a box (`kpt_shape` in the
yaml) are not used. An image with an empty text file, or with none, has no objects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from rankgrad.common.files import read_text
from rankgrad.common.text import shown
from rankgrad_workbench.datasets.folder import find_images
from rankgrad_workbench.datasets.images import image_size
from rankgrad_workbench.settings import ConfigError
from rankgrad_workbench.settings.received import parsed

from .annotations import CONFINED, Found, Source, Wrong, chosen, first_below, gathered, images_below, lines_of
from .scenes import Scenes
from .yolo_lines import Lines, key_points

NEEDS = "data.yaml or classes.txt, images and labels"
LINES = ("classes.txt", "obj.names")  # files with the name of a class in each line


def load_yolo(
    root: str | Path, split: str, classes: str | Sequence[str] = "data", wrong: list[Wrong] | None = None
) -> Scenes:
    """Read the images of one or several splits.

    Args:
        root: folder with data.yaml (or another yaml with `names`) or classes.txt, the images and their text files.
        split: `val` is what the yaml says of it. Otherwise it is images/val, val/images, val or val.txt (a list of
            images), the first one that exists. Several are joined by "+".
        classes: "data": the names of the yaml or of classes.txt. Or a list of names; without these files, it is by
            number.
        wrong: gets each text file that cannot be used. Its image is left out. None: the first one is raised.

    Raises:
        FileNotFoundError: a folder, a list or an image is missing.
        ValueError: a file cannot be read, or a line of it cannot be used.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as root:
    ...     Path(root, "train").mkdir()
    ...     Image.new("RGB", (8, 8)).save(Path(root, "train", "a.png"))
    ...     _ = Path(root, "train", "a.txt").write_text("0 0.5 0.5 0.25 0.25")
    ...     _ = Path(root, "classes.txt").write_text("cell")
    ...     load_yolo(root, "train").summary()
    'train: 1 images, 1 objects (cell 1)'
    """
    root = Path(root)
    path, content = _described(root)
    names = chosen(classes, lambda: class_names(root))
    known = class_names(root) if classes != "data" and path is not None else names
    lines = Lines(len(known), key_points(path, content.get("kpt_shape")))
    images = [image for name in split.split("+") for image in _images(root, name)]
    texts = [label_file(root, image) for image in images]
    without = sum(not text.is_file() for text in texts)
    if without == len(images):
        raise FileNotFoundError(
            f"none of the {len(images)} images of {split} has a text file such as {texts[0]}. Images without "
            "boxes, such as folders of classes: rankgrad train data=folder"
        )
    sources = []
    for image, text in zip(images, texts, strict=True):
        name = os.path.splitext(os.path.relpath(image, root))[0]
        sources.append(Source(text, name, image, partial(_read, image, text, known, lines)))
    found = gathered(root, split, names, sources, wrong, once=True)
    notes = [f"{without} images have no text file, and so no objects"] if without else []
    return replace(found, notes=(*found.notes, *notes, *lines.notes(split)))


load = load_yolo


def class_names(root: Path, wrong: list[Wrong] | None = None) -> Sequence[str]:
    """The names of the classes, by number.

    Raises:
        FileNotFoundError: no file names them.
        ValueError: the file cannot be read, or it does not name the classes 0, 1, ...
    """
    path, content = _described(root)
    if path is None:
        raise FileNotFoundError(
            f"{root} has neither data.yaml nor {LINES[0]} with the names of the classes; or give data.classes=[A,B]"
        )
    given = content["names"]
    if isinstance(given, dict) and {str(key) for key in given} == set(map(str, range(len(given)))):
        given = [name for _, name in sorted(given.items(), key=lambda item: int(item[0]))]
    texts = isinstance(given, list) and not any(isinstance(name, bool) or name is None for name in given)
    if not texts or content.get("nc", len(given)) != len(given):
        raise ValueError(
            f"{path}: names must be a list of nc texts, or have the numbers 0, 1, ...; got {shown(str(given)[:80])}. "
            "Quote yes, no and null"
        )
    return chosen([str(name).strip() for name in given], tuple)


def here(root: Path) -> bool:
    """Whether a folder looks like one of YOLO."""
    return _named(root) is not None or any(path.is_dir() for path in (*root.glob("labels"), *root.glob("*/labels")))


def set_names(root: Path) -> list[str]:
    """The splits of a folder: those of its yaml, or its folders of images."""
    _, content = _described(root)
    folders = [at.name for at in sorted(root.glob("images/*")) if at.is_dir()]
    folders += [at.parent.name for at in sorted(root.glob("*/images")) if at.is_dir()]
    return [name for name in ("train", "val", "test") if content.get(name)] or folders or ["images"]


def label_file(root: Path, image: Path) -> Path:
    """The text file of an image: in the folder labels beside images, or else beside the image."""
    parts = list(image.relative_to(root).parts[:-1]) if image.is_relative_to(root) else []
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    beside = image.with_suffix(".txt")
    inside = Path(root, *parts, beside.name) if parts else beside
    return beside if beside.is_file() and not inside.is_file() else inside


def _named(root: Path) -> Path | None:
    """The file with the names of the classes: a yaml with `names`, or one of `LINES`."""
    yamls = sorted(path for path in (*root.glob("*.yaml"), *root.glob("*.yml")) if path.is_file())
    named = [path for path in yamls if re.search(r"^\ufeff?names\s*:", read_text(path, "replace"), re.MULTILINE)]
    return next((path for path in [*named, *(root / name for name in LINES)] if path.is_file()), None)


def _described(root: Path) -> tuple[Path | None, dict[str, Any]]:
    """The file with the names of the classes, and its content: names, and of a yaml also splits and more."""
    path = _named(root)
    if path is None or path.name in LINES:
        return path, {} if path is None else {"names": [*filter(None, map(str.strip, lines_of(path)))]}
    try:
        content: Any = OmegaConf.to_container(parsed(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return path, dict(content)


def _places(root: Path, name: str) -> list[Path]:
    """The folders and lists of images of a split, see `load_yolo`."""
    path, content = _described(root)
    given = content.get(name) or []
    bases = [root / str(content.get("path") or ""), root]
    places = []
    for value in map(str, given if isinstance(given, list) else [given]):
        # some tools write ../val/images where they mean val/images
        place = first_below(root, bases, value, value.removeprefix("../"))
        if place is None:
            raise FileNotFoundError(f"{path} says {name}: {shown(value)}, which is not below {root}. {CONFINED}")
        places.append(place)
    names = (f"images/{name}", f"{name}/images", name, f"{name}.txt")
    if not places and (place := first_below(root, [root], *names)):
        places.append(place)
    if not places:
        raise FileNotFoundError(f"{root} has none of {', '.join(names)}; splits there: {', '.join(set_names(root))}")
    return places


def _images(root: Path, name: str) -> Iterator[Path]:
    """The images of a split, sorted, or in the order of its list."""
    for place in _places(root, name):
        images = [*find_images(place, check=False)[0]] if place.is_dir() else _listed(root, place)
        if not images:
            raise FileNotFoundError(f"{place} has no images")
        yield from images


def _listed(root: Path, place: Path) -> list[Path]:
    """The images of a list, all below `root`."""
    names = {line: line for each in lines_of(place) if (line := each.strip())}
    return [*dict.fromkeys(images_below(root, place, (place.parent, root), names).values())]


def _read(image: Path, text: Path, known: Sequence[str], lines: Lines) -> tuple[Sequence[object], Sequence[Found]]:
    height, width = image_size(image)
    objects = []
    for place, line in enumerate(lines_of(text) if text.is_file() else (), 1):
        if line.strip():
            where = f"{text}, line {place}"
            label, (x1, y1, x2, y2) = lines.read(where, line)
            objects.append(Found(where, known[label], (x1 * width, y1 * height, x2 * width, y2 * height)))
    return (width, height), objects
