"""Small data sets in the layout in which they are distributed, with their oddities; and what they hold, row by row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image


class Row(NamedTuple):
    """An image as a loader should know it."""

    file: str
    name: str  # of its class
    split: str
    super_name: str | None = None
    role: str | None = None
    box: tuple[float, float, float, float] | None = None  # left, top, right, bottom


class Tree(NamedTuple):
    """A data set on disk: the folder that was given to the archive, the folder inside, its rows and counts."""

    root: Path
    home: Path
    images: Path
    rows: list[Row]
    counts: dict[str, tuple[int, int]]
    super_labels: int | None


def write_image(path: Path, size: tuple[int, int] = (24, 16)) -> None:
    """A JPEG of smooth colours that differ between files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    y, x = np.mgrid[:height, :width]
    shade = sum(map(ord, path.name)) % 97
    pixels = np.stack([x * 9 + shade, y * 13 + shade, x + y + 0 * x], axis=2) % 256
    Image.fromarray(pixels.astype(np.uint8)).save(path, quality=92, format="JPEG")


def write_list(path: Path, lines: list[str], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("".join(line + end for line in lines)).encode())


def cub(root: Path) -> Tree:
    """Class ids on both sides of 100, ids from 1, the lists in different orders, boxes over the edge, CRLF, spaces."""
    home = root / "CUB_200_2011"
    birds = {1: "001.Black_footed_Albatross", 2: "002.Laysan Albatross", 100: "100.Brown_Pelican"}
    birds |= {101: "101.White_Pelican", 200: "200.Common_Yellowthroat"}
    boxes = [(0.0, 0.0, 325.0, 304.0), (2.0, 3.0, 10.0, 8.0), (-4.0, 5.0, 12.0, 40.0)]  # images are 24 x 16
    rows, files, labels, edges, halves = [], [], [], [], []
    image = 0
    for label, bird in birds.items():
        for number in range(3):
            image += 1
            file = f"{bird}/{bird[4:]}_{number:04}_{796111 + image}.jpg"
            x, y, w, h = boxes[number]
            write_image(home / "images" / file)
            files.append(f"{image} {file}")
            labels.append(f"{image} {label}")
            edges.append(f"{image} {x} {y} {w} {h}")
            halves.append(f"{image} {image % 2}")  # the classification split: of no interest here
            rows.append(Row(file, bird, "train" if label <= 100 else "test", box=(x, y, x + w, y + h)))
    write_list(home / "images.txt", files)
    write_list(home / "image_class_labels.txt", labels[::-1])
    write_list(home / "bounding_boxes.txt", edges, end="\r\n")
    write_list(home / "train_test_split.txt", halves)
    write_list(home / "classes.txt", [f"{label} {bird}" for label, bird in birds.items()])
    return Tree(root, home, home / "images", rows, {"train": (9, 3), "test": (6, 2)}, None)


def sop(root: Path) -> Tree:
    """A header, ids from 1 that go on in the test, `.JPG`, a super-label that is in one split only."""
    home = root / "Stanford_Online_Products"
    rows = []
    image = 0
    for split, classes in {
        "train": {1: "bicycle", 2: "bicycle", 3: "coffee_maker"},
        "test": {4: "bicycle", 5: "fan"},
    }.items():
        kinds = ["bicycle", "cabinet", "chair", "coffee_maker", "fan"]
        lines = ["image_id class_id super_class_id path"]
        for label, kind in classes.items():
            for number in range(2):
                image += 1
                file = f"{kind}_final/{111085122871 + label}_{number}.JPG"
                write_image(home / file)
                lines.append(f"{image} {label} {kinds.index(kind) + 1} {file}")
                rows.append(Row(file, f"{kind} {label}", split, kind))
        write_list(home / f"Ebay_{split}.txt", lines)
    write_list(home / "Ebay_info.txt", ["image_id class_id super_class_id path"])
    return Tree(root, home, home, rows, {"train": (6, 3), "test": (4, 2)}, 3)


