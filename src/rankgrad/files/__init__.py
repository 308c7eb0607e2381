"""Files: written as a whole or not at all, read with a word on what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zipfile import is_zipfile

import numpy as np
import numpy.typing as npt

from .folders import naming, opened_folder

AGAIN = "Copy it again, or write it again"  # what helps against a damaged file
_TEMPORARY = re.compile(r"^\..+\.\d+\.tmp$")


@contextmanager
def atomic_write(path: Path, root: Path | None = None) -> Iterator[IO[bytes]]:
    """A new file to write to, which then takes the place of another: a reader finds the old file or the new one.

    The content and the new name are on the disk when this ends, so that a later file never outlives an earlier one in
    a power cut. On an error, Ctrl-C and a full disk included, what was there stays and nothing is left beside it. A
    process that is killed leaves its temporary file; see `remove_leftovers`.

    Args:
        path: the file; it need not exist, its folder must.
        root: see `folders.opened_folder`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "a.txt") as file:
    ...     _ = file.write(b"whole")
    >>> [(file.name, file.read_text()) for file in folder.iterdir()]
    [('a.txt', 'whole')]
    """
    name = f".{path.name}.{os.getpid()}.tmp"
    with naming(path, name), opened_folder(path.parent, root) as folder:
        try:
            folder.remove(name)
            with folder.file(name, "w+b", os.O_EXCL) as file:
                yield file
            with folder.file(name, "rb+") as file:  # again: a library may have put another in its place
                os.fsync(file.fileno())
            folder.replace(name, path.name)
            folder.sync()
        finally:
            folder.remove(name)


def write_text(path: Path, text: str, root: Path | None = None) -> None:
    """Write a text file, UTF-8, in this way."""
    with atomic_write(path, root) as file:
        file.write(text.encode())


def remove_leftovers(folder: Path, name: str | None = None, root: Path | None = None) -> None:
    """Remove what `atomic_write` left in a folder when its process was killed.

    Args:
        folder: hold its lock: see `folders.lock`. It need not exist.
        name: only of the file of this name; then its own lock is enough.
        root: see `folders.opened_folder`.
    """
    mine = "." if name is None else f".{name}."
    with suppress(FileNotFoundError), opened_folder(folder, root) as opened:
        for each in opened.names():
            if each.startswith(mine) and _TEMPORARY.match(each) and not stat.S_ISDIR(opened.stat(each).st_mode):
                opened.remove(each)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def check_archive(path: Path) -> None:
    """Raise if a file of numpy (npz) or torch, both zip archives with a checksum per entry, is not as it was written.

    Neither library looks at the checksums: one bit that flipped on a disk would become a weight of 1e38.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            wrong = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or no file of this kind ({error})") from None
    except OSError as error:
        raise OSError(f"{path} cannot be read ({error})") from None
    if wrong is not None:
        raise ValueError(f"{path} is damaged: the checksum of its part {wrong} is wrong")


def load_json(path: Path) -> Any:
    """What a json file holds.

    Raises:
        OSError: the file can't be read.
        ValueError: no json; the message names the file.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also of text that is not UTF-8
        raise ValueError(f"{path} is damaged: it is no json ({error}). {AGAIN}") from None


def read_json(path: Path, *needed: str) -> dict[str, Any]:
    """The object that a json file holds.

    Args:
        path: the file.
        needed: names that must be in it.

    Raises:
        OSError: the file can't be read.
        ValueError: no json, no object, or one that lacks a name.
    """
    content = load_json(path)
    missing = [name for name in needed if name not in content] if isinstance(content, dict) else ["an object"]
    if missing:
        raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}. {AGAIN}")
    return dict(content)


@dataclass(frozen=True)
class Pieces:
    """An array that comes piece by piece, so that memory never holds it as a whole.

    Attributes:
        shape: of the whole.
        dtype: of the whole, and of each piece.
        pieces: its rows in their order, some at a time.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Iterable[npt.NDArray[Any]]


