"""Files written as a whole or not at all, folders with one user at a time, archives that are what they were."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK, HOLDER = ".lock", ".lock-holder.json"
_TEMPORARY = re.compile(r"^\..+\.\d+\.tmp(\.\w+)?$")


@contextmanager
def atomic_write(path: Path, ending: str = "") -> Iterator[Path]:
    """Another path beside `path` to write to, which then takes its place: a reader finds the old file or the new one.

    The content and the new name are on the disk when this ends, so that a later file never outlives an earlier one in
    a power cut. On an error, Ctrl-C and a full disk included, what was there stays and nothing is left beside it. A
    process that is killed leaves its temporary file; see `remove_leftovers`.

    Args:
        path: the file; it need not exist, its folder must.
        ending: of the other path, for writers that go by it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with atomic_write(folder / "a.txt") as temporary:
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
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8, in this way."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder to the disk; where folders cannot be opened (Windows), the system does it itself."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what `atomic_write` left in a folder when its process was killed. Hold the folder's lock: see `lock`."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _TEMPORARY.match(path.name) and path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    return found


class LockedError(ValueError):
    """Another process is using a folder; the message says which."""


@contextmanager
def lock(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for this process alone. The system lets go of it when the process ends, however that happens.

    Args:
        folder: which exists.
        what: it is, for the message: "this run", "this comparison".

    Raises:
        LockedError: another process holds it; the message says its number, its machine and since when.
    """
    from filelock import FileLock, Timeout

    held = FileLock(folder / LOCK, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise LockedError(f"{what} is in use: {folder} is held by {_holder(folder)}. Wait for it, or stop it") from None
    try:
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        (folder / HOLDER).write_text(json.dumps(who), encoding="utf-8")
        yield
    finally:
        for name in (HOLDER, LOCK):  # while it is held: nobody else has it open for more than a moment
            (folder / name).unlink(missing_ok=True)
        held.release()


def _holder(folder: Path) -> str:
    try:
        who = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is just being written
        return "another process"


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
