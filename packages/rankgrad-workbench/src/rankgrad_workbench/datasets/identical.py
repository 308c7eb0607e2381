"""Finds identical files, and one picture twice, which makes a test too easy. In two classes it is an error.

The same picture in another size, format or quality is found by a grey picture of 72 pixels (`images.look`).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from itertools import permutations
from pathlib import Path

import torch

from rankgrad.common.progress import through

from ..files import sha256_of
from .images import image_size, some

# Two pictures are one if their grey pixels correlate, and have nearly the same mean and standard deviation (of 255).
# Among 2 478 photographs of groceries, one pair of different files is so alike: two shots of one apple. Photographs
# that were halved, doubled, saved again (JPEG 40, WebP 60), made grey or shrunk to 64 pixels are found, 100 of 100.
ALIKE, APART = 0.985, 6.0
FLAT = 3.0  # a smaller standard deviation is a plain ground
BLOCK = 256  # rows that are compared at once


def identical_files(paths: Sequence[Path]) -> list[list[int]]:
    """Groups of rows whose files have the same content. Only files of the same size are read.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, text in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "three")):
    ...     _ = (folder / name).write_text(text)
    >>> identical_files(sorted(folder.iterdir()))
    [[0, 2]]
    """
    groups = [[*range(len(paths))]]
    for key in (os.path.getsize, sha256_of):
        parts: dict[Hashable, list[int]] = {}
        for place, group in enumerate(groups):
            for row in through(group, "comparing files", "image", len(group)):
                parts.setdefault((place, key(paths[row])), []).append(row)
        groups = [part for part in parts.values() if len(part) > 1]
    return groups


def identical_lines(
    paths: Sequence[Path],
    names: Sequence[str],
    splits: Sequence[str],
    classes: Sequence[str],
    small: Sequence[bytes] = (),
) -> tuple[str, ...]:
    """Lines for a summary about identical files, and about the same picture in two splits or twice in a class.

    There are no lines if there are no such files. Pictures of one class must differ in size or format: two shots of one
    thing are alike, too.

    Args:
        paths: [row] files.
        names: [row] names for the lines.
        splits: [row].
        classes: [row].
        small: [row] grey pixels of `images.look`; empty: only identical files are found.
    """
    groups = identical_files(paths)
    copies = sum(len(group) - 1 for group in groups)
    lines = [f"{copies} image(s) are copies of another image (identical files)"] if copies else []
    for what, column in (("two splits", splits), ("two classes", classes)):
        # the first image of each group, and the first that is elsewhere
        others = [(group[0], [row for row in group if column[row] != column[group[0]]]) for group in groups]
        pairs = [f"{names[one]} = {names[elsewhere[0]]}" for one, elsewhere in others if elsewhere]
        if pairs:
            lines.append(f"  in {what}: {len(pairs)} ({some(pairs)})")
    first = {row: group[0] for group in groups for row in group}
    in_class = [
        (a, b)
        for a, b in same_pictures([*zip(splits, classes, strict=True)], small, within=True)
        if paths[a].suffix.lower() != paths[b].suffix.lower() or image_size(paths[a]) != image_size(paths[b])
    ]
    apart = same_pictures(splits, small)
    for where, found in (("an image of another split", apart), ("another image of the same class", in_class)):
        pairs = [f"{names[a]} ~ {names[b]}" for a, b in found if first.get(a, a) != first.get(b, b)]
        if pairs:
            lines.append(f"{len(pairs)} image(s) look like {where}, in another size or format ({some(pairs)})")
    return tuple(lines)


def same_pictures(groups: Sequence[Hashable], small: Sequence[bytes], *, within: bool = False) -> list[tuple[int, int]]:
    """Pairs (a row, a later row) of one picture. A row is the second of one pair at most.

    Args:
        groups: [row].
        small: [row] grey pixels of `images.look`.
        within: pairs of one group. False: pairs of two groups.

    >>> dark, bright, other = bytes(range(72)), bytes(range(1, 73)), bytes(range(72, 0, -1))
    >>> same_pictures(["train", "train", "test"], [other, dark, bright])
    [(1, 2)]
    >>> same_pictures(["cat", "cat", "dog"], [bright, dark, dark], within=True)
    [(0, 1)]
    """
    if not small or (len(set(groups)) < 2 and not within):
        return []
    grey = torch.frombuffer(bytearray(b"".join(small)), dtype=torch.uint8).view(len(small), -1).float()
    spread, mean = torch.std_mean(grey, dim=1, correction=0)
    unit = (grey - mean[:, None]) / (spread[:, None].clamp(min=1e-9) * grey.shape[1] ** 0.5)
    drawn = spread > FLAT  # any two plain grounds look alike
    rows_of: dict[Hashable, list[int]] = {}
    order = mean.argsort(stable=True)
    for row in order[drawn[order]].tolist():
        rows_of.setdefault(groups[row], []).append(row)
    rows = [*map(torch.tensor, rows_of.values())]
    pairs: dict[int, int] = {}
    for one, other in zip(rows, rows, strict=True) if within else permutations(rows, 2):
        bright = mean[other]
        for part in torch.split(one, BLOCK):
            low, high = torch.searchsorted(bright, mean[part[[0, -1]]] + torch.tensor([-APART, APART])).tolist()
            some_of = other[low:high]
            alike = (unit[some_of] @ unit[part].T).masked_fill(some_of[:, None] == part, -1)
            best, at = alike.max(1)  # the most similar one is enough
            near = part[at]
            found = (best > ALIKE) & ((mean[near] - mean[some_of]).abs() < APART)
            found &= (spread[near] - spread[some_of]).abs() < APART
            for pair in zip(near[found].tolist(), some_of[found].tolist(), strict=True):
                pairs.setdefault(max(pair), min(pair))
    return sorted((first, second) for second, first in pairs.items())
