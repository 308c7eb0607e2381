"""Embedding in parts: cut off and gone on with, by several processes and on two nodes, always the same npz."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forks import forked, wait

from rankgrad_workbench.cli import main
from rankgrad_workbench.files import Pieces, read_npz, write_npz
from rankgrad_workbench.files.folders import LinkError
from rankgrad_workbench.index import embed as parts
from rankgrad_workbench.index.embed import embed_folder
from rankgrad_workbench.models.state_dicts import read_plain


@pytest.fixture(scope="module")
def whole(photos: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one process writes in one go, in batches of three."""
    out = tmp_path_factory.mktemp("whole") / "photos.npz"
    embed_folder(weights, photos, out, batch_size=3)
    return out.read_bytes()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of six of the twenty images."""
    monkeypatch.setattr(parts, "PART", 7)


def die_after(patch: pytest.MonkeyPatch, count: int) -> None:
    """Let a process die when it has written so many parts."""
    real, written = parts.write_npz, []

    def write(path: Path, columns: Any) -> None:
        if len(written) == count:
            raise KeyboardInterrupt
        real(path, columns)
        written.append(path)

    patch.setattr(parts, "write_npz", write)


def test_what_was_cut_off_goes_on_after_the_last_part_that_is_there(
    photos, weights, whole, short, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "photos.npz"
    with monkeypatch.context() as patch:
        die_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            embed_folder(weights, photos, out, batch_size=3)
    folder = tmp_path / "photos.npz.parts"
    assert not out.exists() and sorted(path.name for path in folder.glob("*.npz")) == [
        "part-000000.npz",
        "part-000001.npz",
    ]
    embedded: list[int] = []
    real = parts.embed
    monkeypatch.setattr(parts, "embed", lambda *a, **k: embedded.append(len(a[1])) or real(*a, **k))
    monkeypatch.setattr("rankgrad_workbench.index.embed.look_at", lambda paths: pytest.fail("they were checked before"))
    embed_folder(weights, photos, out, batch_size=3)
    assert embedded == [6, 2] and "continuing: 2 of 4 parts are finished" in capsys.readouterr().err
    assert out.read_bytes() == whole and not folder.exists()


def test_parts_of_other_images_are_refused_and_damaged_ones_named(photos, weights, short, tmp_path, monkeypatch):
    mine, out = Path(shutil.copytree(photos, tmp_path / "mine")), tmp_path / "a.npz"
    with monkeypatch.context() as patch:
        die_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            embed_folder(weights, mine, out, batch_size=3)
    part = tmp_path / "a.npz.parts" / "part-000001.npz"
    held = bytearray(part.read_bytes())
    held[-200] ^= 1
    part.write_bytes(held)
    with pytest.raises(ValueError, match="part-000001.npz is damaged .* delete"):
        embed_folder(weights, mine, out, batch_size=3)
    part.unlink()
    shutil.copy(mine / "class 0" / "0.png", mine / "class 1" / "new.png")
    with pytest.raises(ValueError, match="another names, sizes, times"):
        embed_folder(weights, mine, out, batch_size=3)
    (mine / "class 1" / "new.png").unlink()
    assert embed_folder(weights, mine, out, batch_size=3)[0] == 20  # and the rest of them goes on


@pytest.mark.parametrize("content", ["[]", "1", "[" * 10**5, '{"of": {}}'], ids=["list", "number", "deep", "no plan"])
def test_a_damaged_note_of_parts_is_named_with_what_to_do(photos, weights, tmp_path, content):
    folder = tmp_path / "a.npz.parts"
    folder.mkdir()
    (folder / "of.json").write_text(content)
    with pytest.raises(ValueError, match=rf"{folder / 'of.json'} is damaged.*again"):
        embed_folder(weights, photos, tmp_path / "a.npz", batch_size=3)


def test_a_folder_without_a_readable_image_leaves_no_parts(weights, tmp_path):
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "a" / "0.png").write_text("no image")
    with pytest.raises(ValueError, match="no readable image below .*; 1 files skipped"):
        embed_folder(weights, tmp_path / "set", tmp_path / "a.npz")
    assert [each.name for each in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize("shape", [(5, 8), (6, 8), (6, 8, 1), (6, 9), (6,)])
def test_a_part_that_is_not_of_its_rows_is_named(photos, weights, short, tmp_path, monkeypatch, shape):
    out = tmp_path / "a.npz"
    with monkeypatch.context() as patch:
        die_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            embed_folder(weights, photos, out, batch_size=3)
    kind = np.float64 if shape == (6, 8) else np.float32
    write_npz(tmp_path / "a.npz.parts" / "part-000001.npz", {"embeddings": np.zeros(shape, kind)})
    with pytest.raises(ValueError, match="part-000001.npz is damaged.* delete"):
        embed_folder(weights, photos, out, batch_size=3)
    assert not out.exists()


@pytest.mark.parametrize("name", ["", ".lock", "of.json", "part-000001.npz"])
def test_a_folder_of_parts_with_a_link_that_would_be_written_through_is_refused(photos, weights, tmp_path, name):
    valued, folder = tmp_path / "valued", tmp_path / "a.npz.parts"
    valued.mkdir()
    (valued / "part-000000.npz").write_text("mine")
    if name:
        folder.mkdir()
    (folder / name).symlink_to(valued / "part-000000.npz" if name else valued)
    with pytest.raises(LinkError, match=f"{folder / name} is a link"):
        embed_folder(weights, photos, tmp_path / "a.npz")
    assert {path.name: path.read_text() for path in valued.iterdir()} == {"part-000000.npz": "mine"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def as_process(rank: int, processes: int, port: int, *words: object) -> int:
    """A command as one of several processes."""
    os.environ.update({"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{processes}"})
    os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": f"{port}"})
    return main([str(word) for word in words])


def test_processes_embed_and_evaluate_as_one_to_the_byte(photos, weights, whole, tmp_path):
    out, plain = tmp_path / "photos.npz", ["--bootstrap", "20", "--clusters", "none", "-o"]
    (tmp_path / "one.npz").write_bytes(whole)
    assert main(["evaluate", str(tmp_path / "one.npz"), *plain, str(tmp_path / "one.json")]) == 0
    commands: list[list[object]] = [
        ["embed", weights, photos, "-o", out, "--batch-size", 3],
        ["evaluate", out, *plain, tmp_path / "two.json"],
    ]
    logs = [tmp_path / f"log{rank}" for rank in range(2)]
    for words in commands:
        port = free_port()
        running = [forked(partial(as_process, rank, 2, port, *words), logs[rank]) for rank in range(2)]
        told = [wait(process) for process in running]
        assert told == [0, 0], logs[0].read_text()
        assert "wrote" in logs[0].read_text() and "wrote" not in logs[1].read_text()  # one speaks
    assert out.read_bytes() == whole
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "one.json").read_bytes()


@pytest.mark.slow
def test_two_nodes_of_torchrun_write_what_one_process_writes(photos, weights, whole, tmp_path):
    port = free_port()
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    words += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "-m", "rankgrad", "embed"]
    words += [str(weights), str(photos), "-o", str(tmp_path / "photos.npz"), "--batch-size", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    nodes = [subprocess.Popen(words, stdout=-1, stderr=-1, text=True, env=environment) for _ in range(2)]
    try:
        told = [node.communicate(timeout=900) for node in nodes]
    finally:
        for node in nodes:
            node.terminate()  # ends its processes, too
    assert [node.returncode for node in nodes] == [0, 0], told
    assert sorted("wrote" in said for said, _ in told) == [False, True]
    assert (tmp_path / "photos.npz").read_bytes() == whole


@pytest.mark.slow
def test_a_process_that_is_killed_loses_one_part(photos, weights, whole, tmp_path):
    out, rare = tmp_path / "photos.npz", tmp_path / "rare.py"
    rare.write_text(
        "import os, signal, sys\n"
        "from rankgrad_workbench.index import embed as parts\n"
        "from rankgrad_workbench.cli import main\n"
        "parts.PART, real = 7, parts.embed\n"
        "def embed(*a, **k):\n"
        "    if 'part 3' in k['progress'] and 'die' in os.environ: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*a, **k)\n"
        "parts.embed = embed\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = [sys.executable, str(rare), "embed", str(weights), str(photos), "-o", str(out), "--batch-size", "3"]
    killed = subprocess.run(words, env={**os.environ, "die": "1"}, capture_output=True, check=False)
    assert killed.returncode == -9 and len(list((tmp_path / "photos.npz.parts").glob("part-*.npz"))) == 2
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 of 4 parts are finished" in done.stderr and out.read_bytes() == whole


# ------------------------------------------------------------------------------------------------------------- the npz


def test_an_npz_of_a_machine_with_the_other_order_of_bytes_is_read(tmp_path):
    rows = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    np.savez(tmp_path / "a.npz", embeddings=rows.astype(">f4"), labels=np.arange(10).astype(">i8"))
    found = read_npz(tmp_path / "a.npz")
    assert all(column.dtype.isnative for column in found.values())
    assert (found["embeddings"] == rows).all() and (found["labels"] == np.arange(10)).all()


def test_an_npz_in_pieces_is_that_of_numpy(tmp_path):
    rows = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    columns = {"names": np.array(["a", "bé"]), "embeddings": rows, "root": "/photos", "invert": False}
    np.savez(tmp_path / "numpy.npz", **columns)
    write_npz(tmp_path / "ours.npz", {**columns, "embeddings": Pieces(rows.shape, rows.dtype, [rows[:7], rows[7:]])})
    assert (tmp_path / "ours.npz").read_bytes() == (tmp_path / "numpy.npz").read_bytes()
    found = read_npz(tmp_path / "ours.npz")
    assert (found["embeddings"] == rows).all() and found["names"].tolist() == ["a", "bé"]


def test_a_damaged_end_of_an_archive_is_said_in_one_line(tmp_path):
    # The record before the end says that the archive has a second part on another disk.
    np.savez(tmp_path / "a.npz", embeddings=np.zeros((2, 3)))
    content = (tmp_path / "a.npz").read_bytes()
    end = content.rindex(b"PK\5\6")
    there = content[:end] + b"PK\6\7" + struct.pack("<LQL", 0, 0, 2) + content[end:]
    (tmp_path / "a.npz").write_bytes(there)
    for read in (read_npz, read_plain):
        with pytest.raises(ValueError, match=r"a\.npz.* damaged"):
            read(tmp_path / "a.npz")
