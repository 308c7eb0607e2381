"""Finds identical files, and one picture twice, which makes a test too easy. In two classes it is an error.

The same picture in another size, format or quality is found by a grey picture of 72 pixels (`images.look`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import permutations
from pathlib import Path

import torch

from rankgrad.common.files import open_file
from rankgrad.common.progress import through

from ..files import sha256_of
from .images import image_size, some

# Two pictures are one if their grey pixels correlate, and have nearly the same mean and standard deviation (of 255).
# Among 2 478 photographs of groceries, one pair of different files is so alike: two shots of one apple. Photographs
# that were halved, doubled, saved again (JPEG 40, WebP 60), made grey or shrunk to 64 pixels are found, 100 of 100.
ALIKE, APART = 0.985, 6.0
FLAT = 3.0  # a smaller standard deviation is a plain ground
BLOCK = 256  # rows that are compared at once
_SIZED = re.compile(r"(.+)[-_. ]\d{2,4}x\d{2,4}")  # a name that a server gives a preview: photo-150x150
END = 4096  # bytes; few different files of the same size have the same last bytes


def identical_files(paths: Sequence[Path]) -> list[list[int]]:
    """Groups of rows whose files have the same content. Only files of the same size and the same end are read whole.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, text in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "three")):
    ...     _ = (folder / name).write_text(text)
    >>> identical_files(sorted(folder.iterdir()))
    [[0, 2]]
    """
    groups = [[*range(len(paths))]]
    for key in (os.path.getsize, _end, sha256_of):
        groups = [part for group in groups for part in _divided(group, paths, key)]
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
    lines = [
        f"{copies} {'image is a copy' if copies == 1 else 'images are copies'} of another image (identical files)"
    ] * (copies > 0)
    for what, column in (("two splits", splits), ("two classes", classes)):
        apart = [group for group in groups if len({column[row] for row in group}) > 1]
        # the first image, and the first that is elsewhere
        others = [next(row for row in group if column[row] != column[group[0]]) for group in apart]
        pairs = [f"{names[group[0]]} = {names[other]}" for group, other in zip(apart, others, strict=True)]
        if apart:
            lines.append(f"  in {what}: {len(apart)} ({some(pairs)})")
    first = {row: group[0] for group in groups for row in group}
    both = [*zip(splits, classes, strict=True)]
    whole = [pixels[: len(pixels) // 2] for pixels in small]
    told: set[frozenset[int]] = set()
    for where, found in (
        ("an image of another split", same_pictures(splits, whole)),
        (
            "another image of the same class",
            [p for p in same_pictures(both, whole, within=True) if _resized(*p, paths)],
        ),
    ):
        found = [pair for pair in found if first.get(pair[0], pair[0]) != first.get(pair[1], pair[1])]
        different = [f"{names[a]} ~ {names[b]}" for a, b in found]
        told |= {*map(frozenset, found)}
        if different:
            count = f"{len(different)} image{' looks' if len(different) == 1 else 's look'}"
            lines.append(f"{count} like {where}, in another size or format ({some(different)})")
    previews = [f"{names[a]} ~ {names[b]}" for a, b in _previews(paths, small) if {a, b} not in told]
    if previews:
        count = f"{len(previews)} image{' is a preview' if len(previews) == 1 else 's are previews'}"
        lines.append(f"{count}, the middle of another image or so named; leave them out ({some(previews)})")
    return tuple(lines)


def _previews(paths: Sequence[Path], small: Sequence[bytes]) -> list[tuple[int, int]]:
    """(row, row of the image that it shows) of square images that are the middle of another, or named by a size."""
    square = [pixels[: len(pixels) // 2] == pixels[len(pixels) // 2 :] for pixels in small]
    middle = [pixels[len(pixels) // 2 :] for pixels in small]
    found = dict((a, b) if square[a] else (b, a) for a, b in same_pictures(square, middle))
    row_of = {path.with_suffix(""): row for row, path in enumerate(paths)}
    for row, path in enumerate(paths):
        match = _SIZED.fullmatch(path.stem)
        if match and (whole := row_of.get(path.with_name(match[1]))) is not None:
            found.setdefault(row, whole)
    return sorted(found.items())


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
            if not len(some_of):
                continue
            alike = (unit[some_of] @ unit[part].T).masked_fill(some_of[:, None] == part, -1)
            best, at = alike.max(1)  # the most similar one is enough
            near = part[at]
            found = best > ALIKE
            for value in (mean, spread):
                found &= (value[near] - value[some_of]).abs() < APART
            for pair in zip(near[found].tolist(), some_of[found].tolist(), strict=True):
                pairs.setdefault(max(pair), min(pair))
    return sorted((first, second) for second, first in pairs.items())


def _resized(one: int, other: int, paths: Sequence[Path]) -> bool:
    """Whether the images of two rows have another size or format."""
    a, b = paths[one], paths[other]
    return a.suffix.lower() != b.suffix.lower() or image_size(a) != image_size(b)


def _end(path: Path) -> bytes:
    with open_file(path) as file:
        file.seek(-min(END, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read()


def _divided(group: Sequence[int], paths: Sequence[Path], key: Callable[[Path], Hashable]) -> Iterator[list[int]]:
    """Parts of a group with the same key that have at least two rows."""
    parts: dict[Hashable, list[int]] = {}
    for row in through(group, "comparing files", "image", len(group)):
        parts.setdefault(key(paths[row]), []).append(row)
    return (part for part in parts.values() if len(part) > 1)
