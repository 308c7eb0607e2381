"""The boxes of a folder in VOC's layout, written as COCO's json and as YOLO's text files, by slow and separate code."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from PIL import Image

Box = tuple[str, float, float, float, float]  # class, left, top, width, height


def boxes_of(home: Path, name: str) -> list[Box]:
    """The objects of an annotation, as VOC counts pixels: from 1, the last one included."""
    found = []
    for entry in ElementTree.parse(home / "Annotations" / f"{name}.xml").getroot().iter("object"):
        left, top, right, bottom = (
            float(entry.find("bndbox").find(side).text)  # type: ignore[union-attr, arg-type]
            for side in ("xmin", "ymin", "xmax", "ymax")
        )
        found.append((str(entry.findtext("name")).strip(), left - 1, top - 1, right - left + 1, bottom - top + 1))
    return found


def listed(home: Path, split: str) -> list[str]:
    return (home / "ImageSets" / "Main" / f"{split}.txt").read_text().split()


def size_of(home: Path, name: str) -> tuple[int, int]:
    with Image.open(home / "JPEGImages" / f"{name}.jpg") as image:
        return image.size


def write_coco(home: Path, root: Path, splits: tuple[str, ...], classes: tuple[str, ...]) -> Path:
    """annotations/instances_SPLIT.json and SPLIT/NAME.jpg. Ids of categories have holes."""
    (root / "annotations").mkdir(parents=True)
    for split in splits:
        (root / split).mkdir()
        content: dict[str, Any] = {"images": [], "annotations": []}
        content["categories"] = [{"id": 7 * number + 3, "name": name} for number, name in enumerate(classes)]
        for name in listed(home, split):
            os.symlink(home / "JPEGImages" / f"{name}.jpg", root / split / f"{name}.jpg")
            width, height = size_of(home, name)
            key = len(content["images"]) + 1
            content["images"].append({"id": key, "file_name": f"{name}.jpg", "width": width, "height": height})
            for label, *box in boxes_of(home, name):
                category = 7 * classes.index(label) + 3
                entry = {"id": len(content["annotations"]) + 1, "image_id": key, "category_id": category}
                content["annotations"].append({**entry, "bbox": box, "area": box[2] * box[3], "iscrowd": 0})
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root


def write_yolo(home: Path, root: Path, splits: tuple[str, ...], classes: tuple[str, ...]) -> Path:
    """data.yaml, images/SPLIT/NAME.jpg and labels/SPLIT/NAME.txt."""
    for split in splits:
        for folder in ("images", "labels"):
            (root / folder / split).mkdir(parents=True)
        for name in listed(home, split):
            os.symlink(home / "JPEGImages" / f"{name}.jpg", root / "images" / split / f"{name}.jpg")
            width, height = size_of(home, name)
            lines = []
            for label, left, top, wide, high in boxes_of(home, name):
                fractions = ((left + wide / 2) / width, (top + high / 2) / height, wide / width, high / height)
                lines.append(" ".join([str(classes.index(label)), *map(repr, fractions)]))
            (root / "labels" / split / f"{name}.txt").write_text("\n".join(lines))
    lines = [f"{split}: images/{split}" for split in splits] + ["names:"]
    (root / "data.yaml").write_text("\n".join([*lines, *(f"  {n}: {name}" for n, name in enumerate(classes))]))
    return root
