"""Text lists of image data sets -> rows -> a `Table`. Errors name file and line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from rankgrad.common.checks import setting
from rankgrad.common.progress import through
from rankgrad_workbench.datasets.base import Cache, Table, check_reading
from rankgrad_workbench.datasets.images import some
from rankgrad_workbench.datasets.inspection import CountWarning
from rankgrad_workbench.files import inside

from .official import Counts, missing_files, off_counts

Row = tuple[Any, ...]
Key = TypeVar("Key", int, str)
Columns = Mapping[str, Callable[[str], Any]]


class Reading(TypedDict, total=False):
    """Settings of how files are read, the same for all loaders: see `load_folder`."""

    shorter_side: int | None
    cache: Cache
    cache_dir: str | Path | None


def find_home(root: str | Path, title: str, markers: Sequence[str], inside: Sequence[str], get: str) -> Path:
    """The folder of a data set: `root`, or a folder in it that was made when an archive was unpacked.

    Args:
        root: folder given by the user.
        title: of the data set.
        markers: paths below the folder; at least one must exist.
        inside: names of folders that archives make.
        get: what to do if the data set is not found.

    Raises:
        FileNotFoundError, NotADirectoryError: if the data set is not found.
    """
    root = Path(root)
    if not root.exists():
        raise FileNotFoundError(f"there is no folder {root}: {setting('root')} must be that of {title}. {get}")
    if not root.is_dir():
        raise NotADirectoryError(f"{setting('root')} must be the folder of {title}; {root} is a file")
    for folder in (root, *(root / name for name in inside)):
        if any((folder / marker).is_file() for marker in markers):
            return folder
    raise FileNotFoundError(
        f"{title} is not in {root}: looked for {' or '.join(markers)} there and in {' and '.join(inside)}. {get}"
    )


def first_of(home: Path, *candidates: str) -> Path:
    """The first of some paths below a folder that exists; the first of all if none does."""
    return next((home / path for path in candidates if (home / path).exists()), home / candidates[0])


def read_rows(
    path: Path, columns: Columns, *, header: str | None = None, counted: bool = False, name_first: bool = False
) -> list[Row]:
    """Rows of a list whose columns are separated by spaces or tabs. Empty lines are skipped.

    Args:
        path: the file, UTF-8.
        columns: name of each column -> function that converts its text, such as `int`, `float` or `str`. The last
            column (the first, with name_first) may contain spaces, as file names do.
        header: words of the line above the rows.
        counted: the first line is the number of rows.
        name_first: see columns.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if a line has a wrong format (the message names it), there are no rows, or their number is wrong.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: it lists {', '.join(columns)}")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); is it damaged?") from None
    kinds, last = list(columns.values()), len(columns) - 1
    expected, rows = None, []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if counted and expected is None:
            if not line.strip().isdecimal():
                raise ValueError(f"{path}, line {number}: needed the number of listed images; got {line!r}")
            expected = int(line)
        elif header is not None:
            if line.split() != header.split():
                raise ValueError(f"{path}, line {number}: needed the header {header!r}; got {line!r}")
            header = None
        else:
            words = line.strip().rsplit(maxsplit=last) if name_first else line.strip().split(maxsplit=last)
            try:
                rows.append(tuple(kind(word) for kind, word in zip(kinds, words, strict=True)))
            except ValueError:
                raise ValueError(f"{path}, line {number}: needed {', '.join(columns)}; got {line!r}") from None
    if not rows:
        raise ValueError(f"{path} lists nothing; was it downloaded completely?")
    if expected is not None and expected != len(rows):
        raise ValueError(
            f"the first line of {path} says that it lists {expected} images, but it lists {len(rows)}; was it "
            "downloaded completely?"
        )
    return rows


def by_id(path: Path, rows: Sequence[Row], what: str) -> dict[int, Row]:
    """Rows by their first column, an id.

    Raises:
        ValueError: if an id occurs twice.
    """
    by_id = {row[0]: row[1:] for row in rows}
    if len(by_id) != len(rows):
        seen: set[int] = set()
        twice = next(row[0] for row in rows if row[0] in seen or seen.add(row[0]))  # type: ignore[func-returns-value]
        raise ValueError(f"{path} names {what} {twice} twice")
    return by_id


def numbered(keys: Sequence[Key]) -> tuple[Tensor, list[Key]]:
    """(labels 0 .. C - 1 of the keys, the C different keys, sorted).

    >>> numbered([7, 3, 7])
    (tensor([1, 0, 1]), [3, 7])
    """
    names, label = np.unique(np.array(keys), return_inverse=True)
    return torch.from_numpy(label.astype(np.int64)), names.tolist()


def listed(
    name: str,
    folder: Path,
    files: Sequence[str],
    split: Sequence[str],
    classes: Sequence[Key],
    class_name: Callable[[Key], str] = str,
    super_labels: Sequence[str] | None = None,
    **columns: Any,
) -> Table:
    """The table of listed files. Classes are numbered in the order of their keys, super-labels of their names.

    Args:
        name: of the table.
        folder: of the files.
        files: [image] path below the folder, with "/".
        split: [image] "train" or "test".
        classes: [image] key of the class, number or text.
        class_name: key -> name.
        super_labels: [image] name of the coarser class; None: there are none.
        columns: further columns of the table.

    Raises:
        ValueError: if a path leads out of the folder.
    """
    label, keys = numbered(classes)
    supers, super_names = (None, []) if super_labels is None else numbered(super_labels)
    return Table(
        name=name,
        label=label,
        class_names=tuple(map(class_name, keys)),
        split=tuple(split),
        names=tuple(files),
        channels=3,
        paths=tuple(inside(folder, file) for file in through(files, "listing images", "image", len(files))),
        super_label=supers,
        super_names=tuple(super_names),
        **columns,
    )


def finished(
    make: Callable[[], Table],
    counts: Counts,
    elsewhere: Mapping[str, Counts] | None = None,
    *,
    check: bool,
    shorter_side: int | None = None,
    cache: Cache = "none",
    cache_dir: str | Path | None = None,
) -> Table:
    """The last steps of a loader: check the settings, the files and the counts, and add the settings to the table.

    Args:
        make: reads the lists; called after the settings are checked.
        counts: published counts.
        elsewhere: source -> other published counts, which are accepted too.
        check: check that every listed file exists, and compare the counts.
        shorter_side: see `load_folder`.
        cache: see `load_folder`.
        cache_dir: see `load_folder`.

    Raises:
        FileNotFoundError: if listed files are missing.

    Warns:
        CountWarning: if the counts differ from the published ones.
    """
    check_reading(shorter_side=shorter_side, cache=cache, cache_dir=cache_dir)
    table = make()
    off = off_counts(table, counts, elsewhere)
    if check:
        assert table.paths is not None
        missing = missing_files(table.paths)
        if missing:
            raise FileNotFoundError(
                f"{table.name}: {len(missing)} of {len(table)} listed images are missing: {some(missing)}. "
                "'rankgrad datasets check' says what to do"
            )
        if off:
            warnings.warn(off, CountWarning, stacklevel=3)
    return replace(table, shorter_side=shorter_side, off_counts=off).cached(cache, cache_dir)
