"""Searches an index with images or sentences. The results are records, text, json, or a page.

The page is one HTML file with each query and its results. It loads nothing and runs no script.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rankgrad.common.checks import integer, number
from rankgrad.common.text import aligned, shown

from ..datasets.base import read_image
from ..datasets.folder import find_images
from ..datasets.images import SkippedWarning, skipped_lines
from ..report.html.images import Asked, Images, Neighbour
from ..report.html.templates import write_page
from .embedder import Embedder
from .gallery import FEWEST, Index, Threshold

SIDE = 160  # longest side of a stored picture in pixels; the page shows them at about 110


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
            raise ValueError(f"this index has no threshold (it needs {FEWEST} held-out queries): give a number")
        min_score = index.threshold.score
    least = -math.inf if min_score is None else number(min_score, "min_score is a cosine, or auto")
    asked: list[Any] = [_sentence(query) if index.texts else Path(query) for query in queries]
    embedder = index.embedder() if embedder is None else embedder
    if index.texts:  # of the same model, smaller embeddings are the first columns
        vectors = (embedder.asked or embedder)(asked)[:, : index.dim]
    else:
        vectors = embedder(asked)
    scores, rows = index.topk(vectors, k + 1)
    return [
        Answer(query, _hits(index, query, k, least, zip(*found, strict=True)), index.threshold)
        for query, *found in zip(asked, scores.tolist(), rows.tolist(), strict=True)
    ]


def answers_of_run(
    run: Path, queries: Sequence[str], k: int = 10, *, trust: Sequence[str] = (), device: Any = "cpu"
) -> list[Answer]:
    """The documents of a run of task=search by the system that it hands over, see `tasks.search.system.System`.

    Args:
        run: folder of the run.
        queries: sentences.
        k: results per query, >= 1.
        trust: packages whose classes its settings may name.
        device: where texts are embedded.
    """
    from ..tasks.search.reading import beginning
    from ..tasks.search.system import System  # imports what trains, which no other query needs

    system = System.load(run, trust=trust, device=device, progress=True)
    found, documents = system(list(map(_sentence, queries)), k), system.documents

    def hit(rank: int, row: int, score: float) -> Hit:
        return Hit(rank, score, "", documents.names[row], run, beginning(documents.texts[row]))

    return [
        Answer(query, tuple(hit(at + 1, *each) for at, each in enumerate(zip(*lists, strict=True)) if each[0] >= 0))
        for query, *lists in zip(queries, found.document.tolist(), found.score.tolist(), strict=True)
    ]


def _sentence(query: str | Path) -> str:
    if not str(query).strip() or os.path.isfile(query):  # also for a sentence that is too long for a name
        raise ValueError(f"the index holds texts, so a query is a sentence; got {shown(query)!r}")
    return str(query)


def _hits(
    index: Index, query: str | Path, k: int, least: float, nearest: Iterable[tuple[float, int]]
) -> tuple[Hit, ...]:
    """The k nearest rows without the image that is the query."""
    own = query.resolve() if isinstance(query, Path) else None
    others = ((score, row) for score, row in nearest if own is None or index.path(row).resolve() != own)
    found = zip(range(1, k + 1), others, strict=False)
    return tuple(_hit(index, rank, score, row) for rank, (score, row) in found if score >= least)


def _hit(index: Index, rank: int, score: float, row: int) -> Hit:
    text = index.texts[row] if index.texts else None
    return Hit(rank, score, index.classes[row], index.names[row], index.path(row), text)


def query_files(given: Sequence[str | Path]) -> list[Path]:
    """The image files of a query: the given files, and all images below the given folders.

    Raises:
        FileNotFoundError: a file or folder does not exist.
        ValueError: a folder has no readable image.

    Warns:
        SkippedWarning: some files of a folder cannot be used.
    """
    files: list[Path] = []
    for entry in map(Path, given):
        if not entry.exists():
            raise FileNotFoundError(f"no image or folder at {shown(entry)}")
        images, skipped = find_images(entry) if entry.is_dir() else ((entry,), ())
        if not images:
            raise ValueError("\n".join([f"no readable image below {shown(entry)}", *skipped_lines(skipped)]))
        if skipped:
            warnings.warn("\n".join(skipped_lines(skipped)), SkippedWarning, stacklevel=2)
        files += images
    return files


def as_text(answers: Sequence[Answer]) -> str:
    """A table for each query: rank, score, class, path or text. Texts without classes are shown with their names.

    >>> print(as_text([Answer(Path("q.png"), (Hit(1, 0.9, "cat", "cat/3.png", Path("photos/cat/3.png")),))]))
    q.png
      rank  score   class  path
      1     0.9000  cat    photos/cat/3.png
    """
    parts = []
    for answer in answers:
        named = isinstance(answer.query, str) and not any(hit.class_name for hit in answer.hits)
        table = [
            [
                "rank",
                "score",
                "like?",
                "name" if named else "class",
                "path" if isinstance(answer.query, Path) else "text",
            ]
        ]
        for hit in answer.hits:
            like = {None: "", True: "yes", False: "no"}[answer.alike(hit)]
            name, what = hit.name if named else hit.class_name, hit.path if hit.text is None else hit.text
            table.append([f"{hit.rank}", f"{hit.score:.4f}", like, shown(name), shown(what)])
        if answer.threshold is None:
            table = [[*row[:2], *row[3:]] for row in table]
        lines = aligned(table, left=len(table[0])).split("\n")
        if answer.threshold is not None and not any(map(answer.alike, answer.hits)):
            lines.append("nothing like this: no result reaches the threshold")
        elif not answer.hits:
            lines.append("no results: the index holds nothing else with such a score")
        parts.append("\n  ".join([shown(answer.query), *lines]))
    parts += [f"threshold {answer.threshold}" for answer in answers[:1] if answer.threshold is not None]
    return "\n\n".join(parts)


def as_records(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The answers as plain values, for json.

    >>> as_records([Answer(Path("q.png"), ())])
    [{'query': 'q.png', 'threshold': None, 'hits': []}]
    """
    return [
        {
            "query": str(answer.query),
            "threshold": None if answer.threshold is None else answer.threshold.score,
            "hits": [
                {"class": hit.class_name, "path": str(hit.path), "like": answer.alike(hit)}
                | {name: getattr(hit, name) for name in ("rank", "score", "name", "text")}
                for hit in answer.hits
            ],
        }
        for answer in answers
    ]


