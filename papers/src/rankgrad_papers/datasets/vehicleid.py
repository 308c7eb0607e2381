"""PKU VehicleID: 221 567 pictures of 26 328 vehicles from surveillance cameras; three test lists.

Liu, Tian, Wang, Pang and Huang, Deep Relative Distance Learning: Tell the Difference Between Similar Vehicles, CVPR
2016. The distributed data set (version 1.0) has other counts than that paper: its README says that the authors found
faked licence plates and corrected the lists. Papers still print the first counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rankgrad_workbench.datasets.base import Table

from .lists import Reading, by_id, find_home, finished, listed, read_rows
from .official import Need, Official, parts_of, published

if TYPE_CHECKING:
    from typing_extensions import Unpack

TITLE = "PKU VehicleID"
GET = "Ask its authors by e-mail (https://www.pkuml.org/resources/pku-vehicleid.html), and unpack VehicleID_V1.0."
SIZES = {"small": 800, "medium": 1600, "large": 2400}  # number of vehicles of each test list
LISTS = ("train_test_split/train_list.txt", *(f"train_test_split/test_list_{n}.txt" for n in SIZES.values()))
TRAIN = (113346, 13164)
TESTS = {"small": (6493, 800), "medium": (13377, 1600), "large": (19777, 2400)}
PAPER_TRAIN = (110178, 13134)
PAPER_TESTS = {"small": (7332, 800), "medium": (12995, 1600), "large": (20038, 2400)}

Size = Literal["small", "medium", "large"]
Rows = Literal["leave_one_out", "one_gallery"]


def load_vehicleid(
    root: str | Path,
    test: Size = "small",
    protocol: Rows = "leave_one_out",
    super_labels: Literal["model", "color"] | None = None,
    check: bool = True,
    **reading: Unpack[Reading],
) -> Table:
    """PKU VehicleID: 113 346 images of 13 164 vehicles to train; a test of 800, 1600 or 2400 other vehicles.

    Args:
        root: the folder VehicleID_V1.0, or its parent folder.
        test: "small" (800 vehicles), "medium" (1600) or "large" (2400): three test lists, each a benchmark.
        protocol: "leave_one_out" (FastAP, Smooth-AP, PNP) or "one_gallery" (Liu et al., re-identification): see
            `protocols.trials`. Their results are not comparable.
        super_labels: "model" (of 250) or "color" (of 7) of the vehicle. Only some vehicles are labelled; the others
            have the super-label "not labelled". None: no super-labels.
        check: check that every listed file exists, and warn if the counts differ from the published ones.
        reading: shorter_side, cache and cache_dir, see `load_folder`.

    Raises:
        FileNotFoundError: if the folder, a list or a listed image does not exist.
        ValueError: if a list has a wrong format (it names file and line), or an argument is unknown.
    """
    if test not in SIZES:
        raise ValueError(f"test must be one of {', '.join(SIZES)}; got {test!r}")
    if protocol not in ("leave_one_out", "one_gallery"):
        raise ValueError(f"VehicleID's protocols are 'leave_one_out' and 'one_gallery'; got {protocol!r}")
    if super_labels not in (None, "model", "color"):
        raise ValueError(f"super_labels must be 'model', 'color' or None; got {super_labels!r}")
    counts, papers = {"train": TRAIN, "test": TESTS[test]}, {"train": PAPER_TRAIN, "test": PAPER_TESTS[test]}
    read = lambda: _table(_home(root), test, protocol, super_labels)  # noqa: E731
    table = finished(read, counts, {"the papers": papers}, check=check, **reading)
    other = ", ".join(f"{part} {images} of {vehicles}" for part, (images, vehicles) in papers.items())
    return replace(table, remarks=(*table.remarks, f"papers count other images of this data set: {other}"))


def _home(root: str | Path) -> Path:
    return find_home(root, TITLE, LISTS, ["VehicleID_V1.0", "VehicleID"], GET)


def _table(home: Path, test: str, protocol: str = "leave_one_out", super_labels: str | None = None) -> Table:
    columns = {"image id": int, "vehicle id": int}
    lists = {"train": LISTS[0], "test": LISTS[1 + list(SIZES).index(test)]}
    rows, split = [], []
    for part, name in lists.items():
        own = read_rows(home / name, columns)
        rows += own
        split += [part] * len(own)
    attribute = None
    if super_labels is not None:
        path = home / "attribute" / f"{super_labels}_attr.txt"
        attribute = by_id(path, read_rows(path, {"vehicle id": int, super_labels: int}), "vehicle")
    return listed(
        f"vehicleid_{test}",
        home / "image",
        [f"{image:07d}.jpg" for image, _ in rows],
        split,
        [vehicle for _, vehicle in rows],
        lambda vehicle: f"vehicle {vehicle}",
        super_labels=None if attribute is None else [_attribute(attribute, super_labels, row[1]) for row in rows],
        protocol=protocol,
    )


def _attribute(attribute: Mapping[int, tuple[int, ...]], kind: str | None, vehicle: int) -> str:
    # use the number, since the names are in Chinese, in a file without a described format
    return f"{kind} {attribute[vehicle][0]}" if vehicle in attribute else "not labelled"


def _parts(home: Path) -> dict[str, Table]:
    by_size = {size: parts_of(_table(home, size)) for size in SIZES}
    return {"train": by_size["small"]["train"], **{f"test {size}": parts["test"] for size, parts in by_size.items()}}


OFFICIAL = Official(
    title=TITLE,
    get=GET,
    home=_home,
    needs=(
        *(Need((name,), GET) for name in LISTS),
        Need(("image",), "unpack the images into the folder image"),
        *(
            Need((f"attribute/{kind}_attr.txt",), f"only data.load.super_labels={kind} needs it", required=False)
            for kind in ("model", "color")
        ),
    ),
    parts=_parts,
    protocols=("leave_one_out", "one_gallery"),
    ks=(1, 5),
    counts={"train": TRAIN, **{f"test {size}": count for size, count in TESTS.items()}},
    elsewhere={"the papers": {"train": PAPER_TRAIN, **{f"test {size}": count for size, count in PAPER_TESTS.items()}}},
)
published(load_vehicleid, OFFICIAL)
