"""Finds images whose files are identical. In two splits they make a test too easy, in two classes they are an error."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

from ..files import open_file, sha256_of
from ..progress import through
from .images import some

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
    paths: Sequence[Path], names: Sequence[str], splits: Sequence[str], classes: Sequence[str]
) -> tuple[str, ...]:
    """Lines about identical files for a summary; none if there are no such files.

    Args:
        paths: [row] files.
        names: [row] names for the lines.
        splits: [row].
        classes: [row].
    """
    groups = identical_files(paths)
    if not groups:
        return ()
    copies = sum(len(group) - 1 for group in groups)
    lines = [f"{copies} {'image is a copy' if copies == 1 else 'images are copies'} of another image (identical files)"]
    for what, column in (("two splits", splits), ("two classes", classes)):
        apart = [group for group in groups if len({column[row] for row in group}) > 1]
        # the first image, and the first that is elsewhere
        others = [next(row for row in group if column[row] != column[group[0]]) for group in apart]
        pairs = [f"{names[group[0]]} = {names[other]}" for group, other in zip(apart, others, strict=True)]
        if apart:
            lines.append(f"  in {what}: {len(apart)} ({some(pairs)})")
    return tuple(lines)


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
