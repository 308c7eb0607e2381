"""JSON, and lines of JSON. Errors name the line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankgrad.common.text import shown

from .text import opened_text


def parsed(text: bytes | str, place: str) -> Any:
    """A value of JSON, in whose objects no name is repeated.

    Args:
        text: bytes are in UTF-8, with or without a byte order mark.
        place: of the text, for messages.

    Raises:
        ValueError: it is not JSON.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{shown(twice)!r} is in an object twice")
        return content

    try:
        return json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text, object_pairs_hook=once)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not JSON: {error}") from None


def lines_of_objects(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, object) of each line of a jsonl; empty lines are skipped.

    Raises:
        ValueError: a line is not an object of JSON.
    """
    with opened_text(path) as file:  # whose lines may end in a carriage return alone
        for number, line in enumerate(file, 1):
            if line.strip():
                place = f"{shown(path)}, line {number}"
                yield number, need_object(parsed(line, place), place)


def need_object(value: Any, place: str) -> Mapping[str, Any]:
    """The value, if it is an object of JSON.

    Raises:
        ValueError: it is another value.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} must be an object with columns; got {type(value).__name__}")
    return value
