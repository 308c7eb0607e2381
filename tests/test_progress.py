"""A bar is drawn again and again where it is seen, and every half minute into a file."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace

import pytest

from rankgrad.common import progress

tqdm = pytest.importorskip("tqdm")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "notebook"), [(Terminal, False), (io.StringIO, True), (io.StringIO, False)])
def test_a_bar_is_for_terminals_and_notebooks(monkeypatch, stream, notebook):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    assert progress.bars_are_seen(stream()) is (notebook or stream is Terminal)


@pytest.mark.parametrize(("stream", "drawn"), [(Terminal, [1, 2, 3, 4, 5]), (io.StringIO, [2, 4, 5])])
def test_a_file_gets_a_line_every_half_minute(monkeypatch, stream, drawn):
    """Five steps of twenty seconds: on a terminal a line after each, in a file after two of them and at the end."""
    clock = [100.0]
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    shown = progress.bar(total=5, desc="runs", unit="run")
    for _ in range(5):
        clock[0] += 20
        shown.update()
    shown.close()
    lines = [line for line in re.split("[\r\n]", sys.stderr.getvalue()) if line.strip()]
    assert stream is Terminal or sys.stderr.getvalue().splitlines() == lines
    assert list(dict.fromkeys(int(line.split("/5")[0].split()[-1]) for line in lines)) == drawn


@pytest.mark.parametrize(("seconds", "seen"), [(0.3, False), (0.5, True)])
def test_what_is_over_within_two_seconds_has_no_bar(monkeypatch, seconds, seen):
    clock = [100.0]
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with progress.steps(5, "ranking", "query") as advance:
        for _ in range(5):
            clock[0] += seconds
            advance(1)
    assert ("ranking" in sys.stderr.getvalue()) is seen


def test_a_long_first_step_has_its_bar_from_the_beginning(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.steps(2, "k-means", "start", delay=0):
        assert "k-means:   0%" in sys.stderr.getvalue()


def test_without_tqdm_the_numbers_are_said(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("rankgrad.common.progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with progress.steps(3, "ranking", "query") as advance:
        for _ in range(3):
            clock[0] += 1.5
            advance(1)
    assert sys.stderr.getvalue() == "ranking: 2 / 3\n"
