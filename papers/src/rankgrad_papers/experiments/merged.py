"""Training classes merged at random (PNP, tables 6 and 7), so that a class has several clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rankgrad_workbench.datasets.folds import shuffled_classes, with_val
from rankgrad_workbench.datasets.rows import Rows


def load_merged(
    source: Callable[..., Rows], merge: int = 1, merge_seed: int = 0, held_out: float = 0.0, **options: Any
) -> Rows:
    """A data set with its training classes merged, `merge` at a time; the test classes are not changed.

    PNP (Li et al., AAAI 2022) merges every three classes of the training set and keeps the original test set. The paper
    does not say which three; here they are random [ours]. Classes left over join the last group.

    Args:
        source: the loader; settings give its name, e.g. rankgrad_papers.datasets.load_sop.
        merge: number of classes that become one, >= 1.
        merge_seed: of the random choice.
        held_out: fraction of the training classes that first become the split val, unmerged, with the same seed; see
            `datasets.folds.with_val`.
        options: arguments of the loader.

    Raises:
        ValueError: merge or held_out is out of range; there are too few classes; held_out is given and there is a split
            val already.
    """
    table = source(**options)
    order = shuffled_classes(table, merge_seed)
    if isinstance(merge, bool) or not isinstance(merge, int) or not 1 <= merge <= len(order):
        raise ValueError(
            f"merge is a number of classes and must be 1 .. {len(order)}, the training classes; got {merge!r}"
        )
    if held_out:
        table = with_val(table, held_out, merge_seed)
    chosen = torch.tensor([name == "train" for name in table.split])
    order = order[torch.isin(order, table.label[chosen])]
    if len(order) < 2 * merge and held_out:
        raise ValueError(
            f"held_out={held_out} leaves {len(order)} training classes, too few to merge {merge} at a time"
        )
    groups = len(order) // merge
    new = torch.arange(len(table.class_names))
    for group in range(groups):
        last = len(order) if group == groups - 1 else (group + 1) * merge
        members = order[group * merge : last]
        new[members] = members.min()
    label = torch.where(chosen, new[table.label], table.label)
    # classes are numbered from 0 without gaps, so merged classes are removed from the names
    there, label = torch.unique(label, return_inverse=True)
    names = tuple(table.class_names[i] for i in there.tolist())
    what = f", training classes merged by {merge}" if merge > 1 else ""
    return replace(table, label=label, class_names=names, name=f"{table.name}{what}")
