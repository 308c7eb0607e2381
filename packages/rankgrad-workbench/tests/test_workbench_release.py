"""What is published of this package: the version of the library, its command, all its files."""

from __future__ import annotations

from pathlib import Path

import pytest
from released import Package

from rankgrad_workbench._version import __version__

HERE = Package(Path(__file__).parents[1], __version__)


def test_the_package_has_the_version_licence_and_addresses_of_the_library():
    HERE.check()


def test_it_brings_the_command():
    assert HERE.project["scripts"] == {"rankgrad": "rankgrad_workbench.cli:main"}


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(tmp_path):
    HERE.check_wheel(tmp_path)
