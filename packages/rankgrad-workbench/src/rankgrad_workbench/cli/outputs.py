"""No command replaces a file by mistake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankgrad.common.text import shown

from ..files.tables.written import need_ending
from ..runs.folder import Run, written


def check_output(out: Path | None, option: str, *read: Path, endings: Sequence[str] = ()) -> None:
    """Raise if writing `out` would lose a file, or if there is no folder for it.

    Args:
        out: the file to write; None: none is written.
        option: the option that names it, such as "-o".
        read: what the command reads: files, or folders, which are not looked into.
        endings: of the formats that are written, see `need_ending`; empty: there is one format, by any name.

    Raises:
        ValueError: `out` has another ending, is a folder, a pipe or a device, is one of the files that are read, or
            belongs to a run; the report.html of a run may be written again.
        FileNotFoundError: its folder does not exist.

    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = table.write_text("a")
    >>> check_output(table, "-o", table)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: -o .../rows.csv is a file that this command reads; give another file
    """
    if out is None:
        return
    if not out.parent.is_dir():
        raise FileNotFoundError(f"no folder {shown(out.parent)} to write {shown(out.name)} into")
    # a device would be replaced: as root, /dev/null itself, or the link /dev/stdout
    if out.exists() and (not out.is_file() or out.absolute().parent == Path("/dev")):
        what = "a folder" if out.is_dir() else "a pipe or a device"
        raise ValueError(f"{option} {shown(out)} is {what}; give a file")
    if out.exists() and any(path.is_file() and out.samefile(path) for path in read):
        raise ValueError(f"{option} {shown(out)} is a file that this command reads; give another file")
    if out.exists() and Run(out.parent).config.is_file() and written(out.name) and out.name != "report.html":
        raise ValueError(f"{option} {shown(out)} is a file of the run in {shown(out.parent)}; give another file")
    if endings:
        need_ending(out, endings, option)
