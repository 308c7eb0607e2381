"""A progress bar with the remaining time. In a file it is drawn less often than on a terminal."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

SECONDS = 30.0  # seconds between two lines in a file
SHORT = 2.0  # seconds; shorter work has no bar


def bars_are_seen(stream: TextIO) -> bool:
    """Whether a bar can be redrawn in place: on a terminal and in a notebook."""
    return stream.isatty() or "ipykernel" in sys.modules


def bar(things: Iterable[Any] | None = None, *, delay: float = SHORT, **options: Any) -> Any:
    """A bar of tqdm on stderr, drawn ten times a second on a terminal or in a notebook, every 30 seconds in a file.

    Args:
        things: things to iterate over; None: the caller calls `update`.
        delay: seconds before the bar is first drawn; use 0 if the first step may take minutes.
        options: options of tqdm: desc, unit, total, initial, leave.

    Raises:
        ModuleNotFoundError: tqdm is not installed.
    """
    from tqdm import tqdm

    if not bars_are_seen(sys.stderr):
        # a file keeps all lines; the last one shows the end
        options |= {"file": _Lines(sys.stderr), "mininterval": SECONDS, "maxinterval": SECONDS, "leave": True}
    return tqdm(things, delay=delay, **options)


class _Lines:
    """A file in which each drawing of a bar is a line of its own, because readers of a log wait for the line end."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> None:
        """Write the drawing, without characters that only move the cursor or clear the line."""
        if text.strip():
            self.stream.write(f"{text.strip()}\n")


@contextmanager
def steps(
    total: int | None, what: str, unit: str, show: bool = True, delay: float = SHORT
) -> Iterator[Callable[[int], object]]:
    """A context that gives a function to call with the number of new steps. A bar shows them; without tqdm, a number.

    Args:
        total: total number of steps; None: unknown.
        what: the work, such as "searching".
        unit: name of a step.
        show: False: no bar.
        delay: see `bar`.
    """
    if not show:
        yield lambda count: None
    elif importlib.util.find_spec("tqdm") is not None:
        with bar(total=total, desc=what, unit=unit, leave=False, delay=delay) as shown:
            yield shown.update
    else:
        done, said = 0, time.monotonic()

        def advance(count: int) -> None:
            nonlocal done, said
            done += count
            if time.monotonic() - said >= (SHORT if bars_are_seen(sys.stderr) else SECONDS):
                said = time.monotonic()
                print(f"{what}: {done} / {total or '?'}", file=sys.stderr, flush=True)

        yield advance


def through(things: Iterable[T], what: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Iterate over things with a bar, see `steps`.

    >>> list(through([1, 2], "reading", "row"))
    [1, 2]
    """
    with steps(total, what, unit) as advance:
        for thing in things:
            yield thing
            advance(1)
