"""A progress bar with the time left, drawn as often as where it goes can bear."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

SECONDS = 30.0  # between two lines of a file


def bars_are_seen(stream: TextIO) -> bool:
    """Whether a line that is drawn again and again is one line there: on a terminal and in a notebook."""
    return stream.isatty() or "ipykernel" in sys.modules


def bar(things: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return tqdm's bar on stderr: ten times a second on a terminal or in a notebook, every half minute into a file.

    Args:
        things: to go through; None: it is told how far it is by `update`.
        options: of tqdm: desc, unit, total, initial, leave.

    Raises:
        ModuleNotFoundError: tqdm is not installed.
    """
    from tqdm import tqdm

    often = {} if bars_are_seen(sys.stderr) else {"mininterval": SECONDS, "maxinterval": SECONDS}
    return tqdm(things, **often, **options)
