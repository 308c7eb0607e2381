"""What a process that was killed while it wrote a file leaves is removed by the next one that writes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from rankgrad_workbench import files

KILLED = """
import os, signal, sys
from pathlib import Path
from rankgrad_workbench.files import atomic_write
with atomic_write(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_and_what_others_have_is_not(tmp_path):
    out = tmp_path / "p.parquet"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    (left,) = tmp_path.iterdir()
    assert killed.returncode == -signal.SIGKILL and left.read_bytes() == b"half"
    mine = f".p.parquet.{left.name.split('.')[3]}.1.tmp"  # process 1 lives
    others = [mine, ".p.parquet.00000000.999999999.tmp", ".p.parquet.999999999.tmp", ".q.tmp"]
    for name in others:
        Path(tmp_path, name).touch()
    files.write_text(out, "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "p.parquet"])


KILLED_FOLDER = KILLED.replace("atomic_write", "temporary_folder").replace("as file", "as folder")
KILLED_FOLDER = KILLED_FOLDER.replace('file.write(b"half")', '(folder / "half").touch()').replace(
    "    file.flush()\n", ""
)


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next_one(tmp_path):
    out = tmp_path / "model"
    subprocess.run([sys.executable, "-c", KILLED_FOLDER, str(out)], check=False)
    (left,) = tmp_path.iterdir()
    assert [path.name for path in left.iterdir()] == ["half"]
    other = Path(tmp_path, ".model.00000000.999999999.tmp")
    other.mkdir()
    with files.temporary_folder(out) as folder:
        assert {folder, other} == {*tmp_path.iterdir()} and not [*folder.iterdir()]
    assert [*tmp_path.iterdir()] == [other]
