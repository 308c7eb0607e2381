"""What lies at a path: queries and documents, tables, or neither. Hints and messages ask this."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rankgrad.common.text import shown

from .tables.formats import of_texts, read_rows
from .tables.users import are_interactions

ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")
MOST_FOLDERS, MOST_FILES = 100, 5  # folders that are looked into for a hint; files that it names
SEARCHED = ("pos", "positive", "positives", "positive_passages", "positive_ctxs")  # columns of relevant documents


def check_unpacked(path: str | os.PathLike[str]) -> None:
    """Raise if this is an archive of files, which no reader opens.

    >>> check_unpacked("photos.zip")
    Traceback (most recent call last):
    ValueError: photos.zip is an archive: unpack it, and give the folder or file inside
    """
    if os.fspath(path).lower().endswith(ARCHIVES) and not os.path.isdir(path):
        raise ValueError(f"{shown(path)} is an archive: unpack it, and give the folder or file inside")


def is_search(path: str) -> bool:
    """Whether these are queries and documents: a folder with both, one of their files, or a table with a column of
    relevant documents.
    """
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        stems = {name.partition(".")[0] for name in os.listdir(place) if name.removesuffix(".gz").endswith(of_texts())}
        return {"corpus", "queries"} <= stems
    if not os.path.isfile(place) or not place.removesuffix(".gz").endswith(of_texts()):
        return False
    if is_beside(path):
        return True
    columns = _columns_of(place)
    return "label" not in columns and any(name in columns for name in SEARCHED)


def is_of_users(path: str) -> bool:
    """Whether this is a table that says which user had which item."""
    place = os.path.expanduser(path)
    readable = os.path.isfile(place) and place.removesuffix(".gz").endswith(of_texts())
    return readable and are_interactions(_columns_of(place))


def _columns_of(place: str) -> Sequence[str]:
    """The columns of the first row of a table."""
    try:
        return next(([*map(str, row)] for _, row in read_rows(Path(place), None)), [])
    except (ValueError, ModuleNotFoundError):
        return []  # whoever reads the file says what is wrong


def is_beside(path: str) -> bool:
    """Whether this is the file of the documents or of the queries in a folder that has both."""
    folder, name = os.path.split(os.path.expanduser(path))
    return name.partition(".")[0] in ("corpus", "queries") and os.path.isfile(path) and is_search(folder or ".")


def tables_in(path: str) -> list[str]:
    """The files of rows in a folder that has neither images nor folders of images; [] for any other path."""
    folder = os.path.expanduser(path)
    if not os.path.isdir(folder):
        return []
    inside = sorted(os.listdir(folder))
    below = [os.path.join(folder, name) for name in inside if os.path.isdir(os.path.join(folder, name))]
    suffixes = {
        os.path.splitext(name)[1].lower() for each in (folder, *below[:MOST_FOLDERS]) for name in os.listdir(each)
    }
    rows = [name for name in inside if name.endswith(of_texts())]
    return rows[:MOST_FILES] if suffixes <= {*of_texts(), ".md", ".txt", ".json", ".gz", ""} else []


__all__ = ["check_unpacked", "is_beside", "is_of_users", "is_search", "tables_in"]
