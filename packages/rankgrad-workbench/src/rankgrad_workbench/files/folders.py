"""Folders that one process at a time uses, and that hold no link through which a command would write.

The path up to a folder belongs to the user and may contain links. A link inside a folder that somebody else has made
may lead out of it, so a command looks for links before it begins to write.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from . import read_json, write_text

LOCK, HOLDER = ".lock", ".lock-holder.json"
SOON = 0.2  # seconds to wait for a process that lets go of its lock right now
POSIX = (
    "needs a POSIX system such as Linux or macOS, because it locks its folders (fcntl); this one is {}. "
    "Losses, metrics, evaluation and exact search of rankgrad work here too"
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


def refuse_links(*paths: Path) -> None:
    """Raise if a path is a link, or a folder with a link in it.

    Raises:
        LinkError: naming the first link.
    """
    for path in paths:
        below = (Path(where, name) for where, folders, files in os.walk(path) for name in (*folders, *files))
        for each in (path, *below):
            if each.is_symlink():
                raise LinkError(each)


class LockedError(ValueError):
    """Another process uses a folder; the message names it."""


@contextmanager
def lock(folder: Path, what: str, *, wait: float = 0.0) -> Iterator[None]:
    """Lock a folder for this process. The system releases the lock when the process ends, for any reason.

    It is a lock of the file system (flock). It works between machines if the file system supports this.

    Args:
        folder: an existing folder.
        what: noun for the message: "this run", "this comparison".
        wait: seconds to wait for the lock of another process.

    Raises:
        LinkError: the file of the lock is a link.
        LockedError: another process has the lock; the message has its id, its machine and its start time.
        OSError: the system or the file system has no locks.
    """
    refuse_links(folder / LOCK)
    with _locked(folder / LOCK, what, max(wait, SOON)):
        try:
            who = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            write_text(folder / HOLDER, json.dumps(who))
            yield
        finally:
            for name in (HOLDER, LOCK):  # before the lock is released: whoever waits sees this, and makes a new file
                (folder / name).unlink(missing_ok=True)


def alone(path: Path) -> AbstractContextManager[None]:
    """Context with the lock of a file, for which it waits. The file stays. The lock ends with the process."""
    return _locked(path, f"writing {path}", -1)


@contextmanager
def _locked(path: Path, what: str, wait: float) -> Iterator[None]:
    """Context with the lock of a file, for which it waits some seconds."""
    require_posix(what)
    from filelock import FileLock, Timeout  # here, since the library needs numpy and torch alone

    held = FileLock(path, timeout=wait)
    try:
        held.acquire()
    except Timeout:
        holder = _holder(path.with_name(HOLDER))
        raise LockedError(f"{what} is in use: {path.parent} is locked by {holder}. Wait for it, or stop it") from None
    except (NotImplementedError, OSError) as error:
        raise OSError(
            f"{path.parent} cannot be locked ({getattr(error, 'strerror', error)}): its file system has no locks, or "
            "they are disabled. Choose a folder on another disk, or mount it with locks (NFS: without nolock)"
        ) from None
    try:
        yield
    finally:
        held.release()


def _holder(path: Path) -> str:
    try:
        who = read_json(path, "pid", "host", "since")
    except (OSError, ValueError):  # the file is incomplete or damaged
        return "another process"
    return f"process {who['pid']} on {who['host']} since {who['since']}"
