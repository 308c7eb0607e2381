"""Training classes merged at random: a class then has several clusters (PNP, tables 6 and 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...datasets.base import Table


def load_merged(source: Callable[..., Table], merge: int, merge_seed: int = 0, **options: Any) -> Table:
    """A data set whose training classes are merged, `merge` at a time; the other splits stay as they are.

    PNP (Li et al., AAAI 2022) merges every three classes of the training set and keeps the original test set. Which
    three is not said: at random here [ours]. What is left over after the last whole group joins it.

    Args:
        source: the loader; settings give its name, e.g. rankgrad.datasets.load_sop.
        merge: classes that become one, >= 1.
        merge_seed: of the choice.
        options: of the loader.

    Raises:
        ValueError: merge out of range.
    """
    table = source(**options)
    chosen = torch.tensor([split == "train" for split in table.split])
    classes = torch.unique(table.label[chosen])
    if isinstance(merge, bool) or not isinstance(merge, int) or not 1 <= merge <= len(classes):
        raise ValueError(f"merge counts classes and must be 1 .. {len(classes)}, the training classes; got {merge!r}")
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(merge_seed))
    groups = len(classes) // merge
    new = torch.arange(len(table.class_names))
    for group in range(groups):
        last = len(classes) if group == groups - 1 else (group + 1) * merge
        members = classes[order[group * merge : last]]
        new[members] = members.min()
    label = torch.where(chosen, new[table.label], table.label)
    # classes are counted from 0 without gaps: those that were merged away leave the list of names
    kept, number = torch.unique(label, return_inverse=True)
    names = tuple(table.class_names[i] for i in kept.tolist())
    return replace(table, label=number, class_names=names, name=f"{table.name}, training classes merged by {merge}")
