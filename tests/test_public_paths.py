"""What documentation, examples and saved settings of the first version import can still be imported from there.

`public_paths.txt` was collected from that version: module:name for every import in a page or an example, and for every
`_target_` of its settings.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PATHS = (Path(__file__).parent / "public_paths.txt").read_text(encoding="utf-8").split()
ROOT = Path(__file__).parents[1] / "rankgrad"


@pytest.mark.parametrize("path", PATHS)
def test_an_import_that_was_shown_works(path):
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    assert not name or hasattr(found, name) or importlib.import_module(f"{module}.{name}")


def test_the_top_of_the_package_is_small():
    long = [path.name for path in ROOT.glob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 15]
    assert len(long) <= 18, long
