"""Tests of the workbench see no plug-in, whatever is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Switch plug-ins off while a file of these tests is read or run, in processes that it starts too."""
    with pytest.MonkeyPatch.context() as patch:
        # pytest asks about the tests of other folders too
        if path.is_relative_to(HERE):
            patch.setenv("RANKGRAD_PLUGINS", "none")
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Cases of `parametrize` are made here."""
    with alone(collector.path):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """A test with its fixtures."""
    with alone(item.path):
        return (yield)
