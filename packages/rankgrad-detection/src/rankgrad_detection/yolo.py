"""Annotated images in the layout of YOLO: a text file of normalised boxes for each image.

A line has the number of the class, and the centre, width and height of a box as fractions of the image. A polygon
(class x1 y1 x2 y2 x3 y3 ...) counts as the box around it. An image with an empty text file, or with none, has no
objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
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

from .scenes import LeftOut, Scene, Scenes, Wrong, chosen, gathered, label, some_names

LINES = ("classes.txt", "obj.names")  # files with the name of a class in each line
FAR = 2.0  # fractions beyond this are pixels, or damaged


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
    names = chosen(classes, lambda: class_names(root))
    known = class_names(root) if classes != "data" and _named(root) is not None else names
    number = {name: index for index, name in enumerate(names)}
    images = [image for name in split.split("+") for image in _images(root, name)]
    texts = [label_file(image) for image in images]
    without = sum(not text.is_file() for text in texts)
    if without == len(images):
        raise FileNotFoundError(f"none of the {len(images)} images of {split} has a text file such as {texts[0]}")
    pairs = zip(images, texts, strict=True)
    found = gathered(split, names, ((t, partial(_scene, root, i, t, known, number)) for i, t in pairs), wrong)
    return replace(found, note=f"{without} images have no text file, and so no objects" if without else "")


def class_names(root: Path, wrong: list[Wrong] | None = None) -> Sequence[str]:
    """The names of the classes, by number.

    Raises:
        FileNotFoundError: no file names them.
        ValueError: the file cannot be read, or it does not name the classes 0, 1, ...
    """
    path = _named(root)
    if path is None:
        raise FileNotFoundError(
            f"{root} has neither data.yaml nor {LINES[0]} with the names of the classes; or give data.classes=[A,B]"
        )
    content = _settings(path) if path.name not in LINES else {"names": [*filter(None, map(str.strip, _lines(path)))]}
    given = content["names"]
    if isinstance(given, dict):
        if {str(key) for key in given} != set(map(str, range(len(given)))):
            raise ValueError(
                f"{path}: names must have the numbers 0 .. {len(given) - 1}; got {some_names([*map(str, given)])}"
            )
        given = [name for _, name in sorted(given.items(), key=lambda item: int(item[0]))]
    if not isinstance(given, list) or any(isinstance(name, bool) or name is None for name in given):
        raise ValueError(f"{path}: names must be a list of texts; got {shown(str(given)[:80])}. Quote yes, no and null")
    if content.get("nc", len(given)) != len(given):
        raise ValueError(f"{path} says nc: {content['nc']}, but names {len(given)} classes")
    return chosen([str(name).strip() for name in given], tuple)


def here(root: Path) -> bool:
    """Whether a folder looks like one of YOLO."""
    return _named(root) is not None or any(path.is_dir() for path in (*root.glob("labels"), *root.glob("*/labels")))


def set_names(root: Path) -> list[str]:
    """The splits of a folder: those of its yaml, or its folders of images."""
    path = _named(root)
    content = _settings(path) if path is not None and path.name not in LINES else {}
    folders = [at.name for at in sorted(root.glob("images/*")) if at.is_dir()]
    folders += [at.parent.name for at in sorted(root.glob("*/images")) if at.is_dir()]
    return [name for name in ("train", "val", "test") if content.get(name)] or folders or ["images"]


def label_file(image: Path) -> Path:
    """The text file of an image: in the folder labels beside images, or else beside the image."""
    parts = list(image.parts[:-1])
    if "images" in parts:
        parts[len(parts) - 1 - parts[::-1].index("images")] = "labels"
    inside, beside = Path(*parts, image.name).with_suffix(".txt"), image.with_suffix(".txt")
    return beside if beside.is_file() and not inside.is_file() else inside


def _named(root: Path) -> Path | None:
    """The file with the names of the classes: a yaml with `names`, or one of `LINES`."""
    yamls = sorted(path for path in (*root.glob("*.yaml"), *root.glob("*.yml")) if path.is_file())
    named = [path for path in yamls if re.search(r"^\ufeff?names\s*:", read_text(path, "replace"), re.MULTILINE)]
    return next((path for path in [*named, *(root / name for name in LINES)] if path.is_file()), None)


def _settings(path: Path) -> dict[str, Any]:
    try:
        content: Any = OmegaConf.to_container(parsed(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return dict(content)


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path).removeprefix("\ufeff").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None


def _places(root: Path, name: str) -> list[Path]:
    """The folders and lists of images of a split, see `load_yolo`."""
    path = _named(root)
    content = _settings(path) if path is not None and path.name not in LINES else {}
    given = content.get(name) or []
    bases = [root / str(content.get("path") or ""), root]
    places = []
    for value in given if isinstance(given, list) else [given]:
        # some tools write ../val/images where they mean val/images
        tries = [base / word for base in bases for word in (str(value), str(value).removeprefix("../"))]
        if not any(each.exists() for each in tries):
            raise FileNotFoundError(f"{path} says {name}: {shown(str(value))}, and {shown(tries[0])} does not exist")
        places.append(next(each for each in tries if each.exists()))
    choices = (f"images/{name}", f"{name}/images", name, f"{name}.txt")
    places = places or [root / choice for choice in choices if (root / choice).exists()][:1]
    if not places:
        raise FileNotFoundError(f"{root} has none of {', '.join(choices)}; splits there: {', '.join(set_names(root))}")
    return places


def _images(root: Path, name: str) -> Iterator[Path]:
    """The images of a split, sorted, or in the order of its list."""
    for place in _places(root, name):
        if place.is_dir():
            images = [*find_images(place, check=False)[0]]
        else:
            lines = [line.strip() for line in _lines(place) if line.strip()]
            images = [
                next((at for at in (place.parent / line, root / line) if at.is_file()), root / line) for line in lines
            ]
        missing = [str(path) for path in images if not path.is_file()]
        if missing or not images:
            more = f", of which {len(missing)} do not exist: {some_names(missing)}" if missing else ""
            raise FileNotFoundError(f"{place} has {len(images) or 'no'} images{more}")
        yield from images


def _scene(
    root: Path, image: Path, text: Path, known: Sequence[str], number: Mapping[str, int]
) -> tuple[Scene, list[LeftOut]]:
    height, width = image_size(image)
    boxes, labels, seen = [], [], set[str]()
    left_out: list[LeftOut] = []
    for place, line in enumerate(_lines(text) if text.is_file() else (), 1):
        if not line.strip():
            continue
        where = f"{text}, line {place}"
        which, (x1, y1, x2, y2) = _line(where, line, known)
        if not (x2 > x1 and y2 > y1) or line in seen:
            why = "the same as an earlier line" if line in seen else "box without area"
            left_out.append((text.name, f"line {place}, {known[which]}: {why}"))
            continue
        seen.add(line)
        boxes.append((x1 * width, y1 * height, x2 * width, y2 * height))
        labels.append(label(where, known[which], number))
    name = image.relative_to(root) if image.is_relative_to(root) else image
    return Scene.of(str(name.with_suffix("")), image, (width, height), boxes, labels), left_out


def _line(where: str, line: str, known: Sequence[str]) -> tuple[int, tuple[float, float, float, float]]:
    """The class of a line, and the edges of its box as fractions."""
    try:
        label, *values = map(float, line.split())
    except ValueError:
        label, values = 0.0, []
    if len(values) < 4 or len(values) % 2 or not all(map(math.isfinite, (label, *values))):
        raise ValueError(
            f"{where} must be class, centre x, centre y, width, height; or a polygon; got {shown(line.strip()[:80])!r}"
        )
    if label not in range(len(known)):
        raise ValueError(f"{where} is of the class {label:g}, but the names are of 0 .. {len(known) - 1}")
    if max(map(abs, values)) > FAR:
        raise ValueError(
            f"{where} must have fractions of the image, 0 .. 1, and not pixels; got {shown(line.strip()[:80])!r}"
        )
    if len(values) > 4:
        xs, ys = values[0::2], values[1::2]
        return int(label), (min(xs), min(ys), max(xs), max(ys))
    x, y, width, height = values
    return int(label), (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
