"""Reading of a file that may come from somebody else."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import IO

AGAIN = "Copy it again, or write it again"  # advice for a damaged file


def open_file(path: Path) -> IO[bytes]:
    """Open a file for reading that may come from somebody else.

    Raises:
        OSError: it cannot be read; or it is a folder, a pipe or a device, for which a command would wait forever.
    """
    waits = getattr(os, "O_NONBLOCK", 0)  # the library reads on systems without it, too
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | waits))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is a folder, a pipe or a device, and must be a file")
    return file


def read_text(path: Path, errors: str = "strict") -> str:
    """The text of a UTF-8 file, see `open_file`. Line ends become newlines.

    Raises:
        OSError: it cannot be read, or is not a file.
        UnicodeDecodeError: it is not UTF-8.
    """
    with io.TextIOWrapper(open_file(path), encoding="utf-8", errors=errors) as file:
        return file.read()


def integer(text: str) -> int:
    """An integer of a json file. Integers of more than 64 bits are refused, because very long ones cannot become a
    float.

    Raises:
        ValueError: it has more than 64 bits.
    """
    if len(text) > 20 or abs(int(text)) >= 2**63:
        raise ValueError(f"an integer of {len(text)} digits is too large")
    return int(text)
