"""Folders that may come from an untrusted source. No link in them is followed, and a lock admits one process at a time.

A file that is written, appended to, locked or removed in such a folder is opened relative to a descriptor of the
folder, name by name. No name may be a link, because a link may lead out of the folder. The path up to the folder
belongs to the user and may contain links.
"""

from __future__ import annotations

import errno
import json
import math
import os
import platform
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LOCK, HOLDER = ".lock", ".lock-holder.json"
POLL = 0.05  # seconds between two attempts to get a lock that another process has
POSIX = (
    "needs a POSIX system such as Linux or macOS, because it locks its folders (fcntl) and writes below their "
    "descriptors; this one is {}. Losses, metrics, evaluation and exact search of rankgrad work here too"
)


def require_posix(what: str) -> None:
    """Raise if this system has no locks of files, before work that needs them.

    Args:
        what: this work, for the message.

    Raises:
        OSError: it has none.
    """
    try:
        import fcntl  # noqa: F401 - here, so that what needs no lock can be imported on every system
    except ModuleNotFoundError:
        raise OSError(f"{what} {POSIX.format(platform.system() or os.name)}") from None


class LinkError(ValueError):
    """A path to be written is a link. The message names its target."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is a link to {os.readlink(path)}. rankgrad does not write through a link, because it may lead out "
            "of its folder. Delete the link, or replace it by a copy of its target"
        )


def regular(handle: int, path: Path, *, folders: bool = False) -> int:
    """The descriptor of a file that is neither a pipe nor a device. A command could wait for these forever.

    Args:
        handle: the descriptor. It must not block. It is closed if an error is raised.
        path: its path, for the message.
        folders: folders are allowed, too.

    Raises:
        OSError: it is a pipe or a device, or a folder that is not allowed.
    """
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or (folders and stat.S_ISDIR(mode)):
        return handle
    os.close(handle)
    raise OSError(f"{path} is a folder, a pipe or a device, and must be a file")


@dataclass(frozen=True)
class Folder:
    """An open folder. Its methods follow no link. See `opened_folder`.

    Attributes:
        path: of the folder.
        handle: the descriptor of the folder.
    """

    path: Path
    handle: int

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file or folder in this folder.

        Raises:
            LinkError: the name is a link.
            OSError: it is a pipe or a device.
        """
        try:
            handle = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=self.handle)
        except OSError as error:
            if (self.path / name).is_symlink():  # systems differ in their error for a link
                raise LinkError(self.path / name) from None
            error.filename = str(self.path / name)
            raise
        return regular(handle, self.path / name, folders=True)

    def file(self, name: str, mode: str, flags: int = 0) -> IO[Any]:
        """Open a file in this folder like the built-in `open`; text is UTF-8.

        Args:
            name: of the file.
            mode: as for the built-in `open`.
            flags: further flags of `os.open`.
        """
        encoding, newline = (None, None) if "b" in mode else ("utf-8", "")

        def opener(_: str, wanted: int) -> int:
            return self.open(name, wanted | flags)

        return open(self.path / name, mode, encoding=encoding, newline=newline, opener=opener)

    def make(self, name: str) -> None:
        """Make a folder in this folder, if it does not exist."""
        with suppress(FileExistsError):
            try:
                os.mkdir(name, dir_fd=self.handle)
            except OSError as error:
                error.filename = str(self.path / name)
                raise

    def replace(self, name: str, other: str) -> None:
        """Rename a file. An existing file or link with the other name is replaced."""
        os.replace(name, other, src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def remove(self, name: str) -> None:
        """Remove a file or a link, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.handle)

    def names(self) -> list[str]:
        """Names of the entries of this folder."""
        return os.listdir(self.handle)

    def stat(self, name: str) -> os.stat_result:
        """Status of a file; of a link itself, not of its target."""
        return os.stat(name, dir_fd=self.handle, follow_symlinks=False)

    def has(self, name: str, handle: int) -> bool:
        """Whether a name still belongs to this open file."""
        try:
            return os.path.samestat(self.stat(name), os.fstat(handle))
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        """Write the names of this folder to the disk."""
        os.fsync(self.handle)


@contextmanager
def opened_folder(path: Path, root: Path | None = None, *, make: bool = False) -> Iterator[Folder]:
    """Open a folder for writing in it.

    Args:
        path: of the folder.
        root: a parent folder; no name of the path below it may be a link. None: the folder itself.
        make: make the folder and its parents, if they do not exist.

    Raises:
        LinkError: a folder below `root` is a link.
        OSError: also where the system has no descriptors of folders.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> with opened_folder(root / "a", root, make=True) as folder, folder.file("b.txt", "a") as file:
    ...     _ = file.write("text")
    >>> (root / "a" / "b.txt").read_text()
    'text'
    """
    root = path if root is None else root
    if not hasattr(os, "O_DIRECTORY"):
        require_posix(f"writing in {root}")
    if make:
        root.mkdir(parents=True, exist_ok=True)
    folder = Folder(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY))
    try:
        for name in path.relative_to(root).parts:
            if make:
                folder.make(name)
            inner = Folder(folder.path / name, folder.open(name, os.O_RDONLY | os.O_DIRECTORY))
            os.close(folder.handle)
            folder = inner
        yield folder
    finally:
        os.close(folder.handle)


@contextmanager
def naming(path: Path, temporary: str = "") -> Iterator[None]:
    """Context in which system errors name this file. For a full disk, the system itself names no file.

    Args:
        path: of the file.
        temporary: its name until it is complete.
    """
    try:
        yield
    except OSError as error:
        first: BaseException | None = error
        while isinstance(first, OSError):  # this error, and the earlier ones that led to it
            names = (str(first.filename), str(first.filename2))  # filename2: a library may have renamed its own file
            if first.errno is not None and (first.filename is None or (temporary and temporary in "".join(names))):
                first.filename = str(path)
                if first.filename2 is not None:
                    del first.filename2
            first = first.__context__
        raise


def make_folder(path: Path, root: Path) -> None:
    """Make a folder below `root`, and those between them, if they do not exist.

    Raises:
        LinkError: one of them is a link.
    """
    with opened_folder(path, root, make=True):
        pass


def remove_folder(path: Path, root: Path) -> None:
    """Remove a folder below `root` with its content, if it exists. Links in it are not followed.

    Raises:
        LinkError: the folder, or one between it and `root`, is a link.
    """
    with suppress(FileNotFoundError):
        with opened_folder(path, root):
            pass
        shutil.rmtree(path)  # follows no link either


def refuse_links(path: Path) -> None:
    """Raise if a path is a link, or a folder with a link in it. Use it before a library opens files there by itself.

    Raises:
        LinkError: naming the first link.
    """
    below = (Path(where, name) for where, folders, files in os.walk(path) for name in (*folders, *files))
    for each in (path, *below):
        if each.is_symlink():
            raise LinkError(each)


class LockedError(ValueError):
    """Another process uses a folder; the message names it."""


@contextmanager
def lock(folder: Path, what: str, *, wait: float = 0.0, root: Path | None = None) -> Iterator[None]:
    """Lock a folder for this process. The system releases the lock when the process ends, for any reason.

    It is a lock of the file system (flock). It works between machines if the file system supports this.

    Args:
        folder: an existing folder.
        what: noun for the message: "this run", "this comparison".
        wait: seconds to wait for the lock of another process.
        root: see `opened_folder`.

    Raises:
        LockedError: another process has the lock; the message has its id, its machine and its start time.
        OSError: the system or the file system has no locks.
    """
    require_posix(what)
    with opened_folder(folder, root) as opened, _locked(opened, LOCK, wait) as taken:
        if not taken:
            raise LockedError(f"{what} is in use: {folder} is locked by {_holder(opened)}. Wait for it, or stop it")
        try:
            opened.remove(HOLDER)
            who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            with naming(folder / HOLDER), opened.file(HOLDER, "w", os.O_EXCL) as file:
                json.dump(who, file)
            yield
        finally:
            for name in (HOLDER, LOCK):  # removed before the lock is released: waiting processes then open it again
                opened.remove(name)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Context with the lock of a file, for which it waits. The file stays. The lock ends with the process."""
    require_posix(f"writing {path}")
    with opened_folder(path.parent) as folder, _locked(folder, path.name, math.inf):
        yield


@contextmanager
def _locked(folder: Folder, name: str, wait: float) -> Iterator[bool]:
    """Context with the lock of a file: True; or False if another process has it for longer than `wait` seconds."""
    end = time.monotonic() + wait
    while True:
        handle = folder.open(name, os.O_RDWR | os.O_CREAT)
        try:
            taken = _flock(handle, folder.path)
            # the earlier owner may have removed this file after we opened it. Other processes would then lock a new
            # file
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
    """Lock an open file; False if another process has locked it."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise OSError(
            f"{folder} cannot be locked ({error.strerror}): its file system has no locks, or they are disabled. "
            "Choose a folder on another disk, or mount it with locks (NFS: without nolock)"
        ) from None
    return True


def _unlock(handle: int) -> None:
    """Release the lock of a file, and close it. Closing alone is not enough if a forked process has the descriptor."""
    import fcntl

    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _holder(folder: Folder) -> str:
    try:
        with folder.file(HOLDER, "r") as file:
            who = json.load(file)
        return f"process {who['pid']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # the file is incomplete or damaged
        return "another process"
