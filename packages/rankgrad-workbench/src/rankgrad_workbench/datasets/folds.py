"""Training rows that a run changes: held-out classes (folds, or a split "val"), and wrong labels on purpose."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rankgrad.common.checks import integer, number

from .rows import Rows


def folds(table: Rows, count: int) -> list[list[int]]:
    """Divide the training classes into folds. The groups, largest first, each go to the fold with the fewest classes.

    A group is the classes of one super-label (an alphabet, a domain), so that a held-out class differs from the
    training classes as a test class would. A class with several super-labels belongs to the one with most of its
    images. If there are fewer groups than folds, each class is a group of its own. The division depends on the table
    alone: groups of equal size are ordered by a random generator with a fixed seed.

    Args:
        table: with a split "train"; other splits are ignored.
        count: number of folds, >= 2.

    Returns:
        The classes of each fold, sorted. Each training class is in one fold.

    Raises:
        ValueError: fewer than two training classes per fold; no training images.

    >>> from rankgrad_workbench.datasets.base import Table
    >>> table = Table("six", torch.tensor([0, 1, 2, 3, 4, 5]), tuple("abcdef"), ("train",) * 5 + ("test",),
    ...               tuple("uvwxyz"), channels=1, images=torch.zeros(6, 1, 8, 8, dtype=torch.uint8),
    ...               super_label=torch.tensor([0, 0, 0, 1, 1, 2]), super_names=("p", "q", "r"))
    >>> folds(table, 2)
    [[0, 1, 2], [3, 4]]
    """
    integer(count, "folds of the training classes: their number", low=2)
    train = table.select("train")
    classes = torch.unique(train.label).tolist()
    if len(classes) < 2 * count:
        raise ValueError(
            f"{count} folds need at least {2 * count} training classes, two in each; {table.name} has {len(classes)}"
        )
    groups = _groups(train, classes)
    if len(groups) < count:
        groups = [[label] for label in classes]
    order = np.random.RandomState(0).permutation(len(groups))  # numpy guarantees the numbers of RandomState
    parts: list[list[int]] = [[] for _ in range(count)]
    for place in sorted(order.tolist(), key=lambda place: -len(groups[place])):  # a stable sort keeps the random order
        min(parts, key=len).extend(groups[place])
    return [sorted(fold) for fold in parts]


def _groups(train: Rows, classes: list[int]) -> list[list[int]]:
    """The classes of each super-label; empty without super-labels."""
    if train.super_label is None:
        return []
    pairs, counts = torch.unique(torch.stack([train.label, train.super_label]), dim=1, return_counts=True)
    most: dict[int, tuple[int, int]] = {}  # class -> (images, super-label)
    for (label, name), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        if count > most.get(label, (0, 0))[0]:
            most[label] = count, name
    groups: dict[int, list[int]] = {}
    for label in classes:
        groups.setdefault(most[label][1], []).append(label)
    return [groups[name] for name in sorted(groups)]


def read_fold(fold: str | None) -> tuple[int, int] | None:
    """Read "1/3", the first of three folds, as (1, 3); None stays None.

    Raises:
        ValueError: the text has another form, or the number is larger than the number of folds.
    """
    if fold is None:
        return None
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", str(fold))
    if not match or int(match[1]) > int(match[2]):
        raise ValueError(f"fold must be like 1/3, the first of three folds; got {fold!r}")
    return int(match[1]), int(match[2])


def with_fold(table: Rows, fold: str | None) -> Rows:
    """The training images only, with the classes of one fold as the split "val".

    Copies that were made for training, such as turned letters, are removed from "val", because the test has none.

    Args:
        table: with a split "train".
        fold: "1/3" is the first of three folds. None: the table is returned unchanged.

    Raises:
        ValueError: a wrong fold, see `read_fold`.

    >>> from rankgrad_workbench.datasets.base import Table
    >>> table = Table("four", torch.tensor([0, 1, 2, 3, 4]), tuple("abcde"), ("train",) * 4 + ("test",), tuple("vwxyz"),
    ...               channels=1, images=torch.zeros(5, 1, 8, 8, dtype=torch.uint8))
    >>> with_fold(table, "1/2").split, with_fold(table, "2/2").split
    (('train', 'val', 'val', 'train'), ('val', 'train', 'train', 'val'))
    """
    which = read_fold(fold)
    if which is None:
        return table
    place, count = which
    inside = set(folds(table, count)[place - 1])
    kept = table.select("train")
    if kept.copies is not None:
        judged = torch.tensor([label in inside for label in kept.label.tolist()])
        kept = kept.take((~(judged & kept.copies)).nonzero().squeeze(1).tolist())
    split = tuple("val" if label in inside else "train" for label in kept.label.tolist())
    protocol = "leave_one_out" if table.protocol == "query_gallery" else table.protocol  # only the test has these roles
    return replace(kept, name=f"{table.name}, fold {fold} held out", split=split, protocol=protocol)


def with_val(table: Rows, share: float, seed: int = 0) -> Rows:
    """The table with a random fraction of its training classes as the split "val"; the test classes stay unchanged.

    Weights can then be chosen on these classes and not on the test classes: `evaluation.keep_best=val`,
    `optimizer.average=best`.

    Args:
        table: with a split "train" and no split "val".
        share: fraction of the training classes, 0 .. 0.9. At least two classes are held out, and at least two stay.
        seed: of the random choice, which is the last classes of `shuffled_classes`.

    Raises:
        ValueError: the fraction is out of range; there are too few classes; there is a split val already.

    >>> from rankgrad_workbench.datasets.base import Table
    >>> table = Table("four", torch.tensor([0, 1, 2, 3, 4]), tuple("abcde"), ("train",) * 4 + ("test",), tuple("vwxyz"),
    ...               channels=1, images=torch.zeros(5, 1, 8, 8, dtype=torch.uint8))
    >>> with_val(table, 0.5).split
    ('train', 'train', 'val', 'val', 'test')
    """
    number(share, "held_out is a fraction of the training classes", low=0, high=0.9)
    if "val" in table.split:
        raise ValueError(f"{table.name} has a split val already: remove held_out, and choose on that split")
    order = shuffled_classes(table, seed)
    stay = len(order) - max(2, round(share * len(order)))
    if stay < 2:
        raise ValueError(
            f"held_out={share} of {len(order)} training classes leaves only {stay} for training; give less"
        )
    apart = torch.isin(table.label, order[stay:]).tolist()
    split = tuple("val" if out and name == "train" else name for out, name in zip(apart, table.split, strict=True))
    return replace(table, split=split, name=f"{table.name}, {share:g} of the training classes held out")


def shuffled_classes(table: Rows, seed: int) -> Tensor:
    """[class] labels of the training classes, in random order."""
    classes: Tensor = torch.unique(table.label[torch.tensor([name == "train" for name in table.split])])
    return classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]


def with_wrong_labels(table: Rows, share: float, seed: int = 0) -> Rows:
    """Flip a fraction of the labels of the split "train" (`flip_labels`). Other splits do not change.

    An image with a flipped label also gets the super-label of its new class.

    Args:
        table: with a split "train".
        share: fraction of the training images, 0 .. 1.
        seed: of the random choice.

    Raises:
        ValueError: see `flip_labels`.

    >>> from rankgrad_workbench.datasets.base import Table
    >>> table = Table("pair", torch.tensor([0, 1, 2]), ("a", "b", "c"), ("train", "train", "test"), ("0", "1", "2"),
    ...               channels=1, images=torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
    >>> with_wrong_labels(table, 1.0).label
    tensor([1, 0, 2])
    """
    train = torch.tensor([split == "train" for split in table.split])
    label = table.label.clone()
    label[train] = flip_labels(table.label[train], share, seed)
    if torch.equal(label, table.label):
        return table
    super_label = table.super_label
    if super_label is not None:
        of_class = torch.zeros(len(table.class_names), dtype=super_label.dtype)
        of_class[table.label] = super_label
        super_label = torch.where(label == table.label, super_label, of_class[label])
    return replace(table, label=label, super_label=super_label, name=f"{table.name}, {share:.0%} of labels wrong")


def flip_labels(labels: Tensor, share: float, seed: int = 0) -> Tensor:
    """Replace the labels of a fraction of the items by a uniformly random other class (symmetric noise).

    Args:
        labels: [item] long, with at least two classes.
        share: fraction of the items, 0 .. 1, rounded to a whole number of items. They are drawn without replacement.
        seed: seed of the random choice. With the same seed, a larger fraction changes the same items to the same
            labels as a smaller fraction, and additional items.

    Returns:
        [item] long, a new tensor.

    Raises:
        ValueError: the fraction is out of range, or it is > 0 and there are fewer than two classes.

    >>> labels = torch.arange(4).repeat_interleave(5)
    >>> int((flip_labels(labels, 0.2) != labels).sum())
    4
    """
    number(share, "label_noise is the fraction of training rows with a wrong label", low=0, high=1)
    count = round(share * len(labels))
    if count == 0:
        return labels.clone()
    classes = torch.unique(labels)
    if len(classes) < 2:
        raise ValueError("label_noise needs two classes or more: with one class there is no other label")
    g = np.random.RandomState(seed)  # numpy guarantees the numbers of RandomState
    order = torch.from_numpy(g.permutation(len(labels)))
    steps = torch.from_numpy(g.randint(1, len(classes), len(labels)))  # 1 .. classes - 1 steps to another class
    wrong = order[:count]
    place = torch.searchsorted(classes, labels)
    flipped = labels.clone()
    flipped[wrong] = classes[(place[wrong] + steps[wrong]) % len(classes)]
    return flipped
