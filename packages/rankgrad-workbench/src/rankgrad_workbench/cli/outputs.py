"""Outputs: no command replaces a file by mistake, and an error says which option chooses another place."""

from __future__ import annotations

import argparse
import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rankgrad.common.files import open_file
from rankgrad.common.text import shown

from ..files.tables.vectors import need_ending
from ..runs.folder import Run, written

PAGE = b'<meta name="generator" content="rankgrad '  # every page has it near its beginning
OPTIONS = {"out": "-o", "html": "--html", "page": "--page", "sheet": "--sheet"}
PLACES = ("out", "data.cache_dir")  # settings
FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of the file system that another place cures, and what each means for the file that is named.
ELSEWHERE = {
    errno.EACCES: "you have no permission",
    errno.EPERM: "the system does not permit it",
    errno.EROFS: "its disk is read-only",
    errno.EEXIST: "it is a file, and must be a folder",
    errno.ENOTDIR: "a part of this path is a file, and must be a folder",
    errno.EISDIR: "it is a folder, and must be a file",
    errno.ENAMETOOLONG: "the name is too long",
}


def check_output(out: Path | None, option: str, *read: Path, endings: Sequence[str] = ()) -> None:
    """Raise if writing `out` would lose a file.

    Args:
        out: the file to write; None: none is written.
        option: the option that names it, such as "-o".
        read: what the command reads: files, or folders, which are not looked into.
        endings: of the formats that are written, see `need_ending`; empty: there is one format, by any name.

    Raises:
        ValueError: `out` has another ending, is a folder, a pipe or a device, is one of the files that are read, or
            belongs to a run; the report.html of a run may be written again.

    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = table.write_text("a")
    >>> check_output(table, "-o", table)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: -o .../rows.csv is a file that this command reads; give another file
    """
    if out is None:
        return
    if out.is_dir():
        raise ValueError(f"{option} {shown(out)} is a folder; give a file")
    # it would be replaced: as root, /dev/null itself, or the link /dev/stdout
    if out.exists() and (not out.is_file() or out.absolute().parent == Path("/dev")):
        raise ValueError(f"{option} {shown(out)} is a pipe or a device; give a file")
    if out.exists() and any(path.is_file() and out.samefile(path) for path in read):
        raise ValueError(f"{option} {shown(out)} is a file that this command reads; give another file")
    if out.exists() and Run(out.parent).config.is_file() and written(out.name) and out.name != "report.html":
        raise ValueError(f"{option} {shown(out)} is a file of the run in {shown(out.parent)}; give another file")
    if endings:
        need_ending(out, endings, option)


def check_page(out: Path) -> None:
    """Raise if a page would replace a file of another program, at a place that the user did not name.

    Raises:
        ValueError: the file exists and is no page of rankgrad.
    """
    if not out.is_file():
        return
    with open_file(out) as file:
        if PAGE not in file.read(2**16):
            raise ValueError(f"{shown(out)} exists, and rankgrad did not write it; choose another file with -o")


def explained(error: OSError, arguments: argparse.Namespace, settings: Sequence[str]) -> str:
    """The message of an error of the file system, with the setting or option that chooses another place.

    Args:
        error: the error, with its number.
        arguments: of the command.
        settings: KEY=VALUE of the command.
    """
    if error.filename is None and error.errno in FULL:
        temporary = shown(tempfile.gettempdir())
        return f"{error.strerror}. The system does not say where; perhaps in {temporary}, see the variable TMPDIR"
    if error.filename is None:
        return str(error)
    named = shown(error.filename)
    if error.errno not in ELSEWHERE:
        return f"{named}: {error.strerror}"
    path = Path(os.path.abspath(os.fsdecode(error.filename)))
    if not os.path.exists(path) or os.access(path, os.R_OK):  # otherwise it could not be read
        for place, cure in _places(arguments, settings):
            place = Path(os.path.abspath(place))
            # parts of x.npz are in a folder beside it, x.npz.parts
            if path.is_relative_to(place) or place.is_relative_to(path) or str(path).startswith(f"{place}."):
                return f"{named} cannot be written: {ELSEWHERE[error.errno]}. {cure}"
    return f"{named} cannot be used: {ELSEWHERE[error.errno]}"


def _places(arguments: argparse.Namespace, settings: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Each place that the command writes to, and what to do if that fails."""
    for name, option in OPTIONS.items():
        if getattr(arguments, name, None) is not None:
            yield getattr(arguments, name), f"Choose another place with {option}"
    values = dict(setting.partition("=")[::2] for setting in settings)
    for key in PLACES:
        if values.get(key):
            yield Path(values[key]).expanduser(), f"Choose another place with {key}="
    if values.get("resume"):
        yield Path(values["resume"]).expanduser(), "Copy the run to another folder, and give that one as resume="
    if not hasattr(arguments, "out"):
        yield Path("runs"), "Choose another place with out="
    elif arguments.out is None:
        yield Path(), "Choose another place with -o"