def write_answers(
    path: str | os.PathLike[str], answers: Sequence[Answer], *, facts: Mapping[str, object] | None = None
) -> Path:
    """Write the page. An existing file is replaced.

    A repeated picture is stored once. A file that cannot be read is shown by its name.

    Args:
        path: the file; its folder must exist.
        answers: from `query.find`.
        facts: name -> value, below the heading.

    Returns:
        The path written.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    images = Images(SIDE)

    def picture(file: Path) -> str | None:
        with suppress(OSError):  # moved or damaged since the index was made: the page shows only its name
            return images.get(file, partial(read_image, file, 3))
        return None

    def asked(file: Path | str) -> Asked:
        if isinstance(file, str):
            return Asked(None, "query", "", "", text=file)
        return Asked(picture(file), f"query {file.name}", file.name, "" if file.parent == Path() else str(file.parent))

    def neighbour(hit: Hit, right: bool | None) -> Neighbour:
        seen = picture(hit.path) if hit.text is None else None
        name = hit.class_name or ("" if hit.text is None else hit.name)
        return Neighbour(seen, hit.rank, hit.score, name, str(hit.path), right, Path(hit.name).name, hit.text)

    return write_page(
        path,
        "index/page.html",
        styles=["report/html/base.css", "report/html/neighbours.css", "index/page.css"],
        images=images,
        title="What is like these?",
        texts=any(hit.text is not None for answer in answers for hit in answer.hits),
        facts=[("queries", f"{len(answers):,}"), *(facts or {}).items()],
        threshold=answers[0].threshold if answers else None,
        answers=[
            (
                asked(answer.query),
                answer.threshold is not None and not any(map(answer.alike, answer.hits)),
                [neighbour(hit, answer.alike(hit)) for hit in answer.hits],
            )
            for answer in answers
        ],
    )


__all__ = ["Answer", "Hit", "answers_of_run", "as_records", "as_text", "find", "query_files"]
