"""Writes files atomically, and reads files with errors that name the problem."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rankgrad.common.files import AGAIN, integer, open_file, read_text
from rankgrad.common.text import shown

# Temporary files of `atomic_write`: name of the complete file, machine, process.
_TEMPORARY = re.compile(r"\.(.+?)(?:\.([0-9a-f]{8}))?\.(\d+)\.tmp")

ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A new file to write to, which replaces `path` at the end: a reader finds the complete old or new file.

    At the end, the content and the new name are on the disk, so that files survive a power cut in the order in which
    they were written. On an error, also Ctrl-C or a full disk, the old file stays and the temporary file is removed. A
    killed process leaves its temporary file, which the next call for the same file removes; see also
    `remove_leftovers`. A link with the name of the file is replaced, not followed.

    Args:
        path: the file; its folder must exist.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "a.txt") as file:
    ...     _ = file.write(b"whole")
    >>> [(file.name, file.read_text()) for file in folder.iterdir()]
    [('a.txt', 'whole')]
    """
    place = path.with_name(temporary(path.name))
    try:
        _remove_dead(path)
        with place.open("x+b") as file:
            yield file
        _sync(place)  # opened again, since a library may have replaced the file
        os.replace(place, path)
        if hasattr(os, "O_DIRECTORY"):  # other systems cannot open a folder
            _sync(path.parent)
    except OSError as error:
        # the system names no file for a full disk
        if error.errno is not None and error.filename in (None, str(place)):
            error.filename = str(path)
            if error.filename2 is not None:
                del error.filename2
        raise
    finally:
        place.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, which is removed at the end. Those that killed processes left are removed, too."""
    _remove_dead(path)
    place = path.with_name(temporary(path.name))
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _remove_dead(path: Path) -> None:
    """Remove temporary files and folders for `path` of processes on this machine that have ended, or of this one."""
    for each in path.parent.iterdir():
        match = _TEMPORARY.fullmatch(each.name)
        if match and match.group(1, 2) == (path.name, _machine()):
            process = int(match[3])
            if process == os.getpid() or not _lives(process):
                with suppress(OSError):  # in a folder that users share, that of somebody else stays
                    shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


def temporary(name: str) -> str:
    """Name under which `atomic_write` in this process writes a file until it is complete."""
    return f".{name}.{_machine()}.{os.getpid()}.tmp"


def _machine() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _lives(process: int) -> bool:
    """Whether a process of this machine exists."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, atomically (`atomic_write`)."""
    with atomic_write(path) as file:
        file.write(text.encode())


def remove_leftovers(folder: Path, name: str | None = None, *, ours: Callable[[str], object] = bool) -> None:
    """Remove temporary files of `atomic_write` that killed processes left in a folder.

    Args:
        folder: the folder, which need not exist. The caller must hold its lock: see `folders.lock`.
        name: only temporary files of this file; then a lock of this file is enough.
        ours: function from the name of a complete file to whether it is one of our files. Give it if other programs may
            have files in the folder.
    """
    for each in folder.iterdir() if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(each.name)
        if match and name in (None, match[1]) and ours(match[1]) and (each.is_symlink() or not each.is_dir()):
            each.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def is_archive(path: Path) -> bool:
    """Whether a file is a zip archive, or was one before it was damaged.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open_file(path) as file:
            return zipfile.is_zipfile(file)
    except zipfile.BadZipFile:  # is_zipfile itself raises it where the end of the archive is damaged
        return True


def check_archive(path: Path) -> None:
    """Raise if a checksum in a file of numpy (npz) or torch is wrong. Both are zip archives with checksums.

    Neither library checks them: one flipped bit on a disk could become a weight of 1e38.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            wrong = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or has another format ({error})") from None
    except OSError as error:
        raise OSError(f"{path} cannot be read ({error})") from None
    if wrong is not None:
        raise ValueError(f"{path} is damaged: the checksum of its part {wrong} is wrong")


def load_json(path: Path) -> Any:
    """The content of a json file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not json, or has an integer of more than 64 bits; the message names it.
    """
    try:
        return json.loads(read_text(path), parse_int=integer)
    except (ValueError, RecursionError) as error:  # ValueError: also for text that is not UTF-8
        raise ValueError(f"{path} is damaged: it is not json ({error}). {AGAIN}") from None


