"""The pages of the reference name what is there: each module, class and function that a directive asks for."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.rst"))
DIRECTIVE = re.compile(r"^\.\. (auto\w+|currentmodule):: ([\w.]+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_everything_that_a_page_of_the_reference_lists_is_there(page):
    module = ""
    for kind, name in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
        full = name if "." in name else f"{module}.{name}"  # a bare name is one of the module above
        pkgutil.resolve_name(full)
        module = full if kind in ("automodule", "currentmodule") else module


def test_a_name_that_is_gone_is_noticed():
    with pytest.raises(AttributeError):
        pkgutil.resolve_name("rankgrad.losses.nothing.Loss")
