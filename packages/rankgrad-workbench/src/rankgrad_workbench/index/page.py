"""A page of search results: each query and its results in one HTML file, which loads nothing and runs no script."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from ..datasets.base import read_image
from ..report.html.images import Images
from ..report.html.neighbours import Asked, Neighbour
from ..report.html.templates import write_page
from .query import Answer

SIDE = 160  # longest side of a stored picture in pixels; the page shows them at about 110


def write_answers(
    path: str | os.PathLike[str],
    answers: Sequence[Answer],
    *,
    title: str = "What is like these?",
    facts: Mapping[str, object] | None = None,
) -> Path:
    """Write the page. An existing file is replaced.

    A repeated picture is stored once. A file that cannot be read is shown by its name.

    Args:
        path: the file; its folder must exist.
        answers: from `query.find`.
        title: heading of the page.
        facts: name -> value, below the heading.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    images = Images(SIDE)

    def picture(file: Path) -> str | None:
        return images.get(file, partial(_read, file))

    def asked(file: Path | str) -> Asked:
        if isinstance(file, str):
            return Asked(None, "query", "", "", text=file)
        return Asked(picture(file), f"query {file.name}", file.name, "" if file.parent == Path() else str(file.parent))

    return write_page(
        path,
        "index/page.html",
        styles=["report/html/base.css", "report/html/neighbours.css", "index/page.css"],
        images=images,
        title=title,
        texts=any(hit.text is not None for answer in answers for hit in answer.hits),
        facts=[("queries", f"{len(answers):,}"), *(facts or {}).items()],
        threshold=next((answer.threshold for answer in answers if answer.threshold is not None), None),
        answers=[
            (
                asked(answer.query),
                answer.threshold is not None and not any(map(answer.alike, answer.hits)),
                [
                    Neighbour(
                        None if hit.text is not None else picture(hit.path),
                        hit.rank,
                        hit.score,
                        hit.class_name or (hit.name if hit.text is not None else ""),
                        str(hit.path),
                        answer.alike(hit),
                        file=Path(hit.name).name,
                        text=hit.text,
                    )
                    for hit in answer.hits
                ],
            )
            for answer in answers
        ],
    )


def _read(file: Path) -> Tensor | None:
    try:
        return read_image(file, 3)
    except OSError:  # moved or damaged since the index was made: the page shows only its name
        return None


__all__ = ["write_answers"]
