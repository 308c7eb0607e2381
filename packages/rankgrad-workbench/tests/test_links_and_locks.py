"""Folders of somebody else: a link in them is refused or replaced; one process at a time uses them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rankgrad_workbench import files
from rankgrad_workbench.files import folders
from rankgrad_workbench.files.folders import HOLDER, LOCK, LinkError, LockedError, lock


@pytest.fixture
def valued(tmp_path: Path) -> Path:
    """A folder that links lead to, outside of the one that is worked in."""
    folder = tmp_path / "valued"
    folder.mkdir()
    (folder / "rc").write_text("rc")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_replaced_as_a_whole_takes_the_place_of_a_link(tmp_path, valued):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    for link in ("a.txt", files.temporary("a.txt"), HOLDER):
        (root / link).symlink_to(valued / "rc")
    files.write_text(root / "a.txt", "mine")
    with lock(root, "this"):
        assert (root / HOLDER).is_file() and not (root / HOLDER).is_symlink()
    assert content(valued) == before and content(root) == {"a.txt": b"mine"}


def test_leftovers_that_are_links_are_removed_and_not_followed(tmp_path, valued):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    (root / ".a.txt.4711.tmp").symlink_to(valued / "rc")
    (root / ".b.txt.4711.tmp").symlink_to(valued)
    files.remove_leftovers(root)
    assert content(valued) == before and not content(root)


@pytest.mark.parametrize("target", ["rc", "new"])
def test_a_lock_that_is_a_link_is_not_taken(tmp_path, valued, target):
    before, root = content(valued), tmp_path / "received"
    root.mkdir()
    (root / LOCK).symlink_to(valued / target)
    with pytest.raises(LinkError, match=target), lock(root, "this"):
        pass
    assert content(valued) == before


def test_the_path_that_the_user_names_may_hold_links(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    files.write_text(tmp_path / "runs" / "a.txt", "mine")
    with lock(tmp_path / "runs", "this"):
        pass
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["a.txt"]


def test_a_link_is_found_at_any_depth(tmp_path, valued):
    folders.refuse_links(tmp_path / "nothing")
    (tmp_path / "logs" / "tensorboard").mkdir(parents=True)
    folders.refuse_links(tmp_path / "logs")
    for name in ("tensorboard/events", "more"):
        (tmp_path / "logs" / name).symlink_to(valued / "rc" if name != "more" else valued)
        with pytest.raises(LinkError, match=f"{name} is a link to {valued}"):
            folders.refuse_links(tmp_path / "logs")
        (tmp_path / "logs" / name).unlink()


# ------------------------------------------------------------------------------------------------------------ locks


def test_a_lock_whose_file_was_removed_after_it_was_opened_is_not_held(tmp_path, monkeypatch):
    """Who lets go of a lock removes its file. Another process may have opened that file, and a third one makes anew."""
    real = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if how & fcntl.LOCK_EX and (tmp_path / LOCK).read_bytes() == b"first":
            (tmp_path / LOCK).unlink()  # who had it lets go of it just now
            (tmp_path / LOCK).write_bytes(b"third")
        real(handle, how)

    (tmp_path / LOCK).write_bytes(b"first")
    monkeypatch.setattr(fcntl, "flock", flock)
    with lock(tmp_path, "this"):
        monkeypatch.undo()
        found = os.open(tmp_path / LOCK, os.O_RDWR)
        with pytest.raises(BlockingIOError):
            real(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(found)


def test_of_many_who_want_a_folder_one_at_a_time_has_it(tmp_path, monkeypatch):
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


def test_a_lock_ends_with_its_holder_though_a_process_that_was_forked_has_its_file(tmp_path):
    with folders.alone(tmp_path / "a.lock"):
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
    try:
        with folders.alone(tmp_path / "a.lock"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


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
