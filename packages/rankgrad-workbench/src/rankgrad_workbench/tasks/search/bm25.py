"""BM25, the ranking by words that every search is compared with."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from rankgrad.common.checks import integer, number, one_of
from rankgrad.common.extras import missing

from .encoders import Found

# Scripts without spaces between words: Thai, Lao; Burmese; Khmer; Japanese and Chinese. Korean has spaces.
NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff"
NO_SPACES += "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"


#: Languages with stop words and stems. Chinese and Korean, for which there are no stems, are read as they are.
LANGUAGES = (
    *("dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish"),
    *("swedish", "turkish"),
)
SAMPLE, COMMON = 1000, 0.1  # documents that are looked at, and the share of stop words in a text of a language


@dataclass(frozen=True)
class Words:
    """How BM25 reads texts and weighs words.

    Attributes:
        language: of the stop words, which are left out, and of the stems; None: every word counts as it stands.
        k1: how much a word counts that is there often, >= 0. 1.5 is the default of bm25s.
        b: how much a long document is held back, 0 .. 1.

    >>> print(Words("english"))
    English stop words and stems, k1 1.5, b 0.75
    """

    language: str | None = None
    k1: float = 1.5
    b: float = 0.75

    def __post_init__(self) -> None:
        one_of(self.language, "language", (None, *LANGUAGES))
        number(self.k1, "k1 weighs repeated words", low=0)
        number(self.b, "b is a share", low=0, high=1)

    def __str__(self) -> str:
        read = f"{self.language.title()} stop words and stems" if self.language else "words as they stand"
        return f"{read}, k1 {self.k1:g}, b {self.b:g}"


def bm25(
    queries: Sequence[str], documents: Sequence[str], depth: int = 100, how: Words | None = None, tokens: Any = None
) -> Found:
    """The documents with the highest BM25 for each query, by bm25s (Lucene's variant).

    What is counted are the `words` of a text, without the stop words and by the stems of a language.

    Args:
        queries: [query] texts.
        documents: [document] texts.
        depth: number of documents in a list. A document without a word of the query is in no list.
        how: language and constants; None: the language of the documents, and the defaults.
        tokens: those of the documents, from `tokens_of` with the same language; None: they are made.

    Raises:
        ModuleNotFoundError: bm25s or PyStemmer is not installed.

    >>> found = bm25(["red foxes"], ["a red fox", "a red house", "a dog"], depth=3, how=Words("english"))
    >>> found.document
    array([[ 0,  1, -1]])
    """
    bm25s, how = _package("bm25s"), Words(language_of(documents)) if how is None else how
    depth = min(integer(depth, "depth is a number of documents", low=1), len(documents))
    counted = tokens_of(documents, how.language) if tokens is None else tokens
    if not counted.vocab:  # no document has a word
        return Found(np.full((len(queries), depth), -1), np.zeros((len(queries), depth)))
    index = bm25s.BM25(k1=how.k1, b=how.b)
    index.index(counted, show_progress=False)
    asked = tokens_of(queries, how.language, return_ids=False)
    rows, score = index.retrieve(asked, k=depth, show_progress=False, sorted=True)
    order = np.lexsort((rows, -score))  # of equal scores the lower row comes first, with any number of threads
    rows, score = (np.take_along_axis(each, order, 1) for each in (rows.astype(np.int64), score.astype(np.float64)))
    return Found(np.where(score > 0, rows, -1), score)


def tokens_of(texts: Sequence[str], language: str | None, **more: Any) -> Any:
    """The words of texts as bm25s counts them: stems, without the stop words of a language."""
    reading: dict[str, Any] = {"token_pattern": r"\S+", "lower": False, "show_progress": False, **more}
    reading["stopwords"] = stop_words(language) if language else []
    reading["stemmer"] = _package("Stemmer").Stemmer(language) if language else None
    return _package("bm25s").tokenize((" ".join(words(text)) for text in texts), **reading)


def stop_words(language: str) -> list[str]:
    """The stop words of a language, one of `LANGUAGES`: those of NLTK, of English those of Lucene, as in bm25s."""
    name = "EN" if language == "english" else language.upper()
    return list(getattr(_package("bm25s.stopwords"), f"STOPWORDS_{name}"))


def language_of(texts: Sequence[str]) -> str | None:
    """The language whose stop words are most frequent in the texts; None: none has a share of `COMMON`.

    >>> language_of(["the cat is on the mat"]), language_of(["die Katze ist auf der Matte"]), language_of(["手机壳"])
    ('english', 'german', None)
    """
    step = max(len(texts) // SAMPLE, 1)
    seen = Counter(word for text in texts[::step] for word in words(text))
    shares = {name: sum(seen[word] for word in stop_words(name)) for name in LANGUAGES}
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] > COMMON * seen.total() else None


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(missing(str(error.name)), name=error.name) from None


def words(text: str) -> list[str]:
    """Words of two or more letters or digits, in lower case; and the pairs of characters of scripts without spaces.

    >>> words("A red FOX"), words("iPhone手机壳"), words("मानक"), words("한국어 검색")
    (['red', 'fox'], ['iphone', '手机', '机壳'], ['मानक'], ['한국어', '검색'])
    """
    if text.isascii():  # many times as fast
        return re.findall(r"\w\w+", text.lower())
    found = []
    for run, word in _pattern().findall(unicodedata.normalize("NFKC", text).lower()):
        found += [word] if word else [run[at : at + 2] for at in range(max(len(run) - 1, 1))]
    return found


@cache
def _pattern() -> re.Pattern[str]:
    """(a run of a script without spaces; a word of another one). The vowel signs of a script belong to its words."""
    marks = "".join(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"([{NO_SPACES}]+)|((?:(?![{NO_SPACES}])[\w{marks}]){{2,}})")


__all__ = ["LANGUAGES", "Words", "bm25", "language_of", "tokens_of", "words"]
