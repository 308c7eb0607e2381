"""A bar is drawn again and again where it is seen, and every half minute into a file."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from rankgrad import progress

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


@pytest.mark.parametrize(("stream", "drawn"), [(Terminal, [0, 1, 2, 3, 4, 5]), (io.StringIO, [0, 2, 4, 5])])
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
    lines = [line for line in sys.stderr.getvalue().split("\r") if line.strip()]
    assert list(dict.fromkeys(int(line.split("/5")[0].split()[-1]) for line in lines)) == drawn
