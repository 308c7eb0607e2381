"""Refuses an output file that would replace a file the command reads, or a file of a run."""

from __future__ import annotations

from pathlib import Path

from ..files import shown
from ..runs.folder import Run, written


def check_output(out: Path | None, option: str, *read: Path) -> None:
    """Raise if writing `out` would lose a file.

    Args:
        out: the file to write; None: none is written.
        option: the option that names it, such as "-o".
        read: what the command reads: files, or folders, which are not looked into.

    Raises:
        ValueError: `out` is one of the files that are read, or belongs to a run; its report.html may be written again.

    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "rows.csv"
    >>> _ = table.write_text("a")
    >>> check_output(table, "-o", table)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: -o .../rows.csv is a file that this command reads; give another file
    """
    if out is None or not out.is_file():
        return
    if any(path.is_file() and out.samefile(path) for path in read):
        raise ValueError(f"{option} {shown(out)} is a file that this command reads; give another file")
    if Run(out.parent).config.is_file() and written(out.name) and out.name != "report.html":
        raise ValueError(f"{option} {shown(out)} is a file of the run in {shown(out.parent)}; give another file")
