"""Training classes merged at random (PNP, tables 6 and 7: a class then has several clusters), or held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...checks import number
from ...datasets.base import Table


def load_merged(
    source: Callable[..., Table],
    merge: int = 1,
    merge_seed: int = 0,
    held_out: float = 0.0,
    **options: Any,
) -> Table:
    """A data set whose training classes are merged, `merge` at a time; the test classes stay as they are.

    PNP (Li et al., AAAI 2022) merges every three classes of the training set and keeps the original test set. Which
    three is not said: at random here [ours]. What is left over after the last whole group joins it.

    Args:
        source: the loader; settings give its name, e.g. rankgrad.datasets.load_sop.
        merge: classes that become one, >= 1.
        merge_seed: of the choice.
        held_out: share of the training classes that are not trained on and become the split val, unmerged, 0 .. 0.9:
            an evaluation can be chosen on them instead of on the test classes (`evaluation.keep_best=val`).
        options: of the loader.

    Raises:
        ValueError: merge or held_out out of range; classes to hold out where there is a split val already.
    """
    table = source(**options)
    chosen = torch.tensor([split == "train" for split in table.split])
    classes = torch.unique(table.label[chosen])
    number(held_out, "held_out is a share of the training classes", low=0, high=0.9)
    if isinstance(merge, bool) or not isinstance(merge, int) or not 1 <= merge <= len(classes):
        raise ValueError(f"merge counts classes and must be 1 .. {len(classes)}, the training classes; got {merge!r}")
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(merge_seed))]
    split = table.split
    if held_out:
        if "val" in split:
            raise ValueError(f"{table.name} has a split val already: leave out held_out")
        kept = len(classes) - max(2, round(held_out * len(classes)))
        if kept < 2 * merge:
            raise ValueError(f"held_out={held_out} of {len(classes)} training classes leaves {kept} to train on")
        apart = torch.isin(table.label, order[kept:]) & chosen
        split = tuple("val" if out else name for out, name in zip(apart.tolist(), split, strict=True))
        order, chosen = order[:kept], chosen & ~apart
    groups = len(order) // merge
    new = torch.arange(len(table.class_names))
    for group in range(groups):
        last = len(order) if group == groups - 1 else (group + 1) * merge
        members = order[group * merge : last]
        new[members] = members.min()
    label = torch.where(chosen, new[table.label], table.label)
    # classes are counted from 0 without gaps: those that were merged away leave the list of names
    there, label = torch.unique(label, return_inverse=True)
    names = tuple(table.class_names[i] for i in there.tolist())
    what = [f"training classes merged by {merge}"] if merge > 1 else []
    what += [f"{held_out:g} of them held out"] if held_out else []
    return replace(table, label=label, class_names=names, split=split, name=", ".join([table.name, *what]))
