"""Paths that files of annotations name. Such files may be from somebody else, so paths stay below the data's folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from rankgrad.common.text import shown

# What to do about names that lead out of the folder of data.
CONFINED = (
    "Only what lies below data.root is opened, because the file that names it may be from somebody else. Move it below "
    "that folder, or link it there (ln -s), and name it relative to the folder"
)


def below(root: Path, path: Path) -> Path | None:
    """A path without `..`, if it stays below `root`; else None. What is a link there stays one.

    >>> below(Path("cells"), Path("cells/annotations/../train/a.jpg")).as_posix()
    'cells/train/a.jpg'
    >>> below(Path("cells"), Path("cells/../private/a.jpg")), below(Path("cells"), Path("/private/a.jpg"))
    (None, None)
    """
    if "\0" in str(path):
        return None
    flat = Path(os.path.normpath(path))
    if Path(os.path.abspath(flat)).is_relative_to(os.path.abspath(root)):
        return flat
    # root may be named through a link, and the path without it
    real, top = Path(os.path.realpath(path)), os.path.realpath(root)
    return root / real.relative_to(top) if real.is_relative_to(top) else None


def spellings(bases: Iterable[Path], name: str) -> list[Path]:
    """The paths that a name may mean; Windows separates folders by a backslash."""
    names = dict.fromkeys((name, name.replace("\\", "/")))
    return [base / each for each in names for base in bases]


def first_below(root: Path, choices: Iterable[Path]) -> Path | None:
    """The first of some paths that exists and stays below `root`."""
    inside = (path for choice in choices if (path := below(root, choice)) is not None)
    return next((path for path in inside if path.exists()), None)


def confined(root: Path, choices: Sequence[Path], name: str) -> str:
    """What to do if a name leads out of `root`, for the end of a message; else empty. It may mean each of the paths."""
    windows = name[1:2] == ":"  # C:\photos\a.jpg
    there = [choice for choice in choices if "\0" not in name and choice.exists()] or choices
    return f". {CONFINED}" if windows or all(below(root, choice) is None for choice in there) else ""


def links_out(root: Path, paths: Iterable[Path]) -> list[str]:
    """Those files below `root` that are elsewhere, because they or their folders are links. Links are followed."""
    top, folders = Path(os.path.realpath(root)), cache(os.path.realpath)
    real = ((path, os.path.realpath(path) if path.is_symlink() else folders(path.parent)) for path in paths)
    return [f"{shown(path.name)} -> {shown(place)}" for path, place in real if not Path(place).is_relative_to(top)]
