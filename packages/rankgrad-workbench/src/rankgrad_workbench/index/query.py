"""Searches an index with images or sentences. The results are records, text or json."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rankgrad.common.checks import integer, number
from rankgrad.common.text import shown

from ..datasets.folder import find_images
from ..datasets.images import SkippedWarning, check_image, skipped_lines
from .embedder import Embedder
from .gallery import Index
from .threshold import FEWEST, Threshold


@dataclass(frozen=True)
class Hit:
    """One image or text in a result.

    Attributes:
        rank: 1 is the nearest.
        score: cosine to the query.
        class_name: its class, such as its folder; "" if it has none.
        name: its path relative to the gallery's folder.
        path: its file.
        text: the text; None for an image.
    """

    rank: int
    score: float
    class_name: str
    name: str
    path: Path
    text: str | None = None


@dataclass(frozen=True)
class Answer:
    """The result of one query, best first.

    Attributes:
        query: the image file, or the sentence.
        hits: the nearest rows, without the query itself if it is an image of the gallery.
        threshold: score below which a row is probably not like the query; None: unknown.
    """

    query: Path | str
    hits: tuple[Hit, ...]
    threshold: Threshold | None = None

    def alike(self, hit: Hit) -> bool | None:
        """Whether a hit reaches the threshold; None: there is none."""
        return None if self.threshold is None else hit.score >= self.threshold.score


def find(
    queries: Sequence[str | Path],
    index: Index,
    k: int = 10,
    *,
    embedder: Embedder | None = None,
    min_score: float | Literal["auto"] | None = None,
) -> list[Answer]:
    """The k images or texts of a gallery that are most similar to each query.

    If a query is a file of the gallery, this file is left out of its results. Copies of it are not.

    Args:
        queries: image files, see `query_files`; for an index of texts, sentences.
        index: of the gallery.
        k: results per query, >= 1.
        embedder: the model of the index, if it is loaded already; None: `index.embedder()`.
        min_score: leave out results with a lower score; "auto": the threshold of the index.

    Raises:
        ValueError: there are no queries, k < 1, the model is not that of the index, or the index has no threshold.
        FileNotFoundError: the model does not exist.
        OSError: an image cannot be read; it names the file.
    """
    k = integer(k, "k is the number of results per query", low=1)
    if min_score == "auto":
        if index.threshold is None:
            raise ValueError(
                "this index has no threshold, so min_score=auto (--min-score auto) cannot be used: give a number, or "
                "make the embeddings with rankgrad embed RUN, where the run kept the embeddings of held-out rows, and "
                f"at least {FEWEST} of these have a right item"
            )
        min_score = index.threshold.score
    least = -math.inf if min_score is None else number(min_score, "min_score is a cosine, or auto")
    find_all = _find_texts if index.texts else _find_images
    return [
        replace(answer, hits=tuple(hit for hit in answer.hits if hit.score >= least), threshold=index.threshold)
        for answer in find_all([*queries], index, k, embedder)
    ]


def _find_images(queries: list[str | Path], index: Index, k: int, embedder: Embedder | None) -> list[Answer]:
    """The k images of a gallery that are most similar to each image."""
    paths = [Path(query) for query in queries]
    embedder = index.embedder() if embedder is None else embedder
    embeddings, length = embedder(paths), k + 1
    while True:
        scores, rows = index.topk(embeddings, length)
        answers = [
            Answer(path, _hits(index, path, k, zip(score, row, strict=True)))
            for path, score, row in zip(paths, scores.tolist(), rows.tolist(), strict=True)
        ]
        # links to the query's file are left out too, so a list may need more rows
        if length >= len(index) or all(len(answer.hits) == k for answer in answers):
            return answers
        length *= 2


def _find_texts(given: list[str | Path], index: Index, k: int, embedder: Embedder | None) -> list[Answer]:
    """The k texts of a gallery that are most similar to each sentence."""
    queries = [str(query) for query in given]
    for query in queries:
        if not query.strip():
            raise ValueError("a query is empty; give a sentence")
        if os.path.isfile(query):  # also for a sentence that is too long for a name
            raise ValueError(f"the index holds texts, so a query is a sentence; {shown(query)} is a file")
    embedder = index.embedder() if embedder is None else embedder
    if embedder.model.inputs.takes != "texts":
        raise ValueError(f"the model of this index takes {embedder.model.inputs.takes}, not sentences")
    # of the same model, smaller embeddings are the first columns
    scores, rows = index.topk((embedder.asked or embedder)(queries)[:, : index.dim], k)
    nearest = zip(queries, scores.tolist(), rows.tolist(), strict=True)
    return [
        Answer(query, tuple(_hit(index, *place) for place in zip(range(1, k + 1), score, row, strict=False)))
        for query, score, row in nearest
    ]


def _hits(index: Index, query: Path, k: int, nearest: Iterable[tuple[float, int]]) -> tuple[Hit, ...]:
    """The k nearest images without the query itself."""
    own = query.resolve()
    others = ((score, row) for score, row in nearest if index.path(row).resolve() != own)
    return tuple(_hit(index, rank, *place) for rank, place in zip(range(1, k + 1), others, strict=False))


def _hit(index: Index, rank: int, score: float, row: int) -> Hit:
    text = index.texts[row] if index.texts else None
    return Hit(rank, score, index.classes[row], index.names[row], index.path(row), text)


def query_files(given: Sequence[str | Path]) -> list[Path]:
    """The image files of a query: the given files, and all images below the given folders.

    Raises:
        FileNotFoundError: a file or folder does not exist.
        ValueError: a file is not a readable image, or a folder has none.

    Warns:
        SkippedWarning: some files of a folder cannot be used.
    """
    files: list[Path] = []
    for entry in map(Path, given):
        if entry.is_dir():
            images, skipped = find_images(entry)
            if not images:
                raise ValueError("\n".join([f"no readable image below {shown(entry)}", *skipped_lines(skipped)]))
            if skipped:
                warnings.warn("\n".join(skipped_lines(skipped)), SkippedWarning, stacklevel=2)
            files += images
        elif not entry.exists():
            raise FileNotFoundError(f"no image or folder at {shown(entry)}")
        else:
            reason = check_image(entry)
            if reason is not None:
                raise ValueError(f"{shown(entry)} cannot be a query: {reason}")
            files.append(entry)
    return files


def as_text(answers: Sequence[Answer]) -> str:
    """A table for each query: rank, score, class, path or text. Texts without classes are shown with their names.

    >>> print(as_text([Answer(Path("q.png"), (Hit(1, 0.9, "cat", "cat/3.png", Path("photos/cat/3.png")),))]))
    q.png
      rank   score  class  path
         1  0.9000  cat    photos/cat/3.png
    """
    lines: list[str] = []
    for answer in answers:
        named = isinstance(answer.query, str) and not any(hit.class_name for hit in answer.hits)
        names = [shown(hit.name if named else hit.class_name) for hit in answer.hits]
        called = "name" if named else "class"
        width = max([len(called), *map(len, names)])
        what, item = ("text", "text") if isinstance(answer.query, str) else ("path", "image")
        words = {None: "", True: "  yes  ", False: "  no   "}
        head = "" if answer.threshold is None else "  like?"
        lines += [*([""] if lines else []), shown(answer.query), f"  rank   score{head}  {called:{width}}  {what}"]
        lines += [
            f"  {hit.rank:4}  {hit.score:6.4f}{words[answer.alike(hit)]}  {name:{width}}  "
            f"{shown(hit.path if hit.text is None else hit.text)}"
            for hit, name in zip(answer.hits, names, strict=True)
        ]
        if answer.threshold is not None and not any(answer.alike(hit) for hit in answer.hits):
            lines.append("  nothing like this: no result reaches the threshold")
        elif not answer.hits:
            lines.append(f"  no results: the index holds no other {item} with such a score")
    known = next((answer.threshold for answer in answers if answer.threshold is not None), None)
    return "\n".join([*lines, *([] if known is None else ["", f"threshold {known}"])])


def as_records(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The answers as plain values, for json.

    >>> as_records([Answer(Path("q.png"), ())])
    [{'query': 'q.png', 'hits': []}]
    """
    return [
        {
            "query": str(answer.query),
            **({} if answer.threshold is None else {"threshold": answer.threshold.score}),
            "hits": [
                {
                    "rank": hit.rank,
                    "score": hit.score,
                    "class": hit.class_name,
                    **({} if answer.threshold is None else {"like": answer.alike(hit)}),
                    **({"path": str(hit.path)} if hit.text is None else {"name": hit.name, "text": hit.text}),
                }
                for hit in answer.hits
            ],
        }
        for answer in answers
    ]


__all__ = ["Answer", "Hit", "as_records", "as_text", "find", "query_files"]
