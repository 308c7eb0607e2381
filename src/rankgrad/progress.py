"""A progress bar with the time left, drawn as often as where it goes can bear."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

SECONDS = 30.0  # between two lines of a file
SHORT = 2.0  # seconds: what takes no longer needs no bar


def bars_are_seen(stream: TextIO) -> bool:
    """Whether a line that is drawn again and again is one line there: on a terminal and in a notebook."""
    return stream.isatty() or "ipykernel" in sys.modules


def bar(things: Iterable[Any] | None = None, *, delay: float = SHORT, **options: Any) -> Any:
    """Return tqdm's bar on stderr: ten times a second on a terminal or in a notebook, every half minute into a file.

    Args:
        things: to go through; None: it is told how far it is by `update`.
        delay: seconds before it is drawn first; 0 where the first step alone may take minutes.
        options: of tqdm: desc, unit, total, initial, leave.

    Raises:
        ModuleNotFoundError: tqdm is not installed.
    """
    from tqdm import tqdm

    if not bars_are_seen(sys.stderr):
        # nothing is wiped from a file: its last line says how it ended
        options |= {"file": _Lines(sys.stderr), "mininterval": SECONDS, "maxinterval": SECONDS, "leave": True}
    return tqdm(things, delay=delay, **options)


class _Lines:
    """A file into which each drawing of a bar goes as a line of its own: what reads a log waits for its end."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> None:
        """Write what is drawn; what only moves or wipes the line is left out."""
        if text.strip():
            self.stream.write(f"{text.strip()}\n")


@contextmanager
def steps(
    total: int | None, what: str, unit: str, show: bool = True, delay: float = SHORT
) -> Iterator[Callable[[int], object]]:
    """What to call with the number of steps that have been done. A bar shows it; without tqdm, the numbers alone.

    Args:
        total: steps in all; None: nobody knows.
        what: is done.
        unit: of a step.
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
    """Go through things with a bar, see `steps`.

    >>> list(through([1, 2], "reading", "row"))
    [1, 2]
    """
    with steps(total, what, unit) as advance:
        for thing in things:
            yield thing
            advance(1)
