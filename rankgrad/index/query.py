"""Asking an index with pictures: image files -> what of the gallery is like them, as records and as text."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets.folder import find_images
from ..datasets.images import SkippedWarning, check_image, skipped_lines
from ..files import shown
from .builder import Index
from .embedder import Embedder


@dataclass(frozen=True)
class Hit:
    """One image that was found.

    Attributes:
        rank: 1 is the nearest.
        score: its similarity to the query; cosine, unless the index was built without normalisation.
        class_name: its class: the folder it lies in, "" at the top.
        name: its path relative to the gallery's folder.
        path: its file.
    """

    rank: int
    score: float
    class_name: str
    name: str
    path: Path


@dataclass(frozen=True)
class Answer:
    """What was found for one query, best first.

    Attributes:
        query: the file that was asked with.
        hits: the nearest images; the query itself is not among them.
    """

    query: Path
    hits: tuple[Hit, ...]


def find(queries: Sequence[str | Path], index: Index, k: int = 10, *, embedder: Embedder | None = None) -> list[Answer]:
    """The k images of a gallery that are most like each query.

    A query that lies in the gallery itself does not find itself: its own file is left out. A copy of it is not.

    Args:
        queries: image files, see `query_files`.
        index: of the gallery.
        k: images per query, >= 1.
        embedder: the model of the index, if it is loaded already; None: `index.embedder()`.

    Raises:
        ValueError: no queries, k < 1, another model than that of the index.
        FileNotFoundError: the model is not there.
        OSError: an image can't be read; it names the file.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k is the number of images to find, an integer >= 1; got {k!r}")
    paths = [Path(query) for query in queries]
    embedder = index.embedder() if embedder is None else embedder
    scores, rows = index.topk(embedder(paths), k + 1)
    return [
        Answer(path, _hits(index, path, k, zip(score, row, strict=True)))
        for path, score, row in zip(paths, scores.tolist(), rows.tolist(), strict=True)
    ]


def _hits(index: Index, query: Path, k: int, found: Iterable[tuple[float, int]]) -> tuple[Hit, ...]:
    own = query.resolve()
    hits: list[Hit] = []
    for score, row in found:
        if row < 0 or len(hits) == k:  # an approximate index may run out early
            break
        path = index.path(row)
        if path.resolve() != own:
            name = index.class_names[int(index.labels[row])]
            hits.append(Hit(len(hits) + 1, score, "" if name == "." else name, index.names[row], path))
    return tuple(hits)


def query_files(given: Sequence[str | Path]) -> list[Path]:
    """Image files to ask with: the files themselves, and all images below a folder.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a file that is no readable image, or a folder without one.

    Warns:
        SkippedWarning: files of a folder that can't be used.
    """
    files: list[Path] = []
    for entry in map(Path, given):
        if entry.is_dir():
            found, skipped = find_images(entry)
            if not found:
                raise ValueError("\n".join([f"no readable image below {shown(entry)}", *skipped_lines(skipped)]))
            if skipped:
                warnings.warn("\n".join(skipped_lines(skipped)), SkippedWarning, stacklevel=2)
            files += found
        elif not entry.exists():
            raise FileNotFoundError(f"no image or folder at {shown(entry)}")
        else:
            reason = check_image(entry)
            if reason is not None:
                raise ValueError(f"{shown(entry)} can't be asked with: {reason}")
            files.append(entry)
    return files


def as_text(answers: Sequence[Answer]) -> str:
    """A table for each query: rank, score, class, path.

    >>> print(as_text([Answer(Path("q.png"), (Hit(1, 0.9, "cat", "cat/3.png", Path("photos/cat/3.png")),))]))
    q.png
      rank   score  class  path
         1  0.9000  cat    photos/cat/3.png
    """
    lines: list[str] = []
    for answer in answers:
        names = [shown(hit.class_name) for hit in answer.hits]
        width = max([len("class"), *map(len, names)])
        lines += [*([""] if lines else []), shown(answer.query), f"  rank   score  {'class':{width}}  path"]
        lines += [
            f"  {hit.rank:4}  {hit.score:6.4f}  {name:{width}}  {shown(hit.path)}"
            for hit, name in zip(answer.hits, names, strict=True)
        ]
        if not answer.hits:
            lines.append("  nothing: the index holds no other image")
    return "\n".join(lines)


def as_records(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The answers as plain values, for json.

    >>> as_records([Answer(Path("q.png"), ())])
    [{'query': 'q.png', 'hits': []}]
    """
    return [
        {
            "query": str(answer.query),
            "hits": [
                {"rank": hit.rank, "score": hit.score, "class": hit.class_name, "path": str(hit.path)}
                for hit in answer.hits
            ],
        }
        for answer in answers
    ]


__all__ = ["Answer", "Hit", "as_records", "as_text", "find", "query_files"]
