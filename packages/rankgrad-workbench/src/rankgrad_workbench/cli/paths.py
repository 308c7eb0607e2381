"""Paths that a command reads: they are looked for before anything is imported, which takes seconds."""

from __future__ import annotations

import re
from pathlib import Path

from rankgrad.common.text import shown

from ..files.at_path import check_unpacked

SETTING = re.compile(r"[A-Za-z_][\w.]*=")


def require(what: str, *paths: Path | None) -> None:
    """Raise unless each path exists.

    Args:
        what: what is needed, for the message.
        paths: of files or folders; None: not given.

    Raises:
        FileNotFoundError: naming the path.
        ValueError: it is an archive.

    >>> require("the folder of a run", Path("missing"))
    Traceback (most recent call last):
    FileNotFoundError: missing does not exist; give the folder of a run
    """
    for path in paths:
        if path is not None and not path.exists():
            setting = SETTING.match(str(path))
            why = f"no settings are taken here; got {shown(path)}" if setting else f"{shown(path)} does not exist"
            raise FileNotFoundError(f"{why}; give {what}")
        if path is not None:
            check_unpacked(path)