def read_json(path: Path, *needed: str) -> dict[str, Any]:
    """The object in a json file.

    Args:
        path: the file.
        needed: names that the object must have.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not json, is not an object, or lacks a name.
    """
    content = load_json(path)
    missing = [name for name in needed if name not in content] if isinstance(content, dict) else ["an object"]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}. {AGAIN}")
    return dict(content)


@dataclass(frozen=True)
class Pieces:
    """An array in pieces, so that memory never holds the whole array.

    Attributes:
        shape: of the whole array.
        dtype: of the whole array, and of each piece.
        pieces: blocks of its rows, in order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Iterable[npt.NDArray[Any]]


def write_npz(path: Path, columns: Mapping[str, Any]) -> None:
    """Write an npz with the same bytes as `numpy.savez`, atomically.

    Args:
        path: the file; an existing file is replaced.
        columns: name -> array, anything that numpy converts to an array, or `Pieces`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "a.npz")
    >>> write_npz(file, {"a": Pieces((3,), np.dtype("int64"), [np.arange(2), np.array([7])])})
    >>> read_npz(file)
    {'a': array([0, 1, 7])}
    """
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                if not isinstance(column, Pieces):
                    np.lib.format.write_array(entry, np.asanyarray(column), allow_pickle=False)
                    continue
                head = {"descr": np.lib.format.dtype_to_descr(column.dtype), "fortran_order": False}
                np.lib.format.write_array_header_1_0(entry, {**head, "shape": column.shape})
                for piece in column.pieces:
                    entry.write(np.ascontiguousarray(piece, column.dtype).data)


def read_npz(path: Path, *needed: str) -> dict[str, npt.NDArray[Any]]:
    """Read all columns of an npz and check its checksums.

    Args:
        path: the file.
        needed: columns that must exist.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not an npz, is damaged, holds Python objects (they would be unpickled), or lacks a
            column.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    if not is_archive(path):
        wanted = ", ".join(f"{name}=..." for name in needed or ("NAME",))
        raise ValueError(f"{path} is not an npz file: write one with numpy.savez(FILE, {wanted})")
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            columns = {}
            for name in file.files:
                columns[name] = file[name]
    except Exception as error:  # numpy, zip and zlib each raise their own
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path} holds Python objects in {name!r}, and rankgrad does not unpickle them: write numbers, or "
                f"texts as numpy.asarray({name}).astype(str)"
            ) from None
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is damaged ({reason}). {AGAIN}") from None
    columns = {name: _native(column) for name, column in columns.items() if isinstance(column, np.ndarray)}
    missing = [name for name in needed if name not in columns]
    if missing:
        has = ", ".join(sorted(columns)) or "nothing"
        wanted = " and ".join([", ".join(map(repr, needed[:-1])), repr(needed[-1])]) if needed[1:] else repr(needed[0])
        raise ValueError(f"{path} must hold {wanted}; it has {has}")
    return columns


def _native(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in this machine's byte order, which torch needs."""
    return column if column.dtype.isnative else column.astype(column.dtype.newbyteorder("="))


def check_unpacked(path: str | os.PathLike[str]) -> None:
    """Raise if this is an archive of files, which no reader opens.

    >>> check_unpacked("photos.zip")
    Traceback (most recent call last):
    ValueError: photos.zip is an archive: unpack it, and give the folder or file inside
    """
    if os.fspath(path).lower().endswith(ARCHIVES) and not os.path.isdir(path):
        raise ValueError(f"{shown(path)} is an archive: unpack it, and give the folder or file inside")


def inside(root: Path, name: str) -> Path:
    """The path `root / name` for a name that was read from a file. It must stay below `root`.

    Raises:
        ValueError: the name is absolute, or contains "..".

    >>> inside(Path("photos"), "cat/1.png").as_posix()
    'photos/cat/1.png'
    >>> inside(Path("photos"), "../secret.png")
    Traceback (most recent call last):
        ...
    ValueError: '../secret.png' must be a name below photos: not absolute, and without '..'
    """
    path = Path(name)
    if path.is_absolute() or path.drive or ".." in path.parts or "\0" in name:
        raise ValueError(f"{shown(name)!r} must be a name below {shown(root)}: not absolute, and without '..'")
    return root / path
