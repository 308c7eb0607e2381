"""Wrong labels on purpose, to test the robustness of losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rankgrad.common.checks import number

from .rows import Rows


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
