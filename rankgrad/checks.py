"""Checks of arguments that every room needs: a whole number, a name that is close to a known one."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable

import torch


def integer(value: object, what: str, low: int | None = None, high: int | None = None) -> int:
    """The value as an int, if it is one: of Python, of numpy, or a tensor without dimensions. True and 2.0 are none.

    Args:
        value: what a caller gave.
        what: how the message begins: the argument and what it counts.
        low: the least that is allowed.
        high: the most that is allowed.

    Raises:
        ValueError: it is no integer, or not in the range.

    >>> integer(3, "k counts items", low=1)
    3
    >>> integer(True, "k counts items", low=1)
    Traceback (most recent call last):
        ...
    ValueError: k counts items and must be an integer >= 1; got True
    """
    found: int | None
    try:
        # numpy and torch have booleans of their own, which torch would take for 0 and 1
        number = not isinstance(value, bool) and getattr(value, "dtype", None) != torch.bool
        number = number and getattr(value, "ndim", 0) == 0
        found = operator.index(value) if number else None  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError, RuntimeError):
        found = None
    if found is None or (low is not None and found < low) or (high is not None and found > high):
        allowed = {
            (False, False): "",
            (True, False): f" >= {low}",
            (False, True): f" <= {high}",
            (True, True): f" in {low} .. {high}",
        }[low is not None, high is not None]
        raise ValueError(f"{what} and must be an integer{allowed}; got {value!r}")
    return found


def closest(given: str, known: Iterable[str]) -> str:
    """How a message goes on after a name that is not known: with the closest known one, or with a full stop.

    >>> closest("smoothap", ["smooth_ap", "supap"])
    "; did you mean 'smooth_ap'?"
    >>> closest("xyz", ["smooth_ap", "supap"])
    '.'
    """
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."
