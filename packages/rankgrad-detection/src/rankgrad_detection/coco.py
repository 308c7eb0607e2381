"""Annotated images of COCO's json files: lists of images, annotations and categories.

A box [left, top, width, height] becomes its edges. Masks and key points are not read. A crowd (`iscrowd`) is one box
around many objects: it is never learned, and a detection inside it is neither right nor wrong.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rankgrad.common.files import integer, open_file
from rankgrad.common.text import brief, shown

from .annotations import Found, Source, Wrong, chosen, first_below, flag, gathered, images_below, numbers
from .scenes import Scenes

NEEDS = "a json file of images, annotations and categories"
BEFORE = "instances_"  # of the official files: instances_train2017.json
BESIDE = "_annotations.coco.json"  # beside the images of a split, as some tools export it
OTHER = ("captions_", "person_keypoints_", "image_info_", "stuff_", "panoptic_")  # official files of other tasks
FORM = (
    "A file of boxes is an object with lists of images, annotations and categories, each with an id; captions, "
    "panoptic segments, results and test sets without annotations are files of other tasks"
)

Entry = Mapping[str, Any]


def load_coco(
    root: str | Path, split: str, classes: str | Sequence[str] = "data", wrong: list[Wrong] | None = None
) -> Scenes:
    """Read the images of one or several json files.

    Args:
        root: folder of the images and of the json files, e.g. with `annotations/` and `train2017/`.
        split: `val` is val.json, annotations/val.json, annotations/instances_val.json or val/_annotations.coco.json,
            the first one that exists. Several are joined by "+".
        classes: "data": the categories of these files, in the order of their ids. Or a list of names.
        wrong: gets each image that cannot be used, with the reason. None: the first one is raised.

    Raises:
        FileNotFoundError: a file or an image is missing.
        ValueError: a file is no json of COCO, or an annotation cannot be used.

    >>> import tempfile
    >>> from PIL import Image
    >>> image = {"id": 7, "file_name": "a.png", "width": 8, "height": 8}
    >>> box = {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 1, 4, 4]}
    >>> content = {"images": [image], "annotations": [box], "categories": [{"id": 3, "name": "cell"}]}
    >>> with tempfile.TemporaryDirectory() as root:
    ...     Image.new("RGB", (8, 8)).save(Path(root, "a.png"))
    ...     _ = Path(root, "train.json").write_text(json.dumps(content))
    ...     load_coco(root, "train").summary()
    'train: 1 images, 1 objects (cell 1)'
    """
    root = Path(root)
    files = {path: read(path) for path in (file_of(root, name) for name in split.split("+"))}
    names = chosen(classes, lambda: dict.fromkeys(name for file in files.values() for name in file[1].values()))
    return gathered(root, split, names, _sources(root, files), wrong)


load = load_coco


def class_names(root: Path, wrong: list[Wrong] | None = None) -> Sequence[str]:
    """The categories of all files of a folder, each once, in the order of their ids."""
    files = [read(file_of(root, name)) for name in set_names(root)]
    return tuple(dict.fromkeys(name for _, categories, _ in files for name in categories.values()))


def here(root: Path) -> bool:
    """Whether a folder looks like one of COCO."""
    return bool(set_names(root))


def set_names(root: Path) -> list[str]:
    """The splits of a folder: its json files, but not those that COCO has for other tasks."""
    paths = sorted([*root.glob("*.json"), *root.glob("annotations/*.json"), *root.glob(f"*/{BESIDE}")])
    names = [path.parent.name if path.name == BESIDE else path.stem.removeprefix(BEFORE) for path in paths]
    return [name for name in dict.fromkeys(names) if not name.startswith(OTHER)]


def file_of(root: Path, name: str) -> Path:
    """The json file of a split, see `load_coco`.

    Raises:
        FileNotFoundError: there is none; the message has the splits of the folder.
    """
    stem = name.removesuffix(".json")
    choices = (f"{stem}.json", f"annotations/{stem}.json", f"annotations/{BEFORE}{stem}.json", f"{name}/{BESIDE}")
    there = first_below(root, [root], *choices)
    if there is None or not there.is_file():
        known = ", ".join(set_names(root)) or "none"
        raise FileNotFoundError(f"{root} has none of {', '.join(choices)}; splits there: {known}")
    return there


def read(path: Path) -> tuple[Mapping[Any, Entry], Mapping[Any, str], Mapping[Any, Sequence[tuple[str, Entry]]]]:
    """(id -> image, id -> category, id of an image -> its annotations, each with a text that names it in messages).

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no json of COCO; an entry has no id, or the id of another one; or it names what is not there.
    """
    try:
        with open_file(path) as file:
            content = json.loads(file.read(), parse_int=integer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a readable json file: {error}") from None
    images, categories = _by_id(path, content, "images", "file_name"), _by_id(path, content, "categories", "name")
    ordered = sorted(categories, key=lambda key: (str(type(key)), key))
    names = {key: str(categories[key]["name"]).strip() for key in ordered}
    by_image: dict[Any, list[tuple[str, Entry]]] = {}
    for place, entry in enumerate(_entries(path, content, "annotations"), 1):
        where = f"{path}: annotation {brief(entry.get('id'))} (number {place})"
        for what, known in (("image_id", images), ("category_id", categories)):
            if _key(entry.get(what)) not in known:
                raise ValueError(f"{where} has {what} {brief(entry.get(what))}, which is not in the file. {FORM}")
        by_image.setdefault(entry["image_id"], []).append((where, entry))
    return images, names, by_image


def _entries(path: Path, content: Any, kind: str) -> list[Entry]:
    entries = content.get(kind) if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} has no list of {kind}. {FORM}")
    return entries


def _by_id(path: Path, content: Any, kind: str, text: str) -> dict[Any, Entry]:
    """Id -> entry. Ids are different, and so are the texts."""
    found, texts = dict[Any, Entry](), {""}
    for place, entry in enumerate(_entries(path, content, kind), 1):
        key, own = _key(entry.get("id")), str(entry.get(text) or "").strip()
        if key is None or key in found or own in texts:
            has = f"id {brief(entry.get('id'))} and {text} {brief(own)}"
            raise ValueError(f"{path}: number {place} of its {kind} has {has}; each needs its own. {FORM}")
        found[key] = entry
        texts.add(own)
    if not found:
        raise ValueError(f"{path} has no {kind}. {FORM}")
    return found


def _key(value: object) -> object:
    """An id, or None if this cannot be one."""
    return value if type(value) in (int, str) else None


def _sources(root: Path, files: Mapping[Path, Any]) -> Iterator[Source]:
    """The images. They lie beside the json file, in root, or in a folder of the split."""
    for path, (images, names, objects) in files.items():
        split = path.stem.removeprefix(BEFORE)
        bases = [path.parent, root / split, root, root / "images" / split, root / "images"]
        found = images_below(root, path, bases, {key: str(image["file_name"]) for key, image in images.items()})
        same, count = Counter(found.values()).most_common(1)[0]
        if count > 1:
            raise ValueError(f"{path}: {count} images are the same file, {shown(same)}")
        for key, image in images.items():
            name = str(Path(str(image["file_name"])).with_suffix(""))
            yield Source(found[key], name, found[key], partial(_read, image, objects.get(key, ()), names))


def _read(image: Entry, annotations: Sequence[tuple[str, Entry]], names: Mapping[Any, str]) -> Any:
    objects = []
    for where, entry in annotations:
        x, y, width, height = numbers(where, entry.get("bbox"))
        crowd = flag(where, "iscrowd", entry.get("iscrowd"))
        objects.append(Found(where, names[entry["category_id"]], (x, y, x + width, y + height), crowd=crowd))
    return (image.get("width"), image.get("height")), objects
