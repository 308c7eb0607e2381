"""Which cases of a test run by default."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_unless(always: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """Cases for `parametrize`: those of `always` run in every run of the tests, the others in `make test-all`."""
    return [pytest.param(case, marks=() if case in always else pytest.mark.slow) for case in cases]


def slow(*cases: tuple[Any, ...]) -> list[Any]:
    """Cases of several arguments each, for `parametrize`, that run in `make test-all` alone."""
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]