def inshop(root: Path) -> Tree:
    """A line with the number of images, a header, columns padded with runs of spaces, roles mixed in the list."""
    home = root / "In-shop Clothes Retrieval Benchmark"
    status = {
        ("WOMEN/Dresses", 2): ["train", "train", "train"],
        ("MEN/Denim", 80): ["train", "train"],
        ("WOMEN/Dresses", 7): ["query", "gallery", "query"],
        ("WOMEN/Blouses_Shirts", 1): ["gallery", "query", "gallery", "gallery"],
    }
    rows = []
    for (category, item), roles in status.items():
        for number, role in enumerate(roles):
            file = f"img/{category}/id_{item:08}/{number + 1:02}_{number + 1}_front.jpg"
            write_image(home / "Img" / file, (16, 16))
            rows.append(
                Row(
                    file,
                    f"id_{item:08}",
                    "train" if role == "train" else "test",
                    category,
                    "" if role == "train" else role,
                )
            )
    lines = [f"{len(rows)}", f"{'image_name':<75} item_id     evaluation_status"]
    lines += [f"{row.file:<75} {row.name}  {row.role or 'train'}  " for row in rows]
    write_list(home / "Eval" / "list_eval_partition.txt", lines)
    counts = {"train": (5, 2), "query": (3, 2), "gallery": (4, 2)}
    return Tree(root, home, home / "Img", rows, counts, 3)


def inaturalist(root: Path) -> Tree:
    """Paths and nothing else; classes called by numbers; the same number of an image is free to occur elsewhere."""
    home = root
    rows = []
    lists = {"train": ["Plantae/7477", "Aves/3111", "Plantae/12"], "test": ["Aves/2", "Bacteria/8000"]}
    for split, classes in lists.items():
        lines = []
        for name in classes:
            for number in range(2):
                file = f"train_val2018/{name}/{number}b60c9486db1d2ee875f11a669fbde4a.jpg"
                write_image(home / file)
                lines.append(file)
                rows.append(Row(file, name, split, name.split("/")[0]))
        write_list(home / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt", [*lines, ""])
    return Tree(root, home, home, rows, {"train": (6, 3), "test": (4, 2)}, 3)


def vehicleid(root: Path) -> Tree:
    """Image ids without and with leading zeros; three test lists; attributes of a part of the vehicles. Rows: small."""
    home = root / "VehicleID_V1.0"
    image = 0

    def images(vehicle: int, count: int) -> list[tuple[int, int]]:
        nonlocal image
        image += count
        return [(number, vehicle) for number in range(image - count + 1, image + 1)]

    train = images(26000, 2) + images(3, 3) + images(77, 2)
    small = images(4, 2) + images(26001, 3)
    medium = small + images(9, 4)
    large = medium + images(11, 2)
    write_list(home / "train_test_split" / "train_list.txt", [f"{i:07} {v}" for i, v in train])
    for size, pairs in {800: small, 1600: medium, 2400: large}.items():
        write_list(home / "train_test_split" / f"test_list_{size}.txt", [f"{i} {v}" for i, v in pairs])
    write_list(home / "attribute" / "model_attr.txt", ["3 12", "26000 249", "4 12"])
    write_list(home / "attribute" / "color_attr.txt", ["3 6", "4 0"])
    for number, _ in train + large:
        write_image(home / "image" / f"{number:07}.jpg")
    rows = [
        Row(f"{number:07}.jpg", f"vehicle {vehicle}", split)
        for split, pairs in {"train": train, "test": small}.items()
        for number, vehicle in pairs
    ]
    counts = {"train": (7, 3), "test small": (5, 2), "test medium": (9, 3), "test large": (11, 4)}
    return Tree(root, home, home / "image", rows, counts, None)


TREES: dict[str, Callable[[Path], Tree]] = {
    "cub": cub,
    "cub_cropped": cub,
    "sop": sop,
    "inshop": inshop,
    "inaturalist": inaturalist,
    "vehicleid": vehicleid,
}
