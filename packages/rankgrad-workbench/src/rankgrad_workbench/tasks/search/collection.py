"""Queries, documents and judgements of which belong together."""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from rankgrad.common.text import aligned

from ...datasets.fingerprint import of_texts

Array = npt.NDArray[Any]
SPLITS = ("train", "val", "test")


class StoredTexts(Sequence[str]):
    """Texts in a temporary file, for a corpus that is larger than memory: 8 bytes of each text are in memory.

    The file is in the folder of temporary files (TMPDIR), and goes when the object goes.

    >>> texts = StoredTexts()
    >>> for text in ("red", "", "fox"):
    ...     texts.append(text)
    >>> len(texts), texts[2], texts[:2]
    (3, 'fox', ['red', ''])
    """

    def __init__(self) -> None:
        self._file, self._ends = tempfile.TemporaryFile(), array("Q", [0])

    def append(self, text: str) -> None:
        """Add a text."""
        self._file.seek(self._ends[-1])
        self._ends.append(self._ends[-1] + self._file.write(text.encode("utf-8", "surrogatepass")))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[each] for each in range(len(self))[row]]
        start, end = self._ends[range(len(self))[row]], self._ends[range(len(self))[row] + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode("utf-8", "surrogatepass")

    def __del__(self) -> None:
        self._file.close()


def plain(text: str) -> str:
    """What two texts share if they differ only in capitals and white space."""
    return " ".join(text.lower().split())


def digest(text: str) -> int:
    """64 bits of a text, with which equal texts are found without keeping them."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(frozen=True, eq=False)
class NamedTexts:
    """Texts with names.

    Attributes:
        names: [text] all different.
        texts: [text].
        notes: what was left out, one sentence each.
    """

    names: Sequence[str]
    texts: Sequence[str]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, eq=False)
class Judged:
    """Judged pairs of a query and a document. A pair occurs once.

    Attributes:
        query: [pair] row of the query.
        document: [pair] row of the document.
        grade: [pair] float, >= 0; above 0: relevant.
        score: [pair] float, score of a teacher; NaN: none.
    """

    query: Array
    document: Array
    grade: Array
    score: Array

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: Array) -> Judged:
        """Some of the pairs, by indices or a mask."""
        return Judged(*(column[rows] for column in self.columns))

    @property
    def columns(self) -> tuple[Array, Array, Array, Array]:
        """Query, document, grade and score."""
        return self.query, self.document, self.grade, self.score

    @property
    def binary(self) -> bool:
        """Whether the grades are 0 and 1."""
        return bool(np.isin(self.grade, (0, 1)).all())


@dataclass(frozen=True, eq=False)
class Collection:
    """A collection to train and test a search on.

    Attributes:
        name: of the data.
        documents: the whole corpus.
        queries: all queries.
        judged: the judgements.
        split: [query] "train", "val", "test", or "" for a query that is not used.
        notes: what was left out, one sentence each.
        own: row of a query -> documents that are the query itself and are left out of its lists; see `itself`.
    """

    name: str
    documents: NamedTexts
    queries: NamedTexts
    judged: Judged
    split: Array
    notes: tuple[str, ...] = ()
    own: Mapping[int, Array] = field(default_factory=dict)

    def rows(self, split: str) -> Array:
        """[query] rows of the queries of a split that have a relevant document."""
        relevant = np.zeros(len(self.queries), bool)
        relevant[self.judged.query[self.judged.grade > 0]] = True
        return np.flatnonzero(relevant & (self.split == split))

    def pairs(self, split: str) -> Judged:
        """The judgements of the queries of a split."""
        return self.judged.take(self.split[self.judged.query] == split)

    def qrels(self, split: str) -> dict[str, dict[str, int]]:
        """Query -> document -> grade, for the queries of a split that have a relevant document."""
        kept = set(self.rows(split).tolist())
        found: dict[str, dict[str, int]] = {}
        part = self.pairs(split)
        for query, document, grade in zip(*map(np.ndarray.tolist, part.columns[:3]), strict=True):
            if query in kept:
                found.setdefault(self.queries.names[query], {})[self.documents.names[document]] = int(grade)
        return found

    def same_text(self) -> Array:
        """[document] a number that is equal for documents with the same text."""
        return np.unique(self._digests(), return_inverse=True)[1].reshape(-1)

    def _digests(self) -> Array:
        """[document] digest of its text."""
        return np.fromiter((digest(text.strip()) for text in self.documents.texts), np.uint64, len(self.documents))

    def fingerprint(self) -> dict[str, Any]:
        """Hashes of everything."""
        pairs = zip(*map(np.ndarray.tolist, self.judged.columns[:3]), strict=True)
        return {
            "documents": len(self.documents),
            "queries": len(self.queries),
            **of_texts("document texts", self.documents.texts),
            **of_texts("query texts", self.queries.texts),
            **of_texts("names", (*self.documents.names, *self.queries.names)),
            **of_texts("judgements", map(str, pairs)),
            **of_texts("splits", self.split.tolist()),
        }

    @property
    def most_own(self) -> int:
        """Largest number of documents that are the query itself."""
        return max(map(len, self.own.values()), default=0)

    def asked(self, *splits: str) -> set[str]:
        """The texts of the queries of some splits, without capitals and white space around."""
        return {plain(self.queries.texts[row]) for row in np.flatnonzero(np.isin(self.split, splits)).tolist()}

    def with_split(self, split: Array, *notes: str) -> Collection:
        """The same with other splits, and more notes."""
        return replace(self, split=split, notes=(*self.notes, *notes))

    def summary(self) -> str:
        """Counts, lengths and grades, what is wrong with the data, and the notes."""
        rows = [["split", "queries", "judgements", "relevant a query", "without a relevant one"]]
        for split in SPLITS:
            inside, counted, part = (self.split == split).sum(), len(self.rows(split)), self.pairs(split)
            if inside:
                each = (part.grade > 0).sum() / max(counted, 1)
                rows.append([split, f"{inside:,}", f"{len(part):,}", f"{each:.1f}", f"{inside - counted:,}"])
        grades = zip(*np.unique(self.judged.grade, return_counts=True), strict=True)
        lines = [
            f"{self.name}: {len(self.documents):,} documents ({_lengths(self.documents.texts)}), "
            f"{len(self.queries):,} queries ({_lengths(self.queries.texts)})",
            "judgements: " + ", ".join(f"{count:,} of grade {grade:g}" for grade, count in grades),
        ]
        return "\n".join([*lines, aligned(rows), *self.doubts()])

    def doubts(self) -> list[str]:
        """Sentences on documents that are empty or occur twice, and on queries in train and test; then the notes."""
        digests = self._digests()
        empty = int((digests == digest("")).sum())
        twice = len(digests) - len(np.unique(digests)) - max(empty - 1, 0)
        leaked = len(self.asked("train", "val") & self.asked("test"))
        said = {
            "documents without text, which are left out of the training": empty,
            "documents with the text of an earlier one; a copy of a relevant document is never a wrong answer": twice,
            "test queries with the text of a training query, which make the test easier": leaked,
        }
        return [*(f"{what}: {count:,}" for what, count in said.items() if count), *self.notes]


def _lengths(texts: Sequence[str]) -> str:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return f"median {np.median(lengths):.0f} characters, longest {lengths.max():,}"


__all__ = ["Collection", "Judged", "NamedTexts", "StoredTexts", "digest"]
