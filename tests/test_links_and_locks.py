"""Folders of somebody else: no link in them is followed; one process at a time uses them."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rankgrad.common import files
from rankgrad.common.files import folders
from rankgrad.common.files.folders import HOLDER, LOCK, LinkError, LockedError, lock, opened_folder


@pytest.fixture
def valued(tmp_path: Path) -> Path:
    """A folder that links lead to, outside of the one that is worked in."""
    folder = tmp_path / "valued"
    folder.mkdir()
    for name in ("rc", ".a.txt.4711.tmp"):
        (folder / name).write_text(name)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def add(path: Path, root: Path) -> None:
    with opened_folder(path.parent, root) as folder, folder.file(path.name, "a") as file:
        file.write("evil")


def hold(path: Path, root: Path) -> None:
    with lock(path.parent, "this", root=root):
        pass


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "add": add,
    "write": lambda path, root: files.write_text(path, "evil", root),
    "write an npz": lambda path, root: files.write_npz(path, {"a": np.zeros(1)}, root),
    "make": lambda path, root: folders.make_folder(path, root),
    "remove": lambda path, root: folders.remove_folder(path, root),
    "remove leftovers": lambda path, root: files.remove_leftovers(path.parent, root=root),
    "lock": hold,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_folder_that_is_a_link_is_not_entered(tmp_path, valued, write):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    (root / "logs").symlink_to(valued)
    with pytest.raises(LinkError, match=f"logs is a link to {valued}"):
        write(root / "logs" / "rc", root)
    assert content(valued) == before


@pytest.mark.parametrize("name", ["rc", "new"])
@pytest.mark.parametrize("write", [add, WRITERS["make"], WRITERS["remove"]], ids=["add", "make", "remove"])
def test_a_name_that_is_a_link_is_not_followed(tmp_path, valued, write, name):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    (root / "log.txt").symlink_to(valued / name)
    with pytest.raises(LinkError, match="log.txt is a link"):
        write(root / "log.txt", root)
    assert content(valued) == before


def test_what_is_replaced_as_a_whole_takes_the_place_of_a_link(tmp_path, valued):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    for link in ("a.txt", files.temporary("a.txt"), HOLDER):
        (root / link).symlink_to(valued / "rc")
    files.write_text(root / "a.txt", "mine")
    with lock(root, "this"):
        assert (root / HOLDER).is_file() and not (root / HOLDER).is_symlink()
    assert content(valued) == before and content(root) == {"a.txt": b"mine"}


def test_a_lock_that_is_a_link_is_not_taken(tmp_path, valued):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    (root / LOCK).symlink_to(valued / "rc")
    with pytest.raises(LinkError, match="rc"), lock(root, "this"):
        pass
    assert content(valued) == before


def test_the_path_that_the_user_names_may_hold_links(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    files.write_text(tmp_path / "runs" / "a.txt", "mine")
    folders.make_folder(tmp_path / "runs" / "b", tmp_path / "runs")
    with lock(tmp_path / "runs", "this"):
        pass
    assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["a.txt", "b"]


def test_a_folder_that_cannot_be_made_is_named_with_its_path(tmp_path, monkeypatch):
    def mkdir(name, dir_fd=None):
        raise OSError(errno.EROFS, "Read-only file system", name)

    monkeypatch.setattr("rankgrad.common.files.folders.os.mkdir", mkdir)
    with pytest.raises(OSError) as error, opened_folder(tmp_path / "a", tmp_path, make=True):
        pass
    assert error.value.filename == str(tmp_path / "a")


def test_what_others_write_to_may_hold_no_link_at_any_depth(tmp_path, valued):
    folders.refuse_links(tmp_path / "nothing")
    (tmp_path / "logs" / "tensorboard").mkdir(parents=True)
    folders.refuse_links(tmp_path / "logs")
    (tmp_path / "logs" / "tensorboard" / "events").symlink_to(valued / "rc")
    with pytest.raises(LinkError, match="tensorboard/events is a link"):
        folders.refuse_links(tmp_path / "logs")


def test_a_folder_that_is_swapped_for_a_link_while_it_is_open_is_not_left(tmp_path, valued, monkeypatch):
    before, root = content(valued), tmp_path / "received"
    (root / "logs").mkdir(parents=True)
    with opened_folder(root / "logs", root) as folder:
        (root / "logs").rename(root / "away")
        (root / "logs").symlink_to(valued)
        with folder.file("rc", "w") as file:
            file.write("evil")
        folder.remove(".a.txt.4711.tmp")
    assert content(valued) == before and content(root / "away") == {"rc": b"evil"}


# ------------------------------------------------------------------------------------------------------------ locks


def test_a_lock_whose_file_was_removed_after_it_was_opened_is_not_held(tmp_path, monkeypatch):
    """Who lets go of a lock removes its file. Another process may have opened that file, and a third one makes anew."""
    real = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if (tmp_path / LOCK).read_bytes() == b"first":
            (tmp_path / LOCK).unlink()  # who had it lets go of it just now
            (tmp_path / LOCK).write_bytes(b"third")
        real(handle, how)

    (tmp_path / LOCK).write_bytes(b"first")
    monkeypatch.setattr(fcntl, "flock", flock)
    with lock(tmp_path, "this"):
        found = os.open(tmp_path / LOCK, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            real(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(found)


def test_of_many_who_want_a_folder_one_at_a_time_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "POLL", 0.0)
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with lock(tmp_path, "this", wait=60.0):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1 and not content(tmp_path)


def test_a_lock_ends_with_its_holder_though_a_process_that_was_forked_has_its_file(tmp_path, monkeypatch):
    real, forked = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        if not forked:
            forked.append(os.dup(handle))
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with folders.alone(tmp_path / "a.lock"):
        pass
    with folders.alone(tmp_path / "a.lock"):
        os.close(forked[0])


def test_a_file_system_without_locks_is_named_with_what_to_do(tmp_path, monkeypatch):
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match=f"{tmp_path} cannot be locked .No locks available.*another disk"):
        with lock(tmp_path, "this"):
            pass


def test_a_holder_that_cannot_be_read_is_another_process(tmp_path):
    with lock(tmp_path, "this run"):
        for said in ("", "null", "[" * 10**5, '{"pid": 1}'):
            (tmp_path / HOLDER).write_text(said)
            with pytest.raises(LockedError, match="locked by another process"), lock(tmp_path, "this run"):
                pass
