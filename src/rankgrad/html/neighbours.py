"""A strip of neighbours: a query, and what was found for it. Drawn by the macros of neighbours.html."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asked:
    """A query.

    Attributes:
        picture: the class that shows it, None if there is none; see `images.Images`.
        spoken: the picture in words.
        name: what it is.
        detail: more of its name.
        quality: what was measured of its answers.
        text: what stands in the place of the picture, where it is a text.
    """

    picture: str | None
    spoken: str
    name: str
    detail: str
    quality: str = ""
    text: str | None = None


@dataclass(frozen=True)
class Neighbour:
    """An item that was found.

    Attributes:
        picture: as of a query.
        rank: 1 is the nearest.
        score: its similarity.
        name: what it is.
        title: its whole name.
        right: is it relevant? None: nobody knows.
        file: its file's name, where it says more than what it is.
        text: as of a query.
    """

    picture: str | None
    rank: int
    score: float
    name: str
    title: str
    right: bool | None = None
    file: str = ""
    text: str | None = None
