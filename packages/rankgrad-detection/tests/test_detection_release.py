"""What is published of this package: the version of the library, an entry point for all that it adds, all its files."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import rankgrad
from rankgrad.common import extras
from rankgrad.common.plugins import Plugin
from rankgrad_detection._version import __version__
from rankgrad_detection.task import ROW

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

HOME = Path(__file__).parents[1]
PACKAGE = HOME / "src" / "rankgrad_detection"
PROJECT: dict[str, Any] = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]
ENTRIES: dict[str, dict[str, str]] = PROJECT["entry-points"]


def test_the_version_and_the_version_that_is_required_are_those_of_the_library():
    assert __version__ == rankgrad.__version__
    assert PROJECT["dependencies"] == [f"rankgrad[train]=={rankgrad.__version__}"]


def test_every_entry_point_can_be_loaded_and_the_library_knows_its_name_for_its_hint():
    added = {kind: tuple(ENTRIES[f"rankgrad.{kind}s"]) for kind in ("command", "task")}
    assert added == extras.DETECTION
    for group, entries in ENTRIES.items():
        for name, value in entries.items():
            plugin = Plugin(group.removeprefix("rankgrad."), name, value, PROJECT["name"], __version__)
            if plugin.group == "configs":
                assert plugin.folder() == PACKAGE / "configs"
            else:
                assert plugin.load() is ROW if plugin.group == "tasks" else callable(plugin.load().run)


def test_the_row_and_the_command_are_imported_without_torch():
    code = "import sys, rankgrad_detection.task, rankgrad_detection.command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_page_of_the_index_has_whole_addresses_and_the_package_its_licence():
    links = re.findall(r"\]\(([^)\s]+)\)", (HOME / "README.md").read_text("utf-8"))
    assert links and all(link.startswith("https://") for link in links)
    assert set(PROJECT["urls"]) >= {"Repository", "Documentation"}
    assert (HOME / "LICENSE").read_text("utf-8") == (HOME.parents[1] / "LICENSE").read_text("utf-8")


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=HOME, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs git and a clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (HOME / name).is_file() and not name.startswith("tests/"):
            (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "tree" / name).write_bytes((HOME / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "wheel", "--no-deps"]
    words = [*pip, "--no-build-isolation", "-w", str(tmp_path), str(tmp_path / "tree")]
    subprocess.run(words, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert held == {path.relative_to(HOME / "src").as_posix() for path in files}
