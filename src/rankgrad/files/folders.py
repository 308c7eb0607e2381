"""Folders that may have come from somebody else: no link in them is followed, and one process at a time uses them.

What is written, appended to, locked or removed in such a folder is looked up beneath a descriptor of the folder, name
by name, and no name may be a link: a link may lead out of the folder. The path up to the folder is the user's own, and
may hold links.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LOCK, HOLDER = ".lock", ".lock-holder.json"
POLL = 0.05  # seconds between two tries for a lock that another process has
# Whether the system looks up names beneath a descriptor, as all but Windows do. Where it does not, each name is looked
# at before it is used: a process that puts a link there in between is not noticed.
BENEATH = {os.open, os.mkdir, os.rename, os.stat, os.unlink} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


class LinkError(ValueError):
    """A link stands where something is to be written. The message says where the link leads."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is a link to {os.readlink(path)}, and nothing is written through a link, which may lead out of "
            "its folder. Delete it, or put a copy of what it leads to in its place"
        )


@dataclass(frozen=True)
class Folder:
    """A folder that is open: what is done by its methods follows no link. See `opened_folder`.

    Attributes:
        path: of the folder.
        handle: the descriptor that names are looked up beneath; None where the system has no such thing.
    """

    path: Path
    handle: int | None

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file or folder in this folder.

        Raises:
            LinkError: it is a link.
        """
        if self.handle is None:
            self._refuse(name)
        try:
            return os.open(self._at(name), flags | getattr(os, "O_NOFOLLOW", 0), 0o666, dir_fd=self.handle)
        except OSError as error:
            self._refuse(name)  # each system has another error for a link
            error.filename = str(self.path / name)
            raise

    def file(self, name: str, mode: str, flags: int = 0) -> IO[Any]:
        """A file in this folder, as the built-in `open` gives it; texts are UTF-8.

        Args:
            name: of the file.
            mode: of the built-in `open`.
            flags: further ones of `os.open`.
        """
        encoding, newline = (None, None) if "b" in mode else ("utf-8", "")

        def opener(_: str, wanted: int) -> int:
            return self.open(name, wanted | flags)

        return open(self.path / name, mode, encoding=encoding, newline=newline, opener=opener)

    def make(self, name: str) -> None:
        """Make a folder in this folder, if it is not there."""
        with suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self.handle)

    def replace(self, name: str, other: str) -> None:
        """Give a file another name. What has that name, be it a link, is no longer there."""
        os.replace(self._at(name), self._at(other), src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self.handle)

    def names(self) -> list[str]:
        """What is in this folder."""
        return os.listdir(self.path if self.handle is None else self.handle)

    def stat(self, name: str) -> os.stat_result:
        """What the system knows of a file, or of a link."""
        return os.stat(self._at(name), dir_fd=self.handle, follow_symlinks=False)

    def has(self, name: str, handle: int) -> bool:
        """Whether a name still is that of an open file."""
        try:
            return os.path.samestat(self.stat(name), os.fstat(handle))
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        """Bring the names in this folder to the disk; where folders cannot be opened, the system does it itself."""
        if self.handle is not None:
            os.fsync(self.handle)

    def _at(self, name: str) -> str:
        return str(self.path / name) if self.handle is None else name

    def _refuse(self, name: str) -> None:
        if (self.path / name).is_symlink():
            raise LinkError(self.path / name)


@contextmanager
def opened_folder(path: Path, root: Path | None = None, *, make: bool = False) -> Iterator[Folder]:
    """Open a folder, to write in it.

    Args:
        path: of the folder.
        root: a folder above it, from which on no name in the path may be a link; None: the folder itself.
        make: make the folder, and those above it, if they are not there.

    Raises:
        LinkError: a folder below `root` is a link.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> with opened_folder(root / "a", root, make=True) as folder, folder.file("b.txt", "a") as file:
    ...     _ = file.write("text")
    >>> (root / "a" / "b.txt").read_text()
    'text'
    """
    root = path if root is None else root
    if make:
        root.mkdir(parents=True, exist_ok=True)
    folder = Folder(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY) if BENEATH else None)
    try:
        for name in path.relative_to(root).parts:
            if make:
                folder.make(name)
            inner = Folder(folder.path / name, folder.open(name, os.O_RDONLY | os.O_DIRECTORY) if BENEATH else None)
            if folder.handle is None:
                folder._refuse(name)
            else:
                os.close(folder.handle)
            folder = inner
        yield folder
    finally:
        if folder.handle is not None:
            os.close(folder.handle)


@contextmanager
def naming(path: Path, temporary: str = "") -> Iterator[None]:
    """Errors of the system in here name a file: of a full disk the system names none.

    Args:
        path: of the file.
        temporary: the name that it has until it is whole.
    """
    try:
        yield
    except OSError as error:
        first: BaseException | None = error
        while isinstance(first, OSError):  # what went wrong first, and what on the way out
            names = (str(first.filename), str(first.filename2))  # a library may have moved a file of its own there
            if first.errno is not None and (first.filename is None or (temporary and temporary in "".join(names))):
                first.filename = str(path)
                if first.filename2 is not None:
                    del first.filename2
            first = first.__context__
        raise


def make_folder(path: Path, root: Path) -> None:
    """Make a folder below another one, and those between them, if they are not there.

    Raises:
        LinkError: one of them is a link.
    """
    with opened_folder(path, root, make=True):
        pass


def remove_folder(path: Path, root: Path) -> None:
    """Remove a folder below another one, if it is there, with all that is in it. Links in it are not followed.

    Raises:
        LinkError: the folder, or one between them, is a link.
    """
    with suppress(FileNotFoundError):
        with opened_folder(path, root):
            pass
        shutil.rmtree(path)  # which follows no link either


def refuse_links(path: Path) -> None:
    """Raise if a path is a link, or a folder that holds one: a library that opens files by itself is to write there.

    Raises:
        LinkError: with the first link that was found.
    """
    below = (Path(where, name) for where, folders, files in os.walk(path) for name in (*folders, *files))
    for each in (path, *below):
        if each.is_symlink():
            raise LinkError(each)


class LockedError(ValueError):
    """Another process is using a folder; the message says which."""


@contextmanager
def lock(folder: Path, what: str, *, wait: float = 0.0, root: Path | None = None) -> Iterator[None]:
    """Hold a folder for this process alone. The system lets go of it when the process ends, however that happens.

    It is a lock of the file system (flock): it holds between machines if that file system passes it on.

    Args:
        folder: which exists.
        what: it is, for the message: "this run", "this comparison".
        wait: seconds for another process to let go of it.
        root: see `opened_folder`.

    Raises:
        LockedError: another process holds it; the message says its number, its machine and since when.
        OSError: the file system has no locks.
    """
    with opened_folder(folder, root) as opened, _locked(opened, LOCK, wait) as taken:
        if not taken:
            raise LockedError(f"{what} is in use: {folder} is held by {_holder(opened)}. Wait for it, or stop it")
        try:
            opened.remove(HOLDER)
            who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            with naming(folder / HOLDER), opened.file(HOLDER, "w", os.O_EXCL) as file:
                json.dump(who, file)
            yield
        finally:
            for name in (HOLDER, LOCK):  # while it is held: who has opened the file meanwhile looks again
                opened.remove(name)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait for a lock, a file that stays, and hold it. The system lets go of it when the process ends."""
    with opened_folder(path.parent) as folder, _locked(folder, path.name, math.inf):
        yield