def write_npz(path: Path, columns: Mapping[str, Any], root: Path | None = None) -> None:
    """Write an npz as `numpy.savez` does, byte by byte, whole or not at all.

    Args:
        path: the file, replaced as a whole.
        columns: name -> what numpy makes an array of, or `Pieces`.
        root: see `folders.opened_folder`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "a.npz")
    >>> write_npz(file, {"a": Pieces((3,), np.dtype("int64"), [np.arange(2), np.array([7])])})
    >>> read_npz(file)
    {'a': array([0, 1, 7])}
    """
    with atomic_write(path, root) as file, zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                if not isinstance(column, Pieces):
                    np.lib.format.write_array(entry, np.asanyarray(column), allow_pickle=False)
                    continue
                head = {"descr": np.lib.format.dtype_to_descr(column.dtype), "fortran_order": False}
                np.lib.format.write_array_header_1_0(entry, {**head, "shape": column.shape})
                for piece in column.pieces:
                    entry.write(np.ascontiguousarray(piece, column.dtype).data)


def read_npz(path: Path, *needed: str, mapped: str = "") -> dict[str, npt.NDArray[Any]]:
    """All columns of an npz, its checksums held.

    Args:
        path: the file.
        needed: columns that must be there.
        mapped: a column that stays in the file, if it is not compressed: an array that is read-only, of which memory
            holds what is looked at.

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
        check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            there = _mapped(path, mapped) if mapped in file.files else None
            columns = {} if there is None else {mapped: there}
            for name in file.files:
                if name not in columns:
                    columns[name] = file[name]
    except Exception as error:  # numpy, zip and zlib each raise their own
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{path} holds Python objects in {name!r}, which are not unpickled: write numbers, or texts as "
                f"numpy.asarray({name}).astype(str)"
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
    """The same numbers in this machine's order of bytes, which torch asks for."""
    return column if column.dtype.isnative else column.astype(column.dtype.newbyteorder("="))


def _mapped(path: Path, name: str) -> npt.NDArray[Any] | None:
    """A column of an npz, mapped into memory; None if it lies there in another way than `write_npz` writes it."""
    with zipfile.ZipFile(path) as archive:
        about = archive.getinfo(f"{name}.npy")
        if about.compress_type != zipfile.ZIP_STORED:
            return None
        with archive.open(about) as entry:
            if np.lib.format.read_magic(entry) != (1, 0):
                return None
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(entry)
            head = entry.tell()
    if fortran or dtype.hasobject or not dtype.isnative:
        return None
    with path.open("rb") as file:  # the lengths of the name and of what follows it stand in the entry's own head
        file.seek(about.header_offset + 26)
        start = about.header_offset + 30 + sum(struct.unpack("<HH", file.read(4))) + head
    return np.memmap(path, dtype, "r", offset=start, shape=shape)


# What is not shown of the name of a file, in a terminal or on a page: control characters, ends of line, marks that turn
# the direction of writing, and bytes that are no text (Python keeps those as lone surrogates).
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(name: object, keep: str = "") -> str:
    r"""A name as it may stand in a message, in a table or on a page: what is not to be shown is written as an escape.

    Args:
        name: any text.
        keep: characters that stay, such as ends of line.

    >>> shown("caf\xe9\n\x1b[2J.png"), shown("\udcff.png")
    ('caf\xe9\\n\\x1b[2J.png', '\\xff.png')
    """
    return _UNSHOWN.sub(lambda match: match[0] if match[0] in keep else _escaped(match[0]), str(name))


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def inside(root: Path, name: str) -> Path:
    """The file of a name that was read from a file: below `root`, wherever the name would like to lead.

    Raises:
        ValueError: it is absolute, or goes up with "..".

    >>> inside(Path("photos"), "cat/1.png").as_posix()
    'photos/cat/1.png'
    >>> inside(Path("photos"), "../secret.png")
    Traceback (most recent call last):
        ...
    ValueError: '../secret.png' is no name below photos: it may not be absolute and not go up with '..'
    """
    path = Path(name)
    if path.is_absolute() or path.drive or ".." in path.parts or "\0" in name:
        raise ValueError(
            f"{shown(name)!r} is no name below {shown(root)}: it may not be absolute and not go up with '..'"
        )
    return root / path
