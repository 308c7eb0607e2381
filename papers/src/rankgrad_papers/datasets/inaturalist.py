"""iNaturalist 2018 as a retrieval data set: 461 939 photographs of 8142 species, divided by species.

Van Horn et al., The iNaturalist Species Classification and Detection Dataset, CVPR 2018; division by Brown, Xie,
Kalogeiton and Zisserman, Smooth-AP, ECCV 2020 (arXiv:2007.12163). The division is read from the authors' files, which
may not be redistributed. It is never made here, because another division would give other results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankgrad_workbench.datasets.base import Table

from .lists import Reading, find_home, finished, first_of, listed, read_rows
from .official import Need, Official, parts_of, published

if TYPE_CHECKING:
    from typing_extensions import Unpack

TITLE = "iNaturalist 2018"
GET_IMAGES = (
    "Get train_val2018.tar.gz (120 GB) from https://github.com/visipedia/inat_comp/tree/master/2018 and unpack it "
    "beside the lists."
)
GET = (
    f"{GET_IMAGES} Get the division, Inat_dataset_splits.zip, from the link on "
    "https://github.com/Andrew-Brown1/Smooth_AP and unpack it there."
)
COUNTS = {"train": (325846, 5690), "test": (136093, 2452)}
LISTS = {"train": "Inaturalist_train_set1.txt", "test": "Inaturalist_test_set1.txt"}
FOLDER = "Inat_dataset_splits"


def load_inaturalist(root: str | Path, check: bool = True, **reading: Unpack[Reading]) -> Table:
    """Species of iNaturalist 2018: 325 846 images of 5690 to train, 136 093 of 2452 others to test; 14 super-labels.

    The name of a class is its folder, such as "Aves/3111"; the super-label is the first part.

    Args:
        root: the folder with train_val2018 and Inat_dataset_splits, or with train_val2018 and the two lists.
        check: check that every listed file exists, and warn if the counts differ from the published ones.
        reading: shorter_side, cache and cache_dir, see `load_folder`. No image has more than 800 pixels
            on a side.

    Raises:
        FileNotFoundError: if the folder, a list or a listed image does not exist.
        ValueError: if a list has a wrong format; it names file and line.
    """
    return finished(lambda: _table(_home(root)), COUNTS, check=check, **reading)


def _home(root: str | Path) -> Path:
    lists = [f"{folder}{name}" for name in LISTS.values() for folder in (f"{FOLDER}/", "")]
    return find_home(root, TITLE, lists, ["inaturalist"], GET)


def _file(text: str) -> str:
    """A path of the lists: train_val2018/Aves/3111/0a1b.jpg."""
    if len(text.split("/")) < 3:
        raise ValueError(text)
    return text


def _table(home: Path) -> Table:
    files: list[str] = []
    split: list[str] = []
    for part, name in LISTS.items():
        rows = read_rows(first_of(home, f"{FOLDER}/{name}", name), {"FOLDER/SUPER/CATEGORY/FILE": _file})
        files += [file for (file,) in rows]
        split += [part] * len(rows)
    classes = [file.rsplit("/", 3)[-3:-1] for file in files]
    return listed(
        "inaturalist",
        home,
        files,
        split,
        ["/".join(pair) for pair in classes],
        super_labels=[kind for kind, _ in classes],
    )


OFFICIAL = Official(
    title=TITLE,
    get=GET,
    home=_home,
    needs=(*(Need((f"{FOLDER}/{name}", name), GET) for name in LISTS.values()), Need(("train_val2018",), GET_IMAGES)),
    parts=lambda home: parts_of(_table(home)),
    counts=COUNTS,
    super_labels=14,
    ks=(1, 4, 16, 32),
    archives={
        "train_val2018.tar.gz": "tar xzf train_val2018.tar.gz, then check again",
        "Inat_dataset_splits.zip": "unzip Inat_dataset_splits.zip, then check again",
    },
)
published(load_inaturalist, OFFICIAL)