@contextmanager
def _locked(folder: Folder, name: str, wait: float) -> Iterator[bool]:
    """Hold the lock of a file; False: another process has had it for so many seconds."""
    end = time.monotonic() + wait
    while True:
        handle = folder.open(name, os.O_RDWR | os.O_CREAT)
        try:
            taken = _flock(handle, folder.path)
            # who had the lock before may have removed this file since it was opened: others would find another one
            if taken and folder.has(name, handle):
                yield True
                return
        finally:
            _unlock(handle)
        if not taken and time.monotonic() >= end:
            yield False
            return
        time.sleep(POLL)


def _flock(handle: int, folder: Path) -> bool:
    """Lock an open file, unless another process has done so."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ModuleNotFoundError:
        raise OSError(f"{folder} cannot be locked: this system has no locks of files (flock)") from None
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise OSError(
            f"{folder} cannot be locked ({error.strerror}): its file system has no locks, or they are switched off. "
            "Choose a folder on another disk, or have it mounted with locks (NFS: without nolock)"
        ) from None
    return True


def _unlock(handle: int) -> None:
    """Close a file, and let go of its lock: a process that was forked meanwhile has the descriptor, too."""
    with suppress(ModuleNotFoundError, OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _holder(folder: Folder) -> str:
    try:
        with folder.file(HOLDER, "r") as file:
            who = json.load(file)
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # it is just being written, or damaged
        return "another process"
