"""What is published of this package: the version of the library, an entry point for all that it adds, all its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from released import Package

from rankgrad_detection._version import __version__
from rankgrad_detection.task import ROW
from rankgrad_workbench.files import elsewhere

HERE = Package(Path(__file__).parents[1], __version__)


def test_the_package_has_the_version_licence_and_addresses_of_the_library():
    HERE.check()


def test_every_entry_point_can_be_loaded_and_the_library_knows_its_name_for_its_hint():
    added = {kind: tuple(HERE.entries[f"rankgrad.{kind}s"]) for kind in ("command", "task")}
    assert added == elsewhere.DETECTION
    for plugin in HERE.plugins():
        if plugin.group != "configs":
            assert plugin.load() is ROW if plugin.group == "tasks" else callable(plugin.load().run)


def test_the_row_and_the_command_are_imported_without_torch():
    code = "import sys, rankgrad_detection.task, rankgrad_detection.command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path):
    HERE.check_wheel(tmp_path)
