"""Omniglot, the official minimal sets: 4840 drawings of 242 characters of 8 alphabets by 20 people.

Lake, Salakhutdinov and Tenenbaum, Science 2015; https://github.com/brendenlake/omniglot (MIT). Three whole alphabets
are the test set, so that the classes and the alphabets of the test are unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Literal
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from rankgrad.common.checks import setting
from rankgrad_workbench.datasets.base import Table
from rankgrad_workbench.files import read_npz

PACKED = "omniglot_small.npz"
ZIPS = ("images_background_small1.zip", "images_background_small2.zip")
SOURCE = "https://github.com/brendenlake/omniglot/tree/master/python"
TEST_ALPHABETS = ("Japanese_(katakana)", "Sanskrit", "Tagalog")
SIDE = 105  # pixels of a drawing


def load_omniglot(
    root: str | Path,
    size: int = 28,
    holdout: Literal["latin", "latin4"] | None = None,
    turns: Literal[1, 4] = 1,
    long_tail: bool = False,
    test_alphabets: Sequence[str] | None = None,
) -> Table:
    """Omniglot's two minimal sets as a table of grey images, ink 255 on 0; super-label = alphabet.

    Images are the adaptive average pool of the 105 x 105 ink mask to `size` x `size`, times 255, rounded.

    Args:
        root: folder that holds the two official archives `images_background_small1.zip` and
            `images_background_small2.zip`, or their union packed as `omniglot_small.npz` (if both exist, this file is
            used, because it loads faster); or the path of that npz.
        size: height and width, 1 .. 105 pixels.
        holdout: None: the benchmark: train 136 classes / 2720 images (Balinese, Early_Aramaic, Greek, Korean, Latin),
            test 106 / 2120 (Japanese_(katakana), Sanskrit, Tagalog). The other two are for choosing settings; they have
            no test alphabets, so that nothing can be chosen on them. "latin": train is the other 110 training classes
            (2200 images), val the 26 Latin classes (520). "latin4": val is the Latin classes turned by 0, 90, 180 and
            270 degrees, each turn its own class (104 / 2080). "latin4" orders methods as the test does; "latin" has too
            few classes for that.
        turns: 4: adds every training class turned by 90, 180 and 270 degrees as further classes, as few-shot papers on
            Omniglot do (Vinyals et al., NeurIPS 2016). Evaluation classes are not changed.
        long_tail: for studies of classes with few images: training classes keep between 20 images and 1. The number
            falls geometrically over the classes, in a random but fixed order. +data.load.long_tail=true
        test_alphabets: the alphabets of the test set; all others are trained on. None: the benchmark's three. For a
            leave-one-alphabet-out study, give one name at a time. +data.load.test_alphabets=[Greek]

    Returns:
        Table; names such as "Greek/character01/0394_17.png", where 17 is the drawer.

    Raises:
        FileNotFoundError: if the files do not exist.
        ValueError: if size or holdout is out of range, test_alphabets contains an unknown alphabet or all alphabets, or
            a file has wrong content.
    """
    if not 1 <= size <= SIDE:
        raise ValueError(f"size must be 1 .. {SIDE} pixels, the size of the drawings; got {size}")
    if holdout not in (None, "latin", "latin4"):
        raise ValueError(f"holdout must be None, 'latin' or 'latin4'; got {holdout!r}")
    if turns not in (1, 4):
        raise ValueError(f"turns must be 1 or 4, orientations of the training classes; got {turns!r}")
    root = Path(root)
    packed = root if root.is_file() else root / PACKED
    zips = [root / name for name in ZIPS]
    if packed.is_file():
        names, ink = _from_packed(packed)
    elif all(path.is_file() for path in zips):
        names, ink = _from_zips(zips)
    else:
        raise FileNotFoundError(
            f"Omniglot is read from {packed} or from {' and '.join(ZIPS)} in {root}; none of them exists. "
            f"Get the two archives from {SOURCE} and give their folder: {setting('root', 'DIR')}"
        )
    table = _table(names, _pool(torch.from_numpy(ink), size), test_alphabets)
    if holdout is not None:
        table = _hold_out_latin(table, turns=4 if holdout == "latin4" else 1)
    if long_tail:
        table = _cut_training(table)
    return table if turns == 1 else _turn_training(table)


def _from_packed(path: Path) -> tuple[list[str], npt.NDArray[np.uint8]]:
    """Names "Alphabet/character/file" and ink masks [image, 105, 105] of the packed file."""
    packed = read_npz(path, "images", "label", "class_names", "file_names")
    ink = np.unpackbits(packed["images"], axis=1)[:, : SIDE * SIDE].reshape(-1, SIDE, SIDE)
    classes = packed["class_names"][packed["label"]].tolist()
    names = [f"{folder}/{file}" for folder, file in zip(classes, packed["file_names"].tolist(), strict=True)]
    return names, ink


def _from_zips(paths: list[Path]) -> tuple[list[str], npt.NDArray[np.uint8]]:
    """Names and ink masks from the official archives, sorted by name; a drawing in both archives is used once."""
    from PIL import Image

    drawings: dict[str, npt.NDArray[np.uint8]] = {}
    for path in paths:
        with ZipFile(path) as archive:
            for entry in archive.namelist():
                parts = PurePosixPath(entry).parts  # .../Alphabet/characterNN/NNNN_DD.png
                if len(parts) < 3 or not entry.endswith(".png") or parts[-1].startswith(".") or "__MACOSX" in parts:
                    continue
                with archive.open(entry) as file, Image.open(file) as image:
                    if image.size != (SIDE, SIDE):
                        raise ValueError(f"{path}: {entry} should be {SIDE} x {SIDE} pixels; got {image.size}")
                    drawings["/".join(parts[-3:])] = (np.asarray(image.convert("L")) < 128).astype(np.uint8)
    if not drawings:
        raise ValueError(f"{' and '.join(map(str, paths))} hold no drawings (Alphabet/character/drawing.png)")
    names = sorted(drawings)
    return names, np.stack([drawings[name] for name in names])


def _pool(ink: Tensor, size: int) -> Tensor:
    """[image, 1, size, size] uint8 from a 0/1 mask."""
    chunks = [F.adaptive_avg_pool2d(part[:, None].float(), size) for part in torch.split(ink, 512)]
    return (torch.cat(chunks) * 255).round().to(torch.uint8)


def _table(names: list[str], images: Tensor, test_alphabets: Sequence[str] | None) -> Table:
    class_of = [name.rpartition("/")[0] for name in names]
    alphabet_of = [name.partition("/")[0] for name in names]
    classes, alphabets = sorted(set(class_of)), sorted(set(alphabet_of))
    if test_alphabets is None:
        test_alphabets = TEST_ALPHABETS
    elif isinstance(test_alphabets, str) or not set(test_alphabets) < set(alphabets):
        raise ValueError(
            f"test_alphabets must be a list of some, but not all, of {', '.join(alphabets)}; got {test_alphabets!r}"
        )
    class_number = {name: i for i, name in enumerate(classes)}
    alphabet_number = {name: i for i, name in enumerate(alphabets)}
    return Table(
        name="omniglot",
        label=torch.tensor([class_number[name] for name in class_of]),
        class_names=tuple(classes),
        split=tuple("test" if name in test_alphabets else "train" for name in alphabet_of),
        names=tuple(names),
        channels=1,
        images=images,
        super_label=torch.tensor([alphabet_number[name] for name in alphabet_of]),
        super_names=tuple(alphabets),
    )


def _cut_training(table: Table) -> Table:
    """The table with only the first images of each training class: all images of the first class, one of the last."""
    train = [row for row, split in enumerate(table.split) if split == "train"]
    classes = torch.unique(table.label[train]).numpy()
    order = np.random.RandomState(0).permutation(classes)  # numpy guarantees the numbers of RandomState
    most = int(torch.bincount(table.label[train]).max())
    sizes = np.round(most ** (1 - np.arange(len(order)) / max(len(order) - 1, 1))).astype(int).tolist()
    left = dict(zip(order.tolist(), sizes, strict=True))
    kept = []
    for row, (label, split) in enumerate(zip(table.label.tolist(), table.split, strict=True)):
        if split == "train":
            left[label] -= 1
        if split != "train" or left[label] >= 0:
            kept.append(row)
    return replace(table.take(kept), name=table.name + ", training classes of 1 to 20 images")


TURNED = (" turned 90", " turned 180", " turned 270")


def _turn_training(table: Table) -> Table:
    """The table with its training classes added in three further orientations."""
    train = torch.tensor([split == "train" for split in table.split]).nonzero().squeeze(1)
    letters = table.take(train.tolist())
    assert table.images is not None and letters.images is not None
    assert table.super_label is not None and letters.super_label is not None
    classes, label = torch.unique(letters.label, return_inverse=True)
    known = [table.class_names[c] for c in classes.tolist()]
    turned = [letters.images.rot90(turn, (2, 3)) for turn in (1, 2, 3)]
    first = len(table.class_names)
    return replace(
        table,
        name=table.name + ", training classes in 4 orientations",
        label=torch.cat([table.label, *(first + turn * len(classes) + label for turn in range(3))]),
        class_names=(*table.class_names, *(name + suffix for suffix in TURNED for name in known)),
        split=(*table.split, *letters.split * 3),
        names=(*table.names, *(name + suffix for suffix in TURNED for name in letters.names)),
        images=torch.cat([table.images, *turned]),
        super_label=torch.cat([table.super_label, letters.super_label.repeat(3)]),
        copies=torch.arange(len(table) + 3 * len(letters)) >= len(table),
    )


def _hold_out_latin(table: Table, turns: int) -> Table:
    """Train = the training classes that are not Latin, val = Latin in `turns` orientations, classes numbered anew."""
    assert table.super_label is not None and table.images is not None
    latin = table.super_label == table.super_names.index("Latin")
    training = torch.tensor([split == "train" for split in table.split])
    rest = table.take((training & ~latin).nonzero().squeeze(1).tolist())
    letters = table.take(latin.nonzero().squeeze(1).tolist())
    assert rest.images is not None and letters.images is not None
    assert rest.super_label is not None and letters.super_label is not None
    rest_classes, rest_label = torch.unique(rest.label, return_inverse=True)
    letter_classes, letter_label = torch.unique(letters.label, return_inverse=True)
    suffixes = ("", *TURNED)[:turns]
    numbers = [len(rest_classes) + turn * len(letter_classes) + letter_label for turn in range(turns)]
    turned = [letters.images.rot90(turn, (2, 3)) for turn in range(turns)]
    return Table(
        name="omniglot, Latin held out" + (" in 4 orientations" if turns == 4 else ""),
        label=torch.cat([rest_label, *numbers]),
        class_names=(
            *(table.class_names[c] for c in rest_classes.tolist()),
            *(table.class_names[c] + suffix for suffix in suffixes for c in letter_classes.tolist()),
        ),
        split=("train",) * len(rest) + ("val",) * (turns * len(letters)),
        names=(*rest.names, *(name + suffix for suffix in suffixes for name in letters.names)),
        channels=1,
        images=torch.cat([rest.images, *turned]),
        super_label=torch.cat([rest.super_label, letters.super_label.repeat(turns)]),
        super_names=table.super_names,
    )
