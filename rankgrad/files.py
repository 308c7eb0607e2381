"""Files that are written as a whole or not at all; json and npz, read with a word on what is wrong with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np
import numpy.typing as npt


@contextmanager
def replacing(path: Path, ending: str = "") -> Iterator[Path]:
    """Another path beside `path` to write to, which then takes its place: a reader finds the old file or the new one.

    On an error, Ctrl-C included, what was there stays as it was and nothing is left beside it.

    Args:
        path: the file; it need not exist, its folder must.
        ending: of the other path, for writers that go by it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [(file.name, file.read_text()) for file in folder.iterdir()]
    [('a.txt', 'whole')]
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{ending}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8, in this way."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, *needed: str) -> dict[str, Any]:
    """The object that a json file holds.

    Args:
        path: the file.
        needed: names that must be in it.

    Raises:
        OSError: the file can't be read.
        ValueError: no json, no object, or one that lacks a name.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8
        raise ValueError(f"{path} is damaged: it is no json ({error})") from None
    missing = [name for name in needed if name not in found] if isinstance(found, dict) else ["an object"]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}")
    return dict(found)


def read_npz(path: Path, *needed: str) -> dict[str, npt.NDArray[Any]]:
    """All columns of an npz, its checksums held.

    Args:
        path: the file.
        needed: columns that must be there.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no npz, a damaged one, one of Python objects (which would be unpickled), or one that lacks a column.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if not is_zipfile(path):
        wanted = ", ".join(f"{name}=..." for name in needed or ("NAME",))
        raise ValueError(f"{path} is no npz file: write one with numpy.savez(FILE, {wanted})")
    try:
        with ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise BadZipFile(f"the checksum of {damaged} is another one")
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except Exception as error:  # numpy, zip and zlib each raise their own
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path} holds Python objects, which are not unpickled: write columns of numbers or texts"
            ) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is damaged ({reason}): copy it again, or write it again") from None
    columns = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
    missing = [name for name in needed if name not in columns]
    if missing:
        there = ", ".join(sorted(columns)) or "nothing"
        wanted = " and ".join([", ".join(map(repr, needed[:-1])), repr(needed[-1])]) if needed[1:] else repr(needed[0])
        raise ValueError(f"{path} must hold {wanted}; it has {there}")
    return columns


def printable(text: str) -> str:
    r"""A name for a terminal: signs that would do something there, such as escapes and new lines, are spelt out.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
