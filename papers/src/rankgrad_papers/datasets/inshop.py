"""DeepFashion's In-shop Clothes Retrieval: 52 712 pictures of 7982 garments, with queries and a gallery to search.

Liu, Luo, Qiu, Wang and Tang, DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich Annotations,
CVPR 2016.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankgrad_workbench.datasets.base import Table

from .lists import Columns, Reading, find_home, finished, first_of, listed, read_rows
from .official import Need, Official, parts_of, published

if TYPE_CHECKING:
    from typing_extensions import Unpack

TITLE = "DeepFashion In-shop Clothes Retrieval"
GET = (
    "Get Img/img.zip and Eval/list_eval_partition.txt of the In-shop benchmark from "
    "https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html and unpack img.zip where it lies."
)
COUNTS = {"train": (25882, 3997), "query": (14218, 3985), "gallery": (12612, 3985)}
LIST = ("Eval/list_eval_partition.txt", "list_eval_partition.txt")
ROLES = {"train": "", "query": "query", "gallery": "gallery"}  # evaluation_status -> role


def load_inshop(root: str | Path, check: bool = True, **reading: Unpack[Reading]) -> Table:
    """In-shop clothes: 25 882 images of 3997 garments to train; 14 218 queries and a gallery of 12 612, of 3985 others.

    Super-labels are its 23 categories, such as "WOMEN/Dresses". The split "test" contains the queries and the gallery;
    `role` and the protocol "query_gallery" separate them.

    Args:
        root: the benchmark's folder with Eval/list_eval_partition.txt and Img/img, or with the list and img themselves.
        check: check that every listed file exists, and warn if the counts differ from the published ones.
        reading: shorter_side, cache and cache_dir, see `load_folder`. The images of img.zip are 256 x 256.

    Raises:
        FileNotFoundError: if the folder, the list or a listed image does not exist.
        ValueError: if the list has a wrong format; it names the line.
    """
    return finished(lambda: _table(_home(root)), COUNTS, check=check, **reading)


def _home(root: str | Path) -> Path:
    return find_home(root, TITLE, LIST, ["In-shop Clothes Retrieval Benchmark", "In-shop"], GET)


def _item(text: str) -> int:
    """Number of an item_id.

    >>> _item("id_00000042")
    42
    """
    if not text.startswith("id_"):
        raise ValueError(text)
    return int(text[3:])


def _table(home: Path) -> Table:
    partition = first_of(home, *LIST)
    columns: Columns = {"image_name": str, "item_id": _item, "evaluation_status": str}
    # names are in the first column and may contain spaces
    rows = read_rows(partition, columns, header=" ".join(columns), counted=True, name_first=True)
    strange = sorted({status for *_, status in rows} - set(ROLES))
    if strange:
        raise ValueError(f"{partition}: evaluation_status must be train, query or gallery; got {strange[0]!r}")
    parts = [name.split("/") for name, _, _ in rows]  # img/WOMEN/Dresses/id_00000002/02_1_front.jpg
    short = next((name for name, part in zip(rows, parts, strict=True) if len(part) < 4), None)
    if short is not None:
        raise ValueError(f"{partition}: image_name must be img/SEX/CATEGORY/ITEM/FILE; got {short[0]!r}")
    return listed(
        "inshop",
        home / "Img" if (home / "Img" / "img").is_dir() else home,
        [name for name, _, _ in rows],
        ["train" if status == "train" else "test" for *_, status in rows],
        [item for _, item, _ in rows],
        lambda item: f"id_{item:08d}",
        super_labels=["/".join(part[1:3]) for part in parts],
        role=tuple(ROLES[status] for *_, status in rows),
        protocol="query_gallery",
    )


OFFICIAL = Official(
    title=TITLE,
    get=GET,
    home=_home,
    needs=(Need(LIST, GET), Need(("Img/img", "img"), "unzip img.zip: it makes the folder img")),
    parts=lambda home: parts_of(_table(home)),
    counts=COUNTS,
    super_labels=23,
    protocols=("query_gallery",),
    ks=(1, 10, 20, 30, 50),
    archives={"img.zip": "unzip img.zip where it lies, then check again"},
)
published(load_inshop, OFFICIAL)
