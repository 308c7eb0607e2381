"""A query and a strip of its nearest items. The macros of neighbours.html draw them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """A query.

    Attributes:
        picture: CSS class of its picture, see `images.Images`; None: no picture.
        spoken: description of the picture, for screen readers.
        name: its class or its name.
        detail: second line, such as its file.
        quality: metrics of its results.
        text: the query itself, if it is a text; it replaces the picture.
    """

    picture: str | None
    spoken: str
    name: str
    detail: str
    quality: str = ""
    text: str | None = None


@dataclass(frozen=True)
class Neighbour:
    """A retrieved item.

    Attributes:
        picture: as for a query.
        rank: 1 is the nearest.
        score: similarity to the query.
        name: its class.
        title: its full name, shown under the pointer.
        right: whether it is relevant; None: unknown.
        file: name of its file; empty: not shown.
        text: as for a query.
    """

    picture: str | None
    rank: int
    score: float
    name: str
    title: str
    right: bool | None = None
    file: str = ""
    text: str | None = None
